"""Heartbeats, leases that are lost, stopping, and what a worker does when the engine is away."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engines.contract import EngineOptions
from holdfast.model.errors import StorageFull, Unavailable
from holdfast.model.job import MICROSECONDS, Job
from holdfast.worker.loops import LeaseLoop

from .world import World

AWAY = Unavailable("away")


def forever(world: World, **fields):
    """A task that takes an hour, and says how it ended."""

    @world.task(name="work", timeout_seconds=36_000.0, **fields)
    async def work() -> None:
        try:
            await world.busy(3_600)
        except asyncio.CancelledError:
            world.seen.append(asyncio.get_running_loop().time())
            raise


# --- heartbeats --------------------------------------------------------------------------------


def test_heartbeats_keep_a_long_job_until_it_is_done():
    world = World(lease_seconds=10.0, engine_options=EngineOptions(max_processing_seconds=36_000))
    forever(world)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work")
        world.start()
        await world.until_state(completed=1, seconds=4_000, every=10)
        found = await world.job(job)
        assert (found.attempt, found.losses) == (1, 0)
        await world.stop()

    world.run(scenario)
    assert world.engine.calls["extend"] == pytest.approx(900, rel=0.3)  # not at every step


def test_a_lease_is_renewed_before_two_thirds_of_it_are_left_over():
    world = World(lease_seconds=30.0)
    forever(world)

    async def scenario(world: World) -> None:
        await world.enqueue("work")
        world.start()
        await asyncio.sleep(9.5)
        assert world.engine.calls["extend"] == 0
        await asyncio.sleep(3)
        assert world.engine.calls["extend"] == 1
        (attempt,) = world.worker._pools[""].running.values()
        assert attempt.lease_ends - asyncio.get_running_loop().time() > 20
        await world.stop(0)

    world.run(scenario)


def test_an_idle_worker_sends_no_heartbeat():
    world = World()

    async def scenario(world: World) -> None:
        world.start()
        await asyncio.sleep(100)
        await world.stop()

    world.run(scenario)
    assert world.engine.calls["extend"] == 0


def test_an_attempt_that_lost_its_lease_is_ended_and_says_nothing():
    world = World(lease_seconds=10.0)
    forever(world)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work")
        worker = world.start()
        await asyncio.sleep(2)
        held = await world.job(job)
        await world.engine.reclaim(forced=[held])  # an operator took it away
        await world.until(lambda: world.seen, 20)
        assert world.seen[0] < 7
        # Nothing was settled for the lost one: the job runs again under a new token.
        await asyncio.sleep(1)
        found = await world.job(job)
        assert found.state == "in_flight"
        assert found.token > held.token
        assert (found.attempt, found.losses) == (2, 1)
        assert worker.late_outcomes == 0
        await world.stop(0)

    world.run(scenario)


def test_a_late_outcome_is_refused_and_counted(caplog):
    world = World(lease_seconds=10.0)

    @world.task()
    async def work() -> None:
        await asyncio.sleep(2)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work")
        worker = world.start(leases=None)
        await asyncio.sleep(1)
        await world.engine.reclaim(forced=[await world.job(job)])
        await asyncio.sleep(1.5)
        assert worker.late_outcomes == 1
        await world.until_state(completed=1)
        await world.stop()

    world.run(scenario)
    assert "worker.late_outcome_refused" in caplog.text


async def run_long(world: World, seconds: float) -> Job:
    """Run one job of ``forever``'s task for this long; return it."""
    (job,) = await world.enqueue("work")
    world.start()
    await asyncio.sleep(seconds)
    found = await world.job(job)
    await world.stop(0)
    return found


def test_without_a_cap_a_job_may_stay_claimed_for_its_timeout_and_a_minute():
    # The engine's own cap is 11 minutes; the timeout of this task is 10 hours.
    world = World(lease_seconds=30.0)
    forever(world)
    found = world.run(lambda world: run_long(world, 3_000))
    assert (found.state, found.attempt, found.losses) == ("in_flight", 1, 0)


@pytest.mark.parametrize("where", ["job", "setting"])
def test_a_cap_that_is_set_wins_over_the_timeout(where):
    options = EngineOptions(max_processing_seconds=90.0) if where == "setting" else None
    cap = 90.0 if where == "setting" else None
    world = World(lease_seconds=30.0, engine_options=options, max_processing_seconds=cap)
    forever(world)

    async def scenario(world: World) -> Job:
        own = None if where == "setting" else 90.0
        (job,) = await world.enqueue("work", max_processing_seconds=own)
        world.start()
        await asyncio.sleep(95)
        found = await world.job(job)
        await world.stop(0)
        return found

    assert world.run(scenario).losses == 1


def test_a_worker_that_dies_under_a_long_timeout_is_said_to_be_lost_not_stuck():
    world = World(lease_seconds=30.0)
    forever(world)

    async def scenario(world: World) -> Job:
        (job,) = await world.enqueue("work")
        world.start()
        await asyncio.sleep(1_200)
        world.engine.away = lambda verb: AWAY if verb == "extend" else None
        while (found := await world.job(job)).losses == 0:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1)
        await world.stop(0)
        return found

    found = world.run(scenario)
    assert found.failure is not None
    assert found.failure.error_reason == "worker_lost"


def test_max_processing_seconds_ends_an_attempt_however_much_its_worker_heartbeats():
    options = EngineOptions(max_processing_seconds=60.0)
    world = World(lease_seconds=10.0, engine_options=options)
    forever(world)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work", max_attempts=2)
        world.start()
        await world.until_state(dead=1)
        failure = (await world.job(job)).failure
        assert failure is not None
        assert failure.error_reason == "stuck"
        await world.stop()

    world.run(scenario)
    assert world.seen == [pytest.approx(60, abs=2), pytest.approx(120, abs=4)]


def test_a_jobs_own_estimate_is_its_first_lease():
    world = World(lease_seconds=10.0)
    forever(world, estimated_seconds=300.0)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work", estimated_seconds=300.0)
        world.start()
        await asyncio.sleep(100)
        found = await world.job(job)
        assert found.lease_until_us - found.claimed_at_us == 300 * MICROSECONDS
        assert world.engine.calls["extend"] == 0
        await world.stop(0)

    world.run(scenario)


def test_a_worker_that_learns_of_a_leap_from_a_claim_renews_every_lease():
    """Its own clock may not show the leap, if it is still making up for having been set back."""
    world = World(lease_seconds=10.0)
    forever(world, estimated_seconds=300.0)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work", estimated_seconds=300.0)
        world.start()
        await asyncio.sleep(5)
        world.engine._core.ahead_us += 400 * MICROSECONDS  # the engine's clock alone
        await world.enqueue("work", estimated_seconds=300.0)
        await world.until(lambda: world.engine.calls["extend"])
        found = await world.job(job)
        assert found.lease_until_us > world.engine._core.now_us(), "its first lease had run out"
        assert (found.attempt, found.losses) == (1, 0)
        await world.stop(0)

    world.run(scenario)


def test_a_loop_that_was_blocked_renews_before_anybody_takes_the_lease_away():
    world = World(lease_seconds=10.0)
    forever(world)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work")
        worker = world.start(leases=None)
        leases = LeaseLoop(world.engine, worker, 1.0)
        await asyncio.sleep(1)
        await asyncio.sleep(60)  # nobody steps: as if the loop had been blocked for a minute
        await leases.step(world.clock.now_us())
        found = await world.job(job)
        assert (found.state, found.losses) == ("in_flight", 0)
        assert found.lease_until_us > world.clock.now_us()
        await world.stop(0)

    world.run(scenario)


# --- when the engine is away -------------------------------------------------------------------


def test_an_attempt_goes_on_while_the_engine_is_away_until_its_lease_has_run_out_by_our_clock():
    world = World(lease_seconds=30.0)
    forever(world)

    async def scenario(world: World) -> None:
        await world.enqueue("work")
        world.start()
        await asyncio.sleep(2)
        world.engine.away = lambda _verb: AWAY
        await asyncio.sleep(26)
        assert world.seen == []
        await world.until(lambda: world.seen, 10)
        world.engine.away = lambda _verb: None
        await world.stop(0)

    world.run(scenario)
    # Never later than the engine itself would give it away; counted from when it was asked for.
    assert world.seen == [pytest.approx(30, abs=1.1)]
    assert world.seen[0] >= 29.9


def test_a_short_absence_is_not_felt():
    world = World(lease_seconds=30.0)
    forever(world)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work")
        world.start()
        for _ in range(5):
            await asyncio.sleep(20)
            world.engine.away = lambda _verb: AWAY
            await asyncio.sleep(8)
            world.engine.away = lambda _verb: None
        assert (await world.job(job)).attempt == 1
        await world.stop(0)

    world.run(scenario)


def test_outcomes_that_cannot_be_settled_are_kept_and_settled_later(caplog):
    world = World(slots=3)

    @world.task()
    async def work() -> None:
        await asyncio.sleep(1)

    async def scenario(world: World) -> None:
        await world.enqueue("work", 3)
        worker = world.start()
        await asyncio.sleep(0.5)
        world.engine.away = lambda _verb: AWAY
        await asyncio.sleep(10)
        assert await world.states() == {"in_flight": 3}
        world.engine.away = lambda _verb: None
        await world.until_state(completed=3, seconds=5)
        assert worker.late_outcomes == 0
        await world.stop()

    world.run(scenario)
    assert "worker.claim_failed worker=w away" in caplog.text


def test_a_full_disk_is_waited_out_like_an_absence():
    world = World(slots=1)

    @world.task()
    async def work() -> None: ...

    async def scenario(world: World) -> None:
        world.engine.away = lambda _verb: StorageFull("full")
        world.start()
        await world.enqueue("work", 5)
        await asyncio.sleep(20)
        world.engine.away = lambda _verb: None
        await world.until_state(completed=5, seconds=5)
        await world.stop()

    world.run(scenario)


def test_an_absence_right_after_the_worker_was_made_smaller_does_not_stop_it():
    world = World(slots=4)

    @world.task()
    async def work() -> None:
        await asyncio.sleep(1)

    async def scenario(world: World) -> None:
        await world.enqueue("work", 12)
        worker = world.start()
        await asyncio.sleep(0.5)
        worker.resize(1)  # now outcomes come for which there is nothing to claim
        world.engine.away = lambda _verb: AWAY
        await asyncio.sleep(3)
        world.engine.away = lambda _verb: None
        await world.until_state(completed=12)
        await world.stop()

    world.run(scenario)


async def run_twenty_jobs(world: World, chance: random.Random, share: float) -> list[Job]:
    """Run them while calls to the engine fail by chance; return them when they are finished."""
    ids = [f"job-{number}" for number in range(20)]
    for job_id in ids:
        await world.enqueue("work", id=job_id, max_attempts=2)
    worker = world.start()
    world.engine.away = lambda _verb: AWAY if chance.random() < share else None
    for size in (3, 1, 4):
        await asyncio.sleep(chance.uniform(0, 10))
        worker.resize(size)
    await asyncio.sleep(20)
    world.engine.away = lambda _verb: None
    for _ in range(300):
        found = [await world.job(job_id) for job_id in ids]
        if all(job.state.finished for job in found):
            assert worker.late_outcomes == 0
            await world.stop()
            return found
        await asyncio.sleep(1)
    pytest.fail(f"not all were finished: {await world.states()}")


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), share=st.sampled_from([0.1, 0.5, 0.9]), slots=st.integers(1, 5))
def test_no_outcome_is_lost_however_often_the_engine_is_away(seed, share, slots):
    chance = random.Random(seed)
    world = World(slots=slots, lease_seconds=3_600.0)

    @world.task()
    async def work() -> None:
        world.seen.append(1)
        await asyncio.sleep(chance.choice([0, 0.1, 1.5]))
        if chance.random() < 0.2:
            raise ConnectionResetError

    jobs = world.run(lambda world: run_twenty_jobs(world, chance, share))
    # Every attempt was settled: none was taken away, none ran but once for its token.
    assert sum(job.attempt for job in jobs) == len(world.seen)
    assert all(job.losses == 0 for job in jobs)


def test_a_closed_engine_ends_the_worker_quietly(caplog):
    world = World()

    @world.task()
    async def work() -> None: ...

    async def scenario(world: World) -> None:
        world.start()
        await asyncio.sleep(0.5)
        await world.engine.close()
        await asyncio.sleep(5)
        await world.stop()

    world.run(scenario)
    assert "worker.stopped_claiming" in caplog.text


def test_a_heartbeat_that_takes_longer_than_a_lease_costs_no_lease_that_was_fresh_before_it():
    world = World(lease_seconds=3.0, slots=2)
    forever(world)
    extend = world.engine.extend
    slow = [4.0]

    async def slowly(*args, **asked):
        answers = await extend(*args, **asked)
        await asyncio.sleep(slow.pop() if slow else 0.0)  # decided, but long on its way
        return answers

    async def scenario(world: World) -> None:
        world.engine.extend = slowly  # type: ignore[method-assign]
        await world.enqueue("work")
        world.start(leases=1.0)
        await asyncio.sleep(1.5)
        (fresh,) = await world.enqueue("work")
        await asyncio.sleep(10.0)
        assert not slow
        found = await world.job(fresh)
        assert (found.state, found.losses, found.attempt) == ("in_flight", 0, 1)
        await world.stop(0.0)

    world.run(scenario)
