"""What people do with projections: look at them, rebuild, roll back, remove."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from msgspec.structs import replace

from holdfast.engines.contract import Counts, Engine
from holdfast.model.actions import CancelJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import (
    ChangedMeanwhile,
    InvalidInput,
    RebuildRunning,
    UnknownProjection,
)
from holdfast.model.job import MICROSECONDS, State
from holdfast.model.plural import count_of
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy
from holdfast.model.projection import (
    FIRST_GENERATION,
    ProjectionState,
    Rebuild,
    RebuildMode,
    RebuildPhase,
    generation_of,
    queue_of,
)
from holdfast.model.search import MAX_PAGE, Filter
from holdfast.model.subscription import Subscription
from holdfast.projections.apply import ReadEvent
from holdfast.projections.chronicle import CHRONICLE
from holdfast.projections.declaration import Projection
from holdfast.projections.rebuild import Rebuilder
from holdfast.projections.rows import read_rows, row_query, value_of_text

from .attribution import Author, entry_of
from .projection_audit import find_missing_jobs
from .projection_views import (
    OUTBOX_STATES,
    MissingJobs,
    OutboxPage,
    OutboxRow,
    ProjectionView,
    RebuildView,
    Removal,
    RowsView,
)
from .views import date_of

OnRebuild = Callable[[Rebuild], None]
"""Called with how far a rebuild is."""
POLL_SECONDS = 0.25


class ProjectionOperations:
    """What people do with the projections of a store, declared here or not."""

    def __init__(
        self, engine: Engine, projections: Mapping[str, Projection], read: ReadEvent
    ) -> None:
        self._engine = engine
        self._projections = projections
        self._rebuilder = Rebuilder(engine, projections, read)

    # --- look --------------------------------------------------------------------------------

    async def listed(self) -> list[ProjectionView]:
        """Return every projection that is declared here or known to the store, by name."""
        states = await self._engine.projections()
        looked = await _Store.look(self._engine)
        names = sorted({*self._projections, *states})
        return [await self._view(name, states.get(name), looked) for name in names]

    async def show(self, name: str) -> ProjectionView:
        """Return one projection, or raise ``UnknownProjection``."""
        state = await self._state(name)
        return await self._view(name, state, await _Store.look(self._engine))

    async def outbox(
        self,
        name: str,
        statuses: Collection[str] = (),
        *,
        cursor: str = "",
        limit: int = 100,
    ) -> OutboxPage:
        """Return the outbox of the generation that readers see, the oldest rows first."""
        state = await self._state(name)
        for word in statuses:
            if word not in OUTBOX_STATES:
                known = ", ".join(OUTBOX_STATES)
                raise InvalidInput("status", f"{word[:60]!r} is not one of {known}")
        states = tuple(one for word in statuses or OUTBOX_STATES for one in OUTBOX_STATES[word])
        queue = queue_of(name, FIRST_GENERATION if state is None else state.live)
        wanted = Filter(queues=(queue,), states=states)
        page = await self._engine.find(wanted, cursor=cursor, limit=limit)
        return OutboxPage([OutboxRow.of(job) for job in page.jobs], page.cursor)

    async def outbox_counts(self, name: str) -> dict[str, int]:
        """Count the rows of the outbox by status."""
        state = await self._state(name)
        queue = queue_of(name, FIRST_GENERATION if state is None else state.live)
        counts = (await self._engine.counts()).get(queue, Counts())
        return {
            word: sum(getattr(counts, one.value) for one in states)
            for word, states in OUTBOX_STATES.items()
        }

    async def rows(
        self,
        name: str,
        where: Mapping[str, str],
        *,
        search: str = "",
        order: str = "",
        limit: int = 50,
    ) -> RowsView:
        """Return rows of a projection that is declared here; the values are as a person types them.

        Raise ``UnknownProjection``, or ``InvalidInput`` naming the column.
        """
        projection = self._projections.get(name)
        if projection is None:
            raise UnknownProjection(name, self._projections)
        if name == CHRONICLE:
            raise InvalidInput(
                "NAME", "ask it by `holdfast chronicle`, which hides what is sensitive"
            )
        table = projection.table
        values = {column: value_of_text(table, column, text) for column, text in where.items()}
        query = row_query(table, values, search=search, order=order, limit=limit)
        found = await read_rows(self._engine, projection, query)
        state = await self._state(name)
        return RowsView(
            columns=list(table.columns),
            rows=found or [],
            made=found is not None,
            incomplete=state is not None and state.incomplete,
        )

    async def missing_jobs(self, remember_seconds: float) -> MissingJobs:
        """Look for recent events that have neither a job nor its result.

        It asks by the verbs that every engine has; a server that can compare both in one
        statement may do that here instead.
        """
        return await find_missing_jobs(self._engine, remember_seconds)

    # --- rebuild -----------------------------------------------------------------------------

    async def start(
        self, name: str, mode: RebuildMode, who: Author, *, max_errors: int = 0
    ) -> Rebuild:
        """Store a rebuild. Raise ``UnknownProjection``, or ``RebuildRunning``."""
        state = await self._rebuilder.start(name, mode, who, max_errors=max_errors)
        if state.rebuild is None:
            raise ChangedMeanwhile("projection", name)
        return state.rebuild

    async def resume(self, name: str, who: Author, *, max_errors: int | None = None) -> Rebuild:
        """Go on with a rebuild that failed, or return the one that runs."""
        return await self._rebuilder.resume(name, who, max_errors=max_errors)

    async def cancel(self, name: str, who: Author) -> Rebuild:
        """Store that a rebuild is to end; the next step, of anybody, ends it."""
        return await self._rebuilder.request_cancel(name, who)

    async def roll_back(self, name: str, who: Author) -> ProjectionView:
        """Let readers see the generation before the live one again."""
        await self._rebuilder.roll_back(name, who)
        return await self.show(name)

    async def drive(
        self, name: str, rebuild_id: str, on_progress: OnRebuild = lambda _rebuild: None
    ) -> RebuildView:
        """Take the steps of a rebuild until it has ended, beside others who may do so too."""
        while True:
            rebuild = await self._rebuild(name, rebuild_id)
            if not rebuild.running:
                return await self.rebuild_view(rebuild)
            try:
                _state, further = await self._rebuilder.step(name)
            except ChangedMeanwhile:
                continue  # another process was faster
            on_progress(await self._rebuild(name, rebuild_id))
            if not further:
                await self._engine.reclaim()  # it may wait for a worker that is gone
                await asyncio.sleep(POLL_SECONDS)

    async def wait(
        self, name: str, rebuild_id: str, on_progress: OnRebuild = lambda _rebuild: None
    ) -> RebuildView:
        """Return when a rebuild has ended; daemons carry it out."""
        while True:
            rebuild = await self._rebuild(name, rebuild_id)
            on_progress(rebuild)
            if not rebuild.running:
                return await self.rebuild_view(rebuild)
            await asyncio.sleep(POLL_SECONDS)

    async def _rebuild(self, name: str, rebuild_id: str) -> Rebuild:
        state = await self._state(name)
        known = () if state is None else (state.rebuild, *state.past)
        for one in known:
            if one is not None and one.id == rebuild_id:
                return one
        raise InvalidInput("rebuild", f"{rebuild_id} of {name} is not remembered any more")

    async def rebuild_view(self, rebuild: Rebuild) -> RebuildView:
        """Return a rebuild for people."""
        return RebuildView.of(rebuild, await self._engine.now_us())

    async def rebuilds(self) -> list[tuple[ProjectionState, Rebuild]]:
        """Return the rebuilds that are remembered with their projections, the newest first."""
        found = [
            (state, rebuild)
            for state in (await self._engine.projections()).values()
            for rebuild in (state.rebuild, *state.past)
            if rebuild is not None
        ]
        return sorted(found, key=lambda one: (-one[1].started_at_us, one[1].id))

    # --- remove ------------------------------------------------------------------------------

    async def remove(self, name: str, who: Author, *, cancel_pending: bool | None) -> Removal:
        """End the subscriptions of a projection: no event becomes a job of it any more.

        ``cancel_pending``: what becomes of jobs that wait; None refuses if there are any. Its table
        stays as it is, and counts as incomplete from now on.
        """
        state = await self._state(name)
        if state is not None and state.rebuild is not None:
            raise RebuildRunning(name, state.rebuild.id, state.rebuild.phase.value)
        subscriptions = await self._engine.subscriptions()
        queues = [queue for queue in subscriptions if generation_of(queue)[0] == name]
        counts = await self._engine.counts()
        waiting = sum(_waiting(counts.get(queue, Counts())) for queue in queues)
        if waiting and cancel_pending is None:
            problem = f"{count_of(waiting)} of {name} wait: cancel or keep them (--pending)"
            raise InvalidInput("pending", problem)
        cancelled = 0
        for queue in queues:
            kept = {"pending": "cancel" if cancel_pending else "keep"}
            entry = entry_of("subscription.remove", "subscription", queue, who, kept)
            attribution = Attribution(who.by, who.why, (entry,))
            await self._engine.set_subscription(queue, None, attribution)
            if cancel_pending:
                cancelled += await self._cancel_jobs(queue, who)
        if state is not None and queues:
            facts = {"subscriptions": queues, "cancelled": cancelled}
            entry = entry_of("projection.remove", "projection", name, who, facts)
            await self._engine.set_projection(
                replace(state, incomplete=True),
                Attribution(who.by, who.why, (entry,)),
                expected=state,
            )
        return Removal(name, queues, cancelled, waiting - cancelled)

    async def _cancel_jobs(self, queue: str, who: Author) -> int:
        done, more = 0, True
        while more:
            result = await self._engine.operate(
                CancelJobs(), Filter(queues=(queue,)), Attribution(who.by, who.why), limit=MAX_PAGE
            )
            done += len(result.jobs)
            more = result.more
        return done

    # --- how it is ---------------------------------------------------------------------------

    async def _state(self, name: str) -> ProjectionState | None:
        """Return what is stored of a projection; None if it is new."""
        states = await self._engine.projections()
        if name not in states and name not in self._projections:
            raise UnknownProjection(name, {*self._projections, *states})
        return states.get(name)

    async def _view(
        self, name: str, state: ProjectionState | None, looked: _Store
    ) -> ProjectionView:
        projection = self._projections.get(name)
        version = 1 if projection is None else projection.version
        stored = state or ProjectionState(name=name, versions={FIRST_GENERATION: version})
        queue = queue_of(name, stored.live)
        counts = looked.counts.get(queue, Counts())
        held = sum(one.held_behind for one in await self._engine.groups(Filter(queues=(queue,))))
        held_keys, lag_seconds = await self._waited(queue, counts, looked.now_us)
        slo = None if projection is None else projection.lag_slo_seconds
        subscription = looked.subscriptions.get(queue)
        wanted = projection.event_types if subscription is None and projection else ()
        rebuild = stored.rebuild
        paused = looked.policies.get(queue, DEFAULT_POLICY).paused
        return ProjectionView(
            name=name,
            state=_state_word(state, paused=paused, subscribed=subscription is not None),
            generation=stored.live,
            version=stored.versions.get(stored.live, version),
            queue=queue,
            lag_events=max(0, _waiting(counts) - held),
            lag_seconds=lag_seconds,
            held=held,
            held_keys=held_keys,
            failed=counts.dead,
            slo_met=slo is None or lag_seconds <= slo,
            table="" if projection is None else projection.table.name,
            event_types=list(wanted if subscription is None else subscription.event_types),
            declared=projection is not None,
            declared_version=None if projection is None else projection.version,
            lag_slo_seconds=slo,
            incomplete=stored.incomplete,
            paused=paused,
            rebuild=None if rebuild is None else RebuildView.of(rebuild, looked.now_us),
            last_rebuild=RebuildView.of(stored.past[0], looked.now_us) if stored.past else None,
            previous_generation=stored.previous or None,
            previous_until=date_of(stored.previous_until_us) if stored.previous else None,
        )

    async def _waited(self, queue: str, counts: Counts, now_us: int) -> tuple[int, float]:
        """Return how many keys dead letters hold, and how long the oldest other job has waited."""
        keys: set[tuple[str, str | None]] = set()
        if counts.dead:
            dead = await self._engine.find(
                Filter(queues=(queue,), states=(State.DEAD,)), limit=MAX_PAGE
            )
            keys = {(job.tenant, job.ties.key) for job in dead.jobs}
        if not _waiting(counts):
            return len(keys), 0.0
        wanted = Filter(queues=(queue,), states=(State.PENDING, State.BLOCKED, State.IN_FLIGHT))
        page = await self._engine.find(wanted, limit=MAX_PAGE)
        for job in page.jobs:
            if (job.tenant, job.ties.key) not in keys:
                return len(keys), round(max(0, now_us - job.created_at_us) / MICROSECONDS, 3)
        return len(keys), 0.0


class _Store:
    """What is asked once for all projections."""

    def __init__(
        self,
        counts: Mapping[str, Counts],
        subscriptions: Mapping[str, Subscription],
        policies: Mapping[str, QueuePolicy],
        now_us: int,
    ) -> None:
        self.counts = counts
        self.subscriptions = subscriptions
        self.policies = policies
        self.now_us = now_us

    @classmethod
    async def look(cls, engine: Engine) -> _Store:
        """Ask the engine."""
        return cls(
            await engine.counts(),
            await engine.subscriptions(),
            await engine.policies(),
            await engine.now_us(),
        )


def _waiting(counts: Counts) -> int:
    return counts.pending + counts.blocked + counts.in_flight


def _state_word(state: ProjectionState | None, *, paused: bool, subscribed: bool) -> str:
    if state is None:
        return "new"
    if state.rebuild is not None:
        failed = state.rebuild.phase is RebuildPhase.FAILED
        return "rebuild failed" if failed else "rebuilding"
    if not subscribed:
        return "removed"
    if state.incomplete:
        return "incomplete"
    return "paused" if paused else "live"
