"""What people do to work: parts, limits, previews, the audit, and others who do it too."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import pytest

from holdfast.engines.forwarding import ForwardingEngine
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model import outcome as outcomes
from holdfast.model.actions import (
    ArchiveJobs,
    CancelJobs,
    ConfirmJobs,
    PurgeJobs,
    ReplayJobs,
    RestoreJobs,
)
from holdfast.model.errors import (
    IllegalTransition,
    InvalidInput,
)
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob, State
from holdfast.model.policy import QueuePolicy, Rate
from holdfast.model.search import Filter
from holdfast.operations.operations import Operations, ReplayPace
from holdfast.testing import VirtualClock

from .test_operations import WHO, Desk, run


async def bury(desk: Desk, *ids: str, reason: str = "upstream_5xx") -> None:
    await desk.engine.enqueue([NewJob(task="t", id=job_id) for job_id in ids])
    taken = (await desk.engine.claim(queues=["default"], worker="w", limit=len(ids))).jobs
    await desk.engine.settle([outcomes.dead(job, Failure.of(reason, "no")) for job in taken])


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7, 100])
def test_more_than_a_commit_is_done_in_parts_up_to_the_limit(monkeypatch, named, limit):
    monkeypatch.setattr("holdfast.operations.operations.CHUNK", 2)
    ids = [f"j{number}" for number in range(7)]

    async def scenario(desk: Desk) -> None:
        await bury(desk, *ids)
        wanted = Filter(ids=tuple(ids)) if named else Filter()
        told: list[int] = []
        preview = await desk.operations.preview(ReplayJobs(), wanted, limit=limit)
        done = await desk.operations.operate(
            ReplayJobs(), wanted, WHO, limit=limit, on_progress=told.append
        )
        assert done.done == preview.would == min(limit, 7)
        assert done.ids == [job.id for job in preview.jobs] == ids[:limit]
        assert told[-1] == done.done
        assert told == sorted(told)
        assert (await desk.operations.status()).pending == done.done

    run(scenario, None)


def test_deterministic_failures_are_kept_and_counted_however_they_are_named(monkeypatch):
    monkeypatch.setattr("holdfast.operations.operations.CHUNK", 2)

    async def scenario(desk: Desk) -> None:
        wrong = [f"x{number}" for number in range(5)]
        await bury(desk, *wrong, reason="mapping_error")
        await bury(desk, "a", "b")
        named = Filter(ids=(*wrong, "a", "b"))
        for wanted in (named, Filter()):
            assert (await desk.operations.preview(ReplayJobs(), wanted, limit=100)).kept == 5
        done = await desk.operations.operate(ReplayJobs(), named, WHO, limit=100)
        assert (done.done, done.kept) == (2, 5)
        done = await desk.operations.operate(ReplayJobs(), Filter(), WHO, limit=100)
        assert (done.done, done.kept) == (0, 5)
        done = await desk.operations.operate(
            ReplayJobs(fixed="the mapping"), Filter(), WHO, limit=100
        )
        assert (done.done, done.kept) == (5, 0)

    run(scenario, None)


@pytest.mark.parametrize(
    "action",
    [ArchiveJobs(), RestoreJobs(), CancelJobs(), PurgeJobs(), ConfirmJobs()],
    ids=lambda action: action.name,
)
def test_a_preview_says_what_each_operation_then_does(action):
    async def scenario(desk: Desk) -> None:
        await bury(desk, "d1", "d2", "d3")
        await desk.operations.operate(ArchiveJobs(), Filter(ids=("d3",)), WHO, limit=1)
        await desk.take(b'[{"id":"p"},{"id":"h","hold":true},{"id":"w","depends_on":["p"]}]')
        preview = await desk.operations.preview(action, Filter(), limit=100)
        done = await desk.operations.operate(action, Filter(), WHO, limit=100)
        assert done.done == preview.would
        assert done.kept == preview.kept
        entry = (await desk.operations.audit())[-1]
        assert (entry.action, entry.user_id, entry.reason) == (f"job.{action.name}", "ann", WHO.why)

    run(scenario, None)


def test_a_state_in_which_nothing_can_be_done_is_refused():
    async def scenario(desk: Desk) -> None:
        with pytest.raises(InvalidInput, match="this works on jobs that are archived"):
            await desk.operations.preview(RestoreJobs(), Filter(states=(State.DEAD,)), limit=1)

    run(scenario, None)


def test_the_audit_names_what_was_done_and_breaks_when_it_is_altered(monkeypatch):
    async def scenario(desk: Desk) -> None:
        await bury(desk, *(f"d{number}" for number in range(150)))
        wanted = Filter(ids=tuple(f"d{number}" for number in range(150)))
        await desk.operations.operate(ReplayJobs(), wanted, WHO, limit=1_000)
        await desk.operations.set_flag("f", WHO, on=True)
        entry = msgspec.json.decode((await desk.operations.audit())[0].changes)
        assert (len(entry["ids"]), entry["ids_count"]) == (100, 150)
        head, problem = await desk.operations.verify_audit()
        assert (head.count, problem) == (2, "")
        kept = desk.engine._history._audit
        kept[0] = msgspec.structs.replace(kept[0], at_us=kept[0].at_us + 1)
        head, problem = await desk.operations.verify_audit()
        assert (head.count, problem) == (
            0,
            "entry 1 does not follow from the one before it",
        )

    run(scenario, None)


@pytest.mark.parametrize(
    ("rate", "at_once", "pause_seconds"),
    [(Rate(10, 1.0), 10, 1.0), (Rate(1, 60.0), 1, 60.0), (Rate(100_000, 1.0), 1_000, 0.01)],
)
def test_a_replay_keeps_to_its_rate(monkeypatch, rate, at_once, pause_seconds):
    pace = ReplayPace.of(rate)
    assert pace.at_once == at_once
    assert pace.pause_seconds == pytest.approx(pause_seconds)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("holdfast.operations.operations.asyncio.sleep", sleep)

    async def scenario(desk: Desk) -> None:
        await bury(desk, *(f"d{number}" for number in range(25)))
        done = await desk.operations.operate(ReplayJobs(), Filter(), WHO, limit=25, pace=pace)
        assert done.done == 25
        assert len(slept) == -(-25 // at_once) - 1

    run(scenario, None)


async def test_two_who_change_one_queue_at_once_both_have_their_way():
    engine = MemoryEngine(clock=VirtualClock())

    class Slow(ForwardingEngine):
        async def policies(self) -> Mapping[str, QueuePolicy]:
            found = await self.engine.policies()
            await asyncio.sleep(0)  # the other one looks too
            return found

    people = [Operations(Slow(engine)) for _ in range(2)]
    for turn in range(10):
        await asyncio.gather(
            people[0].change_policy("q", {"paused": not turn % 2}, WHO, new=True),
            people[1].change_policy("q", {"max_in_flight": turn + 1}, WHO, new=True),
        )
        policy = (await engine.policies())["q"]
        assert (policy.paused, policy.max_in_flight) == (not turn % 2, turn + 1)
    await engine.close()


async def test_a_reclaim_that_is_refused_ends_nobody_elses_lease():
    clock = VirtualClock()
    engine = MemoryEngine(clock=clock)
    await engine.enqueue([NewJob(task="t", id="held"), NewJob(task="t", id="free")])
    await engine.claim(queues=["default"], worker="w", lease_seconds=5)
    clock.advance(60)
    with pytest.raises(IllegalTransition):
        await Operations(engine).reclaim("free", "default", WHO)
    [held] = await engine.get(["held"])
    assert held is not None
    assert (held.state, held.losses) == (State.IN_FLIGHT, 0)
    await engine.close()
