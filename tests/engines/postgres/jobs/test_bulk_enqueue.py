"""Many jobs of one call: sent while the next are made, and all or none of them are there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from holdfast.engines.postgres.connection import pipeline as pipeline_module
from holdfast.engines.postgres.connection.statements import statement
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.jobs import enqueue_statements
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.errors import InvalidInput
from holdfast.model.job import NewJob
from holdfast.model.uniform_batch import UniformBatch

LIKE = NewJob(task="t")
BAD = InvalidInput("n", "is not a number")
ERRORS = [
    *(BAD, KeyError("k"), RuntimeError("r"), OSError("a file"), TimeoutError("a socket")),
    *(psycopg.OperationalError("theirs"), psycopg.DataError("theirs")),
    psycopg.errors.UniqueViolation("theirs"),
]
END_OTHERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
COUNT = 200
PATIENCE_SECONDS = 20.0
AT_WORK = """
SELECT EXISTS (
    SELECT FROM pg_locks
    WHERE relation = 'holdfast.jobs'::regclass AND mode = 'RowExclusiveLock'
)
"""


@pytest.fixture
def url(server18):
    with server18.fresh() as fresh:
        yield fresh


def value(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


def use(url: str, make: Callable[[], UniformBatch]) -> tuple[int, int, BaseException | None]:
    """Enqueue on the only connection; return which server process that was, before and after."""

    async def run() -> tuple[int, int, BaseException | None]:
        options = PostgresOptions(max_connections=1, listen=False)
        engine = await PostgresEngine.open(url, options=options)
        try:
            before = await process_of(engine)
            [answer] = await asyncio.gather(engine.enqueue(make()), return_exceptions=True)
            raised = answer if isinstance(answer, BaseException) else None
            return before, await process_of(engine), raised
        finally:
            await engine.close()

    return asyncio.run(run())


async def process_of(engine: PostgresEngine) -> int:
    connection = await engine._database._connections.take()
    try:
        return connection.info.backend_pid
    finally:
        await engine._database._connections.give_back(connection)


def bad_at_the_end(error: Exception = BAD, first: Callable[[], object] = int) -> UniformBatch:
    """Return jobs of which the last cannot be made; before that something is done."""

    def payloads() -> Iterator[bytes]:
        for _number in range(COUNT - 1):
            yield b"{}"
        first()
        raise error

    return UniformBatch(LIKE, payloads(), COUNT)


def test_the_server_is_at_work_before_the_last_one_is_made(url):
    seen: list[bool] = []

    def payloads() -> Iterator[bytes]:
        for number in range(COUNT):
            if number == COUNT - 1:
                give_up = time.monotonic() + PATIENCE_SECONDS
                while not (at_work := value(url, AT_WORK)) and time.monotonic() < give_up:
                    pass
                seen.append(bool(at_work))
                assert value(url, "SELECT count(*) FROM holdfast.jobs") == 0
            yield b"{}"

    use(url, lambda: UniformBatch(LIKE, payloads(), COUNT))
    assert seen == [True]
    assert value(url, "SELECT count(*) FROM holdfast.jobs") == COUNT


def test_control_what_goes_out_at_once_is_not_at_work_before(url, monkeypatch):
    monkeypatch.setattr(enqueue_statements, "_FIRST_PART", COUNT)
    monkeypatch.setitem(globals(), "PATIENCE_SECONDS", 0.2)
    with pytest.raises(AssertionError):
        test_the_server_is_at_work_before_the_last_one_is_made(url)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_bad_one_at_the_end_refuses_all_and_costs_no_connection(url, error):
    """Whatever it is: nothing that the caller's own code raises is taken for the server's."""
    before, after, raised = use(url, lambda: bad_at_the_end(error))
    assert before == after
    assert raised is error
    assert value(url, "SELECT count(*) FROM holdfast.jobs") == 0


def test_control_without_taking_back_what_was_sent_a_part_would_stay(url, monkeypatch):
    monkeypatch.setattr(pipeline_module, "_UNDO", b"SELECT 1")
    with pytest.raises(AssertionError):
        test_a_bad_one_at_the_end_refuses_all_and_costs_no_connection(url, BAD)


def test_control_what_the_caller_raises_could_be_taken_for_the_servers(url, monkeypatch):
    taken_as_it_is = lambda statements: ((one, *pipeline_module._values(one)) for one in statements)
    monkeypatch.setattr(pipeline_module, "_encoded", taken_as_it_is)
    with pytest.raises(AssertionError):
        test_a_bad_one_at_the_end_refuses_all_and_costs_no_connection(url, OSError("a file"))


def test_a_bad_one_refuses_all_also_when_the_connection_is_lost_at_that_moment(url):
    before, after, raised = use(url, lambda: bad_at_the_end(first=lambda: value(url, END_OTHERS)))
    assert before != after
    assert raised is BAD
    assert value(url, "SELECT count(*) FROM holdfast.jobs") == 0


def test_calls_that_come_together_do_not_suffer_from_a_bad_one(url):
    async def run() -> list[object]:
        engine = await PostgresEngine.open(url, options=PostgresOptions(listen=False))
        try:
            good = [UniformBatch(LIKE, iter([b"{}"] * COUNT), COUNT) for _ in range(3)]
            some = [good[0], bad_at_the_end(), good[1], bad_at_the_end(KeyError("k")), good[2]]
            calls = [engine.enqueue(jobs) for jobs in some]
            return list(await asyncio.gather(*calls, return_exceptions=True))
        finally:
            await engine.close()

    answers = asyncio.run(run())
    assert [type(answer) for answer in answers] == [list, InvalidInput, list, KeyError, list]
    assert value(url, "SELECT count(*) FROM holdfast.jobs") == 3 * COUNT


async def test_who_has_to_wait_has_its_arguments_read_before(url):
    read: list[int] = []

    def payloads() -> Iterator[bytes]:
        read.append(1)
        yield b"{}"

    engine = await PostgresEngine.open(url, options=PostgresOptions(listen=False))
    try:
        first = asyncio.ensure_future(engine.enqueue([LIKE]))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(engine.enqueue(UniformBatch(LIKE, payloads(), 1)))
        await asyncio.sleep(0)
        assert read
        assert not first.done()
        await asyncio.gather(first, second)
    finally:
        await engine.close()


def test_the_room_of_a_place_is_what_the_sequence_leaves(url):
    step = "SELECT increment_by FROM pg_sequences WHERE sequencename = 'places'"
    assert value(url, step) == enqueue_statements._SEQ_BLOCK
    assert enqueue_statements._LARGEST_PART <= enqueue_statements._SEQ_BLOCK
    with psycopg.connect(url, autocommit=True) as connection:
        for _time in range(2):
            [first] = connection.execute("SELECT holdfast.next_places()").fetchone() or [0]
            [last, _token] = connection.execute(statement("read_last_numbers")).fetchone() or [0, 0]
            assert last == first + enqueue_statements._SEQ_BLOCK - 1


def test_a_place_in_line_has_room_for_a_whole_call(url):
    """One statement takes one number of the sequence, and the next begins behind all of it."""

    async def run() -> list[list[int]]:
        engine = await PostgresEngine.open(url, options=PostgresOptions(listen=False))
        try:
            places: list[list[int]] = []
            for jobs in (
                [LIKE] * 3,
                UniformBatch(LIKE, iter([b"{}"] * 3), 3),
                [LIKE, NewJob(task="u")],
            ):
                ids = [receipt.id for receipt in await engine.enqueue(jobs)]
                places.append([job.seq for job in await engine.get(ids) if job is not None])
            return places
        finally:
            await engine.close()

    first, second, third = asyncio.run(run())
    for some in (first, second):
        assert some == list(range(some[0], some[0] + 3))
    assert first[0] + enqueue_statements._SEQ_BLOCK <= second[0]
    assert second[0] + enqueue_statements._SEQ_BLOCK <= third[0] < third[1]


async def test_more_than_one_place_has_room_for_are_taken_too(url, monkeypatch):
    monkeypatch.setattr(enqueue_statements, "_SEQ_BLOCK", 2)

    engine = await PostgresEngine.open(url, options=PostgresOptions(listen=False))
    try:
        receipts = await engine.enqueue([LIKE] * 5)
        claim = await engine.claim(queues=["default"], worker="w", limit=9)
        assert [job.id for job in claim.jobs] == [receipt.id for receipt in receipts]
    finally:
        await engine.close()
