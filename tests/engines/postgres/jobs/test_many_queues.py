"""Very many queues cost what they should on PostgreSQL: what is sent is counted, not timed."""

import asyncio

import psycopg
import pytest

from holdfast.engines.argument_checks import check_names
from holdfast.engines.postgres.connection import sansio
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.jobs import claim_statements, limited_claim, notifier
from holdfast.model.audit import Attribution
from holdfast.model.errors import Unavailable
from holdfast.model.job import NewJob
from holdfast.model.policy import QueuePolicy

from .test_notifier import PATIENCE_SECONDS, asleep, opened, until

LIMIT = 8


async def drained(url: str, count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int]:
    """Put a job into each of so many queues and claim them all.

    Return how many watermarks the claims looked behind, the most of one claim, and how many
    statements they were.
    """
    sent: list[int] = []
    usual = claim_statements.watermark_columns

    def counting(watermarks):
        sent.append(len(watermarks))
        return usual(watermarks)

    engine = await PostgresEngine.open(url)
    try:
        queues = check_names("queues", [f"q{number}" for number in range(count)])
        for start in range(0, count, 1_000):
            await engine.enqueue(
                [NewJob(task="t", queue=one) for one in list(queues)[start : start + 1_000]]
            )
        with monkeypatch.context() as patched:
            patched.setattr(claim_statements, "KEEP_SECONDS", 1_000.0)
            patched.setattr(claim_statements, "watermark_columns", counting)
            order: list[int] = []
            while jobs := (await engine.claim(queues=queues, worker="w", limit=LIMIT)).jobs:
                order += [job.seq for job in jobs]
        assert len(order) == count
        assert order == sorted(order)
    finally:
        await engine.close()
    return sum(sent), max(sent), len(sent)


@pytest.fixture
def url(server18):
    with server18.fresh() as fresh:
        yield fresh


async def test_a_claim_looks_behind_a_bounded_number_of_watermarks(url, monkeypatch):
    monkeypatch.setattr(claim_statements, "MANY_WATERMARKS", 32)
    looks, most, statements = await drained(url, 1_000, monkeypatch)
    assert most == 32
    assert statements < 1_000 / LIMIT + 1_000 / 32 + 5
    assert looks <= 32 * statements


async def test_control_a_claim_that_looks_behind_all_of_them_is_quadratic(url, monkeypatch):
    monkeypatch.setattr(claim_statements, "MANY_WATERMARKS", 1_000_000)
    looks, most, _statements = await drained(url, 1_000, monkeypatch)
    assert most == 1_000
    assert looks > 1_000 * 1_000 / LIMIT / 2


async def test_jobs_behind_many_that_cannot_be_claimed_are_found(url, monkeypatch):
    """Other tasks, or times to come: however many of them come first."""
    monkeypatch.setattr(claim_statements, "MANY_WATERMARKS", 10)
    engine = await PostgresEngine.open(url)
    try:
        queues = [f"q{number}" for number in range(60)]
        await engine.enqueue([NewJob(task="other", queue=one, priority=5) for one in queues[:25]])
        await engine.enqueue(
            [NewJob(task="t", queue=one, priority=9, delay_seconds=900.0) for one in queues[25:50]]
        )
        await engine.enqueue([NewJob(id=one, task="t", queue=one) for one in queues[50:]])
        found: list[str] = []
        for _claim in range(5):
            claim = await engine.claim(queues=queues, tasks=["t"], worker="w", limit=3)
            found += [job.id for job in claim.jobs]
        assert found == queues[50:]
    finally:
        await engine.close()


async def test_one_limit_among_very_many_queues_locks_few_of_them(url, monkeypatch):
    locked: list[int] = []
    usual = sansio.execute

    def counting(name, **parameters):
        if name == "lock_keys":
            locked.append(len(parameters["names"]))
        return usual(name, **parameters)

    monkeypatch.setattr(limited_claim, "execute", counting)
    engine = await PostgresEngine.open(url)
    try:
        queues = check_names("queues", [f"q{number}" for number in range(20_000)])
        await engine.set_policy("q7", QueuePolicy(max_in_flight=1), Attribution("anna", "a test"))
        await engine.enqueue(
            [NewJob(task="t", queue=f"q{number}") for number in range(15_000, 15_300)]
        )
        await engine.enqueue([NewJob(task="t", queue="q7") for _job in range(3)])
        found: list[str] = []
        while jobs := (await engine.claim(queues=queues, worker="w", limit=50)).jobs:
            found += [job.queue for job in jobs]
        assert sorted(found) == sorted(["q7", *(f"q{number}" for number in range(15_000, 15_300))])
    finally:
        await engine.close()
    assert max(locked) <= 4 * claim_statements.MANY_WATERMARKS


async def test_control_a_server_has_no_room_for_a_lock_of_each(url, monkeypatch):
    monkeypatch.setattr(claim_statements, "MANY_WATERMARKS", 1_000_000)
    with pytest.raises(Unavailable, match="no room for more locks"):
        await test_one_limit_among_very_many_queues_locks_few_of_them(url, monkeypatch)


async def names_sent(url: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Claim for 5,000 queues of which few have work; return how many names statements had."""
    sent = 0
    usual = sansio.Statement.__new__

    def counting(cls, name, parameters):
        nonlocal sent
        sent += sum(len(one) for one in parameters.values() if isinstance(one, list))
        return usual(cls, name, parameters)

    who = Attribution("anna", "a test")
    queues = check_names("queues", [f"q{number}" for number in range(5_000)])
    engine = await PostgresEngine.open(url)
    try:
        await engine.set_policy("q8", QueuePolicy(fair=True), who)
        await engine.set_policy("mail@smtp", QueuePolicy(max_in_flight=1), who)
        await engine.enqueue([NewJob(task="t", queue="other"), NewJob(task="t", queue="mail@smtp")])
        await engine.enqueue([NewJob(id="late", task="t", queue="q9", delay_seconds=900.0)])
        await engine.enqueue(
            [
                NewJob(id=f"{queue}-{priority}", task="t", queue=queue, priority=priority)
                for queue in ("q4000", "q7", "q8")
                for priority in (5, 0, 9)
            ]
        )
        with monkeypatch.context() as patched:
            patched.setattr(sansio.Statement, "__new__", counting)
            found: list[str] = []
            while jobs := (await engine.claim(queues=queues, worker="w", limit=4)).jobs:
                found += [job.id for job in jobs]
            assert not (await engine.claim(queues=queues, worker="w", wait_seconds=0.01)).jobs
    finally:
        await engine.close()
    assert sorted(found) == sorted(f"{q}-{n}" for q in ("q4000", "q7", "q8") for n in (0, 5, 9))
    assert [one.rpartition("-")[2] for one in found] == [*"999", *"555", *"000"]
    return sent


async def test_a_claim_for_very_many_queues_names_those_with_work_only(url, monkeypatch):
    assert await names_sent(url, monkeypatch) < 500


async def test_control_it_would_name_each_at_every_look(url, monkeypatch):
    monkeypatch.setattr(claim_statements, "MANY_QUEUES", 1_000_000)
    assert await names_sent(url, monkeypatch) > 20_000


async def registered_names(url: str) -> int:
    """Wait for work in 1,000 queues; return how many names an enqueue reads that wakes it."""
    queues = check_names("queues", [f"q{number}" for number in range(1_000)])
    async with opened(url) as waiter, opened(url) as other:
        claim = asyncio.ensure_future(waiter.claim(queues=queues, worker="w", wait_seconds=3_600.0))
        await until(asleep(waiter, "q900"))
        async with await psycopg.AsyncConnection.connect(url) as connection:
            read = await connection.execute("SELECT sum(cardinality(queues)) FROM holdfast.waiting")
            [[names]] = await read.fetchall()
        await other.enqueue([NewJob(id="a", task="t", queue="q900")])
        async with asyncio.timeout(PATIENCE_SECONDS):
            [job] = (await claim).jobs
        assert job.id == "a"
    return int(names)


async def test_an_enqueue_does_not_read_the_names_of_very_many_queues(url):
    assert await registered_names(url) <= notifier.MANY_QUEUES


async def test_control_it_would_read_each_name(url, monkeypatch):
    monkeypatch.setattr(notifier, "MANY_QUEUES", 1_000_000)
    assert await registered_names(url) == 1_000


async def test_control_a_statement_that_does_not_know_of_every_queue_wakes_nobody(
    url, rewritten, monkeypatch
):
    rewritten(lambda _name, text: text.replace("OR '' = ANY (w.queues)", ""))
    monkeypatch.setattr(f"{__name__}.PATIENCE_SECONDS", 1.0)
    with pytest.raises(TimeoutError):
        await registered_names(url)
