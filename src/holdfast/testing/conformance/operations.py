"""Operations: a fixed set of members, each acted on at most once, at a pace, with a report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast.model.access import Caller
from holdfast.model.actions import (
    AnyAction,
    ArchiveJobs,
    CancelJobs,
    EditJobs,
    NoteJobs,
    PurgeJobs,
    ReplayJobs,
    RestoreJobs,
    RetargetJobs,
)
from holdfast.model.audit import Attribution
from holdfast.model.errors import (
    ChangedMeanwhile,
    DuplicateId,
    IllegalTransition,
    InvalidInput,
    JobNotFound,
    UnknownOperation,
)
from holdfast.model.job import MICROSECONDS, State
from holdfast.model.operation import (
    ABORT_AFTER,
    NewOperation,
    Operation,
    OperationChange,
    OperationStep,
    Outcomes,
    Phase,
)
from holdfast.model.outcome import completed, dead
from holdfast.model.payload_paths import Assignment
from holdfast.model.policy import Rate
from holdfast.model.search import Filter

from .fixture import FAILURE, OPERATION, WRONG, EngineFixture, Suite, named, on_engine, wanted

ABORT = OperationChange(abort=True)
PAUSE = OperationChange(paused=True)
RESUME = OperationChange(paused=False)
_DEAD = (State.DEAD,)
DEAD = wanted(states=_DEAD)
EDIT = (Assignment("payload.n", b"1"),)


def new(
    operation_id: str = "op", action: AnyAction | None = None, **fields: object
) -> NewOperation:
    """Return the request for an operation; by default a replay of all dead letters."""
    make: Callable[..., NewOperation] = NewOperation
    chosen = ReplayJobs() if action is None else action
    return make(**{"id": operation_id, "action": chosen, "wanted": Filter(), **fields})


async def start(fixture: EngineFixture, *args: object, **fields: object) -> Operation:
    """Start an operation."""
    make: Callable[..., NewOperation] = new
    return await fixture.engine.start_operation(make(*args, **fields), OPERATION)


async def advance(fixture: EngineFixture, operation_id: str = "op") -> Operation:
    """Take steps as long as each does something; return the operation."""
    while True:
        step = await fixture.engine.advance_operation(operation_id)
        if not step.acted:
            return step.operation


async def run_dead(fixture: EngineFixture, count: int) -> list[str]:
    """Claim this many jobs and let all of them die again; return their ids."""
    jobs = await fixture.take(count)
    await fixture.settle(*(dead(job, FAILURE) for job in jobs))
    return [job.id for job in jobs]


async def put_dead(fixture: EngineFixture, count: int) -> list[str]:
    """Make this many dead letters; return their ids."""
    ids = [f"j{number:04}" for number in range(count)]
    await fixture.put_dead(*ids)
    return ids


class OperationRules(Suite):
    """Which jobs are members, and how often each is acted on."""

    @on_engine
    async def test_a_plain_replay_makes_every_member_pending_and_ends(
        self, fixture: EngineFixture
    ) -> None:
        ids = await put_dead(fixture, 3)
        started = await start(fixture)
        assert (started.phase, started.acted, started.by) == (Phase.RUNNING, 0, "ann")
        assert await fixture.state("j0000") is State.DEAD
        done = await advance(fixture)
        assert (done.phase, done.acted, done.skipped) == (Phase.COMPLETED, 3, {})
        assert done.ended_at_us == fixture.clock.now_us()
        assert await fixture.take_ids() == ids
        assert (await fixture.job("j0001")).replays.run == "op"  # type: ignore[union-attr]

    @on_engine
    async def test_members_that_die_again_are_not_acted_on_again(
        self, fixture: EngineFixture
    ) -> None:
        ids = await put_dead(fixture, 3)
        await start(fixture, rate=Rate(2, 1.0), abort_ratio=1.0)
        runs: list[str] = []
        for _second in range(8):
            await advance(fixture)
            runs += await run_dead(fixture, 10)
            fixture.clock.advance(1)
        assert sorted(runs) == ids
        found = await fixture.engine.operation("op")
        assert (found.acted, found.outcomes) == (3, Outcomes(failed=3))
        assert found.phase is Phase.COMPLETED

    @on_engine
    async def test_jobs_that_die_after_the_moment_are_not_members(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a")
        started = await start(fixture)
        fixture.clock.advance(1)
        await fixture.put_dead("b")
        done = await advance(fixture)
        assert (done.acted, await fixture.state("b")) == (1, State.DEAD)
        assert started.as_of_us < fixture.clock.now_us()

    @on_engine
    async def test_a_plan_may_be_started_later_and_has_its_own_moment(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a")
        as_of_us = fixture.clock.now_us()
        fixture.clock.advance(600)
        await fixture.put_dead("b")
        await start(fixture, as_of_us=as_of_us)
        assert (await advance(fixture)).acted == 1
        assert await fixture.state("b") is State.DEAD

    @pytest.mark.parametrize("seconds", [3_601, -1])
    @on_engine
    async def test_a_plan_that_is_too_old_or_in_the_future_is_refused(
        self, fixture: EngineFixture, seconds: int
    ) -> None:
        as_of_us = fixture.clock.now_us() - seconds * MICROSECONDS
        with pytest.raises(InvalidInput, match="new plan"):
            await start(fixture, as_of_us=as_of_us)
        assert await fixture.engine.operations() == []

    @on_engine
    async def test_a_limit_takes_the_oldest_and_counts_what_was_done(
        self, fixture: EngineFixture
    ) -> None:
        ids = await put_dead(fixture, 5)
        await start(fixture, limit=2)
        done = await advance(fixture)
        assert (done.phase, done.acted) == (Phase.COMPLETED, 2)
        assert await fixture.take_ids() == ids[:2]

    @on_engine
    async def test_deterministic_failures_are_kept_and_counted_unless_something_was_fixed(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a", "b")
        await fixture.put_dead("c", "d", "e", failure=WRONG)
        await start(fixture)
        done = await advance(fixture)
        assert (done.acted, done.skipped) == (2, {"deterministic": 3})
        await start(fixture, "again", ReplayJobs(fixed="the mapping"))
        done = await advance(fixture, "again")
        assert (done.acted, done.skipped) == (3, {})

    @on_engine
    async def test_of_one_unique_key_one_is_replayed(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a", unique="u")
        await fixture.put_dead("b", unique="u")
        await start(fixture)
        done = await advance(fixture)
        assert (done.acted, done.skipped) == (1, {"unique_taken": 1})

    @on_engine
    async def test_more_members_than_one_step_takes(self, fixture: EngineFixture) -> None:
        await fixture.put_dead(*[f"j{number:04}" for number in range(1_100)])
        await start(fixture)
        steps: list[OperationStep] = []
        while not (steps and steps[-1].operation.ended):
            steps.append(await fixture.engine.advance_operation("op"))
        assert [step.acted for step in steps] == [1_000, 100]
        assert len(await fixture.take_ids(2_000)) == 1_100

    @on_engine
    async def test_steps_at_the_same_time_act_on_each_member_once(
        self, fixture: EngineFixture
    ) -> None:
        ids = await put_dead(fixture, 20)
        await start(fixture, limit=20)
        await asyncio.gather(*(fixture.engine.advance_operation("op") for _turn in range(4)))
        done = await advance(fixture)
        assert done.acted == 20
        assert sorted(await fixture.take_ids()) == ids
        replays = [(await fixture.job(one)).replays for one in ids]
        assert [one and one.count for one in replays] == [1] * 20

    @on_engine
    async def test_the_older_operation_has_the_job_that_two_want(
        self, fixture: EngineFixture
    ) -> None:
        await put_dead(fixture, 4)
        await start(fixture, "older", limit=3)
        fixture.clock.advance(1)
        await start(fixture, "younger", ArchiveJobs())
        younger = await advance(fixture, "younger")
        assert (younger.acted, younger.skipped) == (1, {"taken by older": 3})
        assert (await advance(fixture, "older")).acted == 3

    @on_engine
    async def test_an_operation_that_has_ended_takes_nothing(self, fixture: EngineFixture) -> None:
        await put_dead(fixture, 2)
        await start(fixture, "older")
        await fixture.engine.change_operation("older", ABORT, OPERATION)
        await start(fixture, "younger", ArchiveJobs())
        assert (await advance(fixture, "younger")).acted == 2

    @on_engine
    async def test_other_actions(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a", "b")
        await start(fixture, "archive", ArchiveJobs())
        assert (await advance(fixture, "archive")).acted == 2
        assert await fixture.state("a") is State.ARCHIVED
        await start(fixture, "restore", RestoreJobs(), wanted=named("a"))
        assert (await advance(fixture, "restore")).acted == 1
        assert await fixture.state("a") is State.DEAD
        await start(fixture, "purge", PurgeJobs())
        assert (await advance(fixture, "purge")).acted == 2
        assert await fixture.engine.get(["a", "b"]) == [None, None]
        await fixture.put("c", "d")
        await fixture.take()
        fixture.clock.advance(1)
        await start(fixture, "cancel", CancelJobs())
        step = await fixture.engine.advance_operation("cancel")
        assert (step.acted, step.cancelled) == (2, {"default": 1})
        assert await fixture.state("d") is State.CANCELLED
        assert (await fixture.job("c")).stop_requested

    @on_engine
    async def test_an_edit_changes_payloads_along_paths_and_only_once(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a", payload={"n": 1, "user": {"locale": "xx"}})
        await fixture.put_dead("b", payload={"n": 1, "user": {"locale": "en"}})
        await fixture.put_dead("c", payload={"user": 3})
        changes = (Assignment("payload.user.locale", b'"en"'),)
        await start(fixture, action=EditJobs(changes), wanted=DEAD)
        done = await advance(fixture)
        assert (done.acted, done.skipped) == (1, {"unchanged": 1, "no_such_path": 1})
        job = await fixture.job("a")
        assert job.arguments() == {"n": 1, "user": {"locale": "en"}}
        assert (job.state, job.version) == (State.DEAD, 2)

    @on_engine
    async def test_a_retarget_gives_jobs_to_another_task(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a", task="old")
        await fixture.put("b", task="old")
        await fixture.put("c", task="other")
        fixture.clock.advance(1)  # jobs of one moment are created a little later
        await start(fixture, action=RetargetJobs("new"), wanted=wanted(tasks=("old",)))
        assert (await advance(fixture)).acted == 2
        assert await fixture.find(tasks=("new",)) == ["a", "b"]
        assert await fixture.take_ids(tasks=["new"]) == ["b"]

    @on_engine
    async def test_a_named_job_that_does_not_fit_refuses_the_operation(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a")
        await fixture.put("b")
        with pytest.raises(IllegalTransition):
            await start(fixture, wanted=named("a", "b"))
        with pytest.raises(JobNotFound):
            await start(fixture, wanted=named("a", "nobody"))
        with pytest.raises(IllegalTransition):
            await start(fixture, action=EditJobs(EDIT), wanted=wanted(ids=("b",), states=_DEAD))
        assert await fixture.engine.operations() == []

    @on_engine
    async def test_a_repeated_request_starts_one_operation(self, fixture: EngineFixture) -> None:
        await put_dead(fixture, 2)
        first = await start(fixture)
        await advance(fixture)
        again = await start(fixture)
        assert (again.id, again.acted) == (first.id, 2)
        with pytest.raises(DuplicateId):
            await start(fixture, action=ArchiveJobs())

    @pytest.mark.parametrize(
        "fields",
        [
            {"action": NoteJobs("x")},
            {"wanted": wanted(states=(State.COMPLETED,))},
            {"limit": 0},
            {"canary": 1_000},
            {"abort_ratio": 1.5},
            {"rate": Rate(0, 1.0)},
            {"action": ArchiveJobs(), "canary": 3},
            {"operation_id": ""},
        ],
        ids=lambda fields: next(iter(fields)),
    )
    @on_engine
    async def test_bad_requests_change_nothing(
        self, fixture: EngineFixture, fields: dict[str, object]
    ) -> None:
        with pytest.raises(InvalidInput):
            await start(fixture, **fields)
        assert await fixture.engine.operations() == []

    @on_engine
    async def test_who_and_why_are_needed(self, fixture: EngineFixture) -> None:
        with pytest.raises(InvalidInput):
            await fixture.engine.start_operation(new(), Attribution("ann", ""))

    @on_engine
    async def test_operations_are_listed_newest_first(self, fixture: EngineFixture) -> None:
        for name in ("a", "b"):
            await put_dead(fixture, 1) if name == "a" else None
            await start(fixture, name)
            fixture.clock.advance(1)
        await advance(fixture, "a")
        assert [one.id for one in await fixture.engine.operations()] == ["b", "a"]
        assert [one.id for one in await fixture.engine.operations(running=True)] == ["b"]
        assert [one.id for one in await fixture.engine.operations(limit=1)] == ["b"]
        for call in (fixture.engine.operation, fixture.engine.advance_operation):
            with pytest.raises(UnknownOperation):
                await call("nobody")

    @on_engine
    async def test_an_operation_acts_within_the_reach_of_its_caller(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a", tenant="acme")
        await fixture.put_dead("b", tenant="other")
        acme = Caller("acme")
        await fixture.engine.start_operation(new(), OPERATION, caller=acme)
        assert (await advance(fixture)).acted == 1
        assert [one.id for one in await fixture.engine.operations(caller=acme)] == ["op"]
        other = Caller("other")
        assert await fixture.engine.operations(caller=other) == []
        for change in (PAUSE, ABORT):
            with pytest.raises(UnknownOperation):
                await fixture.engine.change_operation("op", change, OPERATION, caller=other)

    @on_engine
    async def test_start_and_end_are_in_the_audit(self, fixture: EngineFixture) -> None:
        await put_dead(fixture, 1)
        await start(fixture)
        await advance(fixture)
        records = await fixture.engine.audited()
        assert [one.entry.action for one in records] == ["operation.completed"]
        assert '"acted":1' in records[0].entry.changes


class OperationPaceRules(Suite):
    """Rates, windows, canaries, aborts, and what people change."""

    @on_engine
    async def test_a_rate_lets_so_many_become_pending_each_second(
        self, fixture: EngineFixture
    ) -> None:
        await put_dead(fixture, 10)
        await start(fixture, rate=Rate(2, 1.0))
        acted = []
        for _second in range(5):
            acted.append((await advance(fixture)).acted)
            fixture.clock.advance(1)
        assert acted == [2, 4, 6, 8, 10]

    @on_engine
    async def test_a_pause_of_the_daemon_gives_no_burst(self, fixture: EngineFixture) -> None:
        await put_dead(fixture, 10)
        await start(fixture, rate=Rate(2, 1.0))
        await advance(fixture)
        fixture.clock.advance(3_600)
        assert (await advance(fixture)).acted == 4

    @on_engine
    async def test_a_step_tells_when_the_next_one_can_do_more(self, fixture: EngineFixture) -> None:
        await put_dead(fixture, 10)
        await start(fixture, rate=Rate(1, 10.0))
        step = await fixture.engine.advance_operation("op")
        assert (step.acted, step.next_at_us) == (1, fixture.clock.now_us() + 10 * MICROSECONDS)

    @on_engine
    async def test_too_many_failures_abort_it(self, fixture: EngineFixture) -> None:
        await put_dead(fixture, 2 * ABORT_AFTER + 10)
        await start(fixture, rate=Rate(ABORT_AFTER, 1.0))
        for _second in range(4):
            await advance(fixture)
            await run_dead(fixture, 100)
            fixture.clock.advance(1)
        done = await fixture.engine.operation("op")
        assert (done.phase, done.acted) == (Phase.ABORTED, ABORT_AFTER)
        assert "failed again" in done.note
        assert (await fixture.counts()).pending == 0

    @on_engine
    async def test_a_plain_replay_is_never_aborted_and_its_outcomes_are_counted(
        self, fixture: EngineFixture
    ) -> None:
        await put_dead(fixture, 30)
        await start(fixture)
        await advance(fixture)
        await run_dead(fixture, 29)
        await fixture.complete(
            *[job.id for job in (await fixture.engine.find(wanted(states=(State.PENDING,)))).jobs]
        )
        done = await fixture.engine.operation("op")
        assert (done.phase, done.outcomes) == (Phase.COMPLETED, Outcomes(1, 29, 0))

    @on_engine
    async def test_only_the_first_end_of_a_member_counts(self, fixture: EngineFixture) -> None:
        await put_dead(fixture, 1)
        await start(fixture, "first")
        await advance(fixture, "first")
        await run_dead(fixture, 1)
        await start(fixture, "second")
        await advance(fixture, "second")
        await fixture.complete("j0000")
        first = await fixture.engine.operation("first")
        second = await fixture.engine.operation("second")
        assert (first.outcomes, second.outcomes) == (Outcomes(failed=1), Outcomes(completed=1))

    @on_engine
    async def test_members_that_are_lost_or_cancelled_count(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a", "b", max_attempts=1)
        await start(fixture)
        await advance(fixture)
        await fixture.engine.operate(CancelJobs(), named("b"), OPERATION)
        await fixture.take()
        await fixture.expire_leases()
        assert (await fixture.engine.operation("op")).outcomes == Outcomes(0, 1, 1)

    @on_engine
    async def test_a_canary_goes_first_and_the_rest_follows(self, fixture: EngineFixture) -> None:
        ids = await put_dead(fixture, 10)
        await start(fixture, canary=2)
        waiting = await advance(fixture)
        assert (waiting.phase, waiting.acted) == (Phase.CANARY, 2)
        assert await fixture.take_ids() == ids[:2]
        fixture.clock.advance(1)
        assert (await advance(fixture)).acted == 2, "no outcome yet"
        jobs = [await fixture.job(one) for one in ids[:2]]
        await fixture.settle(*map(completed, jobs))
        done = await advance(fixture)
        assert (done.phase, done.acted) == (Phase.VERIFYING, 10)
        assert await fixture.take_ids() == ids[2:]

    @on_engine
    async def test_a_canary_that_fails_aborts_it(self, fixture: EngineFixture) -> None:
        await put_dead(fixture, 10)
        await start(fixture, canary=2)
        await advance(fixture)
        await run_dead(fixture, 2)
        done = await advance(fixture)
        assert (done.phase, done.acted) == (Phase.ABORTED, 2)

    @on_engine
    async def test_a_canary_takes_one_of_each_key_and_none_of_a_paused_queue(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("p1", queue="stopped")
        for name in ("k1", "k2"):
            await fixture.put(name, key="k")
        await fixture.put("k3", key="other")
        # The head of a key has to be out of the way before the next one can die.
        for name in ("k1", "k3"):
            await fixture.dead_letter(name)
        await fixture.engine.operate(ArchiveJobs(), named("k1"), OPERATION)
        await fixture.dead_letter("k2")
        await fixture.engine.operate(RestoreJobs(), named("k1"), OPERATION)
        await fixture.set_policy("stopped", paused=True)
        await start(fixture, canary=5)
        assert (await advance(fixture)).acted == 2
        assert await fixture.find(states=(State.PENDING,)) == ["k1", "k3"]

    @on_engine
    async def test_a_canary_that_does_not_run_pauses_it(self, fixture: EngineFixture) -> None:
        await put_dead(fixture, 10)
        await start(fixture, canary=2, canary_seconds=60.0)
        await advance(fixture)
        fixture.clock.advance(61)
        paused = await advance(fixture)
        assert (paused.state, paused.acted) == ("paused", 2)
        await fixture.engine.change_operation("op", RESUME, OPERATION)
        assert (await advance(fixture)).acted == 10

    @on_engine
    async def test_pause_resume_abort_and_rate(self, fixture: EngineFixture) -> None:
        await put_dead(fixture, 10)
        await start(fixture, rate=Rate(1, 1.0))
        await advance(fixture)
        paused = await fixture.engine.change_operation("op", PAUSE, OPERATION)
        assert (paused.state, paused.version) == ("paused", 2)
        fixture.clock.advance(10)
        assert (await advance(fixture)).acted == 1
        await fixture.engine.change_operation("op", RESUME, OPERATION)
        assert (await advance(fixture)).acted == 2
        for stale in (-1, 2, 4):
            changed = OperationChange(without_rate=True, version=stale)
            with pytest.raises(ChangedMeanwhile, match="op"):
                await fixture.engine.change_operation("op", changed, OPERATION)
        faster = OperationChange(rate=Rate(5, 1.0), version=3)
        await fixture.engine.change_operation("op", faster, OPERATION)
        assert (await advance(fixture)).acted == 7
        done = await fixture.engine.change_operation("op", ABORT, OPERATION)
        assert (done.phase, done.note) == (Phase.ABORTED, "aborted by ann")
        fixture.clock.advance(10)
        assert (await advance(fixture)).acted == 7
        with pytest.raises(InvalidInput, match="aborted"):
            await fixture.engine.change_operation("op", RESUME, OPERATION)

    @on_engine
    async def test_it_waits_for_its_last_outcomes_but_not_for_ever(
        self, fixture: EngineFixture
    ) -> None:
        await put_dead(fixture, 2)
        await start(fixture, rate=Rate(10, 1.0))
        verifying = await advance(fixture)
        assert (verifying.phase, verifying.outstanding) == (Phase.VERIFYING, 2)
        await fixture.complete("j0000")
        assert (await advance(fixture)).phase is Phase.VERIFYING
        fixture.clock.advance(3_601)
        done = await advance(fixture)
        assert (done.phase, done.outstanding) == (Phase.COMPLETED, 1)
        assert "not finished" in done.note
