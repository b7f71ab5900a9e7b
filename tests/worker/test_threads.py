"""Threads for tasks that block."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable

import pytest

from holdfast.worker.threads import ThreadPool


async def until(reached: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for what a thread is about to do."""
    give_up = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < give_up, "it did not come to this"
        await asyncio.sleep(0.001)


def task_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-task"]


@pytest.fixture(autouse=True)
def leaves_no_thread_behind():
    before = set(task_threads())
    yield
    for thread in set(task_threads()) - before:
        thread.join(10)
        assert not thread.is_alive()


def run(scenario: Callable[[ThreadPool], object]) -> object:
    async def main() -> object:
        threads = ThreadPool()
        try:
            return await scenario(threads)  # type: ignore[misc]
        finally:
            threads.close()

    return asyncio.run(main())


def test_a_call_runs_in_another_thread_and_its_value_comes_back():
    async def scenario(threads):
        return await threads.run(lambda: threading.current_thread().name)

    assert run(scenario) == "holdfast-task"


def test_many_run_at_once_and_each_gets_its_own_answer():
    many = 50

    async def scenario(threads):
        barrier = threading.Barrier(many, timeout=10)  # only passes if all are there at once

        def call(number: int) -> int:
            barrier.wait()
            return number

        return await asyncio.gather(*(threads.run(lambda n=n: call(n)) for n in range(many)))

    assert run(scenario) == list(range(many))


def test_threads_are_used_again():
    async def scenario(threads):
        before = len(task_threads())
        idents = {await threads.run(threading.get_ident) for _ in range(100)}
        assert len(task_threads()) - before == len(idents) == 1

    run(scenario)


class Odd(BaseException):
    """Not even an Exception."""


@pytest.mark.parametrize("error", [ValueError("no"), Odd(), SystemExit(2), KeyboardInterrupt()])
def test_what_a_call_raises_comes_back_and_the_thread_goes_on(error):
    async def scenario(threads):
        def fail():
            raise error

        with pytest.raises(type(error)) as found:
            await threads.run(fail)
        assert found.value is error
        return await threads.run(lambda: 7)

    assert run(scenario) == 7


def test_stop_iteration_comes_back_as_a_runtime_error():
    # A future cannot carry it: whoever waits would wait for ever.
    async def scenario(threads):
        def fail():
            raise StopIteration(3)

        with pytest.raises(RuntimeError, match=r"the task raised StopIteration\(3\)"):
            await threads.run(fail)

    run(scenario)


def test_a_cancelled_call_abandons_its_thread_which_is_counted_until_it_returns():
    async def scenario(threads):
        begun, go = threading.Event(), threading.Event()

        def stuck():
            begun.set()
            assert go.wait(10)

        waiting = [asyncio.ensure_future(threads.run(stuck)) for _ in range(3)]
        await until(begun.is_set)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert all(task.cancelled() for task in waiting)
        await until(lambda: threads.abandoned in {1, 2, 3})
        # Others have taken their place: nobody waits for them.
        assert await asyncio.wait_for(threads.run(lambda: 7), 10) == 7
        go.set()
        await until(lambda: threads.abandoned == 0)

    run(scenario)


def test_abandoned_threads_end_when_their_call_returns_and_the_others_stay():
    async def scenario(threads):
        begun, go = threading.Event(), threading.Event()
        found: list[threading.Thread] = []

        def stuck():
            found.append(threading.current_thread())
            begun.set()
            assert go.wait(10)

        waiting = asyncio.ensure_future(threads.run(stuck))
        await until(begun.is_set)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert threads.abandoned == 1
        other = await threads.run(threading.current_thread)
        go.set()
        await until(lambda: not found[0].is_alive())
        assert threads.abandoned == 0
        assert other is not found[0]
        assert await threads.run(threading.current_thread) is other

    run(scenario)


def test_a_call_that_nobody_waits_for_any_more_before_it_begins_does_not_begin(monkeypatch):
    waiting_threads: list[threading.Thread] = []

    def wait(thread: threading.Thread) -> None:
        waiting_threads.append(thread)

    ran: list[int] = []

    async def scenario(threads):
        with monkeypatch.context() as patch:
            # A thread that the system has not given a turn yet.
            patch.setattr(threading.Thread, "start", wait)
            calls = [asyncio.ensure_future(threads.run(lambda: ran.append(1))) for _ in range(3)]
            await asyncio.sleep(0)
            for call in calls[:2]:
                call.cancel()
            await asyncio.wait(calls[:2])
        assert threads.abandoned == 2
        for thread in waiting_threads:
            thread.start()
        await calls[2]
        await until(lambda: threads.abandoned == 0)
        assert await threads.run(lambda: "still there") == "still there"

    run(scenario)
    assert ran == [1]


def test_an_answer_that_comes_after_the_loop_was_closed_disturbs_nobody():
    go = threading.Event()
    begun = threading.Event()

    def stuck():
        begun.set()
        assert go.wait(10)

    async def main():
        threads = ThreadPool()
        waiting = asyncio.ensure_future(threads.run(stuck))
        await until(begun.is_set)
        return waiting

    loop = asyncio.new_event_loop()
    waiting = loop.run_until_complete(main())
    loop.close()
    go.set()
    assert not waiting.done()
    waiting.get_coro().close()
    waiting._log_destroy_pending = False


def test_a_thread_sees_the_context_of_who_asked_when_it_is_run_in_it():
    number: contextvars.ContextVar[int] = contextvars.ContextVar("number", default=0)

    async def scenario(threads):
        number.set(7)
        context = contextvars.copy_context()

        def call() -> int:
            found = number.get()
            number.set(99)
            return found

        assert await threads.run(lambda: context.run(call)) == 7
        assert number.get() == 7  # what a task sets stays in its copy
        return await threads.run(number.get)

    assert run(scenario) == 0  # without, a thread has a context of its own
