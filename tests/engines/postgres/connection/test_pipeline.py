"""The connection breaks at any message of any verb: the outcome is found, and is done once.

Each scenario is played again and again with the fault at another message: first on the way to the
server, then on the way back. What the server was doing when its answer was lost it finishes,
commits included. The long version tries every message there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest

from holdfast.engines.contract import Admission
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.jobs import claim_statements
from holdfast.engines.postgres.jobs.claim_statements import ClaimRequest
from holdfast.engines.postgres.jobs.enqueue_statements import EnqueueRequest, enqueue
from holdfast.engines.postgres.jobs.enqueuer import Enqueuer
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model import outcome
from holdfast.model.errors import DuplicateId, LeaseLost, Unavailable
from holdfast.model.job import State
from tests.engines.postgres.proxy import Fault, How, Proxy, Side
from tests.engines.postgres.scenarios import (
    FAILURE,
    OUTCOME_UNKNOWN,
    SCENARIOS,
    Case,
    Scenario,
    enqueue_with_ids,
)

LONG = "HOLDFAST_TEST_KILLS" in os.environ
SOME = 1_000 if LONG else 2
LAST = 4
"""How many messages before the end are all tried: commits and their answers are among them."""
NEVER = 1_000_000
NUMBERS = itertools.count()


def seeded() -> random.Random:
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    return random.Random(seed)


@contextlib.asynccontextmanager
async def wired(
    url: str,
    *,
    statement_timeout_seconds: float = 30.0,
    patience_seconds: float = 20.0,
    delay: Callable[[], float] | None = None,
) -> AsyncIterator[tuple[Case, Proxy]]:
    async with Proxy(url, delay) as proxy:
        beside = await PostgresEngine.open(url, options=PostgresOptions(listen=False))
        options = PostgresOptions(
            max_connections=1,
            listen=False,
            patience_seconds=patience_seconds,
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
    """Return how often the connection broke: at the first messages, the last, some in between."""
    struck = 0
    async with wired(url) as (case, proxy):
        for side in ("request", "answer"):
            fault = Fault(side, NEVER, "end")
            case.again(f"{next(NUMBERS)}-{side}", functools.partial(proxy.arm, fault))
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
                    if (
                        name != "enqueue_one"
                        or side != "request"
                        or OUTCOME_UNKNOWN not in str(error)
                    ):
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
    """The connection breaks while the server waits for a lock: it commits after the look."""

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

    async def main(url: str, fields: dict[str, Any]) -> None:
        async with wired(url, statement_timeout_seconds=0.2) as (case, proxy):
            fault = Fault("request", 0, "hold")
            case.again(f"late-{len(fields)}", lambda: proxy.arm(fault))
            try:
                await case.through(lambda engine: engine.enqueue([case.new(**fields)]))
            except Unavailable as error:
                assert OUTCOME_UNKNOWN in str(error)  # noqa: PT017 - or it was taken
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
                case._behind._resources.lost_replies.add(outcomes)
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


def test_what_a_claim_took_that_nobody_could_ask_after_is_handed_back(server18, monkeypatch):
    """Else it would wait for its lease to run out, and count as lost."""
    asked_after: list[object] = []
    usual = claim_statements.find_claimed

    def away(request: ClaimRequest) -> object:
        asked_after.append(request)
        raise Unavailable("the server is away")

    async def main(url: str) -> None:
        async with wired(url) as (case, proxy):
            for after in itertools.count():
                fault = Fault("answer", after, "end")
                case.again(f"away-{after}", functools.partial(proxy.arm, fault))
                await case.beside.enqueue([case.new(id=case.id())])
                monkeypatch.setattr(claim_statements, "find_claimed", away)
                with contextlib.suppress(Unavailable):
                    await case.through(lambda engine: case.claim(engine, limit=1))
                monkeypatch.setattr(claim_statements, "find_claimed", usual)
                assert fault.struck.is_set(), "it came too late to strike"
                if asked_after:
                    break
            assert (await case.jobs())[case.id()].state is State.IN_FLIGHT
            [job] = (await case.claim(case._behind, limit=1)).jobs
            assert (job.id, job.attempt, job.losses) == (case.id(), 1, 0)

    with server18.fresh() as url:
        asyncio.run(main(url))


def test_many_who_wait_for_a_server_that_has_gone_are_told_at_the_same_time(server18):
    callers, patience_seconds = 30, 0.5

    async def main(url: str) -> None:
        async with wired(url, patience_seconds=patience_seconds) as (case, proxy):
            case.again("gone", lambda: proxy.arm(Fault("answer", 0, "end")))
            await case._behind.counts()  # it is connected
            proxy.refuse()

            async def call(engine: PostgresEngine) -> list[object]:
                news = [case.new(number) for number in range(callers)]
                calls = [engine.enqueue([new]) for new in news]
                async with asyncio.timeout(callers * patience_seconds / 2):
                    return await asyncio.gather(*calls, return_exceptions=True)

            answers = await case.through(call)
            assert {type(answer) for answer in answers} == {Unavailable}
            assert OUTCOME_UNKNOWN in str(answers[0])  # the others were not sent yet

    with server18.fresh() as url:
        asyncio.run(main(url))


# --- would it be noticed? -----------------------------------------------------------------------


def test_an_enqueue_that_is_sent_again_without_a_look_is_found_out(server18, monkeypatch):
    async def blindly(self, requests, sent_us, *, may_still_commit):
        for request in requests:
            ids = [f"{job_id}-again" for job_id in request.ids]
            again = EnqueueRequest(request.jobs, request.caller, request.on_duplicate, ids)
            await self._resources.database.perform(
                lambda again=again: enqueue([again], self._resources.context())
            )
            request.answer = again.answer

    monkeypatch.setattr(Enqueuer, "_resolve", blindly)
    for name in ("enqueue_one", "enqueue_with_keys"):
        with server18.fresh() as url, pytest.raises(AssertionError):
            asyncio.run(play_at_many_messages(url, SCENARIOS[name], seeded()))
    with server18.fresh() as url, pytest.raises(DuplicateId):
        asyncio.run(play_at_many_messages(url, enqueue_with_ids, seeded()))
