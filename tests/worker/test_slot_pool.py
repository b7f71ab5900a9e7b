"""A worker: slots, what they claim, how they settle; in virtual time on the memory engine."""

import asyncio
import contextvars
import logging
import threading
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.worker.attempt import current
from holdfast.worker.threads import ThreadPool

from .world import World


def test_never_more_run_at_once_than_there_are_slots_and_all_slots_are_used():
    world = World(slots=3)

    @world.task()
    async def work() -> None:
        await world.busy(2)

    async def scenario(world: World) -> float:
        await world.enqueue("work", 20)
        world.start()
        await world.until_state(completed=20)
        took = asyncio.get_running_loop().time()
        await world.stop()
        return took

    took = world.run(scenario)
    assert world.most_running == 3
    assert took == pytest.approx(14, abs=0.2)  # seven rounds of three


@settings(max_examples=20, deadline=None)
@given(
    slots=st.integers(1, 6),
    lasts=st.lists(st.sampled_from([0.0, 0.1, 0.5, 2.0]), min_size=1, max_size=30),
)
def test_every_job_runs_once_whatever_they_take_and_never_too_many_at_once(slots, lasts):
    world = World(slots=slots)

    @world.task()
    async def work(number: int, seconds: float) -> None:
        world.seen.append(number)
        await world.busy(seconds)

    async def scenario(world: World) -> None:
        for number, seconds in enumerate(lasts):
            await world.enqueue("work", payload={"number": number, "seconds": seconds})
        world.start()
        await world.until_state(completed=len(lasts))
        await world.stop()

    world.run(scenario)
    assert sorted(world.seen) == list(range(len(lasts)))
    assert world.most_running <= slots


def test_a_claim_asks_for_as_many_as_there_are_free_slots():
    world = World(slots=4)

    @world.task()
    async def work() -> None:
        await world.busy(2.5)

    async def scenario(world: World) -> None:
        await world.enqueue("work", 1)
        world.start()
        await asyncio.sleep(0.5)
        await world.enqueue("work", 5)
        await world.until_state(completed=6)
        await world.stop()

    world.run(scenario)
    assert world.engine.demands[:2] == [4, 3]
    assert max(world.engine.demands) == 4
    assert min(world.engine.demands) >= 1


def test_settling_what_is_done_and_claiming_what_is_next_is_one_call():
    world = World(slots=1)

    @world.task()
    async def work() -> None: ...

    async def scenario(world: World) -> None:
        await world.enqueue("work", 50)
        world.start(leases=None)
        await world.until_state(completed=50)
        await world.stop()

    world.run(scenario)
    # 51 claims: the first settles nothing, the last finds nothing. None is settled apart.
    assert sum(world.engine.fused) == 50
    assert world.engine.calls["settle"] == 0


def test_outcomes_are_settled_while_a_claim_waits_for_work():
    world = World(slots=2)

    @world.task()
    async def work() -> None:
        await asyncio.sleep(0.3)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work")
        world.start()
        await asyncio.sleep(0.31)  # the claim for the second slot waits until 1 s
        assert world.engine.calls["claim"] == 2
        assert (await world.job(job)).finished_at_us == world.clock.now_us() - 10_000
        await world.stop()

    world.run(scenario)
    assert world.engine.calls["settle"] == 1


def test_jobs_that_never_wait_are_all_done_in_one_turn():
    world = World(slots=8)

    @world.task()
    async def work() -> None:
        world.seen.append(current().id)

    async def scenario(world: World) -> None:
        jobs = await world.enqueue("work", 8)
        world.start()
        await world.until_state(completed=8)
        assert world.seen == jobs  # and in their order
        await world.stop()

    world.run(scenario)
    assert world.clock.now_us() < 1_800_000_000_000_000 + 100_000


def test_higher_priorities_go_first():
    world = World(slots=1)

    @world.task()
    async def work(number: int) -> None:
        world.seen.append(number)

    async def scenario(world: World) -> None:
        for number in (1, 3, 2):
            await world.enqueue("work", payload={"number": number}, priority=number)
        world.start()
        await world.until_state(completed=3)
        await world.stop()

    world.run(scenario)
    assert world.seen == [3, 2, 1]


def test_a_delayed_job_runs_when_it_is_due():
    world = World()

    @world.task()
    async def work() -> None:
        world.seen.append(asyncio.get_running_loop().time())

    async def scenario(world: World) -> None:
        await world.enqueue("work", delay_seconds=90.5)
        world.start()
        await world.until_state(completed=1)
        await world.stop()

    world.run(scenario)
    assert world.seen == [pytest.approx(90.5, abs=0.01)]


# --- time-outs ---------------------------------------------------------------------------------


def test_an_attempt_that_takes_too_long_is_ended_and_tried_again_until_it_is_dead():
    world = World(task_timeout_seconds=3.0)

    @world.task()
    async def work() -> None:
        try:
            await world.busy(1_000)
        finally:
            world.seen.append(asyncio.get_running_loop().time())

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work", max_attempts=3)
        world.start()
        await world.until_state(dead=1)
        found = await world.job(job)
        assert found.attempt == 3
        assert found.failure is not None
        assert found.failure.error_reason == "timeout"
        assert "time-out of 3 s" in found.failure.message
        await world.stop()

    world.run(scenario)
    assert world.seen == [pytest.approx(when, abs=0.1) for when in (3, 6, 9)]
    assert world.running == 0


def test_a_tasks_own_time_out_goes_over_the_setting():
    world = World(task_timeout_seconds=3.0)

    @world.task(timeout_seconds=60.0)
    async def slow() -> None:
        assert current().deadline_seconds == pytest.approx(60.0)
        await asyncio.sleep(50)
        assert current().deadline_seconds == pytest.approx(10.0)

    @world.task(timeout_seconds=0.5)
    async def quick() -> None:
        await asyncio.sleep(1)

    async def scenario(world: World) -> None:
        await world.enqueue("slow")
        await world.enqueue("quick", max_attempts=1)
        world.start()
        await world.until_state(completed=1, dead=1)
        await world.stop()

    world.run(scenario)


def test_a_task_that_finishes_in_spite_of_its_time_out_has_completed():
    world = World(task_timeout_seconds=3.0)

    @world.task()
    async def work() -> str:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            return "after all"
        return ""

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work")
        world.start()
        await world.until_state(completed=1)
        assert (await world.job(job)).result == b'"after all"'
        # The slot is as good as new.
        await world.enqueue("work", 3)
        await world.until_state(completed=4)
        await world.stop()

    world.run(scenario)


def test_a_changed_time_out_holds_for_the_next_attempt():
    world = World(task_timeout_seconds=3.0)

    @world.task()
    async def work() -> None:
        await asyncio.sleep(10)

    async def scenario(world: World) -> None:
        worker = world.start()
        worker.change(msgspec.structs.replace(world.options, task_timeout_seconds=20.0))
        await world.enqueue("work")
        await world.until_state(completed=1)
        await world.stop()

    world.run(scenario)


def test_a_thread_that_times_out_is_left_behind_and_its_slot_goes_on():
    world = World(real=True, slots=1, task_timeout_seconds=0.2)
    go = threading.Event()

    @world.task()
    def stuck() -> None:
        assert go.wait(10)

    @world.task()
    async def work() -> None: ...

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("stuck", max_attempts=1)
        await world.enqueue("work")
        worker = world.start()
        await world.until_state(dead=1, completed=1)
        failure = (await world.job(job)).failure
        assert failure is not None
        assert failure.error_reason == "timeout"
        assert "the attempt exceeded its time-out of 0.2 s" in failure.message
        assert worker.abandoned_threads == 1
        go.set()
        await world.until(lambda: worker.abandoned_threads == 0)
        await world.stop()

    world.run(scenario)


def stuck_once(world: World, go: threading.Event, runs: list[int]) -> None:
    """A thread task whose first run hangs until ``go``."""

    @world.task()
    def stuck() -> None:
        runs.append(threading.get_ident())
        if len(runs) == 1:
            assert go.wait(10)


def test_a_second_run_waits_for_the_thread_that_the_first_one_left_behind(caplog):
    world = World(real=True, slots=2, task_timeout_seconds=0.2)
    go, runs = threading.Event(), list[int]()
    stuck_once(world, go, runs)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("stuck")
        world.start()
        await world.until(lambda: "worker.waits_for_thread" in caplog.text, seconds=10)
        # It may wait longer than the timeout, which does not run meanwhile.
        await asyncio.sleep(0.4)
        assert len(runs) == 1
        assert (await world.job(job)).attempt == 2
        go.set()
        await world.until_state(completed=1)
        assert (await world.job(job)).attempt == 2
        await world.stop()

    world.run(scenario)
    assert len(runs) == 2


def test_a_run_that_waited_for_a_thread_has_its_whole_time():
    """Its cap counts from the claim: what it waited is not taken from what it may run."""
    world = World(real=True, slots=2, task_timeout_seconds=1.0, lease_seconds=1.5)
    go, runs = threading.Event(), list[int]()

    @world.task()
    def stuck() -> None:
        runs.append(threading.get_ident())
        if len(runs) == 1:
            assert go.wait(10)
        else:
            time.sleep(0.9)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("stuck", max_processing_seconds=2.0)
        world.start(leases=0.1)
        await world.until(lambda: world.worker.abandoned_threads == 1, seconds=10)
        await asyncio.sleep(1.3)
        go.set()
        await world.until_state(completed=1, seconds=10)
        assert (await world.job(job)).losses == 0
        await world.stop()

    world.run(scenario)
    assert len(runs) == 2


def test_a_run_that_waits_for_a_thread_up_to_its_cap_is_tried_later():
    world = World(real=True, slots=2, task_timeout_seconds=0.2, max_processing_seconds=1.0)
    go, runs = threading.Event(), list[int]()
    stuck_once(world, go, runs)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("stuck", max_attempts=2)
        world.start()
        await world.until_state(dead=1, seconds=10)
        found = await world.job(job)
        assert found.failure is not None
        assert found.failure.error_reason == "timeout"
        assert "an earlier run that timed out still runs" in found.failure.message
        assert found.losses == 0
        go.set()
        await world.until(lambda: world.worker.abandoned_threads == 0)
        await world.stop()

    world.run(scenario)
    assert len(runs) == 1


def test_control_a_pool_that_forgets_its_threads_runs_a_job_twice_at_once(monkeypatch):
    monkeypatch.setattr(ThreadPool, "still_runs", lambda _pool, _key: False)
    world = World(real=True, slots=2, task_timeout_seconds=0.2)
    go, runs = threading.Event(), list[int]()
    stuck_once(world, go, runs)

    async def scenario(world: World) -> None:
        await world.enqueue("stuck")
        world.start()
        await world.until_state(completed=1, seconds=10)
        assert len(runs) == 2
        assert not go.is_set()
        go.set()
        await world.until(lambda: world.worker.abandoned_threads == 0)
        await world.stop()

    world.run(scenario)


# --- whatever a task does ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        SystemExit(1),
        KeyboardInterrupt(),
        BaseExceptionGroup("two", [SystemExit()]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_nothing_that_a_task_raises_hurts_its_slot(error):
    world = World(slots=1)

    @world.task()
    async def work() -> None:
        raise error

    @world.task()
    async def next_one() -> None: ...

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work", max_attempts=2)
        await world.enqueue("next_one")
        world.start()
        await world.until_state(dead=1, completed=1)
        failure = (await world.job(job)).failure
        assert failure is not None
        assert failure.error_reason == "unexpected"
        assert type(error).__name__ in failure.message
        await world.stop()

    world.run(scenario)


@pytest.mark.parametrize("how", ["raises", "cancels itself", "cancels itself twice", "in a thread"])
def test_a_task_that_is_cancelled_by_its_own_doing_has_failed_and_its_slot_goes_on(how):
    world = World(slots=1, real=how == "in a thread")

    async def on_loop() -> None:
        if how == "raises":
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if how == "cancels itself twice":
            task.cancel()
        await asyncio.sleep(10)

    def in_thread() -> None:
        raise asyncio.CancelledError

    world.task(name="work")(in_thread if how == "in a thread" else on_loop)

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work", max_attempts=3)
        world.start()
        await world.until_state(dead=1)
        found = await world.job(job)
        assert found.attempt == 3
        assert found.losses == 0
        assert found.failure is not None
        assert found.failure.error_reason == "unexpected"
        assert "CancelledError" in found.failure.message
        await world.stop()

    world.run(scenario)


def test_what_a_task_leaves_in_its_context_does_not_reach_the_next_job():
    world = World(slots=1)
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")

    @world.task()
    async def work(name: str) -> None:
        world.seen.append(tenant.get("nobody"))
        tenant.set(name)

    async def scenario(world: World) -> None:
        for name in "abcd":
            await world.enqueue("work", payload={"name": name})
        world.start()
        await world.until_state(completed=4)
        await world.stop()

    world.run(scenario)
    assert world.seen == ["nobody"] * 4


def test_what_is_in_the_context_of_who_starts_the_worker_does_not_reach_the_jobs():
    world = World(slots=2)
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")

    @world.task()
    async def work() -> None:
        world.seen.append(tenant.get("nobody"))

    async def scenario(world: World) -> None:
        tenant.set("whoever started it")
        world.start()
        await world.enqueue("work", 4)
        await world.until_state(completed=4)
        await world.stop()

    world.run(scenario)
    assert world.seen == ["nobody"] * 4


def test_a_thread_sees_the_attempt_that_it_runs():
    world = World(real=True)

    @world.task()
    def work() -> str:
        attempt = current()
        attempt.progress(0.5, "half")
        return f"{attempt.id} {attempt.number} {threading.current_thread().name}"

    async def scenario(world: World) -> None:
        await world.enqueue("work", id="j")
        world.start()
        await world.until_state(completed=1)
        assert (await world.job("j")).result == b'"j 1 holdfast-task"'
        await world.stop()

    world.run(scenario)


def test_a_task_that_is_not_registered_is_never_claimed():
    world = World()

    @world.task()
    async def work() -> None: ...

    async def scenario(world: World) -> None:
        await world.enqueue("from_a_newer_version", 3)
        await world.enqueue("work", 3)
        world.start()
        await world.until_state(completed=3, pending=3)
        await asyncio.sleep(60)
        assert await world.states() == {"completed": 3, "pending": 3}
        await world.stop()

    world.run(scenario)


def test_a_payload_that_does_not_fit_the_task_any_more_is_dead_at_once():
    world = World()

    @world.task()
    async def work(number: int) -> None: ...

    async def scenario(world: World) -> None:
        (job,) = await world.enqueue("work", payload={"old_name": 1})
        world.start()
        await world.until_state(dead=1)
        found = await world.job(job)
        assert (found.attempt, found.failure and found.failure.error_reason) == (
            1,
            "payload_invalid",
        )
        await world.stop()

    world.run(scenario)


def test_a_failure_is_logged_with_its_job_and_reason(caplog):
    world = World()

    @world.task()
    async def work() -> None:
        raise ConnectionResetError("gone")

    async def scenario(world: World) -> None:
        await world.enqueue("work", id="j", max_attempts=2)
        world.start()
        await world.until_state(dead=1)
        await world.stop()

    with caplog.at_level(logging.WARNING, "holdfast.worker"):
        world.run(scenario)
    said = [line.getMessage() for line in caplog.records if "job.failed" in line.getMessage()]
    assert len(said) == 1, "the last attempt is logged as job.dead when it is recorded"
    assert "job.failed job=j task=work queue=default attempt=1" in said[0]
    assert "reason=connection" in said[0]
    assert "outcome=retry" in said[0]
