"""A claim that is cancelled, at any moment, keeps no job."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

import psycopg
import pytest

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.jobs.abandoned_claims import AbandonedClaims
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.job import Job, NewJob, State
from tests.engines.postgres.schema.test_migrations import rows

GiveUp = Callable[[PostgresEngine, str], Coroutine[object, object, None]]
OPTIONS = PostgresOptions(listen=False)
BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def claiming(engine: PostgresEngine) -> asyncio.Task[Any]:
    return asyncio.create_task(engine.claim(queues=["default"], worker="w"))


async def given_up(task: asyncio.Task[Any]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await task


async def before_it_is_sent(engine: PostgresEngine, _url: str) -> None:
    task = claiming(engine)
    await asyncio.sleep(0)
    task.cancel()
    await given_up(task)


async def while_the_server_is_at_it(engine: PostgresEngine, url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE holdfast.jobs")
        task = claiming(engine)
        while await asyncio.to_thread(rows, url, BLOCKED) == [(0,)]:
            pass
        task.cancel()
        await given_up(task)


def when_it_has_the_answer(*, known: bool) -> GiveUp:
    """Just before, or just after, the caller is woken."""

    async def give_up(engine: PostgresEngine, _url: str) -> None:
        usual = engine._claimer._settle_and_claim

        async def answered(*given: Any) -> Any:
            claimed = await usual(*given)
            assert claimed[0].jobs
            if known:
                asyncio.get_running_loop().call_soon(task.cancel)
            else:
                task.cancel()
            return claimed

        with mock.patch.object(engine._claimer, "_settle_and_claim", answered):
            task = claiming(engine)
            await given_up(task)

    return give_up


MOMENTS: dict[str, GiveUp] = {
    "before it is sent": before_it_is_sent,
    "while the server is at it": while_the_server_is_at_it,
    "before the answer is known": when_it_has_the_answer(known=False),
    "when the answer is known": when_it_has_the_answer(known=True),
}


def after(url: str, give_up: GiveUp) -> Job:
    """Give up a claim of the only job; return it as it is then."""

    async def run() -> Job:
        engine = await PostgresEngine.open(url, options=OPTIONS)
        await engine.enqueue([NewJob(task="t", id="j")])
        await give_up(engine, url)
        await engine.close()  # which waits for what is handed back
        other = await PostgresEngine.open(url, options=OPTIONS)
        [job] = await other.get(["j"])
        await other.close()
        assert job is not None
        return job

    return asyncio.run(run())


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_a_claim_took_is_free_again_when_it_is_given_up(server18, moment):
    with server18.fresh() as url:
        assert after(url, MOMENTS[moment]).state is State.PENDING


def test_a_claim_that_others_end_before_it_begins_ends(server18):
    async def run(url: str) -> None:
        engine = await PostgresEngine.open(url, options=OPTIONS)
        before = asyncio.all_tasks()
        task = claiming(engine)
        await asyncio.sleep(0)
        [inner] = asyncio.all_tasks() - before - {task}
        inner.cancel()
        await given_up(task)
        await engine.close()

    with server18.fresh() as url, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that coroutine was never awaited indeed
        asyncio.run(run(url))


@pytest.mark.parametrize("moment", [*MOMENTS][1:])
def test_control_without_handing_back_it_stays_taken(server18, moment, monkeypatch):
    async def keep(_abandoned: AbandonedClaims, claiming_now: asyncio.Task[Any]) -> None:
        await asyncio.wait([claiming_now])

    monkeypatch.setattr(AbandonedClaims, "_hand_back", keep)
    with server18.fresh() as url:
        assert after(url, MOMENTS[moment]).state is State.IN_FLIGHT


def test_who_is_cancelled_while_a_connection_is_lent_is_told(server18):
    """The pool's wait may answer instead, when both come in one turn of the event loop."""

    async def run(url: str) -> None:
        engine = await PostgresEngine.open(url, options=OPTIONS)
        connections = engine._database._connections
        usual = connections.take

        async def swallowing() -> Any:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(600)
            return await usual()

        with mock.patch.object(connections, "take", swallowing):
            task = asyncio.create_task(engine.queues())
            await asyncio.sleep(0)
            task.cancel()
            await given_up(task)
        assert await engine.queues() == [], "the connection is back"
        await engine.close()

    with server18.fresh() as url:
        asyncio.run(run(url))


def test_a_transaction_does_not_wait_for_its_process_for_ever(server18):
    async def shown(url: str, seconds: float) -> object:
        options = PostgresOptions(listen=False, statement_timeout_seconds=seconds)
        engine = await PostgresEngine.open(url, options=options)
        connection = await engine._database._connections.take()
        cursor = await connection.execute("SHOW idle_in_transaction_session_timeout")
        row = await cursor.fetchone()
        await engine._database._connections.give_back(connection)
        await engine.close()
        return row

    with server18.fresh() as url:
        assert asyncio.run(shown(url, 30.0)) == ("10s",)
        assert asyncio.run(shown(url, 2.0)) == ("2s",)
