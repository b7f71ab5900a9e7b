"""``holdfast journal``: the doctor's commands."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from holdfast.engines.journal import doctor
from holdfast.engines.journal.disk import LOG, SNAPSHOTS, LocalDisk
from holdfast.model.errors import InvalidInput
from holdfast.runtime.operations import JobView
from holdfast.settings import Settings


def verify(settings: Settings, *, as_json: bool) -> int:
    """Print what is there and what is damaged; return the exit code."""
    report = doctor.verify(_disk(settings))
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        click.echo(
            f"{settings.store}: {len(report.segments)} segments, {len(report.snapshots)} "
            f"snapshots, {report.records} records (seq {report.first_seq} to {report.last_seq}), "
            f"{report.jobs} jobs, {'closed in order' if report.closed_in_order else 'left open'}"
        )
        if report.torn_bytes:
            click.echo(f"{report.torn_bytes} bytes at the end were never finished: not damage")
        for problem in report.problems:
            click.echo(f"damaged: {problem}")
        if report.problems:
            click.echo("`holdfast journal salvage NEW_DIRECTORY` copies out what is whole")
        else:
            click.echo("whole")
    return 1 if report.problems else 0


def dump(settings: Settings, *, as_json: bool, snapshot: bool) -> None:
    """Print the records of the log, or the newest snapshot."""
    disk = _disk(settings)
    if snapshot:
        found = doctor.dump_snapshot(disk)
        if found is None:
            raise InvalidInput("snapshot", f"{settings.store} has no snapshot yet")
        fields = {
            name: [JobView.of(job) for job in value] if isinstance(value, list) else value
            for name in found.__struct_fields__
            for value in [getattr(found, name)]
        }
        click.echo(msgspec.json.encode(fields))
        return
    for record in doctor.dump(disk):
        if as_json:
            click.echo(msgspec.json.encode(record))
        else:
            when = datetime.fromtimestamp(record.timestamp, UTC).isoformat(timespec="milliseconds")
            click.echo(f"{record.seq:>8}  {when}  {record.type:<9} {record.job_id}")


def salvage(settings: Settings, target: str, *, as_json: bool) -> None:
    """Copy what is whole into a new directory."""
    report = doctor.salvage(_disk(settings), LocalDisk(target))
    if as_json:
        click.echo(msgspec.json.encode(report))
        return
    for name, value in msgspec.to_builtins(report).items():
        click.echo(f"{name + ':':<20}{value}")


def _disk(settings: Settings) -> LocalDisk:
    if settings.directory is None:
        raise InvalidInput("store", f"{settings.store!r} has no log")
    disk = LocalDisk(settings.directory, snapshots=settings.snapshot_directory)
    if not disk.names(LOG) and not disk.names(SNAPSHOTS):
        # Nothing would be whole, and nothing to save: most likely it is another directory.
        raise InvalidInput("store", f"there is no log in {settings.store}")
    return disk
