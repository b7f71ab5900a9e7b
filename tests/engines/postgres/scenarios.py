"""Scenarios: one verb is called over a connection that breaks, and what must be true after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

import psycopg

from holdfast.engines.contract import Admission, Claim, Receipt, Renewal
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model import outcome
from holdfast.model.actions import CancelJobs, NoteJobs, ReplayJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import InvalidInput, LeaseLost, Unavailable
from holdfast.model.failure import Failure
from holdfast.model.job import Edit, Job, JobRef, NewJob, State
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter
from holdfast.model.uniform_batch import UniformBatch

T = TypeVar("T")
FAILURE = Failure.of("timeout", "too slow")
OUTCOME_UNKNOWN = "outcome unknown"
WORKER = "w"


class Case:
    """One try: an engine behind the proxy, one beside it, and names that are not used yet."""

    def __init__(self, beside: PostgresEngine, behind: PostgresEngine, url: str) -> None:
        self.beside = beside
        self.url = url
        self.queue = ""
        self.given_up = False
        self._behind = behind
        self._arm: Callable[[], None] = lambda: None

    def again(self, queue: str, arm: Callable[[], None]) -> None:
        """Start again."""
        self.queue, self._arm, self.given_up = queue, arm, False

    async def through(self, verb: Callable[[PostgresEngine], Awaitable[T]]) -> T:
        """Call the verb through the proxy while the fault is armed."""
        self._arm()
        return await verb(self._behind)

    async def once(self, verb: Callable[[PostgresEngine, Attribution], Awaitable[object]]) -> None:
        """Perform an admin action: if it raises, its outcome is unknown; it is never done twice."""
        entry = AuditEntry("act", "job", self.queue, "ann")
        attribution = Attribution("ann", "a test", (entry,))
        try:
            await self.through(lambda engine: verb(engine, attribution))
        except Unavailable as error:
            self.given_up = OUTCOME_UNKNOWN in str(error)
            if not self.given_up:
                raise

    async def done(self) -> bool:
        """Whether the operation was recorded: never twice, and not at all only after an error."""
        audited = await self.beside.audited(after=0, limit=1_000)
        count = sum(record.entry.resource_id == self.queue for record in audited)
        assert count == 1 or (count == 0 and self.given_up)
        return count == 1

    async def check_recorded(self, changed: Callable[[], Awaitable[bool]]) -> None:
        """The change is there exactly if it was recorded.

        After a cut whose outcome is unknown the server may still be about to commit: these are two
        looks, so they are taken again until they agree.
        """
        give_up = asyncio.get_running_loop().time() + 10
        while await changed() != await self.done():
            assert self.given_up
            assert asyncio.get_running_loop().time() < give_up, "a change that is not recorded"
            await asyncio.sleep(0.01)

    async def moved(self, before: State, after: State) -> bool:
        """Whether all jobs are in the state after; otherwise all are in the one before."""
        [state] = {job.state for job in (await self.jobs()).values()}
        assert state in (before, after)
        return state is after

    def new(self, number: int = 0, **fields: Any) -> NewJob:
        make: Callable[..., NewJob] = NewJob
        return make(task="t", payload={"n": number}, queue=self.queue, **fields)

    def id(self, number: int = 0) -> str:
        return f"{self.queue}-{number}"

    async def held(self, count: int = 1, **fields: Any) -> list[Job]:
        """Return jobs that are in flight."""
        await self.beside.enqueue([self.new(n, id=self.id(n), **fields) for n in range(count)])
        return (await self.claim(self.beside, limit=count)).jobs

    async def claim(
        self, engine: PostgresEngine, *, limit: int, settle: Sequence[outcome.Outcome] = ()
    ) -> Claim:
        return await engine.claim(queues=[self.queue], worker=WORKER, limit=limit, settle=settle)

    async def jobs(self) -> dict[str, Job]:
        """Return every job of the queue; none may be in the tables twice."""
        tables = " UNION ALL ".join(
            f"SELECT id FROM holdfast.{name} WHERE queue = %(queue)s"  # noqa: S608 - no input
            for name in ("jobs", "dead", "history")
        )
        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            rows = await (await connection.execute(tables, {"queue": self.queue})).fetchall()
        ids = [row[0] for row in rows]
        assert len(ids) == len(set(ids)), f"twice: {ids}"
        found = await self.beside.get(ids)
        assert None not in found
        return {job.id: job for job in found if job is not None}

    async def endings(self, job_id: str) -> list[str]:
        """Return how the job's attempts ended."""
        [history] = await self.beside.history([job_id])
        assert history is not None
        return [attempt.ending for attempt in history.attempts]


Scenario = Callable[[Case], Awaitable[None]]

# --- enqueue ------------------------------------------------------------------------------------


async def enqueue_one(case: Case) -> None:
    [receipt] = await case.through(lambda engine: engine.enqueue([case.new()]))
    assert receipt.admission is Admission.CREATED
    assert list(await case.jobs()) == [receipt.id]


async def enqueue_many(case: Case) -> None:
    receipts = await case.through(lambda engine: engine.enqueue([case.new(n) for n in range(5)]))
    assert {receipt.admission for receipt in receipts} == {Admission.CREATED}
    payloads = {job.id: job.payload for job in (await case.jobs()).values()}
    assert [payloads.pop(receipt.id) for receipt in receipts] == [b'{"n":%d}' % n for n in range(5)]
    assert not payloads


async def enqueue_alike(case: Case) -> None:
    count = 200  # three statements
    payloads = [b'{"n":%d}' % n for n in range(count)]
    receipts = await case.through(
        lambda engine: engine.enqueue(UniformBatch(case.new(), iter(payloads), count))
    )
    assert {receipt.admission for receipt in receipts} == {Admission.CREATED}
    jobs = await case.jobs()
    assert [jobs.pop(receipt.id).payload for receipt in receipts] == payloads
    assert not jobs


async def enqueue_alike_beside_bad_ones(case: Case) -> None:
    refused = InvalidInput("n", "is not a number")

    def some(*, bad: bool) -> UniformBatch:
        def payloads() -> Iterator[bytes]:
            yield from [b"{}"] * 99
            if bad:
                raise refused
            yield b"{}"

        return UniformBatch(case.new(), payloads(), 100)

    async def all_at_once(engine: PostgresEngine) -> list[list[Receipt] | BaseException]:
        calls = [engine.enqueue(some(bad=bad)) for bad in (True, False, True, False)]
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second, third, fourth = await case.through(all_at_once)
    assert first is refused
    assert third is refused
    assert isinstance(second, list)
    assert isinstance(fourth, list)
    assert {receipt.id for receipt in second + fourth} == (await case.jobs()).keys()


async def enqueue_from_many_callers(case: Case) -> None:
    async def call(engine: PostgresEngine) -> list[list[Receipt]]:
        simple = [engine.enqueue([case.new(n)]) for n in range(4)]
        named = [engine.enqueue([case.new(n, id=case.id(n))]) for n in range(4)]
        return await asyncio.gather(*simple, *named)

    receipts = [receipt for [receipt] in await case.through(call)]
    assert {receipt.admission for receipt in receipts} == {Admission.CREATED}
    assert {receipt.id for receipt in receipts} == set(await case.jobs())


async def enqueue_with_ids(case: Case) -> None:
    news = [case.new(n, id=case.id(n)) for n in range(2)]
    receipts = await case.through(lambda engine: engine.enqueue(news))
    assert receipts == [Receipt(case.id(0)), Receipt(case.id(1))]
    assert set(await case.jobs()) == {case.id(0), case.id(1)}


async def enqueue_what_is_known(case: Case) -> None:
    await case.beside.enqueue([case.new(7, id=case.id(0))])
    news = [case.new(n, id=case.id(n)) for n in range(2)]
    receipts = await case.through(lambda engine: engine.enqueue(news, on_duplicate="skip"))
    assert receipts == [Receipt(case.id(0), Admission.SKIPPED), Receipt(case.id(1))]
    assert (await case.jobs())[case.id(0)].payload == b'{"n":7}'


async def enqueue_unique(case: Case) -> None:
    news = [case.new(0, unique="a"), case.new(1, unique="a"), case.new(2, unique="b")]
    receipts = await case.through(lambda engine: engine.enqueue(news))
    kinds = [receipt.admission for receipt in receipts]
    assert kinds == [Admission.CREATED, Admission.EXISTING, Admission.CREATED]
    assert receipts[0].id == receipts[1].id
    assert set(await case.jobs()) == {receipts[0].id, receipts[2].id}


async def enqueue_unique_again(case: Case) -> None:
    [first] = await case.beside.enqueue([case.new(0, unique="a")])
    receipts = await case.through(lambda engine: engine.enqueue([case.new(1, unique="a")]))
    assert receipts == [Receipt(first.id, Admission.EXISTING)]
    assert list(await case.jobs()) == [first.id]


async def enqueue_with_keys(case: Case) -> None:
    receipts = await case.through(
        lambda engine: engine.enqueue([case.new(n, key="k") for n in range(3)])
    )
    for receipt in receipts:  # one after another, in this order
        [job] = (await case.claim(case.beside, limit=3)).jobs
        assert job.id == receipt.id
        await case.beside.settle([outcome.completed(job)])
    assert len(await case.jobs()) == 3


async def enqueue_with_dependencies(case: Case) -> None:
    [first] = await case.held()
    news = [case.new(1, id=case.id(1), depends_on=(first.id,))]
    assert await case.through(lambda engine: engine.enqueue(news)) == [Receipt(case.id(1))]
    assert (await case.jobs())[case.id(1)].state is State.BLOCKED
    await case.beside.settle([outcome.completed(first)])
    assert (await case.jobs())[case.id(1)].state is State.PENDING


# --- claim --------------------------------------------------------------------------------------


async def claim(case: Case) -> None:
    await case.beside.enqueue([case.new(n, id=case.id(n)) for n in range(3)])
    taken = await case.through(lambda engine: case.claim(engine, limit=2))
    assert [job.id for job in taken.jobs] == [case.id(0), case.id(1)]
    now = await case.jobs()
    assert [now[job.id] for job in taken.jobs] == taken.jobs
    assert now[case.id(0)].attempt == 1
    assert now[case.id(2)].state is State.PENDING


async def claim_from_a_limited_queue(case: Case) -> None:
    await case.beside.set_policy(
        case.queue, QueuePolicy(max_in_flight=2, fair=True), Attribution("ann", "a test")
    )
    await case.beside.enqueue([case.new(n, id=case.id(n)) for n in range(4)])
    taken = await case.through(lambda engine: case.claim(engine, limit=5))
    assert len(taken.jobs) == 2
    now = await case.jobs()
    assert sum(job.state is State.IN_FLIGHT for job in now.values()) == 2
    assert [now[job.id] for job in taken.jobs] == taken.jobs


# --- settle -------------------------------------------------------------------------------------


def settling(
    make: Callable[[Job], outcome.Outcome], state: State, ending: str, **fields: Any
) -> Scenario:
    async def settle(case: Case) -> None:
        [job] = await case.held(**fields)
        assert await case.through(lambda engine: engine.settle([make(job)])) == [None]
        [now] = (await case.jobs()).values()
        assert now.state is state
        assert await case.endings(job.id) == [ending]
        assert isinstance((await case.beside.settle([make(job)]))[0], LeaseLost)

    return settle


async def settle_some(case: Case) -> None:
    jobs = await case.held(4)
    outcomes = [
        outcome.completed(jobs[0], b"1"),
        outcome.retry(jobs[1], FAILURE),
        outcome.completed(jobs[0], b"2"),
        outcome.dead(jobs[2], FAILURE),
    ]
    answers = await case.through(lambda engine: engine.settle(outcomes))
    assert [answer is None for answer in answers] == [True, True, False, True]
    now = await case.jobs()
    assert now[jobs[0].id].result == b"1"
    assert [now[job.id].state for job in jobs] == [
        State.COMPLETED,
        State.PENDING,
        State.DEAD,
        State.IN_FLIGHT,
    ]


async def settle_and_claim(case: Case) -> None:
    jobs = await case.held(2)
    await case.beside.enqueue([case.new(n, id=case.id(n)) for n in range(2, 8)])

    async def fused(engine: PostgresEngine) -> list[Claim]:
        # The second one knows where the line begins, and is a single step.
        first = await case.claim(engine, limit=2, settle=[outcome.completed(jobs[0])])
        outcomes = [outcome.completed(jobs[1]), outcome.completed(first.jobs[0])]
        return [first, await case.claim(engine, limit=2, settle=outcomes)]

    first, second = await case.through(fused)
    assert first.settled == [None]
    assert second.settled == [None, None]
    assert [job.id for job in first.jobs] == [case.id(2), case.id(3)]
    assert [job.id for job in second.jobs] == [case.id(4), case.id(5)]
    now = await case.jobs()
    assert [now[case.id(n)].state.value for n in range(8)] == ["completed"] * 3 + [
        "in_flight"
    ] * 3 + ["pending"] * 2


async def settle_and_claim_with_care(case: Case) -> None:
    jobs = await case.held(2)
    await case.beside.enqueue([case.new(2, id=case.id(2))])
    outcomes = [outcome.release(jobs[0]), outcome.completed(jobs[1])]
    taken = await case.through(lambda engine: case.claim(engine, limit=2, settle=outcomes))
    assert taken.settled == [None, None]
    assert [job.id for job in taken.jobs] == [case.id(0), case.id(2)]
    assert taken.jobs[0].attempt == 1


async def settle_what_others_wait_for(case: Case) -> None:
    [job] = await case.held(key="k")
    waiting = [
        case.new(1, id=case.id(1), depends_on=(job.id,)),
        case.new(2, id=case.id(2), key="k"),
    ]
    await case.beside.enqueue(waiting)
    done = [outcome.completed(job)]
    assert await case.through(lambda engine: engine.settle(done)) == [None]
    assert len((await case.claim(case.beside, limit=3)).jobs) == 2


async def extend(case: Case) -> None:
    jobs = await case.held(2)
    await case.beside.settle([outcome.completed(jobs[1])])
    answers = await case.through(lambda engine: engine.extend(jobs, lease_seconds=600))
    assert isinstance(answers[0], Renewal)
    assert isinstance(answers[1], LeaseLost)
    now = await case.jobs()
    assert now[jobs[0].id].lease_until_us == answers[0].lease_until_us > jobs[0].lease_until_us


async def reclaim(case: Case) -> None:
    [job] = await case.held(estimated_seconds=0.001)
    await asyncio.sleep(0.002)
    await case.through(lambda engine: engine.reclaim())
    assert (await case.jobs())[job.id].losses == 1
    assert await case.endings(job.id) == ["lost"]


# --- what people do -----------------------------------------------------------------------------


async def cancel(case: Case) -> None:
    await case.beside.enqueue([case.new(n, id=case.id(n)) for n in range(2)])
    wanted = Filter(queues=(case.queue,))
    await case.once(lambda engine, attribution: engine.operate(CancelJobs(), wanted, attribution))
    await case.check_recorded(lambda: case.moved(State.PENDING, State.CANCELLED))


async def replay(case: Case) -> None:
    [job] = await case.held()
    await case.beside.settle([outcome.dead(job, FAILURE)])
    wanted = Filter(queues=(case.queue,))
    await case.once(lambda engine, attribution: engine.operate(ReplayJobs(), wanted, attribution))
    await case.check_recorded(lambda: case.moved(State.DEAD, State.PENDING))


async def edit(case: Case) -> None:
    await case.beside.enqueue([case.new(0, id=case.id(0))])
    change = Edit(priority=5)
    name = (await case.jobs())[case.id(0)]
    await case.once(lambda engine, attribution: engine.edit(name, change, attribution))

    async def changed() -> bool:
        [priority] = [job.priority for job in (await case.jobs()).values()]
        assert priority in (0, 5)
        return priority == 5

    await case.check_recorded(changed)


async def note(case: Case) -> None:
    await case.beside.enqueue([case.new(0, id=case.id(0))])
    wanted = Filter(ids=(case.id(0),))
    await case.once(
        lambda engine, attribution: engine.operate(NoteJobs("seen"), wanted, attribution)
    )

    async def noted() -> bool:
        [history] = await case.beside.history([case.id(0)])
        assert history is not None
        assert len(history.notes) <= 1
        return bool(history.notes)

    await case.check_recorded(noted)


async def end_a_lease(case: Case) -> None:
    [job] = await case.held()
    forced: list[JobRef] = [job]
    await case.once(
        lambda engine, attribution: engine.reclaim(forced=forced, attribution=attribution)
    )
    await case.check_recorded(lambda: case.moved(State.IN_FLIGHT, State.PENDING))


async def set_policy(case: Case) -> None:
    policy = QueuePolicy(paused=True)
    await case.once(lambda engine, attribution: engine.set_policy(case.queue, policy, attribution))

    async def changed() -> bool:
        return case.queue in await case.beside.policies()

    await case.check_recorded(changed)


async def set_flag(case: Case) -> None:
    await case.once(lambda engine, attribution: engine.set_flag(case.queue, attribution, on=True))

    async def changed() -> bool:
        return case.queue in await case.beside.flags()

    await case.check_recorded(changed)


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        enqueue_one,
        enqueue_many,
        enqueue_alike,
        enqueue_alike_beside_bad_ones,
        enqueue_from_many_callers,
        enqueue_with_ids,
        enqueue_what_is_known,
        enqueue_unique,
        enqueue_unique_again,
        enqueue_with_keys,
        enqueue_with_dependencies,
        claim,
        claim_from_a_limited_queue,
        settle_some,
        settle_and_claim,
        settle_and_claim_with_care,
        settle_what_others_wait_for,
        extend,
        reclaim,
        cancel,
        replay,
        edit,
        note,
        end_a_lease,
        set_policy,
        set_flag,
    )
} | {
    "completed": settling(outcome.completed, State.COMPLETED, "completed"),
    "completed_with_key": settling(outcome.completed, State.COMPLETED, "completed", key="k"),
    "retry": settling(lambda job: outcome.retry(job, FAILURE), State.PENDING, "retry"),
    "retry_for_the_last_time": settling(
        lambda job: outcome.retry(job, FAILURE), State.DEAD, "dead", max_attempts=1
    ),
    "dead": settling(lambda job: outcome.dead(job, FAILURE), State.DEAD, "dead"),
    "dead_with_key": settling(lambda job: outcome.dead(job, FAILURE), State.DEAD, "dead", key="k"),
    "release": settling(outcome.release, State.PENDING, "release"),
    "snooze": settling(lambda job: outcome.snooze(job, 60), State.PENDING, "snooze"),
    "cancelled": settling(outcome.cancelled, State.CANCELLED, "cancelled"),
    "lost": settling(lambda job: outcome.lost(job, "gone"), State.PENDING, "lost"),
}
