"""Time-outs of many attempts with one timer."""

import asyncio
from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from holdfast.testing.loop import VirtualLoop
from holdfast.worker.timeouts import Timeouts


class Book:
    """Deadlines, and when each was called back."""

    def __init__(self) -> None:
        self.called: list[tuple[Hashable, float]] = []
        self.deadlines = Timeouts(self.note)

    def note(self, key: Hashable) -> None:
        self.called.append((key, asyncio.get_running_loop().time()))


def run(scenario):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario())


def test_the_earliest_is_called_back_first_whatever_the_order_of_setting():
    async def scenario():
        book = Book()
        for key, when in [("c", 3.0), ("a", 1.0), ("d", 4.0), ("b", 2.0)]:
            book.deadlines.set(key, when)
        await asyncio.sleep(10)
        return book.called

    assert run(scenario) == [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0)]


def test_what_is_taken_off_is_not_called_back_and_later_ones_still_are():
    async def scenario():
        book = Book()
        book.deadlines.set("soon", 1.0)
        book.deadlines.set("later", 5.0)
        book.deadlines.remove("soon")
        book.deadlines.remove("never set")
        await asyncio.sleep(10)
        return book.called

    assert run(scenario) == [("later", 5.0)]


def test_a_deadline_set_while_a_later_one_waits_comes_first():
    async def scenario():
        book = Book()
        book.deadlines.set("later", 5.0)
        await asyncio.sleep(1)
        book.deadlines.set("sooner", 2.0)
        await asyncio.sleep(10)
        return book.called

    assert run(scenario) == [("sooner", 2.0), ("later", 5.0)]


def test_a_deadline_set_again_has_moved():
    async def scenario():
        book = Book()
        book.deadlines.set("a", 1.0)
        book.deadlines.set("a", 4.0)
        await asyncio.sleep(10)
        return book.called

    assert run(scenario) == [("a", 4.0)]


def test_what_is_overdue_when_it_is_set_is_called_back_at_once():
    async def scenario():
        book = Book()
        await asyncio.sleep(3)
        book.deadlines.set("a", 1.0)
        assert book.called == []
        await asyncio.sleep(0.1)
        return book.called

    assert run(scenario) == [("a", 3.0)]


def test_a_callback_may_take_off_and_set_others():
    async def scenario():
        called: list[Hashable] = []

        def overdue(key: Hashable) -> None:
            called.append(key)
            deadlines.remove("b")
            if key == "a":
                deadlines.set("c", asyncio.get_running_loop().time() + 1)

        deadlines = Timeouts(overdue)
        deadlines.set("a", 1.0)
        deadlines.set("b", 1.0)
        await asyncio.sleep(10)
        return called

    assert run(scenario) == ["a", "c"]


def test_nobody_is_called_back_after_the_close():
    async def scenario():
        book = Book()
        book.deadlines.set("a", 1.0)
        book.deadlines.close()
        await asyncio.sleep(10)
        return book.called

    assert run(scenario) == []


def test_thousands_of_short_attempts_need_hardly_any_timer(monkeypatch):
    timers: list[float] = []

    async def scenario():
        loop = asyncio.get_running_loop()
        call_at = loop.call_at

        def counted(when, *rest):
            timers.append(when)
            return call_at(when, *rest)

        monkeypatch.setattr(loop, "call_at", counted)
        book = Book()
        for number in range(5_000):
            book.deadlines.set(number, loop.time() + 30)
            book.deadlines.remove(number)

    run(scenario)
    assert timers == [30.0]


MOMENTS = st.integers(0, 40).map(lambda tenths: tenths / 10)


@given(st.lists(st.tuples(MOMENTS, st.integers(0, 6), st.none() | MOMENTS)))
def test_every_deadline_that_is_not_taken_off_in_time_is_called_back_at_its_time(moves):
    moves.sort(key=lambda move: move[0])

    async def scenario():
        loop = asyncio.get_running_loop()
        book = Book()
        expected: list[tuple[int, float]] = []
        due: dict[int, float] = {}

        def reach(now: float) -> None:
            for key, when in sorted(due.items(), key=lambda item: item[1]):
                if when <= now:
                    expected.append((key, when))
                    del due[key]

        for at, key, lasts in moves:
            # Between the tenths, so that nothing falls together with a deadline.
            await asyncio.sleep(max(0.0, at + 0.05 - loop.time()))
            reach(loop.time())
            if lasts is None:
                book.deadlines.remove(key)
                due.pop(key, None)
            else:
                when = round(at + lasts + 0.1, 1)
                book.deadlines.set(key, when)
                due[key] = when
        await asyncio.sleep(100)
        reach(1_000)
        assert sorted((key, round(when, 6)) for key, when in book.called) == sorted(expected)

    run(scenario)
