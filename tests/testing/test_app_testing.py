"""``app.testing()``: an application's tasks in virtual time."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import Dead, Holdfast, InvalidInput, JobFailed, Retry, Snooze
from holdfast.model.errors import WrongLoop
from holdfast.model.job import State
from holdfast.testing.app import ClaimGate, Rehearsal


@pytest.fixture
def app() -> Holdfast:
    return Holdfast("memory:")


def test_time_moves_only_in_advance(app: Holdfast) -> None:
    ran: list[str] = []

    @app.task
    async def greet(name: str) -> None:
        await asyncio.sleep(2)
        ran.append(name)

    began = time.monotonic()
    with app.testing() as rehearsal:
        greet.options(delay="1h").enqueue_sync("later")
        rehearsal.drain()
        assert ran == []
        rehearsal.assert_pending(greet, times=1)
        rehearsal.advance("59m59s")
        assert ran == []
        rehearsal.advance("4s")
        assert ran == ["later"]
        rehearsal.assert_completed(greet, times=1)
    assert time.monotonic() - began < 30, "an hour passed at once"


def test_drain_gives_running_tasks_the_time_they_need(app: Holdfast) -> None:
    @app.task(timeout="10m")
    async def slow() -> int:
        await asyncio.sleep(300)
        return 42

    with app.testing() as rehearsal:
        job = slow.enqueue_sync()
        rehearsal.drain()
        assert job.result_sync() == 42


def test_retries_and_their_backoff(app: Holdfast) -> None:
    runs: list[int] = []

    @app.task(retry=Retry(max_attempts=3, after="10s"))
    async def flaky() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise ConnectionError("not yet")

    with app.testing() as rehearsal:
        flaky.enqueue_sync()
        rehearsal.drain()
        assert len(runs) == 1
        rehearsal.advance("9s")
        assert len(runs) == 1
        rehearsal.advance("2s")
        assert len(runs) == 2
        rehearsal.advance("10s")
        [job] = rehearsal.assert_completed(flaky)
        assert job.attempt == 3


def test_a_time_out_is_a_failure(app: Holdfast) -> None:
    @app.task(timeout="3s", retry=Retry(max_attempts=1))
    async def hangs() -> None:
        await asyncio.sleep(3600)

    with app.testing() as rehearsal:
        job = hangs.enqueue_sync()
        rehearsal.advance("4s")
        rehearsal.assert_dead(hangs, "timeout")
        with pytest.raises(JobFailed, match="time-out of 3 s"):
            job.result_sync()


def test_plain_functions_and_process_tasks_run_too(app: Holdfast) -> None:
    @app.task
    def threaded(n: int) -> int:
        return n + 1

    @app.task(run_in="process")
    def computed(n: int) -> int:
        return n + 2

    with app.testing() as rehearsal:
        one, two = threaded.enqueue_sync(1), computed.enqueue_sync(1)
        rehearsal.drain()
        assert (one.result_sync(), two.result_sync()) == (2, 3)


def test_tasks_enqueue_tasks(app: Holdfast) -> None:
    @app.task
    async def second() -> None: ...

    @app.task
    async def first() -> None:
        await second.enqueue()

    @app.task
    async def wrong() -> None:
        second.enqueue_sync()

    with app.testing() as rehearsal:
        first.enqueue_sync()
        wrong.options(max_attempts=1).enqueue_sync()
        rehearsal.drain()
        rehearsal.assert_completed(second, times=1)
        [job] = rehearsal.assert_dead(wrong)
        assert job.failure is not None
        assert WrongLoop.__name__ in job.failure.message


def test_cron_ticks_in_virtual_time(app: Holdfast) -> None:
    @app.cron("*/10 * * * *", missed="skip")
    @app.task
    async def tick() -> None: ...

    with app.testing() as rehearsal:
        rehearsal.advance("1h")
        assert 6 <= len(rehearsal.assert_completed(tick)) <= 7


def test_signals_do_what_they_say(app: Holdfast) -> None:
    @app.task
    async def snoozes(seen: list[int]) -> None:
        raise Snooze("1h")

    @app.task
    async def gives_up() -> Dead:
        return Dead("no such customer")

    with app.testing() as rehearsal:
        snoozes.enqueue_sync([])
        gives_up.enqueue_sync()
        rehearsal.drain()
        [job] = rehearsal.assert_pending(snoozes)
        assert job.attempt == 0
        rehearsal.assert_dead(gives_up, "business_error")


def test_what_a_failed_assertion_says(app: Holdfast) -> None:
    @app.task
    async def fails() -> None:
        raise ValueError("bad number")

    with app.testing() as rehearsal:
        fails.enqueue_sync()
        rehearsal.drain()
        with pytest.raises(AssertionError, match=r"0 jobs of fails are completed.*bad number"):
            rehearsal.assert_completed(fails)
        rehearsal.advance("3h")
        with pytest.raises(AssertionError, match="not of 'timeout'"):
            rehearsal.assert_dead(fails, "timeout")
        with pytest.raises(AssertionError, match="none at all"):
            rehearsal.assert_completed("unheard of")


def test_from_a_test_with_a_loop_of_its_own(app: Holdfast) -> None:
    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    async def scenario(rehearsal: Rehearsal) -> object:
        job = await greet.enqueue("you")
        await asyncio.to_thread(rehearsal.drain)
        return await job.result("1s")

    with app.testing() as rehearsal:
        assert asyncio.run(scenario(rehearsal)) == "hello you"


def test_a_rehearsal_leaves_nothing_behind(app: Holdfast) -> None:
    @app.task
    async def greet() -> None: ...

    with app.testing() as first:
        greet.enqueue_sync()
        first.drain()
    with app.testing() as second:
        assert second.jobs() == []
    with pytest.raises(InvalidInput), app.testing():
        greet.enqueue_sync("too many")  # type: ignore[call-overload]  # mypy sees it


def test_hooks_run_around_it(app: Holdfast) -> None:
    seen: list[str] = []
    app.on_start(lambda: seen.append("start"))

    @app.on_stop
    async def stop() -> None:
        seen.append("stop")

    with app.testing() as rehearsal:
        assert seen == ["start"]
        assert {job.state for job in rehearsal.jobs()} <= set(State)
    assert seen == ["start", "stop"]


# --- nothing happens until it is asked for ------------------------------------------------------


def test_a_job_is_pending_until_the_test_asks(app: Holdfast) -> None:
    ran: list[int] = []

    @app.task
    async def work(number: int) -> None:
        ran.append(number)

    with app.testing() as rehearsal:
        for number in range(5):
            work.enqueue_sync(number)
            rehearsal.assert_pending(work, times=number + 1)
        work.enqueue_many_sync([(5,), (6,)])
        app.enqueue_all_sync([work.call(7)])
        assert {job.token for job in rehearsal.assert_pending(work, times=8)} == {0}, "claimed"
        assert ran == []
        rehearsal.drain()
        assert ran == list(range(8))
        work.enqueue_sync(8)  # and again: the gate is closed
        rehearsal.assert_pending(work, times=1)
        rehearsal.advance("1s")
        rehearsal.assert_completed(work, times=9)


def test_control_with_the_gate_open_jobs_run_by_themselves(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClaimGate, "hold_claims", lambda self: None)

    @app.task
    async def work() -> None: ...

    with app.testing() as rehearsal:
        rehearsal.drain()
        for _number in range(3):
            work.enqueue_sync()
        with pytest.raises(AssertionError, match="not 3"):
            rehearsal.assert_pending(work, times=3)


def test_unique_jobs_can_be_tested(app: Holdfast) -> None:
    @app.task
    async def work(number: int) -> int:
        return number

    with app.testing() as rehearsal:
        unique = work.options(unique="one")
        first, second = unique.enqueue_sync(1), unique.enqueue_sync(2)
        assert (first.existed, second.existed, second.id) == (False, True, first.id)
        rehearsal.drain()
        third = unique.enqueue_sync(3)
        assert not third.existed
        assert (first.result_sync(), third.result_sync()) == (1, 3)


def test_a_result_that_is_awaited_is_asked_for(app: Holdfast) -> None:
    @app.task
    async def second() -> str:
        return "done"

    @app.task(timeout="5m")
    async def first() -> str:
        await asyncio.sleep(60)
        job = await second.enqueue()
        return await job.result()

    with app.testing() as rehearsal:
        assert first.enqueue_sync().result_sync() == "done"
        other = first.enqueue_sync()
        assert rehearsal.run(other.result("2m")) == "done"
        rehearsal.assert_completed(second, times=2)


def test_what_runs_goes_on_only_when_time_moves(app: Holdfast) -> None:
    @app.task(timeout="5m")
    async def slow() -> None:
        await asyncio.sleep(10)

    with app.testing() as rehearsal:
        slow.enqueue_sync()
        rehearsal.advance("1s")
        [job] = rehearsal.jobs(slow)
        assert job.state is State.IN_FLIGHT
        slow.enqueue_sync()
        assert [job.state for job in rehearsal.jobs(slow)] == [State.IN_FLIGHT, State.PENDING]
        rehearsal.advance("20s")
        rehearsal.assert_completed(slow, times=2)


async def test_in_a_test_that_is_a_coroutine(app: Holdfast) -> None:
    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    with app.testing() as rehearsal:
        jobs = await asyncio.gather(*(greet.enqueue(f"{number}") for number in range(20)))
        rehearsal.assert_pending(greet, times=20)
        rehearsal.drain()
        rehearsal.assert_completed(greet, times=20)
        assert await jobs[7].result() == "hello 7"
        await greet.options(delay="1h").enqueue("later")
        rehearsal.advance("2h")
        rehearsal.assert_completed(greet, times=21)


def test_threads_enqueue_at_the_same_time_and_while_jobs_run(app: Holdfast) -> None:
    @app.task
    async def work() -> None: ...

    @app.task
    async def from_a_thread() -> None:
        await asyncio.to_thread(work.enqueue_sync)

    with app.testing() as rehearsal:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda _number: work.enqueue_sync(), range(40)))
        rehearsal.assert_pending(work, times=40)
        from_a_thread.enqueue_sync()
        rehearsal.drain()
        rehearsal.assert_completed(work, times=41)


def test_a_task_cannot_move_the_time_that_it_runs_in(app: Holdfast) -> None:
    with app.testing() as rehearsal:

        @app.task
        async def confused() -> None:
            rehearsal.drain()

        confused.options(max_attempts=1).enqueue_sync()
        rehearsal.drain()
        [job] = rehearsal.assert_dead(confused)
        assert job.failure is not None
        assert "WrongLoop: a task runs on the loop of the testing app" in job.failure.message


async def test_running_starts_nothing_within_a_test(app: Holdfast, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    @app.task
    async def work() -> None: ...

    here = Holdfast()  # ./data
    here.registry.add_task(work.spec)
    with here.testing() as rehearsal:
        async with here.running() as same:
            assert same is here
            await here.enqueue("work")
        rehearsal.assert_pending("work", times=1)
    assert list(tmp_path.iterdir()) == []
