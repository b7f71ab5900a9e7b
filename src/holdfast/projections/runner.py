"""Runs the jobs of a projection: in batches, each applied and settled together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from holdfast.engines.contract import Engine
from holdfast.model.errors import InvalidInput
from holdfast.model.failure import Failure, bounded
from holdfast.model.job import Job
from holdfast.model.outcome import completed, dead
from holdfast.model.projection import generation_of
from holdfast.worker.batch_call import CallResult, Settled

from .apply import ReadEvent, apply_jobs
from .declaration import Projection


class ProjectionRunner:
    """See ``BatchRunner``. A batch may have jobs of several generations: each is applied alone."""

    def __init__(self, engine: Engine, projection: Projection, read: ReadEvent) -> None:
        self._engine = engine
        self._projection = projection
        self._read = read

    async def run(self, jobs: Sequence[Job]) -> CallResult:
        """Apply these jobs; what is raised is about all of them."""
        by_queue: defaultdict[str, list[Job]] = defaultdict(list)
        for job in jobs:
            by_queue[job.queue].append(job)
        settled: dict[int, Settled] = {}
        for queue, together in by_queue.items():
            try:
                await self._apply(queue, together)
            except InvalidInput as error:
                if len(jobs) == 1:  # it never fits: no further attempt is made
                    return [dead(jobs[0], bounded(Failure.of("mapping_error", str(error))))]
                if not settled:
                    raise
            except Exception:
                if not settled:
                    raise
            else:
                settled |= {job.token: Settled(completed(job)) for job in together}
        return [settled.get(job.token) for job in jobs]  # the others are called again, alone

    async def _apply(self, queue: str, jobs: Sequence[Job]) -> None:
        _name, generation = generation_of(queue)
        state = (await self._engine.projections()).get(self._projection.name)
        version = self._projection.version
        if state is not None:
            version = state.versions.get(generation, version)
        projection = self._projection.of_version(version)
        await apply_jobs(self._engine, projection, generation, jobs, self._read)
