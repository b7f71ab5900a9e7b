"""Entering the registry at the start: one live process per name, and the leases of an earlier life.

A worker that starts again under its old name gets its leases back at once if its earlier life is
certainly gone: it ran on this machine, and the kernel has no such process. Otherwise the leases run
out, as those of any worker.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from holdfast.engines.contract import Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model import lifecycle
from holdfast.model.durations import format_seconds
from holdfast.model.errors import HoldfastError, WorkerIdInUse
from holdfast.model.fleet import WorkerEntry, WorkerProcess
from holdfast.model.job import Job
from holdfast.model.outcome import Outcome, lost, release
from holdfast.worker.process_identity import gone_workers, is_this_process

from .announcer import TTL_SECONDS

log = StructuredLog("holdfast.daemon")

HeldBy = Callable[[str], Awaitable[list[Job]]]
"""Returns the jobs that a worker holds."""
_POLL_SECONDS = 0.1
_CHILDREN_SECONDS = 2.0
"""How long worker processes of an earlier life may take to end after it."""


_entered: set[str] = set()
"""The entries of this program: an exec, as by the watchdog, leaves pid and start time alone."""


async def enter_registry(
    engine: Engine,
    process: WorkerProcess,
    held_by: HeldBy,
    say: Callable[[str], None],
    *,
    patient: bool = True,
) -> None:
    """Enter this process. Raise ``WorkerIdInUse`` if a live one has its name.

    If it is ``patient``: one that has not been heard of since may be gone; wait until it is known.
    Otherwise any that is not certainly gone has the name.
    """
    earlier_lives: list[tuple[WorkerProcess, list[Outcome]]] = []
    for entry in await _same_name(engine, process, gone=True):
        outcomes = await _remove_earlier_life(engine, entry.process, held_by)
        if outcomes is not None:
            earlier_lives.append((entry.process, outcomes))
        elif not patient:
            raise WorkerIdInUse(entry.process.name, entry.process.host, entry.process.pid)
    if not await _enter(engine, process, say, patient=patient):
        return  # another one had the name: what was read may be its leases, so they run out
    for earlier, outcomes in earlier_lives:
        ended = 0
        with contextlib.suppress(HoldfastError):  # then the leases run out
            answers = await engine.settle(outcomes)
            ended = sum(answer is None for answer in answers)
        log.emit("worker.took_over", worker=earlier.name, pid=earlier.pid, count=ended)


async def _enter(
    engine: Engine, process: WorkerProcess, say: Callable[[str], None], *, patient: bool
) -> bool:
    """Enter this process; return whether no other one had its name."""
    first_seen: dict[str, int] = {}
    waited = False
    while True:
        try:
            await engine.announce(process, ttl_seconds=TTL_SECONDS)
        except WorkerIdInUse as error:
            others = await _same_name(engine, process, gone=False)
            heard = any(
                first_seen.get(one.process.id, one.seen_at_us) < one.seen_at_us for one in others
            )
            if heard or not patient:
                raise  # it is alive
            if not waited:
                say(f"waiting up to {format_seconds(TTL_SECONDS)} for a sign of life: {error}")
            waited = True
            first_seen = {one.process.id: one.seen_at_us for one in others} | first_seen
            await asyncio.sleep(_POLL_SECONDS)
        else:
            _entered.add(process.id)
            return not waited


async def _same_name(engine: Engine, process: WorkerProcess, *, gone: bool) -> list[WorkerEntry]:
    return [
        entry
        for entry in await engine.workers(gone=gone)
        if not entry.process.processes.keys().isdisjoint(process.processes)
    ]


async def _remove_earlier_life(
    engine: Engine, earlier: WorkerProcess, held_by: HeldBy
) -> list[Outcome] | None:
    """Remove a process if it is certainly gone; return what becomes of its leases, or None."""
    own = next(iter(earlier.processes))
    if own not in _ended_workers(earlier):
        return None
    loop = asyncio.get_running_loop()
    give_up = loop.time() + _CHILDREN_SECONDS
    workers = _ended_workers(earlier)
    while len(workers) < len(earlier.pids) and loop.time() < give_up:
        await asyncio.sleep(_POLL_SECONDS)
        workers = _ended_workers(earlier)
    outcomes: list[Outcome] = []
    for worker in workers:
        why = f"{worker} (process {earlier.pids[worker][0]}) ended, and was started again"
        with contextlib.suppress(HoldfastError):  # then the leases run out
            outcomes += ended_leases(await held_by(worker), why)
    await engine.depart(earlier.id)
    return outcomes


def _ended_workers(earlier: WorkerProcess) -> list[str]:
    """Return the names under which an earlier life claimed and certainly claims no more."""
    replaced = is_this_process(earlier) and earlier.id not in _entered
    own = [next(iter(earlier.processes))] if replaced else []
    return [*own, *gone_workers(earlier)]


def ended_leases(jobs: Sequence[Job], why: str) -> list[Outcome]:
    """Return what becomes of the jobs of a process that has ended."""
    # A job that ran alone, in a process of its own, did not end this one.
    return [release(job) if lifecycle.runs_alone(job) else lost(job, why) for job in jobs]
