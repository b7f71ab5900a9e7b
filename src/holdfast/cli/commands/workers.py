"""``holdfast workers``: live processes, leases, running attempts and slots."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import json_option, stream_options, who_options, worker_option
from holdfast.cli.output import ago, document, echo, lines, note, progress, table
from holdfast.model.durations import format_seconds, seconds_of
from holdfast.model.errors import Unavailable
from holdfast.model.fleet import RunningAttempt, WorkerCommand
from holdfast.model.job import check_id
from holdfast.model.plural import count_of

if TYPE_CHECKING:
    from holdfast.cli.worker_commands import SentResults
    from holdfast.operations.attribution import Author
    from holdfast.operations.views import Status, WorkerView

_POLL_SECONDS = 0.1


@click.group("workers", cls=CommandGroup)
def workers_group() -> None:
    """List workers on every machine; resize, drain and resume them, set what they log."""


@workers_group.command("list")
@stream_options
@click.pass_obj
def list_workers(context: CommandContext, *, as_json: bool, ndjson: bool) -> None:
    """List every live worker of the store, idle ones too, and every one that holds leases.

    A daemon of a version without the registry shows only while it holds leases.
    """
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    from .status import read_status  # noqa: PLC0415

    settings = context.settings()
    found = store_access.read_store(settings, lambda operations: operations.fleet.workers())
    if ndjson:
        lines(found)
        return
    here = read_status(settings)
    if as_json:
        shown = ("slots", "processes", "draining", "running")
        document({"workers": found} | {name: getattr(here, name) for name in shown})
        return
    if here.slots:
        slots = ", ".join(f"{queue or 'all queues'}: {size}" for queue, size in here.slots.items())
        drained = " (draining: it claims nothing)" if here.draining else ""
        echo(f"slots: {slots}{_in_each(here, found)}{drained}")
    _print_live([one for one in found if one.name])
    _print_leases([one for one in found if one.leases])
    _print_running(here.running)


def _print_live(found: Sequence[WorkerView]) -> None:
    if not found:
        note("no live workers")
        return
    table(
        ("WORKER", "HOST", "PID", "VERSION", "BUSY", "STATE", "SEEN", "QUEUES", "KNOWN TASKS"),
        [
            (
                one.worker,
                one.host,
                one.pid or "",
                one.version,
                f"{one.busy}/{one.slots}",
                "draining" if one.draining else "claims",
                ago(one.seen_at),
                "all" if one.queues is None else ", ".join(one.queues),
                ", ".join(one.known_tasks),
            )
            for one in sorted(found, key=lambda one: (one.name, one.worker))
        ],
        right=("PID", "BUSY"),
    )


def _print_leases(found: Sequence[WorkerView]) -> None:
    if not found:
        note("no leases")
        return
    table(
        ("HOLDS LEASES", "LEASES", "OLDEST", "FIRST ENDS", "TASKS"),
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


def _print_running(running: Sequence[RunningAttempt]) -> None:
    if not running:
        return
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
            for run in running
        ],
        right=("ATTEMPT", "FOR"),
    )


@workers_group.command("resize")
@click.argument("slots", type=click.IntRange(1, 10_000))
@click.option("--queue", default="", help="The slots reserved for this queue.")
@worker_option
@who_options
@json_option
@click.pass_obj
def resize(
    context: CommandContext,
    slots: int,
    *,
    queue: str,
    workers: tuple[str, ...],
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Change how many jobs each process of a daemon runs at once, until it restarts."""
    if queue:
        check_id(queue, "--queue")
    sent = _send(context, WorkerCommand("resize", slots=slots, queue=queue), workers, who())
    if as_json:
        total: dict[str, int] = {}
        for process in sent.processes:
            for label, size in process.slots.items():
                total[label] = total.get(label, 0) + size
        count = sum(len(process.processes) for process in sent.processes)
        document({"slots": total, "processes": count, "workers": sent.results})
    else:
        for process in sent.processes:
            count = len(process.processes)
            each = f" in each of {count} processes" if count > 1 else ""
            _say(sent, process.id, f"{queue or 'all queues'}: {count_of(slots, 'slot')}{each}")
    _finish(sent)


@workers_group.command("drain")
@click.option("--wait", "patience", metavar="DURATION", help="How long to wait until nothing runs.")
@worker_option
@who_options
@json_option
@click.pass_obj
def drain(
    context: CommandContext,
    *,
    patience: str | None,
    workers: tuple[str, ...],
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Make daemons stop claiming; running jobs continue, and the daemons stay up.

    `workers resume` or a restart ends it.
    """
    from holdfast.cli.worker_commands import look_again  # noqa: PLC0415 - imports an engine

    wait_seconds = 0.0 if patience is None else seconds_of("--wait", patience)
    sent = _send(context, WorkerCommand("drain"), workers, who())
    give_up = time.monotonic() + wait_seconds
    before = len(sent.running)
    with progress("draining", before, wanted=not as_json) as on_progress:
        while not _drained(sent) and time.monotonic() < give_up:
            on_progress(max(0, before - len(sent.running)))
            time.sleep(_POLL_SECONDS)
            sent = look_again(context.settings(), sent)
    if as_json:
        document({"draining": True, "running": sent.running, "workers": sent.results})
    else:
        echo(f"draining: no new jobs, {count_of(len(sent.running))} still running")
    _finish(sent)
    if sent.running and wait_seconds:
        raise Unavailable(f"{count_of(len(sent.running))} still running after {patience}")
    if wait_seconds and not _drained(sent):
        raise Unavailable(
            f"some processes of the daemon do not drain after {patience}: "
            "see `holdfast workers list --json`"
        )


@workers_group.command("resume")
@worker_option
@who_options
@json_option
@click.pass_obj
def resume(
    context: CommandContext, *, workers: tuple[str, ...], who: Callable[[], Author], as_json: bool
) -> None:
    """Make daemons claim again after a drain."""
    sent = _send(context, WorkerCommand("resume"), workers, who())
    if as_json:
        draining = any(process.draining for process in sent.processes)
        document({"draining": draining, "running": sent.running, "workers": sent.results})
    else:
        for process in sent.processes:
            _say(sent, process.id, "claiming again")
    _finish(sent)


@workers_group.command("log-level")
@click.argument("level")
@worker_option
@who_options
@json_option
@click.pass_obj
def log_level(
    context: CommandContext,
    level: str,
    *,
    workers: tuple[str, ...],
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Make daemons log from this level on, until they restart or read their settings again.

    LEVEL is debug, info, warning, error or critical.
    """
    command = WorkerCommand("log_level", level=level)
    command.check()
    sent = _send(context, command, workers, who())
    if as_json:
        document({"level": level, "workers": sent.results})
    else:
        for process in sent.processes:
            _say(sent, process.id, f"logs from {level} on")
    _finish(sent)


def _send(
    context: CommandContext, command: WorkerCommand, names: Sequence[str], who: Author
) -> SentResults:
    from holdfast.cli.worker_commands import send_command  # noqa: PLC0415 - imports an engine

    return send_command(context.settings(), command, names, who)


def _say(sent: SentResults, process_id: str, text: str) -> None:
    """Print what a process did, with its name if there are several."""
    name = next(one.name for one in sent.processes if one.id == process_id)
    if any(one.worker == name and one.outcome == "done" for one in sent.results):
        echo(f"{name}: {text}" if len(sent.results) > 1 else text)


def _finish(sent: SentResults) -> None:
    from holdfast.cli.worker_commands import raise_for  # noqa: PLC0415

    raise_for(sent.results)


def _in_each(found: Status, workers: Sequence[WorkerView]) -> str:
    """Return the number of slots in all processes, if there are several."""
    slots = [one.slots for one in found.processes.values() if one is not None]
    count, daemons = len(found.processes), len({one.name for one in workers if one.name})
    if count < 2:
        return ""
    missing = "" if len(slots) == count else f", {count - len(slots)} not up yet"
    if daemons > 1:
        return f", in {daemons} daemons ({sum(slots)} in all {count} processes{missing})"
    return f", in each of {count} processes ({sum(slots)} in total{missing})"


def _drained(sent: SentResults) -> bool:
    """Whether nothing runs, and every process knows of the drain."""
    return not sent.running and all(
        slots is None or slots.draining
        for process in sent.processes
        for slots in process.processes.values()
    )
