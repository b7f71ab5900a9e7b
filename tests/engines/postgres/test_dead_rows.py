"""What is done leaves dead rows while an old transaction may want to see them: who passed them by
once does not do so time and again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from holdfast.engines.contract import DEFAULT_LEASE_SECONDS
from holdfast.engines.postgres import resources
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.jobs import claimer
from holdfast.engines.postgres.jobs.claim_statements import WatermarkCache
from holdfast.engines.postgres.maintenance import reclaim
from holdfast.engines.postgres.maintenance.lease_scan import (
    FULL_SCAN_SECONDS,
    LATE_SECONDS,
    LeaseScan,
)
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.job import MICROSECONDS, NewJob
from holdfast.model.outcome import completed
from holdfast.testing import VirtualClock

from .admin.test_queries import READ
from .schema.test_migrations import rows

JOBS = 1_000
ROUNDS = 10
FIRST_US = 1_800_000_000 * MICROSECONDS


class Moment:
    """The time of this process, which stands still."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> Moment:
    """Stop the clock: then nothing is read again for its age."""
    moment = Moment()
    for module in (resources, claimer, reclaim):
        monkeypatch.setattr(module, "monotonic", moment)
    return moment


@pytest.fixture
def made(server18):
    with server18.fresh() as url:
        yield url


@contextlib.contextmanager
def old_transaction(url: str) -> Iterator[None]:
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM holdfast.policies")
        yield
        connection.rollback()


@contextlib.asynccontextmanager
async def opened(url: str, clock: VirtualClock) -> AsyncIterator[PostgresEngine]:
    engine = await PostgresEngine.open(url, options=PostgresOptions(listen=False), clock=clock)
    try:
        yield engine
    finally:
        await engine.close()


async def do_jobs(engine: PostgresEngine) -> None:
    """Do 1,000 jobs, and leave as many waiting."""
    for _half in "ab":
        await engine.enqueue([NewJob(task="t") for _number in range(JOBS)])
    claim = await engine.claim(queues=["default"], worker="w", limit=JOBS)
    assert len(claim.jobs) == JOBS
    assert not any(await engine.settle([completed(job) for job in claim.jobs]))


AFTER_THEIR_LEASES = DEFAULT_LEASE_SECONDS + 2 * LATE_SECONDS


def entries_read(url: str, later_seconds: float = AFTER_THEIR_LEASES) -> int:
    """Do 1,000 jobs, and later claim and reclaim ten times; return how much of jobs was read."""

    async def do_all() -> None:
        async with opened(url, VirtualClock()) as engine:
            await do_jobs(engine)

    async def go_on() -> None:
        clock = VirtualClock()
        clock.advance(later_seconds)
        async with opened(url, clock) as engine:
            for _round in range(ROUNDS):
                assert (await engine.claim(queues=["default"], worker="w")).jobs
                assert (await engine.reclaim(every_seconds=1.0)).lost == []
                clock.advance(1.0)

    with old_transaction(url):
        asyncio.run(do_all())
        [[before]] = rows(url, READ)
        asyncio.run(go_on())  # what a connection has counted is there when it has ended
        [[after]] = rows(url, READ)
    return int(str(after)) - int(str(before))


def test_dead_rows_are_passed_by_once_to_claim_and_once_to_reclaim(made, still):
    assert entries_read(made) < 3 * JOBS


def test_what_was_in_flight_just_now_is_not_passed_by_to_reclaim(made, still):
    assert entries_read(made, later_seconds=1.0) < 2 * JOBS


def test_control_lanes_that_are_forgotten_are_walked_again(made, still, monkeypatch):
    monkeypatch.setattr(WatermarkCache, "of", lambda _self, _request: None)
    assert entries_read(made) > ROUNDS * JOBS


def test_control_leases_that_are_looked_at_from_the_beginning(made, still, monkeypatch):
    monkeypatch.setattr(LeaseScan, "since_us", lambda _self: 0)
    assert entries_read(made) > ROUNDS * JOBS


def test_control_a_time_that_is_asked_for_with_every_row(made, still, rewritten):
    now = "coalesce(%(now_us)s::bigint, holdfast.now_us())"
    without_subquery = lambda text: text.replace(f"(SELECT {now})", now)
    rewritten(lambda file, text: without_subquery(text) if file == "find_overdue" else text)
    assert entries_read(made, later_seconds=1.0) > ROUNDS * JOBS


async def test_many_leases_that_ran_out_are_all_ended_a_part_at_a_time(made, still):
    clock = VirtualClock()
    async with opened(made, clock) as engine:
        await engine.enqueue([NewJob(task="t") for _number in range(25)])
        await engine.claim(queues=["default"], worker="w", limit=25)
        clock.advance(AFTER_THEIR_LEASES)
        ended = []
        for _round in range(3):
            ended.append(len((await engine.reclaim(limit=10, every_seconds=1.0)).lost))
            clock.advance(1.0)
        assert ended == [10, 10, 5]


LATE = "UPDATE holdfast.jobs SET lease_until_us = lease_until_us - 3600000000"
"""As if its claim had been committed an hour after its lease had ended."""


@pytest.mark.parametrize("in_turn", [True, False])
async def test_a_claim_that_was_committed_after_its_lease_is_ended_all_the_same(
    made, still, in_turn
):
    clock = VirtualClock()
    async with opened(made, clock) as engine:
        await engine.enqueue([NewJob(task="t", id="j")])
        await engine.claim(queues=["default"], worker="w")
        assert (await engine.reclaim(every_seconds=1.0)).lost == []
        rows(made, LATE)
        if in_turn:
            clock.advance(1.0)
            assert (await engine.reclaim(every_seconds=1.0)).lost == [], "no scan starts there"
            clock.advance(1.0)
            still.seconds += FULL_SCAN_SECONDS
            assert len((await engine.reclaim(every_seconds=1.0)).lost) == 1
        else:
            assert len((await engine.reclaim()).lost) == 1, "who asks for it has all looked at"


async def test_what_it_takes_to_end_leases_makes_no_look_count_for_longer(made, still, monkeypatch):
    usual = reclaim.lock_jobs

    def slowly(names, **how):
        still.seconds += 1_000.0
        return usual(names, **how)

    monkeypatch.setattr(reclaim, "lock_jobs", slowly)

    clock = VirtualClock()
    async with opened(made, clock) as engine:
        await engine.enqueue([NewJob(task="t")])
        await engine.claim(queues=["default"], worker="w")
        clock.advance(AFTER_THEIR_LEASES)
        assert len((await engine.reclaim(every_seconds=1.0)).lost) == 1
        assert engine._reclaimer.lease_scan.since_us() > 0
        still.seconds += FULL_SCAN_SECONDS
        assert engine._reclaimer.lease_scan.since_us() == 0


def test_a_look_at_all_that_took_long_counts_for_longer():
    moment = Moment()
    overdue = LeaseScan(moment)
    assert overdue.since_us() == 0
    overdue.scanned(0, FIRST_US, took_seconds=10.0)
    moment.seconds = 199.0
    assert overdue.since_us() == FIRST_US - LATE_SECONDS * MICROSECONDS
    overdue.scanned(overdue.since_us(), FIRST_US + 7, took_seconds=10.0)
    assert overdue.since_us() == FIRST_US + 7 - LATE_SECONDS * MICROSECONDS
    moment.seconds = 200.0
    assert overdue.since_us() == 0, "what was not looked at does not make it longer"


def test_all_is_looked_at_when_the_clock_was_set_back():
    overdue = LeaseScan(Moment())
    overdue.scanned(0, FIRST_US, took_seconds=0.0)
    overdue.scanned(overdue.since_us(), FIRST_US - 3_600 * MICROSECONDS, took_seconds=0.0)
    assert overdue.since_us() == 0
