"""``holdfast workers``: who holds leases, what runs, and how much of it at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import json_option, stream_options, who_options
from holdfast.cli.output import ago, count_of, document, lines, note, progress, table
from holdfast.model.durations import seconds_of, shown
from holdfast.model.errors import Unavailable
from holdfast.model.job import check_id

if TYPE_CHECKING:
    from holdfast.operations.operation_types import Author
    from holdfast.operations.views import Status
    from holdfast.settings import Settings

_LOOK_AGAIN_SECONDS = 0.1


@click.group("workers", cls=CommandGroup)
def workers_group() -> None:
    """Look at who works, resize them, or have them claim no more."""


@workers_group.command("list")
@stream_options
@click.pass_obj
def list_workers(context: CommandContext, *, as_json: bool, ndjson: bool) -> None:
    """List everybody who holds leases, and the slots and attempts of the daemon."""
    from holdfast.cli import store_access  # noqa: PLC0415 - with all that a store needs
    from holdfast.cli.commands.status import read_status  # noqa: PLC0415

    settings = context.settings()
    found = store_access.look(settings, lambda operations: operations.workers())
    here = read_status(settings)
    if as_json:
        document(
            {
                "workers": found,
                "slots": here.slots,
                "processes": here.processes,
                "draining": here.draining,
                "running": here.running,
            }
        )
        return
    if ndjson:
        lines(found)
        return
    if here.slots:
        slots = ", ".join(f"{queue or 'all queues'}: {size}" for queue, size in here.slots.items())
        drained = " (draining: nothing is claimed)" if here.draining else ""
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
        note("nobody holds a lease")
    if here.running:
        table(
            ("RUNNING", "TASK", "QUEUE", "ATTEMPT", "FOR", "PROGRESS"),
            [
                (
                    run.job_id,
                    run.task,
                    run.queue,
                    run.attempt,
                    shown(round(run.seconds, 1)),
                    ("" if run.progress_share is None else f"{run.progress_share:.0%} ")
                    + run.progress_note,
                )
                for run in here.running
            ],
            right=("ATTEMPT", "FOR"),
        )


@workers_group.command("resize")
@click.argument("slots", type=click.IntRange(1, 10_000))
@click.option("--queue", default="", help="Of the slots set aside for this queue.")
@who_options
@json_option
@click.pass_obj
def resize(
    context: CommandContext, slots: int, *, queue: str, who: Callable[[], Author], as_json: bool
) -> None:
    """Change how many jobs each process of the daemon runs at once, until it is started again."""
    from holdfast.daemon.rpc.bodies import ResizeBody  # noqa: PLC0415

    if queue:
        check_id(queue, "--queue")
    settings = context.settings()
    found = _tell(settings, "resize", msgspec.json.encode(ResizeBody(who(), slots, queue)))
    if as_json:
        document({"slots": found.slots, "processes": len(found.processes)})
    else:
        count = len(found.processes)
        each = f" in each of {count} processes" if count > 1 else ""
        click.echo(f"{queue or 'all queues'}: {count_of(slots, 'slot')}{each}")


@workers_group.command("drain")
@click.option("--wait", "patience", metavar="DURATION", help="Wait this long until nothing runs.")
@who_options
@json_option
@click.pass_obj
def drain(
    context: CommandContext, *, patience: str | None, who: Callable[[], Author], as_json: bool
) -> None:
    """Have the daemon claim no more; what runs goes on, and so does the daemon.

    `workers resume` is the way back, and so is starting it again.
    """
    wait_seconds = 0.0 if patience is None else seconds_of("--wait", patience)
    settings = context.settings()
    found = _drain(settings, who(), on=True)
    give_up = time.monotonic() + wait_seconds
    before = len(found.running)
    with progress("draining", before, wanted=not as_json) as told:
        while not _drained(found) and time.monotonic() < give_up:
            told(max(0, before - len(found.running)))
            time.sleep(_LOOK_AGAIN_SECONDS)
            found = _ask_status(settings)
    if as_json:
        document({"draining": True, "running": found.running})
    else:
        click.echo(f"draining: nothing is claimed, {count_of(len(found.running))} still running")
    if found.running and wait_seconds:
        raise Unavailable(f"{count_of(len(found.running))} still running after {patience}")
    if wait_seconds and not _drained(found):
        raise Unavailable(
            f"not every process of the daemon has heard of it after {patience}: "
            "see `holdfast workers list --json`"
        )


@workers_group.command("resume")
@who_options
@json_option
@click.pass_obj
def resume(context: CommandContext, *, who: Callable[[], Author], as_json: bool) -> None:
    """Have the daemon claim again after a drain."""
    found = _drain(context.settings(), who(), on=False)
    if as_json:
        document({"draining": found.draining, "running": found.running})
    else:
        click.echo("claiming again")


def _in_each(found: Status) -> str:
    """Return what the processes of the daemon have in all, if there are several."""
    said = [one.slots for one in found.processes.values() if one is not None]
    count = len(found.processes)
    if count < 2:
        return ""
    silent = "" if len(said) == count else f", {count - len(said)} not up yet"
    return f", in each of {count} processes ({sum(said)} in all{silent})"


def _drained(found: Status) -> bool:
    """Whether nothing runs, and no process may claim because it has not heard of the drain."""
    return not found.running and all(
        one is None or one.draining for one in found.processes.values()
    )


def _drain(settings: Settings, who: Author, *, on: bool) -> Status:
    from holdfast.daemon.rpc.bodies import DrainBody  # noqa: PLC0415

    return _tell(settings, "drain", msgspec.json.encode(DrainBody(who, on)))


def _ask_status(settings: Settings) -> Status:
    return _tell(settings, "status", b"", method="GET")


def _tell(settings: Settings, what: str, body: bytes, method: str = "POST") -> Status:
    from holdfast.cli import store_access  # noqa: PLC0415
    from holdfast.daemon.rpc import OPERATIONS  # noqa: PLC0415
    from holdfast.operations.views import Status  # noqa: PLC0415

    store_access.check_kept(settings)
    found = store_access.ask(settings, method, f"{OPERATIONS}{what}", body, Status)
    if found is None:
        raise Unavailable(
            f"no daemon runs on {settings.store_shown}: start one with `holdfast run`"
        )
    return found
