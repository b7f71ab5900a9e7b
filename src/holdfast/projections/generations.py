"""Generations of a projection: a table, a subscription and a queue each."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.model.actions import CancelJobs, ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import ChangedMeanwhile
from holdfast.model.job import State
from holdfast.model.policy import DEFAULT_POLICY
from holdfast.model.projection import ProjectionState, queue_of, task_of
from holdfast.model.retry import DEFAULT_MAX_ATTEMPTS
from holdfast.model.search import MAX_PAGE, Filter
from holdfast.model.subscription import Subscription
from holdfast.operations.attribution import Author, entry_of

from .declaration import Projection

_DECLARED = Author("holdfast", "the projection is declared")


class Generations:
    """Makes, pauses and drops them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def subscribe(self, projection: Projection) -> ProjectionState:
        """Give a projection its subscriptions, if it has none; return what is stored of it.

        From then on events make jobs for it. Its tables are made by a process that can.
        """
        while True:
            state = (await self._engine.projections()).get(projection.name)
            if state is None:
                new = ProjectionState(name=projection.name, versions={1: projection.version})
                try:
                    await self._engine.set_projection(
                        new, Attribution(_DECLARED.by, _DECLARED.why), expected=None
                    )
                except ChangedMeanwhile:
                    continue  # another process was faster
                state = new
            for generation in state.generations:
                # One that is being built is subscribed by its rebuild alone, which pauses it first:
                # else its jobs run before the older events that it is filled with.
                rebuild = state.rebuild
                if generation == state.live or rebuild is None or generation != rebuild.generation:
                    await self._subscribe(projection, generation, _DECLARED)
            return state

    async def ensure(self, projection: Projection) -> ProjectionState:
        """Make the subscriptions and the tables of a projection; return what is stored of it."""
        state = await self.subscribe(projection)
        for generation in state.generations:
            table = projection.table_of(state, generation)
            await self._engine.read_models.create(table, generation)
        await self.publish(projection)
        await self._engine.read_models.publish_outbox(projection.name)
        return state

    async def publish(self, projection: Projection) -> None:
        """Let readers see the live generation, also if that changes meanwhile."""
        published = 0
        while True:
            state = (await self._engine.projections())[projection.name]
            if published == state.live:
                return
            published = state.live
            table = projection.table_of(state, published)
            await self._engine.read_models.publish(table, published)

    async def ensure_all(self, projections: Iterable[Projection]) -> None:
        """Make the tables and subscriptions of all these projections."""
        for projection in projections:
            await self.ensure(projection)

    async def open(
        self, projection: Projection, generation: int, who: Author, *, paused: bool = False
    ) -> Subscription:
        """Make the table and the subscription of a generation, if it has none.

        ``paused``: nothing of it runs until ``unpause``.
        """
        await self._engine.read_models.create(projection.table, generation)
        return await self._subscribe(projection, generation, who, paused=paused)

    async def _subscribe(
        self, projection: Projection, generation: int, who: Author, *, paused: bool = False
    ) -> Subscription:
        queue = queue_of(projection.name, generation)
        found = (await self._engine.subscriptions()).get(queue)
        wanted = Subscription(
            name=queue,
            queue=queue,
            task=task_of(projection.name),
            event_types=projection.event_types,
            max_attempts=projection.max_attempts or DEFAULT_MAX_ATTEMPTS,
        )
        if found is not None and replace(found, since_version=0) == wanted:
            return found
        if paused:
            await self._set_paused(queue, who, paused=True)
        # The audit has what people do: a declaration in code is not such an act.
        entry = entry_of("subscription.set", "subscription", queue, who, {})
        audit = () if who is _DECLARED else (entry,)
        stored = await self._engine.set_subscription(
            queue, wanted, Attribution(who.by, who.why, audit)
        )
        return wanted if stored is None else stored

    async def is_paused(self, projection: Projection, generation: int) -> bool:
        """Whether the queue of a generation is paused."""
        policies = await self._engine.policies()
        return policies.get(queue_of(projection.name, generation), DEFAULT_POLICY).paused

    async def pause(self, projection: Projection, generation: int, who: Author) -> None:
        """Pause the queue of a generation."""
        await self._set_paused(queue_of(projection.name, generation), who, paused=True)

    async def unpause(
        self, projection: Projection, generation: int, who: Author, *, keep: bool
    ) -> None:
        """Let the queue of a generation go on, unless it is to be kept paused."""
        if not keep:
            await self._set_paused(queue_of(projection.name, generation), who, paused=False)

    async def _set_paused(self, queue: str, who: Author, *, paused: bool) -> None:
        while True:
            before = (await self._engine.policies()).get(queue, DEFAULT_POLICY)
            if before.paused == paused:
                return
            after = replace(before, paused=paused)
            action = "queue.pause" if paused else "queue.resume"
            entry = entry_of(action, "queue", queue, who, {})
            try:
                await self._engine.set_policy(
                    queue,
                    None if after == DEFAULT_POLICY else after,
                    Attribution(who.by, who.why, (entry,)),
                    expected=before,
                )
            except ChangedMeanwhile:
                continue
            return

    async def caught_up(self, projection: Projection, generation: int) -> bool:
        """Whether no more than a batch waits, except behind dead letters of its key."""
        queue = queue_of(projection.name, generation)
        counts = (await self._engine.counts()).get(queue)
        if counts is None:
            return True
        groups = await self._engine.groups(Filter(queues=(queue,)))
        waiting = counts.pending + counts.in_flight - sum(one.held_behind for one in groups)
        return waiting <= projection.batch

    async def replay_covered(self, projection: Projection, generation: int, who: Author) -> None:
        """Replay the dead letters whose events a rebuild has applied: they are only settled."""
        wanted = Filter(queues=(queue_of(projection.name, generation),), states=(State.DEAD,))
        action = ReplayJobs(fixed="its event was applied by a rebuild")
        cursor = ""
        while True:
            page = await self._engine.find(wanted, cursor=cursor, limit=MAX_PAGE)
            names = [(job.tenant, job.id) for job in page.jobs]
            covered = await self._engine.read_models.covered(projection.table, generation, names)
            for tenant in sorted({tenant for tenant, _id in covered}):
                ids = tuple(
                    job_id for of, job_id in names if (of, job_id) in covered and of == tenant
                )
                await self._engine.operate(
                    action, Filter(ids=ids, tenant=tenant), Attribution(who.by, who.why)
                )
            cursor = page.cursor
            if not cursor:
                return

    async def drop(self, projection: Projection, generation: int, who: Author) -> None:
        """End the subscription of a generation, cancel its jobs, and drop its table."""
        queue = queue_of(projection.name, generation)
        attribution = Attribution(who.by, who.why)
        if queue in await self._engine.subscriptions():
            entry = entry_of("subscription.remove", "subscription", queue, who, {})
            await self._engine.set_subscription(queue, None, Attribution(who.by, who.why, (entry,)))
        more = True
        while more:
            done = await self._engine.operate(
                CancelJobs(), Filter(queues=(queue,)), attribution, limit=MAX_PAGE
            )
            more = done.more
        await self._set_paused(queue, who, paused=False)
        await self._engine.read_models.drop(projection.table, generation)
