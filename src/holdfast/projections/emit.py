"""Emits every event of a projection as a job again, so that its workers fill the table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.engines.read_models.contract import Filled, FillPosition
from holdfast.model.actions import ArchiveJobs, CancelJobs
from holdfast.model.audit import Attribution
from holdfast.model.event import Event
from holdfast.model.event_search import EventFilter
from holdfast.model.job import Job, State
from holdfast.model.projection import Rebuild
from holdfast.model.read_model import ReadModel
from holdfast.model.search import Filter
from holdfast.model.subscription import Subscription, job_id, job_of

from .fill import CHUNK, END

_LETTERS = (State.DEAD, State.ARCHIVED)


@dataclass(frozen=True)
class Emission:
    """The queue is paused meanwhile, so that the jobs of a key come in the order of its events."""

    engine: Engine
    table: ReadModel
    subscription: Subscription
    wanted: EventFilter
    rebuild: Rebuild
    emitted: str = ""
    """The rebuild before that emitted jobs."""

    async def step(self) -> Rebuild:
        """Emit the next events; return how far it is. A step may be taken twice."""
        rebuild = self.rebuild
        page = await self.engine.find_events(self.wanted, cursor=rebuild.cursor, limit=CHUNK)
        await self._withdraw(page.events)
        jobs = []
        for event in page.events:
            job = job_of(event, self.subscription)
            jobs.append(replace(job, id=f"{job.id}:{rebuild.id}"))
        await self.engine.enqueue(jobs, on_duplicate="skip")
        filled = rebuild.filled + len(page.events)
        return replace(rebuild, cursor=page.cursor or END, filled=filled)

    async def _withdraw(self, events: Sequence[Event]) -> None:
        """End the jobs of these events that wait: they would run before those of older events."""
        by_tenant: defaultdict[str, list[str]] = defaultdict(list)
        for event in events:
            name = job_id(self.subscription.name, event.id)
            by_tenant[event.tenant].append(name)
            if self.emitted:
                by_tenant[event.tenant].append(f"{name}:{self.emitted}")
        why = Attribution(self.rebuild.by, f"emitted again by rebuild {self.rebuild.id}")
        for tenant, ids in by_tenant.items():
            jobs = [job for job in await self.engine.get(ids, tenant=tenant) if job is not None]
            await self._cover([job for job in jobs if job.state in _LETTERS])
            waiting = [job.id for job in jobs if not job.state.finished]
            dead = [job.id for job in jobs if job.state is State.DEAD]
            for action, names in ((CancelJobs(), waiting), (ArchiveJobs(), dead)):
                if names:
                    wanted = Filter(ids=tuple(names), tenant=tenant)
                    await self.engine.operate(action, wanted, why)

    async def _cover(self, letters: Sequence[Job]) -> None:
        """Let dead letters be only settled if they are restored and replayed some day."""
        if not letters:
            return
        position = FillPosition(rebuild=self.rebuild.id)
        names = [(job.tenant, job.id) for job in letters]
        await self.engine.read_models.fill(
            self.table,
            self.rebuild.generation,
            lambda _rows: Filled(position, names),
            expected=position,
        )
