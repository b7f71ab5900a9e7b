"""Very many queues: what commands ask and print is bounded; it is counted, not timed."""

from __future__ import annotations

import pytest

from holdfast.cli import doctor_checks
from holdfast.cli.commands import top
from holdfast.cli.output import first_names
from holdfast.cli.top_screen import notices
from holdfast.engines.contract import Counts
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model import outage as outage_rules
from holdfast.model.fleet import ProcessSlots, WorkerProcess
from holdfast.model.job import NewJob
from holdfast.operations import outages
from holdfast.operations.operations import Operations
from holdfast.operations.views import status_of
from holdfast.settings import Settings

COUNT = 1_000
BUSY = "q777"


async def asked_by_top(monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    """Return how many pages ``top`` asks for with so many queues, and which queues it shows."""
    engine = MemoryEngine()
    await engine.enqueue([NewJob(task="t", queue=f"q{number}") for number in range(COUNT)])
    await engine.enqueue([NewJob(task="t", queue=BUSY)])
    operations = Operations(engine)
    usual, pages = Operations.page, 0

    async def counting(self, *args, **kwargs):
        nonlocal pages
        pages += 1
        return await usual(self, *args, **kwargs)

    monkeypatch.setattr(Operations, "page", counting)
    rows, _reasons, _workers = await top._rows(operations, await operations.status())
    await engine.close()
    return pages, [row.queue for row in rows]


async def test_top_shows_the_busiest_queues(monkeypatch):
    pages, shown = await asked_by_top(monkeypatch)
    assert (pages, len(shown)) == (top.MAX_QUEUES, top.MAX_QUEUES)
    assert BUSY in shown
    assert shown == sorted(shown)


async def test_control_without_the_bound_top_asks_for_each_queue(monkeypatch):
    monkeypatch.setattr(top, "MAX_QUEUES", COUNT)
    pages, _shown = await asked_by_top(monkeypatch)
    assert pages == COUNT


def test_top_says_how_many_queues_it_does_not_show():
    screen = top.TopScreen(0.0, True, 1, 0, False, {}, [], [], [], more_queues=1_234)
    assert notices(screen) == ["the busiest queues; 1,234 more: `holdfast queues list`"]


def test_few_of_very_many_names_are_printed():
    assert first_names(["a", "b"]) == "a, b"
    assert first_names([f"q{number}" for number in range(COUNT)]).endswith("q19 and 980 more")


async def test_doctor_prints_few_warnings_about_very_many_queues():
    engine = MemoryEngine()
    await engine.enqueue([NewJob(task="t", queue=f"q{number}") for number in range(COUNT)])
    operations = Operations(engine)
    found = await doctor_checks.queues(
        operations, Settings(queues="mail:1"), await operations.status()
    )
    await engine.close()
    assert len(found) == doctor_checks.MAX_QUEUES + 1
    assert found[-1].said == f"{COUNT - doctor_checks.MAX_QUEUES} more warnings about queues"


def test_the_queues_of_each_outage_are_found_in_one_look(monkeypatch):
    looks = 0
    usual = outage_rules.dependency_of

    def counting(queue):
        nonlocal looks
        looks += 1
        return usual(queue)

    monkeypatch.setattr(outages, "dependency_of", counting)
    counts = {f"mail@s{number}": Counts(pending=2) for number in range(100)}
    active = [outage_rules.start(f"s{number}", 1, by="ann", why="to see") for number in range(50)]
    views = outages.outage_views(active, counts, 2)
    assert [(view.queues, view.waiting) for view in views] == [
        ([f"mail@s{number}"], 2) for number in range(50)
    ]
    assert looks == 100


def test_a_queue_that_nobody_serves_is_found():
    process = WorkerProcess(
        id="a",
        name="a",
        host="h",
        pid=1,
        version="1",
        started_at_us=1,
        slots={},
        processes={"a": ProcessSlots(1, 0, draining=False)},
        queues=("mail",),
    )
    counts = {name: Counts(pending=1) for name in ("mail", "mail@smtp", "sms")}
    assert status_of(counts, [process]).unserved == ["sms"]
    assert status_of(counts, []).unserved == []
