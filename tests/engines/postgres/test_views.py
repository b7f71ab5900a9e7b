"""What people see in SQL."""

import asyncio

import msgspec
import psycopg
import pytest

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.actions import ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed, dead, retry
from holdfast.model.search import Filter


def test_a_view_says_pending_processing_done_and_failed(server18):
    async def work(url: str) -> None:
        engine = await PostgresEngine.open(url)
        jobs = [NewJob(task="t", id=name) for name in ("done", "failed", "processing", "pending")]
        await engine.enqueue(jobs)
        claim = await engine.claim(queues=["default"], worker="w1", limit=3)
        first, second, _third = claim.jobs
        failure = Failure.of("timeout", "took 3 s")
        assert await engine.settle([completed(first), dead(second, failure)]) == [None, None]
        await engine.close()

    with server18.fresh() as url:
        asyncio.run(work(url))
        with psycopg.connect(url) as connection:
            seen = connection.execute(
                "SELECT id, status, attempts, owner, error_reason, last_error FROM holdfast.work"
            ).fetchall()
    assert sorted(seen) == [
        ("done", "done", 1, "w1", None, None),
        ("failed", "failed", 1, "w1", "timeout", "took 3 s"),
        ("pending", "pending", 0, None, None, None),
        ("processing", "processing", 1, "w1", None, None),
    ]


COLUMNS = (
    "status",
    "error_reason",
    "last_error",
    "processing_started_at IS NOT NULL",
    "processed_at IS NOT NULL",
    "replay_count",
    "last_replayed_at IS NOT NULL",
    "last_replayed_by",
    "last_replayed_reason",
)


def seen(url: str, job_id: str) -> tuple[object, ...]:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            f"SELECT {', '.join(COLUMNS)} FROM holdfast.work WHERE id = %s".encode(),  # noqa: S608
            [job_id],
        ).fetchone()
    assert row is not None
    return tuple(row)


@pytest.mark.parametrize("server", ["server18", "server16"])
async def test_a_replayed_job_shows_why_it_failed_and_who_replayed_it(request, server):
    last: tuple[object, ...] = ()
    message = "503 from «mail»: " + "x" * 300
    with request.getfixturevalue(server).fresh() as url:
        engine = await PostgresEngine.open(url)
        why = Attribution("ann", "the server is back – again")
        try:
            await engine.enqueue([NewJob(task="t", id="a", max_attempts=9)])
            assert seen(url, "a") == ("pending", None, None, False, False, 0, False, None, None)
            failure = Failure("upstream_5xx", FailureClass.TRANSIENT, message, "trace" * 700, 2.5)
            for count in (1, 2):
                [job] = (await engine.claim(queues=["default"], worker="w")).jobs
                assert seen(url, "a")[0] == "processing"
                assert seen(url, "a")[3:5] == (True, False)
                await engine.settle([dead(job, failure)])
                assert seen(url, "a")[:5] == ("failed", "upstream_5xx", message, True, True)
                await engine.operate(ReplayJobs(), Filter(ids=("a",)), why)
                last = (count, True, "ann", "the server is back – again")
                assert seen(url, "a") == (
                    "pending", "upstream_5xx", message, False, False, *last,
                )  # fmt: skip
            [job] = (await engine.claim(queues=["default"], worker="w")).jobs
            await engine.settle([retry(job, Failure.of("timeout", "took 3 s"))])
            assert seen(url, "a")[:3] == ("pending", "timeout", "took 3 s")
            [job] = (await engine.claim(queues=["default"], worker="w")).jobs
            await engine.settle([completed(job)])
            assert seen(url, "a") == ("done", None, None, True, True, *last)
        finally:
            await engine.close()


def test_what_cannot_be_unpacked_is_null_and_hides_no_row(server18):
    async def work(url: str) -> None:
        engine = await PostgresEngine.open(url)
        await engine.enqueue([NewJob(task="t", id="a")])
        await engine.close()

    with server18.fresh() as url:
        asyncio.run(work(url))
        for packed in (b"", b"\xc1", b"\x95\xd9", b"\x95\xd9\xff", b"\x92\xa1\xff\xa1x"):
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("UPDATE holdfast.jobs SET failure = %s", [packed])
            assert seen(url, "a")[:3] == ("pending", None, None)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (["a\0b", None, True, False], ["a\N{REPLACEMENT CHARACTER}b", None, True, False]),
        ([127, 128, 2**16, 2**32, 2**62], [127, 128, 2**16, 2**32, 2**62]),
        ([1.5, b"x" * 300, "y" * 70_000], [None, None, "y" * 70_000]),
        ([list(range(20)), []], [list(range(20)), []]),
    ],
)
def test_values_are_unpacked_as_they_were_packed(server18, value, found):
    with server18.fresh() as url, psycopg.connect(url) as connection:
        packed = msgspec.msgpack.encode(value)
        [row] = connection.execute("SELECT holdfast.unpacked(%s)", [packed]).fetchall()
    assert row[0] == found
