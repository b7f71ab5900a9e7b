"""Rows and settled jobs on PostgreSQL: one transaction, whatever interrupts it."""

import asyncio
import threading

import psycopg
import pytest

from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.caller_transaction import join_sync
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.errors import CommitUnknown
from holdfast.engines.postgres.jobs.settle_statements import settle_full
from holdfast.engines.postgres.read_models import transactions
from holdfast.engines.postgres.read_models.sessions import Sessions
from holdfast.engines.read_models.query import RowQuery
from holdfast.engines.read_models.row_buffer import RowBuffer
from holdfast.model.access import SYSTEM
from holdfast.model.errors import InvalidInput, LeaseLost
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import completed
from holdfast.model.read_model import ColumnType, ReadModel

TABLE = ReadModel(
    name="counts",
    columns={"id": ColumnType.TEXT, "n": ColumnType.INTEGER},
    key=("id",),
)
KILL = (
    "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND state = 'idle in transaction'"
)
WAIT_SECONDS = 20


def add(rows, row_id="a"):
    row = rows.get((row_id,)) or {"n": 0}
    rows.upsert({"id": row_id, "n": row["n"] + 1})


class Projected:
    """An engine with a read model, and jobs in flight."""

    def __init__(self, url: str, engine: PostgresEngine) -> None:
        self.url = url
        self.engine = engine
        self.models = engine.read_models

    async def hold(self, *ids):
        jobs = [NewJob(task="t", id=name, key=f"key of {name}") for name in ids]
        await self.engine.enqueue(jobs)
        claim = await self.engine.claim(queues=["default"], worker="w", limit=len(ids))
        return {job.id: completed(job) for job in claim.jobs}

    async def apply(self, apply, *outcomes):
        return await self.models.apply(TABLE, 1, apply, outcomes)

    async def counts(self):
        rows = await self.models.select(TABLE, 1, RowQuery())
        return {row["id"]: row["n"] for row in rows}

    async def state(self, name):
        [job] = await self.engine.get([name])
        assert job is not None
        return job.state

    def sql(self, text):
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchone() if cursor.description else None


@pytest.fixture
def on_server(server18):
    async def run(scenario):
        with server18.fresh() as url:
            engine = await PostgresEngine.open(url)
            try:
                projected = Projected(url, engine)
                await projected.models.create(TABLE, 1)
                await scenario(projected)
                assert await engine.validate() == []
            finally:
                await engine.close()

    return run


def killing(projected):
    """Return an ``Apply`` whose connection is ended in its middle, the first time."""
    tries: list[frozenset[tuple[str, str]]] = []

    def apply(rows, skipped):
        tries.append(skipped)
        add(rows)
        if len(tries) == 1:
            assert projected.sql(KILL) == (1,)

    return apply, tries


async def test_a_backend_killed_in_the_middle_of_apply_applies_once(on_server):
    async def scenario(projected):
        held = await projected.hold("one")
        apply, tries = killing(projected)
        assert await projected.apply(apply, held["one"]) == [None]
        assert len(tries) == 2
        assert await projected.counts() == {"a": 1}
        assert await projected.state("one") is State.COMPLETED

    await on_server(scenario)


async def test_control_settling_before_the_commit_of_the_rows_loses_them(on_server, monkeypatch):
    usual = transactions.GenerationTransactions.apply_and_settle

    def settle_first(self, session, apply, outcomes, lost, context):
        with psycopg.connect(session.connection.info.dsn) as other:
            verb = lambda _context: settle_full(outcomes, SYSTEM, CallContext(*context))
            join_sync(other, verb, context.options)
        return usual(self, session, apply, outcomes, lost, context)

    async def scenario(projected):
        held = await projected.hold("one")
        apply, _tries = killing(projected)
        monkeypatch.setattr(transactions.GenerationTransactions, "apply_and_settle", settle_first)
        [answer] = await projected.apply(apply, held["one"])
        assert isinstance(answer, LeaseLost)
        assert await projected.state("one") is State.COMPLETED
        assert await projected.counts() == {}  # done, and nothing to show for it

    await on_server(scenario)


@pytest.mark.parametrize("arrived", [True, False])
async def test_a_commit_without_an_answer_is_looked_up(on_server, monkeypatch, arrived):
    usual = Sessions._transaction
    lost: list[bool] = []

    def lose(self, connection, work):
        if lost:
            return usual(self, connection, work)
        if arrived:
            usual(self, connection, work)
        lost.append(True)
        raise CommitUnknown(psycopg.OperationalError("gone"))

    async def scenario(projected):
        held = await projected.hold("one", "two")
        monkeypatch.setattr(Sessions, "_transaction", lose)

        def apply(rows, skipped):
            for name in ("one", "two"):
                if ("default", name) not in skipped:
                    add(rows)

        assert await projected.apply(apply, *held.values()) == [None, None]
        assert await projected.counts() == {"a": 2}

    await on_server(scenario)


async def two_that_find_no_row(projected):
    """Apply two batches to a row that neither finds; the first ends between the other's steps."""
    held = await projected.hold("one", "two")
    read, stored = threading.Event(), threading.Event()

    def slow(rows, _skipped):
        add(rows)
        read.set()
        assert stored.wait(WAIT_SECONDS)

    task = asyncio.create_task(projected.apply(slow, held["one"]))
    assert await asyncio.to_thread(read.wait, WAIT_SECONDS)
    assert await projected.apply(lambda rows, _skipped: add(rows), held["two"]) == [None]
    stored.set()
    assert await task == [None]


async def test_a_row_that_another_adds_meanwhile_is_read_again(on_server):
    async def scenario(projected):
        await two_that_find_no_row(projected)
        assert await projected.counts() == {"a": 2}

    await on_server(scenario)


async def test_control_without_a_look_at_missing_rows_an_update_is_lost(on_server, monkeypatch):
    class Forgetful(RowBuffer):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "missing":
                super().__setattr__("missing", _Nothing())

    class _Nothing(set[object]):
        def update(self, *_others):
            pass

    monkeypatch.setattr(transactions, "RowBuffer", Forgetful)

    async def scenario(projected):
        await two_that_find_no_row(projected)
        assert await projected.counts() == {"a": 1}

    await on_server(scenario)


async def test_a_deadlock_is_tried_again_in_place(on_server):
    async def scenario(projected):
        projected.sql(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = 50',"
            " current_database()); END $$"
        )
        held = await projected.hold("zero", "one", "two")

        def both(rows, _skipped):
            for name in ("a", "b"):
                add(rows, name)

        assert await projected.apply(both, held["zero"]) == [None]
        meeting = threading.Barrier(2)
        tries = []

        def crossing(*names):
            def apply(rows, _skipped):
                first = names not in tries
                tries.append(names)
                add(rows, names[0])
                if first:
                    meeting.wait(WAIT_SECONDS)
                add(rows, names[1])

            return apply

        answers = await asyncio.gather(
            projected.apply(crossing("a", "b"), held["one"]),
            projected.apply(crossing("b", "a"), held["two"]),
        )
        assert list(answers) == [[None], [None]]
        assert len(tries) == 3
        assert await projected.counts() == {"a": 3, "b": 3}

    await on_server(scenario)


async def test_while_rows_are_changed_leases_can_be_extended_and_reclaimed(on_server):
    async def scenario(projected):
        held = await projected.hold("one")
        [job] = await projected.engine.get(["one"])
        loop = asyncio.get_running_loop()

        def apply(rows, _skipped):
            add(rows)
            for call in (
                projected.engine.extend([job], lease_seconds=60),
                projected.engine.reclaim(),
            ):
                asyncio.run_coroutine_threadsafe(call, loop).result(WAIT_SECONDS)

        assert await projected.apply(apply, held["one"]) == [None]

    await on_server(scenario)


async def test_a_row_that_the_server_cannot_store_is_refused_and_nothing_is_settled(on_server):
    async def scenario(projected):
        held = await projected.hold("one")
        large = "".join(chr(0x4E00 + (n * 7919) % 20_000) for n in range(9_000))
        with pytest.raises(InvalidInput, match="counts cannot store it"):
            await projected.apply(lambda rows, _skipped: rows.upsert({"id": large}), held["one"])
        assert await projected.state("one") is State.IN_FLIGHT

    await on_server(scenario)


async def test_an_error_of_the_database_that_a_projection_hides_is_not_hidden(on_server):
    async def scenario(projected):
        held = await projected.hold("one")
        apply, tries = killing(projected)

        def hides(rows, skipped):
            apply(rows, skipped)
            try:
                rows.get(("b",))
            except psycopg.Error:
                rows.upsert({"id": "wrong"})

        assert await projected.apply(hides, held["one"]) == [None]
        assert len(tries) == 2
        assert await projected.counts() == {"a": 1}

    await on_server(scenario)
