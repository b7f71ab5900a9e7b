"""Batch tasks: what a call gets, and what comes of each item."""

from dataclasses import dataclass

import pytest

from holdfast import BatchError, Dead, Holdfast, InvalidInput, Retry, Snooze
from holdfast.model.job import State


@dataclass
class Page:
    number: int
    text: str = ""


class Book:
    """A batch task that records its calls; ``answer`` decides what it does with the items."""

    def __init__(self, answer=lambda items: None, **fields):
        self.app = Holdfast()
        self.calls = []

        @self.app.task(**{"batch": 8, **fields})
        async def index(items: list[Page]) -> None:
            self.calls.append([item.number for item in items])
            return answer(items)

        self.index = index

    def put(self, testing, *numbers, key=None):
        task = self.index.options(key=key) if key else self.index
        testing.call(task.enqueue_many([(Page(number),) for number in numbers]))


def states(testing):
    return {job.payload.decode().split(":")[1].split(",")[0]: job for job in testing.jobs("index")}


def poison(*bad, error=ValueError("no such column")):
    def answer(items):
        if any(item.number in bad for item in items):
            raise error

    return answer


def test_a_call_gets_many_items_in_order():
    book = Book()
    with book.app.testing() as testing:
        book.put(testing, *range(20))
        testing.drain()
        testing.assert_completed("index", times=20)
    assert book.calls == [list(range(8)), list(range(8, 16)), list(range(16, 20))]


def test_a_poison_item_is_isolated_and_its_neighbours_are_completed():
    book = Book(poison(5))
    with book.app.testing() as testing:
        book.put(testing, *range(8))
        testing.drain()
        testing.assert_completed("index", times=7)
        [job] = [one for one in testing.jobs("index") if one.state is not State.COMPLETED]
        assert b'"number":5' in job.payload
        assert job.attempt == 1
    assert book.calls[0] == list(range(8))
    assert [5] in book.calls
    assert len(book.calls) <= 8, "it is found by halves"


def test_control_without_isolation_one_item_fails_its_neighbours(monkeypatch):
    from holdfast.worker.verdicts import Verdicts

    monkeypatch.setattr(
        Verdicts,
        "of_batch_error",
        lambda self, jobs, task, error: [self.of_error(job, task, error) for job in jobs],
    )
    with pytest.raises(AssertionError):
        test_a_poison_item_is_isolated_and_its_neighbours_are_completed()


def test_an_item_that_failed_for_its_own_reason_is_called_alone_again():
    book = Book(poison(5), retry=Retry(max_attempts=2, after="1s"))
    with book.app.testing() as testing:
        book.put(testing, *range(8))
        testing.drain()
        book.calls.clear()
        book.put(testing, 9)
        testing.advance("2s")
        assert sorted(book.calls) == [[5], [9]]
        testing.assert_dead("index", times=1)


def test_a_list_of_results_is_for_the_items():
    app = Holdfast()

    @app.task(batch=4)
    def double(items: list[int]) -> list[int]:
        return [2 * item for item in items]

    with app.testing() as testing:
        handles = testing.call(double.enqueue_many([(1,), (2,), (3,)]))
        testing.drain()
        assert [handle.result_sync() for handle in handles] == [2, 4, 6]
    assert double([3, 4]) == [6, 8], "it is a plain function too"


def test_an_exception_in_the_list_fails_its_item_only():
    answer = lambda items: [Dead("not this one") if item.number == 1 else None for item in items]
    book = Book(answer)
    with book.app.testing() as testing:
        book.put(testing, 0, 1, 2)
        testing.drain()
        testing.assert_completed("index", times=2)
        testing.assert_dead("index", "business_error", times=1)
    assert book.calls == [[0, 1, 2]]


def test_batch_error_names_those_to_blame_and_the_others_are_called_again():
    def answer(items):
        if any(item.number == 1 for item in items):
            raise BatchError({1: Dead("this one")})

    book = Book(answer)
    with book.app.testing() as testing:
        book.put(testing, 0, 1, 2)
        testing.drain()
        testing.assert_completed("index", times=2)
        testing.assert_dead("index", times=1)
    assert book.calls == [[0, 1, 2], [0, 2]]


def test_a_transient_error_charges_each_item_once_and_is_not_divided():
    book = Book(poison(0, error=ConnectionError("refused")), retry=Retry(after="1h"))
    with book.app.testing() as testing:
        book.put(testing, *range(8))
        testing.drain()
        assert book.calls == [list(range(8))]
        assert [job.attempt for job in testing.assert_pending("index", times=8)] == [1] * 8
        testing.advance("1h1s")
        assert book.calls[1] == list(range(8)), "together again"


def test_a_snooze_is_for_all_and_costs_nothing():
    book = Book(poison(0, error=Snooze("1m")))
    with book.app.testing() as testing:
        book.put(testing, *range(3))
        testing.drain()
        assert [job.attempt for job in testing.assert_pending("index", times=3)] == [0] * 3
    assert book.calls == [[0, 1, 2]]


def test_a_wrong_number_of_results_fails_the_call():
    book = Book(lambda items: [1], retry=Retry(max_attempts=1))
    with book.app.testing() as testing:
        book.put(testing, 0, 1)
        testing.drain()
        testing.assert_completed("index", times=2)
    assert book.calls == [[0, 1], [0], [1]], "a list of one is right for one"


def test_a_bad_deploy_is_not_tried_item_by_item():
    book = Book(poison(*range(100)), batch=100, retry=Retry(after="1h"))
    with book.app.testing() as testing:
        book.put(testing, *range(100))
        testing.drain()
        jobs = testing.assert_pending("index", times=100)
        assert sum(job.attempt for job in jobs) == 16, "the others are not charged"
        assert len(book.calls) < 40
        delays = {job.run_at_us - testing.clock.now_us() for job in jobs if not job.attempt}
        assert all(0 < delay <= 31_000_000 for delay in delays)


def test_items_of_a_key_come_in_order_in_one_batch():
    book = Book()
    with book.app.testing() as testing:
        book.put(testing, *range(12), key="a")
        testing.drain()
        testing.assert_completed("index", times=12)
    assert book.calls == [list(range(8)), list(range(8, 12))]


def test_those_behind_a_failed_item_of_their_key_are_released_uncharged():
    failing = {3}
    answer = lambda items: [ValueError("bad") if item.number in failing else None for item in items]
    book = Book(answer, retry=Retry(after="1m"))
    with book.app.testing() as testing:
        book.put(testing, *range(6), key="a")
        testing.advance("1s")
        testing.assert_completed("index", times=3)
        pending = testing.assert_pending("index", times=3)
        assert [job.attempt for job in pending] == [1, 0, 0]
        failing.clear()
        testing.advance("61s")
        testing.assert_completed("index", times=6)
    assert book.calls == [[0, 1, 2, 3, 4, 5], [3], [4, 5]]


def test_halves_keep_the_order_of_a_key():
    book = Book(poison(2), retry=Retry(after="1h"))
    with book.app.testing() as testing:
        book.put(testing, *range(8), key="a")
        testing.advance("1s")
        testing.assert_completed("index", times=2)
        assert [job.attempt for job in testing.assert_pending("index")] == [1, 0, 0, 0, 0, 0]
    assert all(call == sorted(call) for call in book.calls)
    assert not any(min(call) > 2 for call in book.calls), "none behind it is called"


def test_a_batch_lingers_until_it_is_full_or_its_time_is_over():
    book = Book(batch=4, linger="50ms")
    with book.app.testing() as testing:
        book.put(testing, 1, 2)
        testing.advance("40ms")
        assert book.calls == []
        book.put(testing, 3)
        testing.advance("20ms")
        assert book.calls == [[1, 2, 3]]
        book.put(testing, 4, 5, 6, 7)
        testing.advance("1ms")
        assert book.calls[1:] == [[4, 5, 6, 7]], "it is full"


def test_a_time_out_is_transient_for_all_and_halves_the_next_batch():
    import asyncio

    app, calls = Holdfast(), []

    @app.task(batch=8, timeout="10s", retry=Retry(after="1s"))
    async def slow(items: list[int]) -> None:
        calls.append(len(items))
        if len(items) > 4:
            await asyncio.sleep(60)

    with app.testing() as testing:
        testing.call(slow.enqueue_many([(number,) for number in range(8)]))
        testing.advance("11s")
        pending = testing.assert_pending(slow, times=8)
        assert {job.failure.error_reason for job in pending} == {"timeout"}
        testing.advance("5s")
        testing.assert_completed(slow, times=8)
    assert calls == [8, 4, 4]


def test_an_item_that_cannot_be_decoded_fails_alone():
    book = Book()
    with book.app.testing() as testing:
        book.put(testing, 0, 1)
        from holdfast.model.job import NewJob

        testing.call(testing.engine.enqueue([NewJob(task="index", payload={"number": "x"})]))
        testing.drain()
        testing.assert_completed("index", times=2)
        testing.assert_dead("index", "payload_invalid", times=1)


@pytest.mark.parametrize("batch", [0, -1, 5_001, "8", True])
def test_a_bad_batch_size_is_refused(batch):
    with pytest.raises(InvalidInput, match="batch"):
        Holdfast().task(batch=batch)


@pytest.mark.parametrize("fields", [{"linger": "1s"}, {"batch": 5, "linger": "1h"}])
def test_a_bad_linger_is_refused(fields):
    with pytest.raises(InvalidInput, match="linger"):
        Holdfast().task(**fields)


def test_a_function_without_a_list_of_items_is_refused():
    app = Holdfast()
    for function in (lambda: None, lambda items: None):
        with pytest.raises(InvalidInput, match="list of items"):
            app.task(batch=5, name="index")(function)


def test_items_are_checked_when_they_are_enqueued():
    book = Book()
    with book.app.testing() as testing, pytest.raises(InvalidInput, match="number"):
        testing.call(book.index.enqueue({"number": "seven"}))


def test_an_item_may_be_enqueued_by_the_name_of_its_task():
    book = Book()
    with book.app.testing() as testing:
        testing.call(book.app.enqueue("index", {"number": 7}))
        testing.drain()
        testing.assert_completed("index", times=1)
    assert book.calls == [[7]]
