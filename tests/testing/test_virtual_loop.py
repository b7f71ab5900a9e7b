"""An event loop in virtual time."""

import asyncio
import contextvars
import math
import random
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.job import NewJob
from holdfast.testing import VirtualClock
from holdfast.testing.loop import Deadlock, VirtualLoop

HOUR = 3_600.0


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        found = runner.get_loop()
        assert isinstance(found, VirtualLoop)
        yield found


def passed_us(loop: VirtualLoop) -> int:
    return loop.clock.now_us() - VirtualClock().now_us()


def test_an_hour_of_sleep_takes_no_real_time(loop: VirtualLoop) -> None:
    began = time.monotonic()
    loop.run_until_complete(asyncio.sleep(HOUR * 24 * 365))
    assert time.monotonic() - began < 5
    assert loop.time() == HOUR * 24 * 365
    assert passed_us(loop) == 365 * 24 * 3_600_000_000


def test_it_is_bound_to_the_clock_that_it_is_given() -> None:
    clock = VirtualClock(1_000_000)
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        runner.run(asyncio.sleep(2.5))
    assert clock.now_us() == 3_500_000


def test_timers_fire_in_the_order_of_their_times_and_then_of_their_making(
    loop: VirtualLoop,
) -> None:
    trace: list[tuple[str, float]] = []

    def note(name: str) -> None:
        trace.append((name, loop.time()))

    for name, seconds in [("c", 3), ("a", 1), ("d", 3), ("b", 2), ("e", 3)]:
        loop.call_later(seconds, note, name)
    loop.advance(10)
    assert trace == [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 3.0), ("e", 3.0)]


def test_timers_of_the_clock_and_of_the_loop_are_one_line(loop: VirtualLoop) -> None:
    trace: list[tuple[str, int]] = []
    start_us = loop.clock.now_us()

    def note(name: str) -> None:
        trace.append((name, passed_us(loop) // 1_000))

    for milliseconds in (40, 10, 30, 20):
        if milliseconds % 20:
            loop.call_later(milliseconds / 1e3, note, "loop")
        else:
            loop.clock.call_at(start_us + milliseconds * 1_000, partial(note, "clock"))
    loop.run_until_complete(asyncio.sleep(0.035))
    assert trace == [("loop", 10), ("clock", 20), ("loop", 30)]
    loop.advance(0.005)
    assert trace[3:] == [("clock", 40)]


def test_what_a_timer_makes_ready_runs_before_the_next_timer(loop: VirtualLoop) -> None:
    trace: list[str] = []

    async def chain() -> None:
        await asyncio.sleep(1)
        for step in range(5):
            trace.append(f"step {step}")
            await asyncio.sleep(0)

    task = loop.create_task(chain())
    loop.run_until_idle()
    loop.clock.call_at(loop.clock.now_us() + 1_000_001, lambda: trace.append("a microsecond later"))
    loop.advance(2)
    assert trace == [*(f"step {step}" for step in range(5)), "a microsecond later"]
    assert task.done()


def test_advance_lands_exactly(loop: VirtualLoop) -> None:
    fired: list[int] = []
    loop.call_later(0.3, lambda: fired.append(passed_us(loop)))
    loop.advance(0.1)
    loop.advance(0.199999)
    assert fired == []
    assert passed_us(loop) == 299_999
    loop.advance(0.000001)
    assert fired == [300_000]
    loop.advance(1.001001)
    assert passed_us(loop) == 1_301_001
    loop.advance(0)
    assert passed_us(loop) == 1_301_001


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan])
def test_time_goes_forward_by_something_finite(loop: VirtualLoop, seconds: float) -> None:
    with pytest.raises(ValueError, match="cannot advance time"):
        loop.advance(seconds)


@settings(deadline=None)
@given(st.lists(st.integers(1, 10**10), min_size=1, max_size=20))
def test_sums_of_floats_land_on_the_microsecond(steps_us: list[int]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        for number, step_us in enumerate(steps_us):
            before = loop.time()
            if number % 2:
                loop.advance(step_us / 1e6)
            else:
                runner.run(asyncio.sleep(step_us / 1e6))
            assert loop.time() >= before
        assert passed_us(loop) == sum(steps_us)


def test_a_deadline_is_reached_whatever_its_rounding(loop: VirtualLoop) -> None:
    async def wait_until(deadline: float) -> int:
        rounds = 0
        while loop.time() < deadline:
            await asyncio.sleep(deadline - loop.time())
            rounds += 1
        return rounds

    loop.advance(0.1)
    assert loop.run_until_complete(wait_until(0.1 + 0.2)) == 1
    assert loop.run_until_complete(wait_until(loop.time() + 4e-10)) == 1
    assert passed_us(loop) == 300_000


def test_run_until_idle_runs_what_is_ready_and_does_not_move_time(loop: VirtualLoop) -> None:
    trace: list[str] = []

    async def work() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        trace.append("ready")
        await asyncio.sleep(1e-6)
        trace.append("later")

    task = loop.create_task(work())
    loop.run_until_idle()
    loop.run_until_idle()
    assert trace == ["ready"]
    assert passed_us(loop) == 0
    loop.run_until_complete(task)
    assert trace == ["ready", "later"]
    assert passed_us(loop) == 1


def test_run_until_idle_serves_other_threads_but_does_not_wait_for_them(
    loop: VirtualLoop,
) -> None:
    heard: list[str] = []
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(heard.append, "hello"))
    thread.start()
    thread.join()
    loop.run_until_idle()
    assert heard == ["hello"]

    gate = threading.Event()
    future = loop.run_in_executor(None, gate.wait)
    loop.run_until_idle()
    assert not future.done()
    gate.set()
    assert loop.run_until_complete(future) is True


def test_a_time_out_fires_in_virtual_time(loop: VirtualLoop) -> None:
    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 90)
        assert loop.time() == 90
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.sleep(HOUR)
        assert loop.time() == 100
        assert await asyncio.wait_for(asyncio.sleep(5, "in time"), 10) == "in time"
        assert loop.time() == 105

    loop.run_until_complete(scenario())
    loop.advance(HOUR)  # what was called off does not come back


def test_waiting_for_ever_is_an_error_and_names_who_waits(loop: VirtualLoop) -> None:
    async def waits_for_nobody() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="waits_for_nobody"):
        loop.run_until_complete(waits_for_nobody())


def test_a_timer_that_was_called_off_keeps_nobody_alive(loop: VirtualLoop) -> None:
    async def waits_for_nobody() -> None:
        loop.call_later(5, lambda: None).cancel()
        loop.clock.call_at(loop.clock.now_us() + 5, lambda: None).cancel()
        await asyncio.sleep(math.inf)

    with pytest.raises(Deadlock):
        loop.run_until_complete(waits_for_nobody())
    assert passed_us(loop) == 0


def test_advance_does_not_mind_that_nothing_is_going_to_happen(loop: VirtualLoop) -> None:
    task = loop.create_task(asyncio.Event().wait())
    loop.advance(HOUR)
    assert loop.time() == HOUR
    assert not task.done()


def test_cancellation(loop: VirtualLoop) -> None:
    trace: list[object] = []

    async def work() -> None:
        try:
            await asyncio.sleep(HOUR)
        except asyncio.CancelledError:
            trace.append(loop.time())
            await asyncio.sleep(2)
            raise
        finally:
            trace.append(loop.time())

    task = loop.create_task(work())
    loop.call_later(10, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    assert trace == [10.0, 12.0]


def test_a_call_that_is_due_can_still_be_called_off_before_it_runs(loop: VirtualLoop) -> None:
    trace: list[str] = []
    handles: list[asyncio.TimerHandle] = []

    def call_off() -> None:
        handles[0].cancel()

    loop.call_later(1, call_off)
    handles.append(second := loop.call_later(1, trace.append, "second"))
    at_once = loop.call_at(0, trace.append, "at once")
    at_once.cancel()
    at_once.cancel()
    loop.advance(5)
    assert trace == []
    assert second.cancelled()
    assert at_once.cancelled()
    assert second.when() == 1


def test_a_timer_keeps_the_context_in_which_it_was_set(loop: VirtualLoop) -> None:
    who = contextvars.ContextVar("who", default="nobody")
    seen: list[str] = []
    who.set("first")
    loop.call_later(1, lambda: seen.append(who.get()))
    loop.call_later(1, lambda: seen.append(who.get()), context=contextvars.Context())
    who.set("second")
    loop.advance(1)
    assert seen == ["first", "nobody"]


def test_time_stands_still_while_a_thread_works(loop: VirtualLoop) -> None:
    def there_and_back(times: int) -> int:
        # While the answer is on its way there is nothing ready, and a timer that is set.
        for _ in range(times):
            answered = threading.Event()
            loop.call_soon_threadsafe(answered.set)
            assert answered.wait(60)
        return times

    async def scenario() -> None:
        assert await asyncio.wait_for(asyncio.to_thread(there_and_back, 200), 0.001) == 200
        assert passed_us(loop) == 0

    loop.run_until_complete(scenario())
    future = loop.run_in_executor(None, there_and_back, 200)
    loop.call_later(0.1, lambda: seen.append(future.done()))
    seen: list[bool] = []
    loop.advance(0.1)
    assert seen == [True]


def test_a_stuck_thread_is_not_waited_for_longer_than_is_said() -> None:
    gate = threading.Event()

    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(gate.wait), HOUR)
        gate.set()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(patience_seconds=0.01)) as runner:
        runner.run(scenario())
        assert runner.get_loop().time() == HOUR


def test_an_exception_comes_out_and_the_loop_goes_on(loop: VirtualLoop) -> None:
    async def fails() -> None:
        await asyncio.sleep(1)
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        loop.run_until_complete(fails())
    assert loop.run_until_complete(asyncio.sleep(1, "fine")) == "fine"


def test_a_closed_loop_takes_no_timers() -> None:
    loop = VirtualLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, lambda: None)


def test_moving_the_clock_by_hand_fires_the_timers_of_the_loop(loop: VirtualLoop) -> None:
    trace: list[str] = []
    loop.call_later(5, trace.append, "five")
    loop.clock.advance(5)
    assert trace == []
    loop.run_until_idle()
    assert trace == ["five"]


def test_an_engine_and_its_caller_live_in_the_same_time(loop: VirtualLoop) -> None:
    async def scenario() -> list[str]:
        engine = MemoryEngine(clock=loop.clock)
        claim = asyncio.create_task(
            engine.claim(queues=["default"], worker="w", wait_seconds=HOUR, limit=2)
        )
        await asyncio.sleep(60)
        await engine.enqueue([NewJob(task="t", id="later", delay_seconds=600)])
        jobs = (await claim).jobs
        assert loop.time() == 660
        assert (await engine.claim(queues=["default"], worker="w", wait_seconds=30)).jobs == []
        assert loop.time() == 690
        await engine.close()
        return [job.id for job in jobs]

    assert loop.run_until_complete(scenario()) == ["later"]


def busy_trace(seed: int) -> list[tuple[float, str]]:
    """What happens when many tasks sleep, wait for one another and are cancelled."""
    trace: list[tuple[float, str]] = []
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop, rng = runner.get_loop(), random.Random(seed)
        queue: asyncio.Queue[str] = asyncio.Queue()

        async def worker(name: str) -> None:
            for _ in range(20):
                await asyncio.sleep(rng.choice([0, 0.001, 0.5, 1, 1, 2]))
                queue.put_nowait(name)
                try:
                    got = await asyncio.wait_for(queue.get(), rng.choice([0.1, 1]))
                except TimeoutError:
                    got = "nothing"
                trace.append((loop.time(), f"{name} got {got}"))

        async def everybody() -> None:
            await asyncio.gather(*(worker(f"w{number}") for number in range(8)))

        runner.run(everybody())
    return trace


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_trace_every_time(seed: int) -> None:
    first = busy_trace(seed)
    assert len(first) == 160
    assert all(busy_trace(seed) == first for _ in range(3))
    assert busy_trace(seed + 10) != first
