"""``app.testing()``: an application's tasks in virtual time."""

import asyncio
import time

import pytest

from holdfast import Dead, Holdfast, InvalidInput, JobFailed, Retry, Snooze
from holdfast.model.errors import WrongLoop
from holdfast.model.job import State
from holdfast.testing.app import Rehearsal


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
        rehearsal.advance("10m")
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
        greet.enqueue_sync("too many")  # type: ignore[call-arg]  # mypy sees it too


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
