"""Stored operations as people use them: the plan, the start, the steps and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model import operation as operation_model
from holdfast.model import outcome as outcomes
from holdfast.model.access import Caller
from holdfast.model.actions import (
    AnyAction,
    ArchiveJobs,
    CancelJobs,
    EditJobs,
    PurgeJobs,
    ReplayJobs,
    RestoreJobs,
    RetargetJobs,
)
from holdfast.model.audit import Attribution
from holdfast.model.errors import (
    IllegalTransition,
    InvalidInput,
    JobNotFound,
    PlanOutdated,
    UnknownOperation,
)
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob, State
from holdfast.model.operation import Operation, OperationChange, Phase
from holdfast.model.payload_paths import Assignment
from holdfast.model.policy import Rate
from holdfast.model.search import Filter
from holdfast.operations.attribution import Author
from holdfast.operations.bulk import BulkOperations, OperationRequest
from holdfast.operations.operation_views import OperationPlan
from holdfast.testing import VirtualClock
from holdfast.worker.operation_loop import OperationLoop

WHO = Author("ann", "the server is back")


class Desk:
    """A person at an engine in memory."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.engine = MemoryEngine(clock=self.clock)
        self.bulk = BulkOperations(self.engine)

    async def put(self, *ids: str, **fields: Any) -> None:
        make: Any = NewJob
        await self.engine.enqueue([make(**{"task": "t", "id": one} | fields) for one in ids])
        self.clock.advance(1)

    async def put_dead(self, *ids: str, reason: str = "upstream_5xx", **fields: Any) -> None:
        await self.put(*ids, **fields)
        await self.fail(len(ids), reason=reason)

    async def fail(self, count: int = 1_000, *, reason: str = "upstream_5xx") -> list[str]:
        """Run so many jobs, all of which die; return their ids."""
        queues = await self.engine.queues()
        taken = (await self.engine.claim(queues=queues, worker="w", limit=count)).jobs
        failure = Failure.of(reason, "no")
        await self.engine.settle([outcomes.dead(job, failure) for job in taken])
        self.clock.advance(1)
        return [job.id for job in taken]

    async def plan(self, action: AnyAction | None = None, **fields: Any) -> OperationPlan:
        return await self.bulk.plan(request(action, **fields))

    async def start(self, action: AnyAction | None = None, **fields: Any) -> Operation:
        asked = request(action, **fields)
        operation = await self.bulk.start(asked, await self.bulk.plan(asked), WHO)
        self.clock.advance(0.001)
        return operation

    async def replays(self, *ids: str) -> dict[str, int]:
        found = await self.engine.get(ids)
        return {
            job.id: 0 if job.replays is None else job.replays.count
            for job in found
            if job is not None
        }


def request(action: AnyAction | None = None, **fields: Any) -> OperationRequest:
    make: Callable[..., OperationRequest] = OperationRequest
    return make(**{"action": action or ReplayJobs(), "wanted": Filter()} | fields)


@pytest.fixture
def desk() -> Desk:
    return Desk()


# --- plan --------------------------------------------------------------------------------------


async def test_a_plan_counts_by_reason_and_tells_what_is_left_alone(desk):
    await desk.put_dead("a", "b", "c")
    await desk.put_dead("x", "y", reason="mapping_error")
    plan = await desk.plan()
    assert (plan.would, plan.matched, plan.kept, plan.exact) == (3, 5, 2, True)
    assert plan.skipped == {"deterministic": 2}
    assert {(one.error_reason, one.failure_class, one.count) for one in plan.reasons} == {
        ("upstream_5xx", "transient", 3),
        ("mapping_error", "deterministic", 2),
    }
    assert plan.ids == [job.id for job in plan.jobs] == ["a", "b", "c"]
    assert (await desk.plan(ReplayJobs(fixed="it"))).would == 5
    assert await desk.engine.operations() == []


async def test_a_plan_names_five_samples_and_how_long_it_takes_at_its_rate(desk):
    await desk.put_dead(*(f"j{number:02}" for number in range(12)))
    plan = await desk.plan(limit=10, rate=Rate(2, 1.0))
    assert (plan.would, plan.matched, len(plan.jobs), plan.expected_seconds) == (10, 12, 5, 5.0)


async def test_a_plan_counts_the_jobs_that_a_replay_would_free(desk):
    await desk.put("k1", "k2", "k3", key="k")
    await desk.fail(1)
    assert (await desk.plan()).held_behind == 2
    assert (await desk.plan(ArchiveJobs())).held_behind == 2


async def test_a_plan_tells_which_jobs_another_operation_has(desk):
    await desk.put_dead("a", "b", "c")
    older = await desk.start(wanted=Filter(ids=("a", "b")), rate=Rate(1, 60.0))
    plan = await desk.plan(ArchiveJobs())
    assert (plan.would, plan.skipped) == (1, {f"taken by {older.id}": 2})


async def test_a_plan_counts_named_jobs_that_do_not_fit(desk):
    await desk.put_dead("a")
    await desk.put("p")
    plan = await desk.plan(wanted=Filter(ids=("a", "p", "nobody")))
    assert (plan.would, plan.skipped) == (1, {"not_found": 1, "pending": 1})


@pytest.mark.parametrize("paged", [False, True], ids=["one page", "more than a page"])
@pytest.mark.parametrize(
    ("action", "wanted", "would"),
    [
        (ReplayJobs(), Filter(), 4),
        (ReplayJobs(), Filter(queues=("mail",)), 2),
        (ArchiveJobs(), Filter(), 4),
        (RestoreJobs(), Filter(), 2),
        (CancelJobs(), Filter(), 3),
        (CancelJobs(), Filter(tenant="acme"), 1),
        (PurgeJobs(), Filter(), 6),
        (PurgeJobs(), Filter(states=(State.DEAD,)), 4),
        (RetargetJobs("u"), Filter(tasks=("t",)), 7),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_a_plan_says_what_the_operation_then_does(
    desk, monkeypatch, action, wanted, would, paged
):
    await desk.put_dead("d1", "d2", "d3", "d4")
    await desk.put_dead("m1", "m2", queue="mail")
    archive = await desk.start(ArchiveJobs(), wanted=Filter(ids=("d1", "d2")))
    await desk.bulk.drive(archive.id)
    await desk.put("p1", "p2")
    await desk.put("p3", tenant="acme")
    if paged:
        monkeypatch.setattr("holdfast.operations.bulk.MAX_PAGE", 1)
    plan = await desk.plan(action, wanted=wanted)
    assert (plan.would, plan.exact) == (would, True)
    operation = await desk.start(action, wanted=wanted)
    done = await desk.bulk.drive(operation.id)
    assert (done.phase, done.acted, done.matched) == (Phase.COMPLETED, would, would)
    changes = msgspec.json.decode(
        next(
            one.entry.changes
            for one in await desk.engine.audited()
            if one.entry.action == f"job.{action.name}" and operation.id in one.entry.changes
        )
    )
    assert (changes["operation"], changes["would"]) == (operation.id, would)


async def test_a_plan_that_cannot_count_all_says_so(desk, monkeypatch):
    monkeypatch.setattr("holdfast.operations.bulk.MAX_PAGE", 2)
    monkeypatch.setattr("holdfast.operations.bulk.MAX_COUNTED", 4)
    await desk.put(*(f"p{number}" for number in range(9)), key="k")
    plan = await desk.plan(CancelJobs(), wanted=Filter(keys=("k",)))
    assert (plan.would, plan.exact) == (4, False)


async def test_what_came_after_the_moment_of_a_plan_is_no_member(desk):
    await desk.put_dead("a")
    as_of_us = await desk.engine.now_us()
    desk.clock.advance(1)
    await desk.put_dead("b")
    assert (await desk.plan(as_of_us=as_of_us)).ids == ["a"]
    operation = await desk.start(as_of_us=as_of_us)
    assert (await desk.bulk.drive(operation.id)).acted == 1
    assert await desk.replays("a", "b") == {"a": 1, "b": 0}


async def test_a_plan_that_no_longer_holds_is_refused(desk):
    await desk.put_dead(*(f"j{number:02}" for number in range(20)))
    asked = request(as_of_us=await desk.engine.now_us())
    archive = await desk.start(ArchiveJobs(), wanted=Filter(ids=("j00", "j01")))
    await desk.bulk.drive(archive.id)
    plan = await desk.bulk.plan(asked)
    await desk.bulk.start(asked, plan, WHO, expect=20)  # a tenth less
    archive = await desk.start(ArchiveJobs(), wanted=Filter(ids=("j02",)))
    with pytest.raises(PlanOutdated, match=r"counted 21, and now it would be 18 jobs \(upstream"):
        await desk.bulk.start(asked, plan, WHO, expect=21)


# --- the two defects ---------------------------------------------------------------------------


async def replay_letters_that_keep_failing(desk: Desk, **fields: Any) -> Operation:
    """Replay three letters that die again at once, until the operation has ended."""
    await desk.put_dead("a", "b", "c")
    operation = await desk.start(**fields)
    loop = OperationLoop(desk.engine)
    for _turn in range(40):
        await loop.step(desk.clock.now_us())
        await desk.fail()
    return await desk.engine.operation(operation.id)


@pytest.mark.parametrize(
    "fields",
    [{"limit": 8, "rate": Rate(2, 1.0)}, {"limit": 1_000}, {}, {"rate": Rate(1, 1.0)}],
    ids=["limit 8 at 2/s", "the default limit", "no limit", "1/s"],
)
async def test_letters_that_keep_failing_are_each_replayed_exactly_once(desk, fields):
    done = await replay_letters_that_keep_failing(desk, **fields)
    assert await desk.replays("a", "b", "c") == {"a": 1, "b": 1, "c": 1}
    assert (done.phase, done.acted, done.outcomes.failed) == (Phase.COMPLETED, 3, 3)


async def test_control_without_the_moment_later_letters_are_members(desk, monkeypatch):
    without_moment(monkeypatch)
    with pytest.raises(AssertionError):
        await test_what_came_after_the_moment_of_a_plan_is_no_member(desk)


async def test_control_without_moment_and_cursor_letters_are_replayed_again(desk, monkeypatch):
    without_moment(monkeypatch)
    without_cursor(monkeypatch)
    with pytest.raises(AssertionError):
        await test_letters_that_keep_failing_are_each_replayed_exactly_once(
            desk, {"limit": 8, "rate": Rate(2, 1.0)}
        )


async def test_control_without_the_stored_cursor_the_others_wait_for_the_first(desk, monkeypatch):
    """An edit leaves its members where they are: only the cursor leads past them."""
    without_cursor(monkeypatch)
    with pytest.raises(AssertionError):
        await test_every_member_is_edited_exactly_once(desk, monkeypatch)


async def test_every_member_is_edited_exactly_once(desk, monkeypatch):
    monkeypatch.setattr(operation_model, "CHUNK", 2)
    ids = [f"j{number}" for number in range(6)]
    await desk.put_dead(*ids, payload={"n": 0})
    operation = await desk.start(
        RetargetJobs("other"), wanted=Filter(tasks=("t", "other"), states=(State.DEAD,)), limit=6
    )
    for _turn in range(12):
        await desk.engine.advance_operation(operation.id)
    versions = Counter(job.version for job in await desk.engine.get(ids) if job is not None)
    done = await desk.engine.operation(operation.id)
    assert (done.acted, sum(done.skipped.values()), versions) == (6, 0, {2: 6})


def without_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for whatever is dead now."""

    def members(action: AnyAction, wanted: Filter, _as_of_us: int) -> Filter:
        return msgspec.structs.replace(wanted, states=tuple(action.states))

    monkeypatch.setattr(operation_model, "members", members)


def without_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget after each chunk how far the operation had come."""
    after_chunk = operation_model.after_chunk

    def forget(operation: Operation, chunk: Any, now_us: int) -> Operation:
        done = after_chunk(operation, chunk, now_us)
        return msgspec.structs.replace(done, after=None, until=None)

    monkeypatch.setattr(operation_model, "after_chunk", forget)


# --- carry out, report and change --------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7, 100])
@pytest.mark.parametrize("named", [False, True])
async def test_more_than_a_commit_is_done_in_parts_up_to_the_limit(desk, monkeypatch, named, limit):
    monkeypatch.setattr(operation_model, "CHUNK", 2)
    ids = [f"j{number}" for number in range(7)]
    await desk.put_dead(*ids)
    operation = await desk.start(wanted=Filter(ids=tuple(ids)) if named else Filter(), limit=limit)
    told: list[int] = []
    done = await desk.bulk.drive(operation.id, told.append)
    assert done.acted == min(limit, 7)
    assert told[-1] == done.acted
    assert told == sorted(told)
    pending = await desk.engine.find(Filter(states=(State.PENDING,)))
    assert [job.id for job in pending.jobs] == ids[:limit]


async def test_a_report_tells_what_came_of_it_and_what_is_new_since(desk):
    await desk.put_dead("a", "b", "c", "d", "e")
    await desk.put_dead("x", reason="mapping_error")
    operation = await desk.start(wanted=Filter(queues=("default",)))
    await desk.bulk.drive(operation.id)
    assert (await desk.bulk.report(operation.id)).waiting == 5
    await desk.fail(2)
    [job] = (await desk.engine.claim(queues=["default"], worker="w")).jobs
    await desk.engine.settle([outcomes.completed(job)])
    cancel = await desk.start(CancelJobs(), wanted=Filter(ids=("d",)))
    await desk.bulk.drive(cancel.id)
    [e] = (await desk.engine.claim(queues=["default"], worker="w")).jobs
    await desk.put_dead("n1", "n2", "elsewhere", queue="mail")
    await desk.put_dead("n3")
    await desk.engine.settle([outcomes.completed(e)])
    report = await desk.bulk.report(operation.id)
    assert (report.acted, report.done, report.failed_again, report.cancelled) == (5, 2, 2, 1)
    assert (report.waiting, report.skipped, report.gone) == (0, {"deterministic": 1}, 0)
    assert report.new_since == 1, "n3; members that failed again are not new"
    assert report.filter == {
        "queues": ["default"],
        "states": ["dead"],
        "classes": ["transient", "unknown"],
    }


async def test_members_that_match_no_longer_are_gone(desk):
    await desk.put_dead("a", "b", "c")
    replay = await desk.start(rate=Rate(1, 1.0))
    await desk.engine.advance_operation(replay.id)
    by_hand = Attribution("bob", "by hand")
    await desk.engine.operate(ArchiveJobs(), Filter(ids=("b",)), by_hand)
    for _turn in range(4):
        desk.clock.advance(1)
        await desk.engine.advance_operation(replay.id)
    report = await desk.bulk.report(replay.id)
    assert (report.acted, report.gone) == (2, 1)


async def test_pause_resume_rate_and_abort_are_in_the_audit(desk):
    await desk.put_dead("a", "b", "c")
    operation = await desk.start(rate=Rate(1, 60.0))
    for change in (
        OperationChange(paused=True),
        OperationChange(paused=False),
        OperationChange(rate=Rate(5, 1.0)),
    ):
        await desk.bulk.change(operation.id, change, WHO)
    view = await desk.bulk.change(operation.id, OperationChange(abort=True), WHO)
    assert (view.state, view.rate, view.version) == ("aborted", "5/1s", 5)
    entries = [one.entry for one in await desk.engine.audited()]
    assert [one.action for one in entries] == [
        "job.replay",
        "operation.pause",
        "operation.resume",
        "operation.rate",
        "operation.abort",
        "operation.aborted",
    ]
    assert msgspec.json.decode(entries[3].changes) == {"before": "1/1m", "after": "5/1s"}
    assert {one.resource_id for one in entries[1:]} == {operation.id}


async def test_an_edit_leaves_no_value_in_the_audit(desk):
    await desk.put_dead("a", payload={"token": "hunter1"})
    action = EditJobs((Assignment("payload.token", b'"hunter2"'),))
    operation = await desk.start(action, wanted=Filter(states=(State.DEAD,)))
    assert (await desk.bulk.drive(operation.id)).acted == 1
    entries = await desk.engine.audited()
    assert "hunter" not in "".join(one.entry.changes for one in entries)
    assert '"payload.token"' in entries[0].entry.changes


# --- bad input ---------------------------------------------------------------------------------


async def test_bad_input_changes_nothing(desk):
    await desk.put_dead("a")
    await desk.put("p")
    for fields in (
        {"wanted": Filter(ids=("nobody",))},
        {"wanted": Filter(ids=("p",))},
        {"wanted": Filter(states=(State.PENDING,))},
        {"wanted": Filter(ids=("a",), tenant="foreign")},
        {"limit": 0},
        {"canary": 101},
        {"abort_ratio": 2.0},
        {"action": ArchiveJobs(), "canary": 1},
        {"rate": Rate(0, 1.0)},
    ):
        with pytest.raises((InvalidInput, JobNotFound, IllegalTransition)):
            await desk.start(**fields)
    asked = request()
    with pytest.raises(InvalidInput):
        await desk.bulk.start(asked, await desk.bulk.plan(asked), Author("ann", " "))
    assert await desk.engine.operations() == []
    assert await desk.engine.audited() == []


async def test_an_operation_out_of_reach_is_unknown(desk):
    await desk.put_dead("a", tenant="acme")
    acme, other = Caller("acme"), Caller("other")
    asked = request()
    assert (await desk.bulk.plan(asked, caller=other)).matched == 0
    plan = await desk.bulk.plan(asked, caller=acme)
    operation = await desk.bulk.start(asked, plan, WHO, caller=acme)
    assert [one.id for one in await desk.bulk.listed(caller=acme)] == [operation.id]
    assert await desk.bulk.listed(caller=other) == []
    abort = OperationChange(abort=True)
    for call in (
        desk.bulk.report(operation.id, caller=other),
        desk.bulk.wait(operation.id, caller=other),
        desk.bulk.change(operation.id, abort, WHO, caller=other),
        desk.bulk.report("op-nobody"),
        desk.bulk.drive("op-nobody"),
    ):
        with pytest.raises(UnknownOperation):
            await call
    assert (await desk.engine.operation(operation.id)).phase is Phase.RUNNING
