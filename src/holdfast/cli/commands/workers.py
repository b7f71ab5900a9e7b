"""``holdfast workers``: leases, running attempts and slots."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import json_option, stream_options, who_options
from holdfast.cli.output import ago, count_of, document, lines, note, progress, table
from holdfast.model.durations import format_seconds, seconds_of
from holdfast.model.errors import Unavailable
from holdfast.model.job import check_id

if TYPE_CHECKING:
    from holdfast.operations.attribution import Author
    from holdfast.operations.views import Status
    from holdfast.settings import Settings

_POLL_SECONDS = 0.1


@click.group("workers", cls=CommandGroup)
def workers_group() -> None:
    """List workers, resize, drain and resume them."""


@workers_group.command("list")
@stream_options
@click.pass_obj
def list_workers(context: CommandContext, *, as_json: bool, ndjson: bool) -> None:
    """List every worker that holds leases, and the daemon's slots and running attempts."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    from .status import read_status  # noqa: PLC0415

    settings = context.settings()
    found = store_access.read_store(settings, lambda operations: operations.workers())
    here = read_status(settings)
    if as_json:
        shown = ("slots", "processes", "draining", "running")
        document({"workers": found} | {name: getattr(here, name) for name in shown})
        return
    if ndjson:
        lines(found)
        return
    if here.slots:
        slots = ", ".join(f"{queue or 'all queues'}: {size}" for queue, size in here.slots.items())
        drained = " (draining: it claims nothing)" if here.draining else ""
        click.echo(f"slots: {slots}{_in_each(here)}{drained}")
    if found:
        table(
            ("WORKER", "LEASES", "OLDEST", "FIRST ENDS", "TASKS"),
            [
                (
                    one.worker,
                    one.leases,
                    ago(one.oldest_claim_at),
                    ago(one.first_lease_ends_at),
                    ", ".join(f"{task} {count}" for task, count in one.tasks.items()),
                )
                for one in found
            ],
            right=("LEASES",),
        )
    else:
        note("no leases")
    if here.running:
        table(
            ("RUNNING", "TASK", "QUEUE", "ATTEMPT", "FOR", "PROGRESS"),
            [
                (
                    run.job_id,
                    run.task,
                    run.queue,
                    run.attempt,
                    format_seconds(round(run.seconds, 1)),
                    ("" if run.progress_share is None else f"{run.progress_share:.0%} ")
                    + run.progress_note,
                )
                for run in here.running
            ],
            right=("ATTEMPT", "FOR"),
        )


@workers_group.command("resize")
@click.argument("slots", type=click.IntRange(1, 10_000))
@click.option("--queue", default="", help="The slots reserved for this queue.")
@who_options
@json_option
@click.pass_obj
def resize(
    context: CommandContext, slots: int, *, queue: str, who: Callable[[], Author], as_json: bool
) -> None:
    """Change how many jobs each process of the daemon runs at once, until it restarts."""
    from holdfast.daemon.rpc.bodies import ResizeBody  # noqa: PLC0415

    if queue:
        check_id(queue, "--queue")
    settings = context.settings()
    found = _request(settings, "resize", msgspec.json.encode(ResizeBody(who(), slots, queue)))
    if as_json:
        document({"slots": found.slots, "processes": len(found.processes)})
    else:
        count = len(found.processes)
        each = f" in each of {count} processes" if count > 1 else ""
        click.echo(f"{queue or 'all queues'}: {count_of(slots, 'slot')}{each}")


@workers_group.command("drain")
@click.option("--wait", "patience", metavar="DURATION", help="How long to wait until nothing runs.")
@who_options
@json_option
@click.pass_obj
def drain(
    context: CommandContext, *, patience: str | None, who: Callable[[], Author], as_json: bool
) -> None:
    """Make the daemon stop claiming; running jobs continue, and the daemon stays up.

    `workers resume` or a restart ends it.
    """
    wait_seconds = 0.0 if patience is None else seconds_of("--wait", patience)
    settings = context.settings()
    found = _drain(settings, who(), on=True)
    give_up = time.monotonic() + wait_seconds
    before = len(found.running)
    with progress("draining", before, wanted=not as_json) as on_progress:
        while not _drained(found) and time.monotonic() < give_up:
            on_progress(max(0, before - len(found.running)))
            time.sleep(_POLL_SECONDS)
            found = _ask_status(settings)
    if as_json:
        document({"draining": True, "running": found.running})
    else:
        click.echo(f"draining: no new jobs, {count_of(len(found.running))} still running")
    if found.running and wait_seconds:
        raise Unavailable(f"{count_of(len(found.running))} still running after {patience}")
    if wait_seconds and not _drained(found):
        raise Unavailable(
            f"some processes of the daemon do not drain after {patience}: "
            "see `holdfast workers list --json`"
        )


@workers_group.command("resume")
@who_options
@json_option
@click.pass_obj
def resume(context: CommandContext, *, who: Callable[[], Author], as_json: bool) -> None:
    """Make the daemon claim again after a drain."""
    found = _drain(context.settings(), who(), on=False)
    if as_json:
        document({"draining": found.draining, "running": found.running})
    else:
        click.echo("claiming again")


def _in_each(found: Status) -> str:
    """Return the number of slots in all processes, if there are several."""
    slots = [one.slots for one in found.processes.values() if one is not None]
    count = len(found.processes)
    if count < 2:
        return ""
    missing = "" if len(slots) == count else f", {count - len(slots)} not up yet"
    return f", in each of {count} processes ({sum(slots)} in total{missing})"


def _drained(found: Status) -> bool:
    """Whether nothing runs, and every process knows of the drain."""
    return not found.running and all(
        one is None or one.draining for one in found.processes.values()
    )


def _drain(settings: Settings, who: Author, *, on: bool) -> Status:
    from holdfast.daemon.rpc.bodies import DrainBody  # noqa: PLC0415

    return _request(settings, "drain", msgspec.json.encode(DrainBody(who, on)))


def _ask_status(settings: Settings) -> Status:
    return _request(settings, "status", b"", method="GET")


def _request(settings: Settings, what: str, body: bytes, method: str = "POST") -> Status:
    from holdfast.cli import store_access  # noqa: PLC0415
    from holdfast.daemon.rpc import OPERATIONS  # noqa: PLC0415
    from holdfast.operations.views import Status  # noqa: PLC0415

    store_access.require_persistent(settings)
    found = store_access.request_owner(settings, method, f"{OPERATIONS}{what}", body, Status)
    if found is None:
        raise Unavailable(
            f"no daemon runs on {settings.store_shown}: start one with `holdfast run`"
        )
    return found
