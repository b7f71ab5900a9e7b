"""A hundred thousand queues cost what they should: work is counted, not timed."""

import random

import pytest

from holdfast.engines import argument_checks
from holdfast.engines.argument_checks import check_names
from holdfast.engines.clock import SystemClock
from holdfast.engines.embedded.waiters import ClaimWaiters
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.state import ready_heads, state
from holdfast.engines.journal.state.ready_queue import ReadyQueue
from holdfast.model.audit import Attribution
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed, release
from holdfast.model.policy import QueuePolicy
from holdfast.testing.disk import SimDisk

LIMIT = 8
WHO = Attribution("anna", "a test")


class CountedName(str):
    """A name that counts how often it is compared with another one."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


async def drained(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Enqueue one job in each of so many queues, claim them all; return how much was looked at."""
    looks = 0

    def counted(of: object, name: str) -> None:
        original = getattr(of, name)

        def counting(*args, **kwargs):
            nonlocal looks
            looks += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(of, name, counting)

    engine = await JournalEngine.open(SimDisk())
    queues = check_names("queues", [f"q{number}" for number in range(count)])
    jobs = [NewJob(task="t", queue=queue) for queue in queues]
    for start in range(0, count, 1_000):
        await engine.enqueue(jobs[start : start + 1_000])
    with monkeypatch.context() as patched:
        monkeypatch = patched
        counted(ReadyQueue, "first")
        counted(ReadyQueue, "trim")
        counted(ReadyQueue, "__iter__")
        counted(argument_checks, "check_id")
        claimed = 0
        while True:
            claim = await engine.claim(queues=queues, worker="w", limit=LIMIT)
            claimed += len(claim.jobs)
            if not claim.jobs:
                break
    assert claimed == count
    await engine.close()
    return looks


async def test_claiming_from_all_queues_is_linear_in_their_number(monkeypatch):
    few, many = await drained(1_000, monkeypatch), await drained(4_000, monkeypatch)
    assert many < 5 * few
    assert many < 40 * 4_000


async def test_control_a_claim_that_looks_at_each_queue_is_quadratic(monkeypatch):
    monkeypatch.setattr(state, "MANY_QUEUES", 1_000_000)
    few, many = await drained(500, monkeypatch), await drained(2_000, monkeypatch)
    assert many > 10 * few


async def foreign_looks(tasks: list[str] | None, monkeypatch: pytest.MonkeyPatch) -> int:
    """Claim where 1,000 queues have jobs of another task; return how many were looked at."""
    looks = 0
    usual = ReadyQueue.first

    def counting(self):
        nonlocal looks
        looks += 1
        return usual(self)

    engine = await JournalEngine.open(SimDisk())
    queues = check_names("queues", [f"q{number}" for number in range(1_000)])
    await engine.enqueue([NewJob(task="other", queue=queue) for queue in queues])
    await engine.enqueue([NewJob(task="t", queue="q900")])
    assert len((await engine.claim(queues=queues, tasks=["t"], worker="w")).jobs) == 1
    with monkeypatch.context() as patched:
        patched.setattr(ReadyQueue, "first", counting)
        claim = await engine.claim(queues=queues, tasks=tasks, worker="w", limit=LIMIT)
    assert len(claim.jobs) == (LIMIT if tasks is None else 0)
    await engine.close()
    return looks


async def test_queues_with_other_tasks_are_not_looked_at(monkeypatch):
    assert await foreign_looks(["t"], monkeypatch) < 10
    assert await foreign_looks(None, monkeypatch) < 5 * LIMIT


async def test_control_one_heap_for_all_tasks_looks_at_each_queue(monkeypatch):
    usual = ready_heads.ReadyHeads._heaps_of
    monkeypatch.setattr(ready_heads.ReadyHeads, "_heaps_of", lambda self, _tasks: usual(self, None))
    assert await foreign_looks(["t"], monkeypatch) >= 1_000


async def limited_looks(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often a claim asks a queue with a limit, until each of so many gave its job."""
    looks = 0
    usual = state.JournalState._limited

    def counting(self, *args):
        nonlocal looks
        looks += 1
        return usual(self, *args)

    engine = await JournalEngine.open(SimDisk())
    queues = check_names("queues", [f"q{number}" for number in range(count)])
    for queue in queues:
        await engine.set_policy(queue, QueuePolicy(max_in_flight=2), WHO)
    await engine.enqueue([NewJob(task="t", queue=queue) for queue in queues])
    with monkeypatch.context() as patched:
        patched.setattr(state.JournalState, "_limited", counting)
        claimed = 0
        while jobs := (await engine.claim(queues=queues, worker="w", limit=LIMIT)).jobs:
            claimed += len(jobs)
    assert claimed == count
    await engine.close()
    return looks


async def test_very_many_queues_with_limits_are_asked_as_they_come_up(monkeypatch):
    assert await limited_looks(600, monkeypatch) < 3 * 600


async def test_control_a_claim_that_asks_each_queue_with_a_limit_is_quadratic(monkeypatch):
    monkeypatch.setattr(state, "MANY_QUEUES", 1_000_000)
    assert await limited_looks(600, monkeypatch) > 600 * 600 / LIMIT / 2


async def woken_compares(wanted) -> int:
    """Return how many names are compared when work comes for 1,000 of 20,000 queues."""
    waiters = ClaimWaiters(SystemClock())
    with waiters.expecting(wanted, {"t"}):
        CountedName.compared = 0
        waiters.wake([(CountedName(f"q{number}"), "other") for number in range(19_000, 20_000)])
        return CountedName.compared


async def test_waking_a_claim_finds_its_queues_without_a_search():
    names = [f"q{number}" for number in range(20_000)]
    assert await woken_compares(check_names("queues", names)) <= 2_000


async def test_control_a_list_of_queues_is_searched_for_each_name():
    with pytest.raises(AssertionError):
        assert await woken_compares([f"q{number}" for number in range(20_000)]) <= 2_000


def test_checked_names_are_not_checked_again(monkeypatch):
    checked = check_names("queues", ["a", "b", "a"])
    monkeypatch.setattr(argument_checks, "check_id", None)
    assert check_names("queues", checked) is checked
    assert (list(checked), "a" in checked, "c" in checked) == (["a", "b"], True, False)


async def test_entries_that_are_out_of_date_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(state, "MANY_QUEUES", 0)
    monkeypatch.setattr(ready_heads, "_SWEEP_FROM", 50)
    engine = await JournalEngine.open(SimDisk())
    await engine.claim(queues=["a"], worker="w")  # makes the heads
    heads = engine._core.state._heads  # type: ignore[attr-defined]
    for number in range(500):
        await engine.enqueue([NewJob(task="t", queue=f"a{number % 10}", priority=number)])
        monkeypatch.setattr(state, "MANY_QUEUES", 1_000)
        await engine.claim(queues=[f"a{number % 10}"], worker="w")
    assert sum(map(len, heads._heaps.values())) == heads._entries < 120
    await engine.close()


@pytest.mark.parametrize("seed", range(5))
async def test_the_order_is_the_same_as_from_few_queues(monkeypatch, seed):
    """The same work, claimed by a look at each queue and without one."""

    async def run(most: int) -> list[str]:
        monkeypatch.setattr(state, "MANY_QUEUES", most)
        choose = random.Random(seed)
        engine = await JournalEngine.open(SimDisk())
        await engine.set_policy("q3", QueuePolicy(max_in_flight=2), WHO)
        order: list[str] = []
        held = []
        for step in range(120):
            queues = [f"q{number}" for number in choose.sample(range(8), choose.randint(3, 8))]
            jobs = [
                NewJob(
                    id=f"{step}-{number}",
                    task=choose.choice("tu"),
                    queue=f"q{choose.randrange(8)}",
                    priority=choose.randrange(3),
                    key=choose.choice([None, "k"]),
                )
                for number in range(choose.randrange(6))
            ]
            await engine.enqueue(jobs)
            claim = await engine.claim(
                queues=queues, worker="w", limit=choose.randint(1, 4), chain=choose.choice([1, 3])
            )
            order += [job.id for job in claim.jobs]
            held += claim.jobs
            choose.shuffle(held)
            back, held = held[: len(held) // 2], held[len(held) // 2 :]
            await engine.settle([choose.choice([release, completed])(job) for job in back])
        assert engine._core.state.problems() == []
        await engine.close()
        return order

    assert await run(0) == await run(1_000)
