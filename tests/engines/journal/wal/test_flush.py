"""Where flushes happen: never for long on the event loop."""

import asyncio
import threading

import pytest

from holdfast.engines.journal.wal.flush import (
    QUICK_IN_A_ROW,
    SLOW_SECONDS,
    AdaptiveRunner,
    ThreadRunner,
)


class Elsewhere:
    """Behaves like a thread; it runs its work when the test says so."""

    here = False

    def __init__(self) -> None:
        self.waiting: list = []

    def submit(self, work, done, *, small) -> None:
        self.waiting.append((work, done))

    def work_off(self) -> None:
        while self.waiting:
            work, done = self.waiting.pop(0)
            work()
            done(None)

    def close(self) -> None:
        pass


class Disk:
    """Takes a given time."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        self.sync_seconds = 0.0

    def seconds(self) -> float:
        return self.now_seconds

    def sync(self) -> None:
        self.now_seconds += self.sync_seconds


def made() -> tuple[AdaptiveRunner, Elsewhere, Disk]:
    elsewhere, disk = Elsewhere(), Disk()
    return AdaptiveRunner(elsewhere, disk.seconds), elsewhere, disk


def flushed_here(runner: AdaptiveRunner, elsewhere: Elsewhere, disk: Disk, *, small=True) -> bool:
    """Flush once; return whether it was done on the event loop."""
    answers: list[BaseException | None] = []
    runner.submit(disk.sync, answers.append, small=small)
    here = bool(answers)
    elsewhere.work_off()
    assert answers == [None]
    return here


def test_a_quick_disk_is_used_at_once_after_it_has_shown_that_it_is_quick():
    parts = made()
    assert [flushed_here(*parts) for _ in range(QUICK_IN_A_ROW)] == [False] * QUICK_IN_A_ROW
    assert all(flushed_here(*parts) for _ in range(100))


def test_a_disk_that_becomes_slow_holds_the_loop_up_once():
    parts = made()
    for _ in range(QUICK_IN_A_ROW):
        flushed_here(*parts)
    parts[2].sync_seconds = 2 * SLOW_SECONDS
    assert [flushed_here(*parts) for _ in range(1_000)].count(True) == 1


def test_a_disk_that_is_quick_again_is_used_at_once_again_after_a_while():
    parts = made()
    for seconds in (0.0, 2 * SLOW_SECONDS):
        parts[2].sync_seconds = seconds
        for _ in range(QUICK_IN_A_ROW):
            flushed_here(*parts)
    parts[2].sync_seconds = 0.0
    assert [flushed_here(*parts) for _ in range(QUICK_IN_A_ROW)] == [False] * QUICK_IN_A_ROW
    assert flushed_here(*parts)


def test_large_work_is_never_done_on_the_loop_and_says_nothing_of_the_disk():
    runner, elsewhere, disk = made()
    for _ in range(QUICK_IN_A_ROW):
        flushed_here(runner, elsewhere, disk)
    disk.sync_seconds = 2 * SLOW_SECONDS
    assert not flushed_here(runner, elsewhere, disk, small=False)
    disk.sync_seconds = 0.0
    assert flushed_here(runner, elsewhere, disk)


def test_what_work_raises_is_reported_wherever_it_ran():
    runner, elsewhere, disk = made()

    def broken() -> None:
        raise OSError("no disk")

    for _ in range(QUICK_IN_A_ROW):
        flushed_here(runner, elsewhere, disk)
    answers: list[BaseException | None] = []
    runner.submit(broken, answers.append, small=True)
    assert [str(answer) for answer in answers] == ["no disk"]

    async def on_a_thread() -> BaseException | None:
        loop = asyncio.get_running_loop()
        recorded: asyncio.Future[BaseException | None] = loop.create_future()
        thread = ThreadRunner(loop)
        try:
            thread.submit(broken, recorded.set_result)
            return await recorded
        finally:
            thread.close()

    assert str(asyncio.run(on_a_thread())) == "no disk"


@pytest.mark.parametrize("small", [True, False])
def test_the_thread_is_another_one(small: bool):
    async def where() -> int:
        loop = asyncio.get_running_loop()
        recorded: asyncio.Future[int] = loop.create_future()
        runner = AdaptiveRunner(ThreadRunner(loop))
        idents: list[int] = []
        try:
            runner.submit(
                lambda: idents.append(threading.get_ident()),
                lambda _error: recorded.set_result(idents[0]),
                small=small,
            )
            return await recorded
        finally:
            runner.close()

    assert asyncio.run(where()) != threading.get_ident()
