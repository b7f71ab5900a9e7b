"""Sending a command to live workers, and reporting which took it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.model.errors import Unavailable
from holdfast.model.fleet import RunningAttempt, WorkerCommand, WorkerProcess
from holdfast.operations.attribution import Author
from holdfast.operations.fleet import COMMAND_SECONDS, CommandResult
from holdfast.operations.operations import Operations
from holdfast.settings import Settings

from . import store_access
from .exit_codes import EXIT_UNAVAILABLE, exit_code_of
from .output import note


class SentResults(NamedTuple):
    """What each process made of a command, the processes as they are now, and what they run."""

    results: list[CommandResult]
    processes: list[WorkerProcess]
    running: list[RunningAttempt]


def send_command(
    settings: Settings, command: WorkerCommand, names: Sequence[str], who: Author
) -> SentResults:
    """Send a command to the live workers of these names, or to all; wait for their answers."""
    _require_daemon(settings)

    async def send(operations: Operations) -> SentResults:
        targets = await operations.fleet.targets(names)
        results = await operations.fleet.command(command, targets, who)
        return await _now(operations, targets, results)

    return store_access.write_store(settings, send)


def look_again(settings: Settings, sent: SentResults) -> SentResults:
    """Return the same processes as they are now, without those that have gone."""
    _require_daemon(settings)
    return store_access.read_store(
        settings, lambda operations: _now(operations, sent.processes, sent.results)
    )


def raise_for(results: Sequence[CommandResult]) -> None:
    """End the command with an exit code of its own if some did not do it."""
    code = 0
    for one in results:
        if one.outcome == "refused":
            where = f"{one.worker}: " if len(results) > 1 else ""
            note(f"holdfast: {where}{one.text}")
            code = code or exit_code_of(one.code)
        elif one.outcome == "silent":
            note(
                f"holdfast: {one.worker} (process {one.pid} on {one.host}) did not answer within "
                f"{COMMAND_SECONDS:g} s, and does not get it later: see `holdfast workers list`"
            )
            code = EXIT_UNAVAILABLE
    if code:
        raise SystemExit(code)


async def _now(
    operations: Operations, processes: Sequence[WorkerProcess], results: list[CommandResult]
) -> SentResults:
    wanted = {process.id for process in processes}
    live = [entry.process for entry in await operations.fleet.live() if entry.process.id in wanted]
    return SentResults(results, live, await operations.fleet.running(live))


def _require_daemon(settings: Settings) -> None:
    """Raise ``Unavailable`` where only a daemon could tell of workers, and none runs."""
    store_access.require_persistent(settings)
    if settings.directory is not None and not store_access.has_owner(settings):
        raise Unavailable(
            f"no daemon runs on {settings.store_shown}: start one with `holdfast run`, or choose "
            "another store with --store"
        )
