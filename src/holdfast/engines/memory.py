"""The memory engine: the contract at its plainest, and the oracle for the others.

Every question is answered by looking at every job, so that it is right at a glance. Nothing
survives the process. It is meant for tests, not for a backlog.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from holdfast.model import lifecycle
from holdfast.model.access import Caller
from holdfast.model.effects import Effect, job_key
from holdfast.model.errors import DurabilityLost
from holdfast.model.job import Job, State

from .base import Capabilities, Counts, EngineOptions
from .clock import Clock, SystemClock
from .embedded import EmbeddedEngine
from .entropy import random_bytes as pooled_bytes


class MemoryEngine(EmbeddedEngine):
    """Keeps work in this process's memory, and nowhere else."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        options: EngineOptions | None = None,
        random_bytes: Callable[[int], bytes] = pooled_bytes,
    ) -> None:
        super().__init__(
            Capabilities(name="memory", durable=False, shared=False),
            PlainState(),
            NoLog(),
            clock or SystemClock(),
            random_bytes,
            options or EngineOptions(),
        )


class NoLog:
    """Nothing is durable, so there is nothing to wait for."""

    def __init__(self) -> None:
        self._stopped: BaseException | None = None

    def add(
        self,
        effects: Sequence[Effect],  # noqa: ARG002 - the contract of a log
        first_seq: int,  # noqa: ARG002
        *,
        essential: bool,  # noqa: ARG002
    ) -> None:
        """Take everything and keep nothing."""
        if self._stopped is not None:
            raise DurabilityLost(f"the state is in doubt: {self._stopped}")

    def stop(self, error: BaseException) -> None:
        """Refuse everything from here on."""
        self._stopped = error

    @property
    def crowded(self) -> bool:
        """Nobody waits here."""
        return False

    def landing(self, callers: int = 1) -> None:
        """Have nothing to wait for."""

    async def close(self) -> None:
        """Have nothing to let go of."""


class PlainState:
    """A dict of jobs."""

    def __init__(self) -> None:
        self.seq = 0
        self.last_at_us = 0
        self._forget_before_us = 0
        self._jobs: dict[tuple[str, str], Job] = {}

    @property
    def forget_before_us(self) -> int:
        """Completed and cancelled jobs that finished before this are dropped."""
        return self._forget_before_us

    @forget_before_us.setter
    def forget_before_us(self, before_us: int) -> None:
        self._forget_before_us = before_us
        for job in self._in(State.COMPLETED, State.CANCELLED):
            if job.finished_at_us < before_us:
                del self._jobs[job.tenant, job.id]

    def fold(self, effect: Effect, seq: int) -> Job:
        """Take in the effect of this sequence number; return the job as it is now."""
        key = job_key(effect)
        job = lifecycle.apply(self._jobs.get(key), effect, seq)
        self._jobs[key] = job
        self.seq, self.last_at_us = seq, effect.at_us
        return job

    def get(self, tenant: str, job_id: str) -> Job | None:
        """Return the job, finished ones included while they are kept."""
        return self._jobs.get((tenant, job_id))

    def unfinished(self, tenant: str, queue: str, unique: str) -> Job | None:
        """Return the unfinished job that has this unique key."""
        return next(
            (
                job
                for job in self._jobs.values()
                if (job.tenant, job.queue, job.unique) == (tenant, queue, unique)
                and not job.state.finished
            ),
            None,
        )

    def holder(self, token: int) -> Job | None:
        """Return the job in flight under this token."""
        return next((job for job in self._in(State.IN_FLIGHT) if job.token == token), None)

    def claimable(
        self,
        queues: Collection[str],
        tasks: Collection[str] | None,
        caller: Caller,
        limit: int,
        now_us: int,
    ) -> list[Job]:
        """Return the next jobs to hand out, in order: due, unexpired, within reach."""
        due = [
            job
            for job in self._in(State.PENDING)
            if job.queue in queues
            and (tasks is None or job.task in tasks)
            and job.run_at_us <= now_us
            and (job.expires_at_us is None or job.expires_at_us > now_us)
            and caller.reaches(job.tenant, job.scope)
        ]
        return sorted(due, key=lambda job: (-job.priority, job.place))[:limit]

    def next_due_us(self, now_us: int) -> int | None:
        """Return when the next job that is not yet due becomes so."""
        return min(
            (job.run_at_us for job in self._in(State.PENDING) if job.run_at_us > now_us),
            default=None,
        )

    def overdue(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return jobs in flight whose lease has ended, those that ended first first."""
        ended = [
            job
            for job in self._in(State.IN_FLIGHT)
            if job.lease_until_us <= now_us and caller.reaches(job.tenant, job.scope)
        ]
        return sorted(ended, key=lambda job: (job.lease_until_us, job.token))[:limit]

    def expired(self, limit: int, caller: Caller, now_us: int) -> list[Job]:
        """Return unclaimed jobs whose ``expires_at`` has passed, oldest first."""
        ended = [
            (job.expires_at_us, job.seq, job)
            for job in self._in(State.PENDING, State.BLOCKED)
            if job.expires_at_us is not None
            and job.expires_at_us <= now_us
            and caller.reaches(job.tenant, job.scope)
        ]
        return [job for _at, _seq, job in sorted(ended)[:limit]]

    def jobs(self) -> Iterable[Job]:
        """Return every job that is kept."""
        return list(self._jobs.values())

    def counts(self, caller: Caller) -> Mapping[str, Counts]:
        """Return the counts of each queue."""
        return count_jobs(self._jobs.values(), caller)

    def problems(self) -> list[str]:
        """Return what is inconsistent: a dict of jobs cannot be."""
        return []

    def _in(self, *states: State) -> Iterable[Job]:
        return [job for job in self._jobs.values() if job.state in states]


def count_jobs(jobs: Iterable[Job], caller: Caller) -> Mapping[str, Counts]:
    """Count these jobs by queue and state."""
    found: dict[str, dict[str, int]] = {}
    for job in jobs:
        if caller.reaches(job.tenant, job.scope):
            queue = found.setdefault(job.queue, {})
            queue[job.state] = queue.get(job.state, 0) + 1
    return {queue: Counts(**states) for queue, states in sorted(found.items())}
