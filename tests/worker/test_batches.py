"""Batch tasks: what a call gets, and what comes of each item."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import BatchError, Dead, Holdfast, InvalidInput, Retry, Snooze
from holdfast.model.actions import CancelJobs
from holdfast.model.audit import Attribution
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import completed
from holdfast.model.search import Filter
from holdfast.worker.app_loader import load_registry
from holdfast.worker.batch_call import Settled
from holdfast.worker.batch_pool import BATCHES_AT_ONCE
from holdfast.worker.item_signature import ItemSignature
from holdfast.worker.registry import TaskSpec, execution_of
from holdfast.worker.verdicts import Verdicts

from .world import World


@dataclass
class Page:
    number: int
    text: str = ""


class Book:
    """A batch task that records its calls; ``answer`` decides what it does with the items."""

    def __init__(self, answer=lambda items: None, **fields):
        self.app = Holdfast()
        self.calls: list[list[int]] = []
        declare: Any = self.app.task

        async def index(items: list[Page]) -> Any:
            self.calls.append([item.number for item in items])
            return answer(items)

        self.index = declare(**{"batch": 8, **fields})(index)

    def put(self, testing, *numbers, key=None):
        task = self.index.options(key=key) if key else self.index
        testing.call(task.enqueue_many([(Page(number),) for number in numbers]))


WRONG = ValueError("no such column")


def poison(*bad, error=WRONG):
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
    app, calls = Holdfast(), []

    @app.task(batch=8, timeout="10s", retry=Retry(after="1s"))
    async def slow(items: list[int]) -> None:
        calls.append(len(items))
        if len(items) > 4:
            await asyncio.sleep(60)

    with app.testing() as testing:
        testing.call(slow.enqueue_many([(number,) for number in range(8)]))
        testing.advance("10.5s")
        pending = testing.assert_pending(slow, times=8)
        assert {job.failure and job.failure.error_reason for job in pending} == {"timeout"}
        testing.advance("5s")
        testing.assert_completed(slow, times=8)
    assert calls == [8, 4, 4]


def test_an_item_that_cannot_be_decoded_fails_alone():
    book = Book()
    with book.app.testing() as testing:
        book.put(testing, 0, 1)
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
    declare: Any = Holdfast().task(batch=5, name="index")
    for function in (lambda: None, lambda items: None):
        with pytest.raises(InvalidInput, match="list of items"):
            declare(function)


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


class Runner:
    """Settles even items itself."""

    def __init__(self):
        self.engine: Any = None
        self.calls: list[int] = []

    async def run(self, jobs):
        self.calls.append(len(jobs))
        even = [completed(job) for number, job in enumerate(jobs) if number % 2 == 0]
        assert await self.engine.settle(even) == [None] * len(even)
        return [
            Settled(completed(job)) if number % 2 == 0 else completed(job, b'"late"')
            for number, job in enumerate(jobs)
        ]


def test_a_runner_may_settle_items_itself():
    book, runner = Book(), Runner()
    spec = book.app.registry.tasks["index"]
    book.app.registry.tasks["index"] = replace(spec, runner=runner)
    with book.app.testing() as testing:
        runner.engine = testing.engine
        refused = testing.engine.leases_refused
        book.put(testing, *range(4))
        testing.drain()
        jobs = testing.assert_completed("index", times=4)
        assert [job.result for job in jobs] == [None, b'"late"', None, b'"late"']
        assert testing.engine.leases_refused == refused, "nothing is settled twice"
    assert runner.calls == [4]


def batch_world(**options):
    world = World(**options)

    def declare(function, **fields):
        name = function.__name__
        spec = TaskSpec(
            name,
            function,
            ItemSignature(function, name),
            execution_of(function, fields.pop("run_in", None)),
            **{"batch": 4, **fields},
        )
        world.registry.add_task(spec)
        return function

    return world, declare


def test_a_lost_lease_does_not_cancel_the_other_items():
    world, declare = batch_world(lease_seconds=3.0)
    done = []

    async def index(items: list[Page]) -> None:
        numbers = [item.number for item in items]
        await asyncio.sleep(5)
        done.append(numbers)

    declare(index)

    async def scenario(world):
        payloads = [NewJob(task="index", payload={"number": n}, id=f"j{n}") for n in range(4)]
        await world.engine.enqueue(payloads)
        world.start()
        await asyncio.sleep(1)
        await world.engine.reclaim(forced=[await world.job("j1")])
        await world.until_state(completed=4)
        await world.stop()
        return [(await world.job(f"j{n}")).losses for n in range(4)]

    assert world.run(scenario) == [0, 1, 0, 0]
    assert done == [[0, 1, 2, 3], [1]], "alone, as it was lost"
    assert world.worker.late_outcomes == 0


@pytest.mark.parametrize("key", [None, "a"])
def test_a_crash_costs_no_second_loss_of_jobs_that_wait_for_their_turn(key):
    """A batch was lost: each of it is held alone, so the next crash is the loss of few."""
    world, declare = batch_world()
    calls: list[list[int]] = []
    gate = asyncio.Event()

    async def index(items: list[Page]) -> None:
        calls.append([item.number for item in items])
        await gate.wait()

    declare(index)

    async def scenario(world):
        await world.engine.enqueue(
            [NewJob(task="index", payload={"number": n}, id=f"j{n}", key=key) for n in range(8)]
        )
        claim = await world.engine.claim(queues=["default"], worker="gone", limit=8, chain=8)
        await world.engine.reclaim(forced=claim.jobs)
        world.start()
        await asyncio.sleep(1)
        held = (await world.engine.counts())["default"].in_flight
        gate.set()
        await world.until_state(completed=8)
        await world.stop()
        jobs = [await world.job(f"j{n}") for n in range(8)]
        return held, [job.losses for job in jobs], [job.attempt for job in jobs]

    held, losses, attempts = world.run(scenario)
    assert held == (1 if key else BATCHES_AT_ONCE)
    assert losses == [1] * 8
    assert attempts == [2] * 8, "those that were handed back are not charged"
    assert [len(call) for call in calls] == [1] * 8
    assert sorted(number for call in calls for number in call) == list(range(8))


def test_the_leases_of_all_items_are_renewed():
    world, declare = batch_world(lease_seconds=3.0)

    async def index(items: list[Page]) -> None:
        await asyncio.sleep(20)

    declare(index)

    async def scenario(world):
        jobs = [NewJob(task="index", payload={"number": n}, key="a") for n in range(4)]
        await world.engine.enqueue(jobs)
        world.start()
        await world.until_state(completed=4)
        await world.stop()

    world.run(scenario)
    assert world.worker.late_outcomes == 0


def test_stopping_releases_a_running_batch():
    world, declare = batch_world()

    async def index(items: list[Page]) -> None:
        await asyncio.sleep(1_000)

    declare(index)

    async def scenario(world):
        await world.engine.enqueue(
            [NewJob(task="index", payload={"number": n}, id=f"j{n}") for n in range(6)]
        )
        world.start()
        await asyncio.sleep(1)
        await world.stop(2.0)
        return [((job := await world.job(f"j{n}")).state, job.attempt) for n in range(6)]

    assert world.run(scenario) == [(State.PENDING, 0)] * 6


def test_a_cancelled_item_ends_with_its_batch_and_a_batch_of_such_is_stopped():
    world, declare = batch_world()
    slept = []

    async def index(items: list[Page]) -> None:
        await asyncio.sleep(5 if len(items) > 1 else 1_000)
        slept.append(len(items))

    declare(index)

    async def scenario(world):
        await world.engine.enqueue(
            [NewJob(task="index", payload={"number": n}, id=f"j{n}") for n in range(3)]
        )
        world.start()
        await asyncio.sleep(1)
        cancel = lambda job_id: world.engine.operate(
            CancelJobs(), Filter(ids=(job_id,)), Attribution("ann", "why")
        )
        await cancel("j1")
        await world.until_state(completed=3)
        await world.engine.enqueue([NewJob(task="index", payload={"number": 9}, id="j9")])
        await asyncio.sleep(1)
        await cancel("j9")
        await world.until_state(completed=3, cancelled=1)
        await world.stop()

    world.run(scenario)
    assert slept == [3]


def test_a_plain_function_runs_in_a_thread():
    world, declare = batch_world(real=True)
    names = []

    def index(items: list[Page]) -> list[int]:
        names.append(threading.current_thread().name)
        return [item.number for item in items]

    declare(index)

    async def scenario(world):
        await world.engine.enqueue(
            [NewJob(task="index", payload={"number": n}, id=f"j{n}") for n in range(4)]
        )
        world.start()
        await world.until_state(completed=4)
        await world.stop()
        return [(await world.job(f"j{n}")).result for n in range(4)]

    assert world.run(scenario) == [b"0", b"1", b"2", b"3"]
    assert set(names) == {"holdfast-task"}


APP = """
import os
from holdfast import Holdfast

app = Holdfast("memory:")

@app.task(batch=4, run_in="process")
def index(items: list[int]) -> list[int]:
    if 2 in items:
        os._exit(9)
    return [2 * item for item in items]
"""


def test_a_child_that_dies_loses_its_batch_and_each_item_runs_alone_then(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    world = World(real=True)
    world.registry = load_registry(str(tmp_path / "app.py"))

    async def scenario(world):
        await world.engine.enqueue(
            [
                NewJob(task="index", payload={"item": n}, id=f"j{n}", max_attempts=9)
                for n in range(4)
            ]
        )
        world.start()
        await world.until_state(completed=3, dead=1)
        await world.stop()
        return [await world.job(f"j{n}") for n in range(4)]

    jobs = world.run(scenario)
    assert [job.result for job in jobs if job.state is State.COMPLETED] == [b"0", b"2", b"6"]
    assert [job.attempt for job in jobs] == [2, 2, 3, 2]
    assert jobs[2].failure.error_reason == "worker_lost"
