"""``holdfast audit``: who did what, when and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.exit_codes import EXIT_FAILED
from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import json_option, stream_options
from holdfast.cli.output import cut, document, echo, fields, lines, moment, note, progress, table
from holdfast.model.errors import InvalidInput
from holdfast.model.search import MAX_PAGE

if TYPE_CHECKING:
    from holdfast.model.audit import AuditFilter
    from holdfast.operations.operations import Operations
    from holdfast.operations.views import AuditView


@click.group("audit", cls=CommandGroup)
def audit_group() -> None:
    """List what people did, and verify that the record was not altered."""


@audit_group.command("list")
@click.option("--after", type=click.IntRange(0), default=0, help="After this number.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    help="How many at most.",
)
@click.option("--newest", is_flag=True, help="Newest first; --after N is then before N.")
@click.option("--by", multiple=True, metavar="NAME", help="By this person.")
@click.option(
    "--action",
    "actions",
    multiple=True,
    metavar="NAME",
    help="Such as job.replay; job. for all.",
)
@click.option("--type", "resource_type", metavar="TYPE", help="On a job, queue, flag, schedule, …")
@click.option(
    "--resource", "resource_id", metavar="ID", help="On this job, queue, flag or schedule."
)
@click.option("--tenant", metavar="NAME", help="On jobs of this tenant.")
@click.option("--since", "from_us", metavar="WHEN", help="At or after this date or age.")
@click.option("--until", "to_us", metavar="WHEN", help="Before this date or age.")
@click.option("--text", metavar="TEXT", help="With this in its reason.")
@stream_options
@click.pass_obj
def list_audit(
    context: CommandContext,
    /,
    *,
    after: int,
    limit: int,
    newest: bool,
    as_json: bool,
    ndjson: bool,
    **conditions: object,
) -> None:
    """List what people did, oldest first."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    wanted = _filter_of(conditions)

    async def read(operations: Operations) -> list[AuditView]:
        found: list[AuditView] = []
        last = after
        while len(found) < limit:
            size = min(limit - len(found), MAX_PAGE)
            page = await operations.audit(wanted, after=last, limit=size, newest=newest)
            found += page
            if len(page) < size:
                break
            last = page[-1].number
        return found

    found = store_access.read_store(context.settings(), read)
    if as_json:
        document(found)
    elif ndjson:
        lines(found)
    elif not found:
        note("no entries")
    else:
        table(
            ("#", "WHEN", "WHO", "WHAT", "TO", "WHY"),
            [
                (
                    one.number,
                    moment(one.timestamp),
                    one.user_id,
                    one.action,
                    one.resource_id or cut(bytes(one.changes).decode(), 40),
                    one.reason,
                )
                for one in found
            ],
            right=("#",),
        )


def _filter_of(conditions: Mapping[str, object]) -> AuditFilter:
    from holdfast.engines.clock import SystemClock  # noqa: PLC0415
    from holdfast.operations.named_audit_filter import NAMES, audit_filter_of  # noqa: PLC0415

    options = {field: f"--{name}" for name, field in NAMES.items()}
    try:
        return audit_filter_of(conditions, SystemClock().now_us())
    except InvalidInput as error:
        raise InvalidInput(options.get(error.field, error.field), error.problem) from None


@audit_group.command("show")
@click.argument("number", type=click.IntRange(1))
@json_option
@click.pass_obj
def show_audit(context: CommandContext, *, number: int, as_json: bool) -> None:
    """Show one entry: who did what and why, and what was changed."""
    from holdfast.cli import store_access  # noqa: PLC0415

    found = store_access.read_store(
        context.settings(), lambda operations: operations.audit(after=number - 1, limit=1)
    )
    if not found or found[0].number != number:
        raise InvalidInput("number", f"the audit has no entry {number}: see `holdfast audit list`")
    entry = found[0]
    if as_json:
        document(entry)
        return
    fields(
        [
            ("number", entry.number),
            ("when", moment(entry.timestamp)),
            ("who", entry.user_id),
            ("what", entry.action),
            ("on", f"{entry.resource_type} {entry.resource_id}".strip()),
            ("tenant", entry.tenant),
            ("why", entry.reason),
        ]
    )
    for line in _changes(entry):
        echo(line)


def _changes(entry: AuditView) -> Iterator[str]:
    """Yield the changes as lines: what was before with a minus, what is now with a plus."""
    changes = msgspec.json.decode(entry.changes, type=dict[str, object])
    before, after = changes.pop("before", None), changes.pop("after", None)
    for name, value in changes.items():
        yield f"{name + ': ':<15}{_text(value)}"
    old, new = (one if isinstance(one, dict) else {} for one in (before, after))
    for name in dict.fromkeys([*old, *new]):
        if name in old:
            yield f"- {name}: {_text(old[name])}"
        if name in new:
            yield f"+ {name}: {_text(new[name])}"


def _text(value: object) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@audit_group.command("verify")
@click.option("--head", metavar="COUNT:HASH", help="An earlier head that must be in the chain.")
@json_option
@click.pass_obj
def verify_audit(context: CommandContext, *, head: str | None, as_json: bool) -> None:
    """Verify the chain of hashes; exit 1 if an entry was altered, removed or inserted.

    Store the head in another place: with --head, no change before it goes unnoticed.
    """
    from holdfast.cli import store_access  # noqa: PLC0415
    from holdfast.operations.named_audit_filter import audit_head_of  # noqa: PLC0415

    try:
        expected = None if head is None else audit_head_of(head)
    except InvalidInput as error:
        raise InvalidInput("--head", error.problem) from None
    with progress("audit", None, wanted=not as_json) as on_progress:
        found, problem = store_access.read_store(
            context.settings(), lambda operations: operations.verify_audit(expected, on_progress)
        )
    if as_json:
        document({"whole": not problem, "count": found.count, "head": found.hash, "said": problem})
    elif problem:
        echo(f"altered after entry {found.count}: {problem}")
    else:
        echo(f"intact: {found.count} entries; head {found.count}:{found.hash}")
    if problem:
        raise SystemExit(EXIT_FAILED)
