"""Keeps projections going: carries out rebuilds, and drops generations that are past their time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.actions import ArchiveJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import ChangedMeanwhile, DurabilityLost, EngineClosed
from holdfast.model.job import MICROSECONDS, State
from holdfast.model.projection import ProjectionState, queue_of
from holdfast.model.search import Filter
from holdfast.operations.attribution import Author

from .apply import ReadEvent
from .declaration import Projection
from .generations import Generations
from .rebuild import Rebuilder

log = StructuredLog("holdfast.projections")

STEP_SECONDS = 5.0
"""How long one step of the loop goes on at most."""
BUSY_SECONDS = 0.2
IDLE_SECONDS = 2.0
_EXPIRED = Author("holdfast", "the generation was kept for a day after the swap")
_SKIPPED = Attribution("holdfast", "the projection goes on without events that fail")


class ProjectionLoop:
    """Every daemon has one. All that it does may be done twice, or by several at once."""

    def __init__(
        self, engine: Engine, projections: Mapping[str, Projection], read: ReadEvent
    ) -> None:
        self._engine = engine
        self._projections = projections
        self._generations = Generations(engine)
        self._rebuilder = Rebuilder(engine, projections, read)
        self._begun = False

    async def step(self, now_us: int) -> int | None:
        """Do what is due; return when to look again."""
        if not self._projections:
            return None
        if not self._begun:
            await self._generations.ensure_all(self._projections.values())
            self._begun = True
        busy = False
        states = await self._engine.projections()
        for name, projection in self._projections.items():
            state = states.get(name)
            if state is None:
                continue
            if projection.on_failure == "skip":
                await self._skip_failures(state)
            if state.previous and now_us > state.previous_until_us and state.rebuild is None:
                await self._expire(projection, state)
            if state.rebuild is not None and state.rebuild.running:
                busy = True
                await self._go_on(name)
        return now_us + int((BUSY_SECONDS if busy else IDLE_SECONDS) * MICROSECONDS)

    async def _go_on(self, name: str) -> None:
        """Take the steps of a rebuild, as long as it comes further."""
        clock = asyncio.get_running_loop()
        give_up = clock.time() + STEP_SECONDS
        try:
            further = True
            while further and clock.time() < give_up:
                state, further = await self._rebuilder.step(name)
                if state.rebuild is None or not state.rebuild.running:
                    return
        except (DurabilityLost, EngineClosed):
            raise
        except ChangedMeanwhile:
            return  # another process goes on with it
        except Exception as error:  # noqa: BLE001 - logged; the next step tries again
            log.emit("projection.rebuild_step_failed", projection=name, error=error)

    async def _skip_failures(self, state: ProjectionState) -> None:
        """Set dead letters aside, so that they hold no key."""
        queues = tuple(queue_of(state.name, number) for number in state.generations)
        await self._engine.operate(
            ArchiveJobs(), Filter(queues=queues, states=(State.DEAD,)), _SKIPPED
        )

    async def _expire(self, projection: Projection, state: ProjectionState) -> None:
        """Drop the generation before the live one; an interrupted drop is begun again."""
        await self._generations.drop(projection, state.previous, _EXPIRED)
        after = replace(state, previous=0, previous_until_us=0)
        try:
            await self._engine.set_projection(
                after, Attribution(_EXPIRED.by, _EXPIRED.why), expected=state
            )
        except ChangedMeanwhile:
            return  # the next step looks again
