"""Starts the replays of dead letters that need no person; see ``model/auto_replay.py``."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from holdfast.engines.clock import monotonic
from holdfast.engines.contract import Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.actions import ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.auto_replay import (
    SYSTEM_NAME,
    AutoReplay,
    due_replays,
    is_auto_replay,
    oldest_us,
    switched_on,
)
from holdfast.model.errors import DuplicateId, InvalidInput
from holdfast.model.failure import FailureClass
from holdfast.model.flags import AUTO_REPLAY
from holdfast.model.job import MICROSECONDS, State
from holdfast.model.operation import (
    MAX_ENDED,
    MAX_RUNNING,
    NewOperation,
    OperationChange,
)
from holdfast.model.policy import DEFAULT_POLICY, Rate
from holdfast.model.search import Filter
from holdfast.operations.attribution import Author, attribution_of, entry_of

log = StructuredLog("holdfast.auto_replay")

INTERVAL_SECONDS = 15.0
COST_FACTOR = 50
"""Looking takes at most one part in this many of the time."""
SAMPLE_MARGIN_SECONDS = 30.0
"""A sample counts what was completed up to this long before it was taken."""


class AutoReplayLoop:
    """Starts operations, which ``OperationLoop`` carries out, and aborts them with their flag.

    Every daemon has one: what it starts, and the ids, follow from the store, so that several start
    an operation once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def step(self, now_us: int) -> int:
        """Start what is due."""
        began = monotonic()
        flags = await self._engine.flags()
        await self._abort_switched_off(flags)
        own = [on for name, on in flags.items() if name.startswith(f"{AUTO_REPLAY}/")]
        if flags.get(AUTO_REPLAY, True) or any(own):
            await self._look(flags)
        # Looking at very many letters takes its time: then look less often.
        pause_seconds = max(INTERVAL_SECONDS, COST_FACTOR * (monotonic() - began))
        return now_us + int(pause_seconds * MICROSECONDS)

    async def _abort_switched_off(self, flags: Mapping[str, bool]) -> None:
        for operation in await self._engine.operations(running=True, limit=MAX_RUNNING):
            if not is_auto_replay(operation) or _all_on(flags, operation.wanted):
                continue
            why = f"the flag {AUTO_REPLAY} is off"
            entry = entry_of(
                "operation.abort",
                "operation",
                operation.id,
                Author(SYSTEM_NAME, why),
                {"state": operation.state, "acted": operation.acted},
            )
            attribution = Attribution(SYSTEM_NAME, why, (entry,))
            with contextlib.suppress(InvalidInput):  # it has ended meanwhile
                await self._engine.change_operation(
                    operation.id, OperationChange(abort=True), attribution
                )

    async def _look(self, flags: Mapping[str, bool]) -> None:
        engine = self._engine
        now_us = await engine.now_us()
        wanted = Filter(
            states=(State.DEAD,),
            classes=(FailureClass.TRANSIENT,),
            finished_from_us=max(0, oldest_us(now_us)),
        )
        groups = [
            group
            for group in await engine.groups(wanted)
            if switched_on(flags, group.queue, group.error_reason)
        ]
        if not groups:
            return
        policies = await engine.policies()
        groups = [one for one in groups if not policies.get(one.queue, DEFAULT_POLICY).paused]
        outages = await engine.outages(ended=True)
        operations = await engine.operations(limit=MAX_ENDED)
        busy: set[tuple[str, Rate]] = set()
        for one in due_replays(groups, outages, operations, now_us):
            if (one.queue, one.rate) in busy or not await self._works(one, now_us):
                continue
            if (await engine.find(one.wanted, limit=1)).jobs:
                await self._start(one)
                busy.add((one.queue, one.rate))

    async def _works(self, one: AutoReplay, now_us: int) -> bool:
        """Whether the queue is known to work, or has completed jobs lately."""
        if not one.works_since_us:
            return True
        from_us = one.works_since_us + int(SAMPLE_MARGIN_SECONDS * MICROSECONDS)
        series = await self._engine.samples([one.queue], from_us=from_us, to_us=now_us + 1)
        return any(point.completed_per_second > 0 for point in series.get(one.queue, ()))

    async def _start(self, one: AutoReplay) -> None:
        new = NewOperation(id=one.id, action=ReplayJobs(), wanted=one.wanted, rate=one.rate)
        who = Author(SYSTEM_NAME, one.why)
        attribution = attribution_of("job.replay", "job", one.wanted, who, {"operation": one.id})
        try:
            started = await self._engine.start_operation(new, attribution)
        except (DuplicateId, InvalidInput) as error:
            # Another version has started it, or too many run: then a later step starts it.
            log.emit("auto_replay.refused", operation=one.id, error=error)
            return
        if not started.acted and not started.ended:
            log.emit("auto_replay.started", operation=one.id, why=one.why)


def _all_on(flags: Mapping[str, bool], wanted: Filter) -> bool:
    return all(
        switched_on(flags, queue, reason)
        for queue in wanted.queues
        for reason in wanted.error_reasons
    )
