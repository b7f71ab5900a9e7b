"""``holdfast audit``: who did what, when and why."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from holdfast.cli.exit_codes import EXIT_FAILED
from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import json_option, stream_options
from holdfast.cli.output import cut, document, lines, moment, note, progress, table
from holdfast.model.errors import InvalidInput
from holdfast.model.search import MAX_PAGE

if TYPE_CHECKING:
    from holdfast.model.audit import AuditHead
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
@click.option("--by", "user", metavar="NAME", help="By this person.")
@click.option("--action", metavar="NAME", help="Of this action, such as job.replay.")
@click.option("--resource", metavar="ID", help="On this job, queue, flag or schedule.")
@stream_options
@click.pass_obj
def list_audit(
    context: CommandContext,
    *,
    after: int,
    limit: int,
    user: str | None,
    action: str | None,
    resource: str | None,
    as_json: bool,
    ndjson: bool,
) -> None:
    """List what people did, oldest first."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    def fits(one: AuditView) -> bool:
        return (
            (user is None or one.user_id == user)
            and (action is None or one.action == action)
            and (resource is None or one.resource_id == resource)
        )

    async def read(operations: Operations) -> list[AuditView]:
        found: list[AuditView] = []
        last = after
        while len(found) < limit:
            page = await operations.audit(after=last, limit=MAX_PAGE)
            found += [one for one in page if fits(one)]
            if len(page) < MAX_PAGE:
                break
            last = page[-1].number
        return found[:limit]

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


@audit_group.command("verify")
@click.option("--head", metavar="COUNT:HASH", help="An earlier head that must be in the chain.")
@json_option
@click.pass_obj
def verify_audit(context: CommandContext, *, head: str | None, as_json: bool) -> None:
    """Verify the chain of hashes; exit 1 if an entry was altered, removed or inserted.

    Store the head in another place: with --head, no change before it goes unnoticed.
    """
    from holdfast.cli import store_access  # noqa: PLC0415

    expected = None if head is None else _head_of(head)
    with progress("audit", None, wanted=not as_json) as on_progress:
        found, problem = store_access.read_store(
            context.settings(), lambda operations: operations.verify_audit(on_progress)
        )
    if not problem and expected is not None:
        problem = store_access.read_store(
            context.settings(), lambda operations: _missing(operations, expected)
        )
    if as_json:
        document({"whole": not problem, "count": found.count, "head": found.hash, "said": problem})
    elif problem:
        click.echo(f"altered after entry {found.count}: {problem}")
    else:
        click.echo(f"intact: {found.count} entries; head {found.count}:{found.hash}")
    if problem:
        raise SystemExit(EXIT_FAILED)


def _head_of(text: str) -> AuditHead:
    from holdfast.model.audit import AuditHead  # noqa: PLC0415

    found = re.fullmatch(r"([0-9]{1,15}):([0-9a-f]{64})?", text.strip())
    if found is None:
        raise InvalidInput("--head", f"{text[:80]!r} is not a head as `audit verify` prints it")
    return AuditHead(int(found[1]), found[2] or "")


async def _missing(operations: Operations, expected: AuditHead) -> str:
    """Return what is wrong if this head is not part of the chain."""
    if not expected.count:
        return ""
    found = await operations.audit(after=expected.count - 1, limit=1)
    if not found or found[0].number != expected.count:
        return f"there is no entry {expected.count}: entries were removed"
    if found[0].hash != expected.hash:
        return f"entry {expected.count} does not match the given head"
    return ""
