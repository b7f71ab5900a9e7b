"""``holdfast chronicle``: what happened, for people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from holdfast.cli.event_options import app_option, entry_filter_options, read_report
from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import json_option, stream_options
from holdfast.cli.output import cut, document, echo, fields, lines, moment, note, table
from holdfast.model.event_search import EventFilter
from holdfast.model.visible_text import visible

if TYPE_CHECKING:
    from holdfast.operations.chronicle import ChronicleOperations, StatsBy
    from holdfast.operations.chronicle_views import (
        ChronicleFilter,
        CountView,
        EntryPage,
        EntryView,
    )

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])
_SENSITIVE = click.option(
    "--sensitive", is_flag=True, help="Show the values of sensitive fields too."
)
_BAR = 30


def _page_options(command: F) -> F:
    """Add the options of a page."""
    for option in (
        click.option("--cursor", default="", metavar="TEXT", help="Go on, or back, from a page."),
        click.option("--oldest", is_flag=True, help="Oldest first."),
        click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="How many (50)."),
    ):
        command = option(command)
    return command


@click.group("chronicle", cls=CommandGroup)
def chronicle_group() -> None:
    """Look at what happened: list, show, count and search the entries of the chronicle."""


@chronicle_group.command("list")
@entry_filter_options
@_page_options
@app_option
@_SENSITIVE
@stream_options
@click.pass_obj
def list_entries(
    context: CommandContext,
    *,
    wanted: EventFilter,
    limit: int,
    oldest: bool,
    cursor: str,
    app: str | None,
    sensitive: bool,
    as_json: bool,
    ndjson: bool,
) -> None:
    """List entries, newest first by when it happened. Cursors of a page go on and back."""
    page = _ask(
        context,
        app,
        lambda chronicle: chronicle.page(
            _filter(wanted), cursor=cursor, limit=limit, newest=not oldest, reveal=sensitive
        ),
    )
    _print_page(page, as_json=as_json, ndjson=ndjson)


@chronicle_group.command("search")
@click.argument("text")
@entry_filter_options
@_page_options
@app_option
@_SENSITIVE
@stream_options
@click.pass_obj
def search_entries(
    context: CommandContext,
    text: str,
    *,
    wanted: EventFilter,
    limit: int,
    oldest: bool,
    cursor: str,
    app: str | None,
    sensitive: bool,
    as_json: bool,
    ndjson: bool,
) -> None:
    """Find entries by words of their text, reason, actor or entity.

    All words must be there, a word also as the beginning of a longer one. Chinese, Japanese and
    Korean words of two characters are found.
    """
    from holdfast.operations.chronicle_views import check_search  # noqa: PLC0415

    check_search(text)
    page = _ask(
        context,
        app,
        lambda chronicle: chronicle.page(
            _filter(wanted, text), cursor=cursor, limit=limit, newest=not oldest, reveal=sensitive
        ),
    )
    _print_page(page, as_json=as_json, ndjson=ndjson)


@chronicle_group.command("show")
@click.argument("event_id", metavar="ID")
@click.option("--tenant", default="default", metavar="NAME", help="Its tenant (default).")
@app_option
@_SENSITIVE
@json_option
@click.pass_obj
def show_entry(
    context: CommandContext,
    event_id: str,
    *,
    tenant: str,
    app: str | None,
    sensitive: bool,
    as_json: bool,
) -> None:
    """Show one entry: who did what, when, and what changed."""
    entry = _ask(context, app, lambda chronicle: chronicle.show(event_id, tenant, reveal=sensitive))
    document(entry) if as_json else _print_entry(entry)


@chronicle_group.command("stats")
@click.option(
    "--by",
    "groups",
    type=click.Choice(["day", "actor", "entity", "type"]),
    multiple=True,
    help="Count by this; may be repeated (all of them).",
)
@entry_filter_options
@click.option("--limit", type=click.IntRange(1, 998), default=10, help="How many of each (10).")
@app_option
@json_option
@click.pass_obj
def count_entries(
    context: CommandContext,
    *,
    groups: tuple[StatsBy, ...],
    wanted: EventFilter,
    limit: int,
    app: str | None,
    as_json: bool,
) -> None:
    """Count entries per day, actor, entity and type."""
    asked: tuple[StatsBy, ...] = groups or ("day", "actor", "entity", "type")

    async def count(
        chronicle: ChronicleOperations,
    ) -> tuple[dict[str, list[CountView]], list[str]]:
        found = {by: await chronicle.stats(by, _filter(wanted), limit=limit) for by in asked}
        return {str(by): one for by, one in found.items()}, await chronicle.notices()

    found, notices = _ask(context, app, count)
    if as_json:
        document({**found, "notices": notices})
        return
    for by, counts in found.items():
        _print_counts(by, counts)
    for one in notices:
        note(one)


def _ask(
    context: CommandContext, app: str | None, work: Callable[[ChronicleOperations], Awaitable[T]]
) -> T:
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine
    from holdfast.operations.chronicle import ChronicleOperations  # noqa: PLC0415

    catalog = read_report(context, app).checked()
    return store_access.read_store(
        context.settings(),
        lambda operations: work(ChronicleOperations(operations.engine, catalog)),
    )


def _filter(wanted: EventFilter, search: str = "") -> ChronicleFilter:
    from holdfast.operations.chronicle_views import ChronicleFilter  # noqa: PLC0415

    return ChronicleFilter.of(wanted, search)


def _print_page(page: EntryPage, *, as_json: bool, ndjson: bool) -> None:
    if as_json:
        document(page)
        return
    if ndjson:
        lines(page.entries)
    elif page.entries:
        table(
            ("OCCURRED", "ACTOR", "WHAT HAPPENED", "ENTITY", "ID"),
            [
                (
                    one.occurred_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),
                    cut(one.actor_name or f"{one.actor_type}:{one.actor_id}", 24),
                    one.text,
                    cut(f"{one.entity_type}:{one.entity_id}", 32),
                    one.id,
                )
                for one in page.entries
            ],
        )
    else:
        note("no entries")
    for one in page.notices:
        note(one)
    for name, cursor in (("next", page.next), ("previous", page.previous)):
        if cursor:
            note(f"{name} page: --cursor {cursor}")


def _print_entry(entry: EntryView) -> None:
    actor = f"{entry.actor_type}:{entry.actor_id}"
    fields(
        [
            ("what happened", visible(entry.text)),
            ("occurred", moment(entry.occurred_at)),
            ("actor", visible(f"{entry.actor_name} ({actor})" if entry.actor_name else actor)),
            ("entity", visible(f"{entry.entity_type}:{entry.entity_id}")),
            ("type", f"{entry.event_type}, version {entry.version}"),
            ("scope", visible(entry.scope)),
            ("tenant", entry.tenant if entry.tenant != "default" else ""),
            ("reason", visible(entry.reason or "")),
        ],
        width=17,
    )
    for line in changes(entry.before, entry.after):
        echo(f"  {line}")
    fields(
        [
            ("diff", entry.diff),
            ("payload", entry.payload or None),
            ("request", entry.request_id),
            ("correlation", entry.correlation_id),
            ("causation", entry.causation_id),
            ("trace", entry.trace_id),
            ("device", entry.device),
            ("client", entry.client),
            ("ip", entry.ip),
            ("supersedes", entry.supersedes),
            ("stored", moment(entry.created_at)),
            ("id", entry.id),
        ],
        width=17,
    )


def changes(before: object, after: object) -> list[str]:
    """Return what changed, a line for each field."""
    if not isinstance(before, Mapping) and not isinstance(after, Mapping):
        return [f"{_json(before)} → {_json(after)}"] if before is not None or after else []
    old = before if isinstance(before, Mapping) else {}
    new = after if isinstance(after, Mapping) else {}
    return [
        f"{visible(str(name))}: {_json(old[name]) if name in old else '—'} → "
        f"{_json(new[name]) if name in new else '—'}"
        for name in dict.fromkeys([*old, *new])
        if name not in old or name not in new or old[name] != new[name]
    ]


def _json(value: object) -> str:
    return cut(msgspec.json.encode(value).decode(), 120)


def _print_counts(by: str, counts: Sequence[CountView]) -> None:
    if not counts:
        return
    most = max(one.count for one in counts)
    table(
        (by.upper(), "COUNT", ""),
        [(one.name, f"{one.count:,}", "█" * max(1, one.count * _BAR // most)) for one in counts],
        right=("COUNT",),
    )
