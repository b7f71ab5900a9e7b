"""The fixture of the conformance tests: an engine, its clock and helpers."""

from __future__ import annotations

import asyncio
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Concatenate, ParamSpec, TypeVar

from holdfast.engines.contract import Claim, Counts, Engine, EngineOptions, Reclaim
from holdfast.model.audit import Attribution
from holdfast.model.errors import LeaseLost
from holdfast.model.failure import Failure
from holdfast.model.history import History
from holdfast.model.job import Job, NewJob, State, encode_payload
from holdfast.model.outcome import Outcome, completed, dead
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import FailureGroup, Filter, Page
from holdfast.model.uniform_batch import UniformBatch
from holdfast.testing.clock import VirtualClock

FAILURE = Failure.of("upstream_5xx", "503 from the mail server")
WRONG = Failure.of("mapping_error", "no column 'isbn'")
"""A failure that a retry cannot fix."""
OPERATION = Attribution("ann", "the mail server is back")
PATIENCE_SECONDS = 10.0
OPTIONS = EngineOptions(remember_seconds=60.0, max_processing_seconds=600.0)


class EngineFixture:
    """An engine and its clock, with shortcuts for common calls."""

    def __init__(self, engine: Engine, clock: VirtualClock) -> None:
        self.engine = engine
        self.clock = clock

    async def put(self, *ids: str, **fields: object) -> list[str]:
        """Enqueue jobs with these ids; return the ids."""
        jobs = [new_job(id=job_id, **fields) for job_id in ids]
        return [receipt.id for receipt in await self.engine.enqueue(jobs)]

    async def take(self, limit: int = 1, **fields: object) -> list[Job]:
        """Claim jobs."""
        return (await self.claim(limit=limit, **fields)).jobs

    async def claim(self, **fields: object) -> Claim:
        """Claim with defaults."""
        arguments: dict[str, object] = {"queues": ["default"], "worker": "w1", **fields}
        claim: Callable[..., Awaitable[Claim]] = self.engine.claim
        return await claim(**arguments)

    async def take_ids(self, limit: int = 100, **fields: object) -> list[str]:
        """Claim jobs; return their ids."""
        return [job.id for job in await self.take(limit, **fields)]

    async def settle(self, *outcomes: Outcome) -> list[LeaseLost | None]:
        """Settle these outcomes."""
        return await self.engine.settle(outcomes)

    async def job(self, job_id: str) -> Job:
        """Return the job, which must exist."""
        job = (await self.engine.get([job_id]))[0]
        assert job is not None, f"{job_id} is gone"
        return job

    async def state(self, job_id: str) -> State:
        """Return the job's state."""
        return (await self.job(job_id)).state

    async def counts(self, queue: str = "default") -> Counts:
        """Return one queue's counts."""
        return (await self.engine.counts()).get(queue, Counts())

    async def complete(self, *ids: str, **fields: object) -> None:
        """Claim jobs, which must be these, and complete them."""
        jobs = await self.take(len(ids), **fields)
        assert [job.id for job in jobs] == list(ids)
        assert await self.settle(*map(completed, jobs)) == [None] * len(ids)

    async def dead_letter(self, *ids: str, failure: Failure = FAILURE, **fields: object) -> None:
        """Claim jobs, which must be these, and settle them as dead."""
        jobs = await self.take(len(ids), **fields)
        assert [job.id for job in jobs] == list(ids)
        assert await self.settle(*(dead(job, failure) for job in jobs)) == [None] * len(ids)

    async def put_dead(self, *ids: str, failure: Failure = FAILURE, **fields: object) -> None:
        """Enqueue jobs and settle them as dead; nothing else may be due in their queue."""
        await self.put(*ids, **fields)
        await self.dead_letter(*ids, failure=failure, queues=[fields.get("queue", "default")])

    async def set_policy(self, queue: str = "default", **fields: object) -> None:
        """Set the policy of a queue."""
        make: Callable[..., QueuePolicy] = QueuePolicy
        await self.engine.set_policy(queue, make(**fields), OPERATION)

    async def find(self, **conditions: object) -> list[str]:
        """Return the ids that a filter finds, in order."""
        page: Page = await self.engine.find(wanted(**conditions), limit=1_000)
        return [job.id for job in page.jobs]

    async def group(self) -> FailureGroup:
        """Return the only group of dead letters."""
        [group] = await self.engine.groups()
        return group

    async def history(self, job_id: str) -> History:
        """Return the history of a job, which must exist."""
        [history] = await self.engine.history([job_id])
        assert history is not None, f"{job_id} has no history"
        return history

    async def expire_leases(self, seconds: float = 31.0) -> Reclaim:
        """Let time pass, then reclaim."""
        self.clock.advance(seconds)
        return await self.engine.reclaim()


def new_job(**fields: object) -> NewJob:
    """Return a new job with defaults."""
    make: Callable[..., NewJob] = NewJob
    return make(**{"task": "t", "payload": {"n": 1}, **fields})


def uniform_batch(
    count: int, numbers: Iterable[object] | None = None, **fields: object
) -> UniformBatch:
    """Return a batch of ``count`` jobs that differ only in the number in their payload."""
    each = range(count) if numbers is None else numbers
    payloads = (encode_payload({"n": number}) for number in each)
    return UniformBatch(new_job(**fields), payloads, count)


def wanted(**conditions: object) -> Filter:
    """Return a filter."""
    make: Callable[..., Filter] = Filter
    return make(**conditions)


def named(*ids: str) -> Filter:
    """Return a filter for the jobs of these ids."""
    return Filter(ids=ids)


class WaitingClaim:
    """A claim that waits; create it before the call that is to wake it."""

    def __init__(self, fixture: EngineFixture, **fields: object) -> None:
        arguments = {"limit": 10, "wait_seconds": 60, **fields}
        self._task = asyncio.create_task(fixture.claim(**arguments))

    async def still_waits(self) -> None:
        """Run everything that is ready; the claim must still wait."""
        await settle_down()
        assert not self._task.done()

    async def ids(self) -> list[str]:
        """Return the ids of the claimed jobs; fail if nothing wakes the claim in time."""
        answer = await asyncio.wait_for(self._task, PATIENCE_SECONDS)
        return [job.id for job in answer.jobs]


class Suite(ABC):
    """Base of the rule classes: opens an engine and runs a test on it."""

    @abstractmethod
    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        """Return a new, empty engine."""

    def check(
        self, scenario: Callable[[EngineFixture], Awaitable[None]], options: EngineOptions = OPTIONS
    ) -> None:
        """Run a scenario on a new engine, which must be valid afterwards."""

        async def run() -> None:
            clock = VirtualClock()
            engine = await self.open_engine(clock, options)
            try:
                await scenario(EngineFixture(engine, clock))
                assert await engine.validate() == []
            finally:
                await engine.close()

        asyncio.run(run())


P = ParamSpec("P")
S = TypeVar("S", bound=Suite)


def on_engine(
    test: Callable[Concatenate[S, EngineFixture, P], Awaitable[None]],
) -> Callable[Concatenate[S, P], None]:
    """Turn a coroutine function that takes an ``EngineFixture`` first into a test."""

    @functools.wraps(test)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.check(lambda fixture: test(self, fixture, *args, **kwargs))

    # Hide the engine parameter: pytest would look for a pytest fixture of that name.
    signature = inspect.signature(test)
    own, _fixture, *others = signature.parameters.values()
    vars(run)["__signature__"] = signature.replace(parameters=[own, *others])
    return run


async def settle_down() -> None:
    """Let everything that is ready run."""
    for _turn in range(20):
        await asyncio.sleep(0)
