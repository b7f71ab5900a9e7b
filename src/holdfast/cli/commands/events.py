"""``holdfast events``: append events from a file, look at them, correct one."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, TYPE_CHECKING

import click

from holdfast.cli.event_options import app_option, event_filter_options, read_report
from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import by_option, json_option, login_name, stream_options, who_options
from holdfast.cli.output import ago, document, echo, fields, lines, moment, note, table
from holdfast.model.visible_text import visible

if TYPE_CHECKING:
    from holdfast.model.event_search import EventFilter
    from holdfast.operations.attribution import Author
    from holdfast.operations.event_views import EventView
    from holdfast.operations.operations import Operations

_SENSITIVE = click.option(
    "--sensitive", is_flag=True, help="Show the values of sensitive fields too."
)


@click.group("events", cls=CommandGroup)
def events_group() -> None:
    """Append events, list and show them, and correct one."""


@events_group.command("append")
@click.option("-f", "--file", "file", type=click.File("rb"), default="-", help="Or - for stdin.")
@app_option
@click.option("--dry-run", is_flag=True, help="Check every event, and store none.")
@by_option
@click.option("--reason", metavar="TEXT", help="Why; it is recorded in the audit.")
@json_option
@click.pass_obj
def append_events(
    context: CommandContext,
    file: IO[bytes],
    *,
    app: str | None,
    dry_run: bool,
    by: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Append events from a file: a JSON array, one object, or an object per line.

    Each has event_type, payload, entity_id, actor_user_id (or actor_type and actor_id) and, if
    its type says so, before, after or diff; occurred_at, reason, request_id and others if
    wanted. The catalog checks them. Who imports them is recorded beside their actor.

    1,000 are stored in one commit. If an event is wrong, those 1,000 are not stored and the
    command ends; correct the file and run it again: what is there already is left as it is. An
    event without an id gets one that is made from what it says.
    """
    from holdfast.cli.event_import import check_file, import_file  # noqa: PLC0415
    from holdfast.model.audit import Attribution  # noqa: PLC0415
    from holdfast.operations.attribution import Author  # noqa: PLC0415
    from holdfast.projections.registry import declared  # noqa: PLC0415

    who = Author(login_name(by), "" if reason is None else reason)
    Attribution(who.by, "-" if reason is None else reason).check()
    catalog = read_report(context, app).checked()
    if dry_run:
        check_file(file, catalog, who, as_json=as_json)
    else:
        settings = context.settings()
        projections = declared(context.registry(app), settings).values()
        import_file(settings, file, catalog, projections, who, as_json=as_json)


@events_group.command("list")
@event_filter_options
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=50, help="How many (50).")
@click.option("--oldest", is_flag=True, help="Oldest first.")
@app_option
@_SENSITIVE
@stream_options
@click.pass_obj
def list_events(
    context: CommandContext,
    /,
    *,
    wanted: EventFilter,
    limit: int,
    oldest: bool,
    app: str | None,
    sensitive: bool,
    as_json: bool,
    ndjson: bool,
) -> None:
    """List events, newest first, each as the current version of its type."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine
    from holdfast.operations.events import EventOperations  # noqa: PLC0415

    catalog = read_report(context, app).checked()

    async def read(operations: Operations) -> list[EventView]:
        events = EventOperations(operations.engine, catalog)
        found: list[EventView] = []
        cursor = ""
        while len(found) < limit:
            page = await events.page(
                wanted,
                cursor=cursor,
                limit=min(limit - len(found), 1_000),
                newest=not oldest,
                reveal=sensitive,
            )
            found += page.events
            cursor = page.cursor
            if not cursor:
                break
        return found

    found = store_access.read_store(context.settings(), read)
    if as_json:
        document(found)
    elif ndjson:
        lines(found)
    elif not found:
        note("no events")
    else:
        table(
            ("ID", "OCCURRED", "TYPE", "ENTITY", "ACTOR", "WHAT HAPPENED"),
            [
                (
                    one.id,
                    ago(one.occurred_at),
                    one.event_type,
                    f"{one.entity_type}:{one.entity_id}",
                    one.actor_name or f"{one.actor_type}:{one.actor_id}",
                    one.problem or one.text,
                )
                for one in found
            ],
        )


@events_group.command("show")
@click.argument("event_id", metavar="ID")
@click.option("--tenant", default="default", metavar="NAME", help="Its tenant (default).")
@app_option
@_SENSITIVE
@json_option
@click.pass_obj
def show_event(
    context: CommandContext,
    event_id: str,
    *,
    tenant: str,
    app: str | None,
    sensitive: bool,
    as_json: bool,
) -> None:
    """Show one event: who did what to which entity, when and why, and its data."""
    from holdfast.cli import store_access  # noqa: PLC0415
    from holdfast.operations.events import EventOperations  # noqa: PLC0415

    catalog = read_report(context, app).checked()
    view = store_access.read_store(
        context.settings(),
        lambda operations: EventOperations(operations.engine, catalog).show(
            event_id, tenant, reveal=sensitive
        ),
    )
    if as_json:
        document(view)
    else:
        _print_event(view)


def _print_event(view: EventView) -> None:
    fields(
        [
            ("id", view.id),
            ("type", f"{visible(view.event_type)} version {view.version}"),
            ("what", visible(view.text)),
            ("problem", visible(view.problem)),
            ("entity", visible(f"{view.entity_type} {view.entity_id}")),
            ("actor", visible(f"{view.actor_type} {view.actor_id} {view.actor_name}".strip())),
            ("why", visible(view.reason)),
            ("occurred", moment(view.occurred_at)),
            ("stored", moment(view.created_at)),
            ("tenant", visible(view.tenant)),
            ("scope", visible(view.scope)),
            ("key", visible(view.key)),
            ("position", view.position),
            ("request", view.request_id),
            ("device", view.device),
            ("client", view.client),
            ("ip", view.ip),
            ("correlation", view.correlation_id),
            ("causation", view.causation_id),
            ("trace", view.trace_id),
            ("supersedes", view.supersedes),
            ("imported by", visible(view.imported_by)),
            ("payload", view.payload),
            ("before", view.before),
            ("after", view.after),
            ("diff", view.diff),
        ]
    )


@events_group.command("correct")
@click.argument("event_id", metavar="ID")
@click.option(
    "--set",
    "assignments",
    metavar="PATH=VALUE",
    multiple=True,
    help="Set payload.FIELD, before.FIELD or after.FIELD to a JSON value, or to a word.",
)
@click.option("--unset", "removals", metavar="PATH", multiple=True, help="Remove a field.")
@click.option("--tenant", default="default", metavar="NAME", help="Its tenant (default).")
@app_option
@who_options
@json_option
@click.pass_obj
def correct_event(
    context: CommandContext,
    event_id: str,
    *,
    assignments: tuple[str, ...],
    removals: tuple[str, ...],
    tenant: str,
    app: str | None,
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Correct an event by a new one that supersedes it.

    The stored event stays as it is. The new one says the same but for the fields that are
    given here, occurred at the same time, and names the old one; who and why are recorded.
    """
    from holdfast.cli import store_access  # noqa: PLC0415
    from holdfast.model.errors import InvalidInput  # noqa: PLC0415
    from holdfast.model.payload_paths import Assignment  # noqa: PLC0415
    from holdfast.operations.events import EventOperations  # noqa: PLC0415

    from .fixes import assignment_of  # noqa: PLC0415

    changes = (*map(assignment_of, assignments), *map(Assignment, removals))
    if not changes:
        raise InvalidInput("--set", "give something to change, such as --set payload.title=Ulysses")
    catalog = read_report(context, app).checked()
    asked = who()
    receipt = store_access.write_store(
        context.settings(),
        lambda operations: EventOperations(operations.engine, catalog).correct(
            event_id, changes, asked, tenant
        ),
    )
    if as_json:
        document(receipt)
    elif receipt.created:
        echo(f"{receipt.id} supersedes {event_id}")
    else:
        echo(f"{receipt.id} was there already: nothing was done")
