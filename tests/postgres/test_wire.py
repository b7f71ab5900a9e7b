"""The wire breaks at every message of every verb: what was done is known, and is done once.

Each scenario is played again and again, the fault one message later each time, until it comes too
late to strike: first on the way to the server, then on the way back. What the server was doing
when its answer was lost it finishes, commits included.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import psycopg
import pytest

from holdfast.engines.base import Admission, Claim, Receipt, Renewal
from holdfast.engines.postgres import PostgresEngine, PostgresOptions, statements
from holdfast.engines.postgres import engine as engine_module
from holdfast.engines.postgres.enqueueing import Request, enqueue
from holdfast.model import outcome
from holdfast.model.errors import DuplicateId, LeaseLost, Unavailable
from holdfast.model.failure import Failure
from holdfast.model.job import Edit, Job, JobRef, NewJob, State
from holdfast.model.operation import AuditEntry, Operation
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter

from .proxy import Fault, How, Proxy, Side

T = TypeVar("T")
FAILURE = Failure.of("timeout", "too slow")
NOBODY_KNOWS = "nobody here knows"
WORKER = "w"
LONG = "HOLDFAST_TEST_KILLS" in os.environ
SOME = 1_000 if LONG else 2
LAST = 4
"""How many messages before the end are all tried: commits and their answers are among them."""
NEVER = 1_000_000
NUMBERS = itertools.count()


class Case:
    """One try: an engine behind the wire, one beside it, and names that nobody has used yet."""

    def __init__(self, beside: PostgresEngine, behind: PostgresEngine, url: str) -> None:
        self.beside = beside
        self.url = url
        self.queue = ""
        self.given_up = False
        self._behind = behind
        self._arm: Callable[[], None] = lambda: None

    def again(self, queue: str, arm: Callable[[], None]) -> None:
        """Begin anew."""
        self.queue, self._arm, self.given_up = queue, arm, False

    async def through(self, verb: Callable[[PostgresEngine], Awaitable[T]]) -> T:
        """Have the verb called over the wire while the fault is there."""
        self._arm()
        return await verb(self._behind)

    async def once(self, verb: Callable[[PostgresEngine, Operation], Awaitable[object]]) -> None:
        """Have a person's operation done: an error says that nobody knows; never is it two."""
        entry = AuditEntry("act", "job", self.queue, "ann")
        operation = Operation("ann", "a test", (entry,))
        try:
            await self.through(lambda engine: verb(engine, operation))
        except Unavailable as error:
            self.given_up = NOBODY_KNOWS in str(error)
            if not self.given_up:
                raise

    async def done(self) -> bool:
        """Whether the operation was recorded; it must not be twice, nor silently not at all."""
        audited = await self.beside.audited(after=0, limit=1_000)
        count = sum(record.entry.resource_id == self.queue for record in audited)
        assert count == 1 or (count == 0 and self.given_up)
        return count == 1

    def new(self, number: int = 0, **fields: object) -> NewJob:
        make: Callable[..., NewJob] = NewJob
        return make(task="t", payload={"n": number}, queue=self.queue, **fields)

    def id(self, number: int = 0) -> str:
        return f"{self.queue}-{number}"

    async def held(self, count: int = 1, **fields: object) -> list[Job]:
        """Return jobs that are in flight."""
        await self.beside.enqueue([self.new(n, id=self.id(n), **fields) for n in range(count)])
        return (await self.claim(self.beside, limit=count)).jobs

    async def claim(
        self, engine: PostgresEngine, *, limit: int, settle: Sequence[outcome.Outcome] = ()
    ) -> Claim:
        return await engine.claim(queues=[self.queue], worker=WORKER, limit=limit, settle=settle)

    async def jobs(self) -> dict[str, Job]:
        """Return every job of the queue; none may be there twice, wherever it is."""
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
        case.queue, QueuePolicy(max_in_flight=2, fair=True), Operation("ann", "a test")
    )
    await case.beside.enqueue([case.new(n, id=case.id(n)) for n in range(4)])
    taken = await case.through(lambda engine: case.claim(engine, limit=5))
    assert len(taken.jobs) == 2
    now = await case.jobs()
    assert sum(job.state is State.IN_FLIGHT for job in now.values()) == 2
    assert [now[job.id] for job in taken.jobs] == taken.jobs


# --- settle -------------------------------------------------------------------------------------


def settling(
    make: Callable[[Job], outcome.Outcome], state: State, ending: str, **fields: object
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
    await case.once(lambda engine, operation: engine.cancel(wanted, operation))
    expected = State.CANCELLED if await case.done() else State.PENDING
    assert {job.state for job in (await case.jobs()).values()} == {expected}


async def replay(case: Case) -> None:
    [job] = await case.held()
    await case.beside.settle([outcome.dead(job, FAILURE)])
    wanted = Filter(queues=(case.queue,))
    await case.once(lambda engine, operation: engine.replay(wanted, operation))
    expected = State.PENDING if await case.done() else State.DEAD
    assert [job.state for job in (await case.jobs()).values()] == [expected]


async def edit(case: Case) -> None:
    await case.beside.enqueue([case.new(0, id=case.id(0))])
    change = Edit(priority=5)
    name = (await case.jobs())[case.id(0)]
    await case.once(lambda engine, operation: engine.edit(name, change, operation))
    expected = 5 if await case.done() else 0
    assert [job.priority for job in (await case.jobs()).values()] == [expected]


async def note(case: Case) -> None:
    await case.beside.enqueue([case.new(0, id=case.id(0))])
    wanted = Filter(ids=(case.id(0),))
    await case.once(lambda engine, operation: engine.note(wanted, "seen", operation))
    [history] = await case.beside.history([case.id(0)])
    assert history is not None
    assert len(history.notes) == int(await case.done())


async def end_a_lease(case: Case) -> None:
    [job] = await case.held()
    forced: list[JobRef] = [job]
    await case.once(lambda engine, operation: engine.reclaim(forced=forced, operation=operation))
    expected = State.PENDING if await case.done() else State.IN_FLIGHT
    assert [job.state for job in (await case.jobs()).values()] == [expected]


async def set_policy(case: Case) -> None:
    policy = QueuePolicy(paused=True)
    await case.once(lambda engine, operation: engine.set_policy(case.queue, policy, operation))
    assert (case.queue in await case.beside.policies()) == await case.done()


async def set_flag(case: Case) -> None:
    await case.once(lambda engine, operation: engine.set_flag(case.queue, operation, on=True))
    assert (case.queue in await case.beside.flags()) == await case.done()


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        enqueue_one,
        enqueue_many,
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


# --- playing them -------------------------------------------------------------------------------


def seeded() -> random.Random:
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    return random.Random(seed)


@contextlib.asynccontextmanager
async def wired(
    url: str, *, statement_timeout_seconds: float = 30.0, delay: Callable[[], float] | None = None
) -> AsyncIterator[tuple[Case, Proxy]]:
    async with Proxy(url, delay) as proxy:
        beside = await PostgresEngine.open(url, options=PostgresOptions(listen=False))
        options = PostgresOptions(
            max_connections=1,
            listen=False,
            patience_seconds=20.0,
            statement_timeout_seconds=statement_timeout_seconds,
        )
        behind = await PostgresEngine.open(proxy.url, options=options)
        try:
            yield Case(beside, behind, url), proxy
        finally:
            proxy.arm(None)
            await behind.close()
            await beside.close()


async def play(
    case: Case, proxy: Proxy, scenario: Scenario, side: Side, after: int, how: How
) -> bool:
    """Play a scenario with a fault at this message; return whether it struck."""
    fault = Fault(side, after, how)
    case.again(f"{next(NUMBERS)}-{side}-{after}-{how}", lambda: proxy.arm(fault))
    try:
        await scenario(case)
    except BaseException as error:
        error.add_note(f"{side} cut after {after} messages ({how})")
        raise
    return fault.struck.is_set()


async def play_at_many_messages(url: str, scenario: Scenario, rng: random.Random) -> int:
    """Return how often the wire broke: at the first messages, the last, and some in between."""
    struck = 0
    async with wired(url) as (case, proxy):
        for side in ("request", "answer"):
            fault = Fault(side, NEVER, "end")
            case.again(f"{next(NUMBERS)}-{side}", lambda fault=fault: proxy.arm(fault))
            await scenario(case)
            count = NEVER - fault.left
            between = range(1, count - LAST)
            some = rng.sample(between, min(SOME, len(between)))
            for after in [0, *sorted(some), *range(max(1, count - LAST), count)]:
                how: How = rng.choice(("end", "reset"))
                struck += await play(case, proxy, scenario, side, after, how)
    return struck


@pytest.mark.parametrize("name", SCENARIOS)
def test_wherever_the_wire_breaks_it_is_done_once_and_told_right(server18, name):
    with server18.fresh() as url:
        struck = asyncio.run(play_at_many_messages(url, SCENARIOS[name], seeded()))
    assert struck >= 4


@pytest.mark.parametrize("name", ["enqueue_one", "settle_and_claim", "cancel"])
def test_a_wire_that_is_slow_at_every_message_changes_nothing(server18, name):
    rng = seeded()

    async def main(url: str) -> None:
        async with wired(url, delay=lambda: rng.uniform(0, 0.005)) as (case, _proxy):
            case.again(name, lambda: None)
            await SCENARIOS[name](case)
            assert not case.given_up

    with server18.fresh() as url:
        asyncio.run(main(url))


HALF_OPEN = ("enqueue_one", "enqueue_with_ids", "claim", "completed", "retry", "extend", "cancel")


def test_a_wire_that_says_nothing_any_more_is_given_up_and_all_is_well(server18):
    async def main(url: str) -> None:
        async def one(name: str, side: Side, after: int) -> None:
            async with wired(url, statement_timeout_seconds=0.3) as (case, proxy):
                try:
                    assert await play(case, proxy, SCENARIOS[name], side, after, "hang")
                except Unavailable as error:
                    # What is not there yet may still be on its way: then nobody knows.
                    if name != "enqueue_one" or side != "request" or NOBODY_KNOWS not in str(error):
                        raise
                    assert not await case.jobs()

        await asyncio.gather(
            *(one(name, "request", 0) for name in HALF_OPEN),
            *(one(name, "answer", 0) for name in HALF_OPEN),
            one("retry", "answer", 12),
            one("cancel", "answer", 25),
        )

    with server18.fresh() as url:
        asyncio.run(main(url))


@pytest.mark.parametrize("fields", [{}, {"id": "named"}, {"unique": "u"}, {"key": "k"}])
def test_an_enqueue_that_the_server_is_still_busy_with_is_not_called_a_duplicate(server18, fields):
    """The wire breaks while the server waits for a lock: the first try commits after the look."""

    async def main(url: str) -> None:
        async with wired(url) as (case, proxy), await psycopg.AsyncConnection.connect(url) as other:
            await other.execute("LOCK TABLE holdfast.policies IN ACCESS EXCLUSIVE MODE")
            case.again("busy", lambda: None)
            enqueueing = asyncio.ensure_future(
                case.through(lambda engine: engine.enqueue([case.new(**fields)]))
            )
            await waiting_for_a_lock(url, 1)
            proxy.cut()
            await waiting_for_a_lock(url, 2)
            await other.rollback()
            [receipt] = await enqueueing
            assert receipt.admission is Admission.CREATED
            assert list(await case.jobs()) == [receipt.id]

    with server18.fresh() as url:
        asyncio.run(main(url))


async def waiting_for_a_lock(url: str, count: int) -> None:
    """Wait until so many sessions of this database do."""
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        async with asyncio.timeout(20):
            while (await (await connection.execute(query)).fetchone()) != (count,):  # noqa: ASYNC110
                await asyncio.sleep(0.005)


def test_what_arrives_after_it_was_given_up_is_not_taken_a_second_time(server18):
    """The first try is held up on its way, until what was sent after it is long finished."""

    async def main(url: str, fields: dict[str, object]) -> None:
        async with wired(url, statement_timeout_seconds=0.2) as (case, proxy):
            fault = Fault("request", 0, "hold")
            case.again(f"late-{len(fields)}", lambda: proxy.arm(fault))
            try:
                await case.through(lambda engine: engine.enqueue([case.new(**fields)]))
            except Unavailable as error:
                assert NOBODY_KNOWS in str(error)  # noqa: PT017 - or it was taken
            for job in (await case.claim(case.beside, limit=2)).jobs:
                await case.beside.settle([outcome.completed(job)])
            assert fault.link is not None
            await fault.link.release()
            assert len(await case.jobs()) == 1

    async def both(url: str) -> None:
        await asyncio.gather(main(url, {}), main(url, {"id": "named"}))

    with server18.fresh() as url:
        asyncio.run(both(url))


def test_a_lease_that_ran_out_is_not_taken_for_what_was_to_be_settled(server18):
    """The outcome never reached the server, and when it is asked the job has been lost."""

    async def main(url: str) -> None:
        async with wired(url) as (case, _proxy):
            case.again("ran-out", lambda: None)
            for make in (outcome.completed, lambda job: outcome.retry(job, FAILURE)):
                [job] = await case.held(estimated_seconds=0.001)
                await asyncio.sleep(0.002)
                await case.beside.reclaim()
                outcomes = [make(job)]
                case._behind._doubt(outcomes)
                [answer] = await case._behind.settle(outcomes)
                assert isinstance(answer, LeaseLost)
                case.again("ran-out-2", lambda: None)

    with server18.fresh() as url:
        asyncio.run(main(url))


def test_who_settles_again_after_being_told_that_nobody_knows_hears_that_it_was_done(server18):
    async def main(url: str) -> None:
        async with wired(url) as (case, proxy):
            case.again("told-later", lambda: proxy.arm(Fault("answer", 0, "end")))
            [job] = await case.held()
            read = case._behind._database.read

            async def away(make: object) -> object:
                raise Unavailable("the server is away")

            case._behind._database.read = away  # type: ignore[method-assign,assignment]
            with pytest.raises(Unavailable, match="away"):
                await case.through(lambda engine: engine.settle([outcome.completed(job)]))
            case._behind._database.read = read  # type: ignore[method-assign]
            assert (await case.jobs())[job.id].state is State.COMPLETED
            assert await case._behind.settle([outcome.completed(job)]) == [None]
            [late] = await case._behind.settle([outcome.completed(job)])
            assert isinstance(late, LeaseLost)

    with server18.fresh() as url:
        asyncio.run(main(url))


# --- would it be noticed? -----------------------------------------------------------------------


def test_an_enqueue_that_is_sent_again_without_a_look_is_found_out(server18, monkeypatch):
    async def blindly(self, requests, sent_us, *, late):
        for request in requests:
            ids = [f"{job_id}-again" for job_id in request.ids]
            again = Request(request.jobs, request.caller, request.on_duplicate, ids)
            await self._database.perform(lambda again=again: enqueue([again], self._on()))
            request.answer = again.answer

    monkeypatch.setattr(engine_module.Moving, "_after_doubt", blindly)
    for name in ("enqueue_one", "enqueue_with_keys"):
        with server18.fresh() as url, pytest.raises(AssertionError):
            asyncio.run(play_at_many_messages(url, SCENARIOS[name], seeded()))
    with server18.fresh() as url, pytest.raises(DuplicateId):
        asyncio.run(play_at_many_messages(url, enqueue_with_ids, seeded()))


async def zombie(case: Case, make: Callable[[Job], outcome.Outcome], **fields: object) -> None:
    """A job is lost, and claimed by another worker; then its first one speaks."""
    [job] = await case.held(estimated_seconds=0.001, **fields)
    await asyncio.sleep(0.002)
    await case.beside.reclaim()
    [again] = (await case.claim(case.beside, limit=1)).jobs
    assert again.id == job.id
    [answer] = await case.beside.settle([make(job)])
    assert isinstance(answer, LeaseLost)
    assert (await case.jobs())[job.id].state is State.IN_FLIGHT
    assert await case.beside.settle([outcome.completed(again)]) == [None]


ZOMBIES: list[tuple[Callable[[Job], outcome.Outcome], dict[str, object]]] = [
    (outcome.completed, {}),
    (outcome.completed, {"key": "k"}),
    (lambda job: outcome.retry(job, FAILURE), {}),
    (lambda job: outcome.dead(job, FAILURE), {}),
]


def wake_zombies(url: str, which: Sequence[int]) -> None:
    async def main() -> None:
        async with wired(url) as (case, _proxy):
            for number in which:
                case.again(f"zombie-{number}", lambda: None)
                make, fields = ZOMBIES[number]
                await zombie(case, make, **fields)

    asyncio.run(main())


def test_who_lost_a_job_cannot_settle_it_any_more(server18):
    with server18.fresh() as url:
        wake_zombies(url, range(len(ZOMBIES)))


@pytest.mark.parametrize("number", [0, 1])  # an attempt that failed cannot even be written twice
def test_a_settle_that_is_not_fenced_is_found_out(server18, monkeypatch, number):
    usual = statements._read

    def unfenced(directory: str, name: str) -> str:
        text = usual(directory, name)
        if name not in ("complete", "held"):
            return text
        # The program looks at the token of what is held, too: let that be whatever is said.
        return text.replace("AND j.token = o.token", "").replace(
            "j.token, j.worker", "o.token, j.worker"
        )

    monkeypatch.setattr(statements, "_read", unfenced)
    statements.statement.cache_clear()
    try:
        with server18.fresh() as url, pytest.raises(AssertionError):
            wake_zombies(url, [number])
    finally:
        statements.statement.cache_clear()
