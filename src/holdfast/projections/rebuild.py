"""Rebuilds: stored, taken further by steps, each of which any process may take.

What is done is derived from what is stored, so a step that was interrupted is taken again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.engines.entropy import random_bytes
from holdfast.engines.read_models.contract import FillPosition
from holdfast.model import projection as model
from holdfast.model.audit import Attribution
from holdfast.model.errors import InvalidInput, RebuildRunning, UnknownProjection
from holdfast.model.event_search import EventFilter
from holdfast.model.projection import (
    KEEP_PREVIOUS_US,
    ProjectionState,
    Rebuild,
    RebuildMode,
    RebuildPhase,
    queue_of,
)
from holdfast.operations.attribution import Author, entry_of

from .apply import ReadEvent
from .declaration import Projection
from .emit import Emission
from .fill import END, Fill, FillStopped
from .generations import Generations

_STEP = Author("holdfast", "a step of a rebuild")


class Rebuilder:
    """Starts, carries out, cancels and undoes rebuilds of the declared projections."""

    def __init__(
        self, engine: Engine, projections: Mapping[str, Projection], read: ReadEvent
    ) -> None:
        self._engine = engine
        self._projections = projections
        self._read = read
        self._generations = Generations(engine)

    # --- what people ask for -----------------------------------------------------------------

    async def start(
        self, name: str, mode: RebuildMode, who: Author, *, max_errors: int = 0
    ) -> ProjectionState:
        """Store a rebuild. Raise ``UnknownProjection``, or ``RebuildRunning``."""
        state = await self._stored(name)
        if state.rebuild is not None:
            raise RebuildRunning(name, state.rebuild.id, state.rebuild.phase.value)
        aside = mode is RebuildMode.GENERATION
        rebuild = Rebuild(
            id=f"rb-{random_bytes(5).hex()}",
            mode=mode,
            generation=state.newest + 1 if aside else state.live,
            by=who.by,
            why=who.why,
            started_at_us=await self._engine.now_us(),
            max_errors=max_errors,
        )
        newest = max(state.newest, rebuild.generation)
        after = replace(state, rebuild=rebuild, newest=newest)
        facts = {"rebuild": rebuild.id, "mode": mode.value, "generation": rebuild.generation}
        return await self._put(state, after, "rebuild.start", who, facts)

    async def resume(self, name: str, who: Author, *, max_errors: int | None = None) -> Rebuild:
        """Go on with a rebuild that failed."""
        state, rebuild = await self._current(name)
        if rebuild.phase is not RebuildPhase.FAILED:
            return rebuild
        aside = rebuild.mode is RebuildMode.GENERATION
        again = replace(
            rebuild,
            phase=RebuildPhase.STARTING if aside else RebuildPhase.EMPTYING,
            error="",
            max_errors=rebuild.max_errors if max_errors is None else max_errors,
        )
        after = replace(state, rebuild=again)
        await self._put(state, after, "rebuild.resume", who, {"rebuild": rebuild.id})
        return again

    async def cancel(self, name: str, who: Author) -> Rebuild:
        """End a rebuild that is not done; a generation beside the live one is dropped."""
        await self.request_cancel(name, who)
        state, _further = await self.step(name)
        return state.past[0]

    async def request_cancel(self, name: str, who: Author) -> Rebuild:
        """Store that a rebuild is to end: the next step ends it."""
        state, rebuild = await self._current(name)
        after = replace(rebuild, phase=RebuildPhase.CANCELLING)
        facts = {"rebuild": rebuild.id, "phase": rebuild.phase.value}
        await self._put(state, replace(state, rebuild=after), "rebuild.cancel", who, facts)
        return after

    async def roll_back(self, name: str, who: Author) -> ProjectionState:
        """Make the generation before the live one the live one again."""
        projection = self._declared(name)
        state = await self._stored(name)
        if not state.previous:
            raise InvalidInput("projection", f"{name} has no earlier generation to return to")
        if state.rebuild is not None:
            raise RebuildRunning(name, state.rebuild.id, state.rebuild.phase.value)
        after = replace(
            state,
            live=state.previous,
            previous=state.live,
            previous_until_us=await self._engine.now_us() + KEEP_PREVIOUS_US,
            incomplete=False,
        )
        facts = {"from": state.live, "to": after.live}
        await self._put(state, after, "projection.roll_back", who, facts)
        await self._generations.publish(projection)
        return after

    # --- steps -------------------------------------------------------------------------------

    async def step(self, name: str) -> tuple[ProjectionState, bool]:
        """Take a step; return what is stored now, and whether it came further."""
        state, rebuild = await self._current(name)
        if not rebuild.running:
            return state, False
        steps = {
            RebuildPhase.STARTING: self._begin,
            RebuildPhase.EMPTYING: self._empty,
            RebuildPhase.FILLING: self._fill,
            RebuildPhase.DRAINING: self._drain,
            RebuildPhase.CHECKING: self._finish,
            RebuildPhase.CANCELLING: self._end_cancelled,
        }
        try:
            after = await steps[rebuild.phase](self._declared(name), state, rebuild)
        except FillStopped as error:
            failed = replace(rebuild, phase=RebuildPhase.FAILED, error=str(error))
            after = replace(state, rebuild=failed)
        if after == state:
            return state, False
        who = Author(rebuild.by, f"rebuild {rebuild.id}")
        if after.rebuild is not None and after.rebuild.running:
            return await self._put(state, after), True
        ended = after.rebuild or after.past[0]
        facts = {
            "rebuild": rebuild.id,
            "outcome": ended.phase.value,
            "filled": ended.filled,
            "failed": ended.failed,
            "error": ended.error,
        }
        await self._put(state, after, "rebuild.end", who, facts)
        if after.live != state.live:
            await self._generations.publish(self._declared(name))
        return after, True

    async def _begin(
        self, projection: Projection, state: ProjectionState, rebuild: Rebuild
    ) -> ProjectionState:
        who = Author(rebuild.by, f"rebuild {rebuild.id}")
        versions = {**state.versions, rebuild.generation: projection.version}
        if rebuild.mode is not RebuildMode.GENERATION:
            # Stored before it is paused: an interrupted rebuild must not take its own pause for one
            # of a person.
            was_paused = await self._generations.is_paused(projection, rebuild.generation)
            after = replace(rebuild, phase=RebuildPhase.EMPTYING, was_paused=was_paused)
            return replace(state, incomplete=True, rebuild=after, versions=versions)
        # As a worker does: it may not have run yet, or not with the columns that are new. One of
        # another type stays as it is: the next generation has it.
        with contextlib.suppress(InvalidInput):
            live = projection.table_of(state, state.live)
            await self._engine.read_models.create(live, state.live)
        began = await self._generations.open(projection, rebuild.generation, who, paused=True)
        if not await self._engine.fanout_settled(began.since_version):
            return state
        total = await self._engine.count_events(_source(projection, began.since_version))
        after = replace(rebuild, phase=RebuildPhase.FILLING, total=total)
        return replace(state, rebuild=after, versions=versions)

    async def _empty(
        self, projection: Projection, state: ProjectionState, rebuild: Rebuild
    ) -> ProjectionState:
        store, table = self._engine.read_models, projection.table
        who = Author(rebuild.by, f"rebuild {rebuild.id}")
        await self._generations.pause(projection, rebuild.generation, who)
        counts = (await self._engine.counts()).get(queue_of(projection.name, rebuild.generation))
        if counts is not None and counts.in_flight:
            return state
        await store.create(table, rebuild.generation)
        position = await store.position(table, rebuild.generation)
        if position is None or position.rebuild != rebuild.id:
            await store.truncate(table, rebuild.generation, FillPosition(rebuild=rebuild.id))
        total = await self._engine.count_events(_source(projection))
        return replace(state, rebuild=replace(rebuild, phase=RebuildPhase.FILLING, total=total))

    async def _fill(
        self, projection: Projection, state: ProjectionState, rebuild: Rebuild
    ) -> ProjectionState:
        queue = queue_of(projection.name, rebuild.generation)
        subscription = (await self._engine.subscriptions())[queue]
        if rebuild.mode is RebuildMode.EMIT:
            emission = Emission(
                engine=self._engine,
                table=projection.table,
                subscription=subscription,
                wanted=_source(projection),
                rebuild=rebuild,
                emitted=_last_emission(state),
            )
            after = await emission.step()
            ended = after.cursor == END
        else:
            aside = rebuild.mode is RebuildMode.GENERATION
            since = subscription.since_version if aside else None
            fill = Fill(
                engine=self._engine,
                projection=projection,
                generation=rebuild.generation,
                rebuild=rebuild.id,
                subscription=subscription,
                wanted=_source(projection, since),
                max_errors=rebuild.max_errors,
                in_place=not aside,
                read=self._read,
                emitted=_last_emission(state),
            )
            position = await fill.step()
            after = replace(rebuild, filled=position.filled, failed=position.failed)
            ended = position.cursor == END
        if ended:
            after = replace(after, phase=RebuildPhase.DRAINING)
        return replace(state, rebuild=after)

    async def _drain(
        self, projection: Projection, state: ProjectionState, rebuild: Rebuild
    ) -> ProjectionState:
        who = Author(rebuild.by, f"rebuild {rebuild.id}")
        generations = self._generations
        if rebuild.mode is RebuildMode.TRUNCATE:
            await generations.replay_covered(projection, rebuild.generation, who)
        await generations.unpause(projection, rebuild.generation, who, keep=rebuild.was_paused)
        aside = rebuild.mode is RebuildMode.GENERATION
        if aside and not await generations.caught_up(projection, rebuild.generation):
            return state
        return replace(state, rebuild=replace(rebuild, phase=RebuildPhase.CHECKING))

    async def _finish(
        self, projection: Projection, state: ProjectionState, rebuild: Rebuild
    ) -> ProjectionState:
        """Check what was filled; make it the live generation."""
        store, table = self._engine.read_models, projection.table
        now_us = await self._engine.now_us()
        done = replace(rebuild, phase=RebuildPhase.DONE, ended_at_us=now_us)
        if rebuild.mode is not RebuildMode.EMIT:
            digest = await store.digest(table, rebuild.generation)
            done = replace(done, rows=digest.rows, hash=digest.hash)
        if rebuild.mode is not RebuildMode.GENERATION:
            return model.ended(replace(state, incomplete=False), done)
        if rebuild.filled + rebuild.failed != rebuild.total:
            problem = f"{rebuild.filled + rebuild.failed} of {rebuild.total} events were read"
            failed = replace(rebuild, phase=RebuildPhase.FAILED, error=problem)
            return replace(state, rebuild=failed)
        live = await store.digest(projection.table_of(state, state.live), state.live)
        done = replace(done, live_rows=live.rows, live_hash=live.hash)
        swapped = replace(
            state,
            live=rebuild.generation,
            previous=state.live,
            previous_until_us=now_us + KEEP_PREVIOUS_US,
            incomplete=False,
        )
        return model.ended(swapped, done)

    async def _end_cancelled(
        self, projection: Projection, state: ProjectionState, rebuild: Rebuild
    ) -> ProjectionState:
        who = Author(rebuild.by, f"rebuild {rebuild.id} was cancelled")
        if rebuild.mode is RebuildMode.GENERATION:
            await self._generations.drop(projection, rebuild.generation, who)
        else:
            keep = rebuild.was_paused
            await self._generations.unpause(projection, rebuild.generation, who, keep=keep)
        now_us = await self._engine.now_us()
        return model.ended(
            state, replace(rebuild, phase=RebuildPhase.CANCELLED, ended_at_us=now_us)
        )

    # --- stored ------------------------------------------------------------------------------

    def _declared(self, name: str) -> Projection:
        found = self._projections.get(name)
        if found is None:
            raise UnknownProjection(name, self._projections)
        return found

    async def _stored(self, name: str) -> ProjectionState:
        """Return what is stored of a projection; of a new one, make its first generation."""
        projection = self._declared(name)
        found = (await self._engine.projections()).get(name)
        return found or await self._generations.ensure(projection)

    async def _current(self, name: str) -> tuple[ProjectionState, Rebuild]:
        self._declared(name)
        state = (await self._engine.projections()).get(name)
        if state is None or state.rebuild is None:
            raise InvalidInput("projection", f"{name} is not being rebuilt")
        return state, state.rebuild

    async def _put(
        self,
        before: ProjectionState,
        after: ProjectionState,
        action: str = "",
        who: Author = _STEP,
        facts: Mapping[str, object] | None = None,
    ) -> ProjectionState:
        entries = (entry_of(action, "projection", after.name, who, facts or {}),) if action else ()
        attribution = Attribution(who.by, who.why, entries)
        await self._engine.set_projection(after, attribution, expected=before)
        return after


def _last_emission(state: ProjectionState) -> str:
    emissions = (one.id for one in state.past if one.mode is RebuildMode.EMIT)
    return next(emissions, "")


def _source(projection: Projection, before_version: int | None = None) -> EventFilter:
    return EventFilter(event_types=projection.event_types, fanout_before=before_version)
