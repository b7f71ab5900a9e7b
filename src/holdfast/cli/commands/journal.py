"""``holdfast journal``: inspect the log of a store, or salvage a damaged one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.exit_codes import EXIT_FAILED
from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import json_option
from holdfast.cli.output import document, echo
from holdfast.model.errors import InvalidInput
from holdfast.model.plural import count_of

if TYPE_CHECKING:
    from holdfast.engines.journal.wal.disk import LocalDisk
    from holdfast.settings import Settings


@click.group("journal", cls=CommandGroup)
def journal_group() -> None:
    """Inspect the log of a store, or salvage a damaged one."""


@journal_group.command("verify")
@json_option
@click.pass_obj
def verify(context: CommandContext, *, as_json: bool) -> None:
    """Check every frame of log and snapshots, and every event; exit 1 if anything is damaged."""
    from holdfast.engines.journal import inspection  # noqa: PLC0415 - reads everything

    settings = context.settings()
    report = inspection.verify(_disk(settings))
    if as_json:
        document(report)
    else:
        end = "closed cleanly" if report.closed_in_order else "not closed"
        events = f"{count_of(report.events, 'event')}, " if report.events else ""
        echo(
            f"{settings.store_shown}: {count_of(len(report.segments), 'segment')}, "
            f"{count_of(len(report.snapshots), 'snapshot')}, "
            f"{count_of(report.records, 'record')} (seq {report.first_seq} to {report.last_seq}), "
            f"{count_of(report.jobs)}, {events}{end}"
        )
        if report.kept_segments:
            kept = count_of(len(report.kept_segments), "segment")
            echo(f"kept for debugging (keep_log_bytes): {kept}")
        if report.torn_bytes:
            echo(f"{report.torn_bytes} bytes at the end are an unfinished write, not damage")
        for problem in report.problems:
            echo(f"damaged: {problem}")
        if report.problems:
            echo("`holdfast journal salvage NEW_DIRECTORY` copies what is intact")
        else:
            echo("intact")
    if report.problems:
        raise SystemExit(EXIT_FAILED)


@journal_group.command("dump")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("--ndjson", is_flag=True, help="The same as --json.")
@click.option("--snapshot", is_flag=True, help="Print the state at the end of the log.")
@click.pass_obj
def dump(context: CommandContext, *, as_json: bool, ndjson: bool, snapshot: bool) -> None:
    """Print every record of the log, or the state that they lead to."""
    from holdfast.engines.journal import inspection  # noqa: PLC0415
    from holdfast.operations.views import JobView  # noqa: PLC0415

    settings = context.settings()
    disk = _disk(settings)
    if snapshot:
        found = inspection.dump_state(disk)
        fields = {
            name: [JobView.of(job) for job in value] if isinstance(value, list) else value
            for name in found.__struct_fields__
            for value in [getattr(found, name)]
        }
        document(fields)
        return
    for record in inspection.dump(disk):
        if as_json or ndjson:
            document(record)
        else:
            when = datetime.fromtimestamp(record.timestamp, UTC).isoformat(timespec="milliseconds")
            echo(f"{record.seq:>8}  {when}  {record.type:<9} {record.job_id}")


@journal_group.command("salvage")
@click.argument("target", metavar="NEW_DIRECTORY")
@json_option
@click.pass_obj
def salvage(context: CommandContext, target: str, *, as_json: bool) -> None:
    """Copy everything that is intact to a new directory. The damaged one is not changed."""
    from holdfast.engines.journal import inspection  # noqa: PLC0415
    from holdfast.engines.journal.wal.disk import LocalDisk  # noqa: PLC0415

    if not target or "\0" in target:
        raise InvalidInput("target", f"{target!r} is not a directory")
    report = inspection.salvage(_disk(context.settings()), LocalDisk(target))
    if as_json:
        document(report)
        return
    for name, value in msgspec.to_builtins(report).items():
        echo(f"{name + ':':<20}{value}")


def _disk(settings: Settings) -> LocalDisk:
    from holdfast.engines.journal.wal.disk import LOG, SNAPSHOTS  # noqa: PLC0415
    from holdfast.stores.opening import open_disk  # noqa: PLC0415

    if settings.directory is None:
        raise InvalidInput("store", f"{settings.store_shown!r} has no log")
    disk = open_disk(settings)
    if not disk.names(LOG) and not disk.names(SNAPSHOTS):
        # Most likely this is the wrong directory.
        raise InvalidInput("store", f"there is no log in {settings.store_shown}")
    return disk
