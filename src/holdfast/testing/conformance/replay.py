"""Replaying dead letters."""

from __future__ import annotations

import pytest

from holdfast.engines.contract import AdminResult
from holdfast.model.access import Caller
from holdfast.model.actions import ArchiveJobs, CancelJobs, ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import IllegalTransition, InvalidInput, JobNotFound
from holdfast.model.failure import FailureClass
from holdfast.model.job import Replays, State
from holdfast.model.outcome import retry

from .fixture import (
    FAILURE,
    OPERATION,
    WRONG,
    EngineFixture,
    Suite,
    WaitingClaim,
    named,
    on_engine,
    wanted,
)


def ids(done: AdminResult) -> list[str]:
    """Return the ids of the affected jobs."""
    return [job.id for job in done.jobs]


class ReplayRules(Suite):
    """Which jobs a replay takes, and what it changes."""

    @on_engine
    async def test_a_replayed_job_runs_now_under_its_own_id(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a", priority=3, scope="library:42")
        before = await fixture.job("a")
        fixture.clock.advance(100)
        done = await fixture.engine.operate(ReplayJobs(), named("a"), OPERATION)
        assert done == AdminResult([await fixture.job("a")])
        job = done.jobs[0]
        assert (job.state, job.run_at_us) == (State.PENDING, fixture.clock.now_us())
        assert (job.worker, job.claimed_at_us, job.lease_until_us) == ("", 0, 0)
        assert (job.finished_at_us, job.failure) == (0, before.failure)
        assert (job.created_at_us, job.priority) == (before.created_at_us, 3)
        assert job.arguments() == {"n": 1}
        [again] = await fixture.take()
        assert again.token > before.token

    @on_engine
    async def test_the_attempt_count_stays_and_the_budget_is_fresh(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", max_attempts=2)
        for attempt in (1, 2, 3, 4):
            if attempt == 3:
                await fixture.engine.operate(ReplayJobs(), named("a"), OPERATION)
            [job] = await fixture.take()
            assert job.attempt == attempt
            await fixture.settle(retry(job, FAILURE))
        job = await fixture.job("a")
        assert (job.state, job.attempt) == (State.DEAD, 4)

    @on_engine
    async def test_a_replay_resets_the_loss_count(self, fixture: EngineFixture) -> None:
        await fixture.put("a", max_attempts=9)
        for _loss in range(3):
            await fixture.take()
            await fixture.expire_leases()
        assert await fixture.state("a") is State.DEAD
        [job] = (await fixture.engine.operate(ReplayJobs(), named("a"), OPERATION)).jobs
        assert (job.losses, job.attempt) == (0, 3)

    @on_engine
    async def test_a_replay_records_actor_reason_time_count_and_run(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a")
        await fixture.engine.operate(ReplayJobs(run="run7"), named("a"), OPERATION)
        job = await fixture.job("a")
        first = Replays(1, fixture.clock.now_us(), "ann", OPERATION.why, "run7")
        assert job.replays == first
        await fixture.dead_letter("a")
        assert (await fixture.job("a")).replays == first
        assert await fixture.find(replay_run="run7") == ["a"]
        fixture.clock.advance(5)
        await fixture.engine.operate(ReplayJobs(), named("a"), Attribution("bob", "once more"))
        again = (await fixture.job("a")).replays
        assert again == Replays(2, fixture.clock.now_us(), "bob", "once more")

    @pytest.mark.parametrize("other", ["pending", "blocked", "flying", "done", "gone", "aside"])
    @on_engine
    async def test_a_job_that_is_not_dead_refuses_the_whole_call(
        self, fixture: EngineFixture, other: str
    ) -> None:
        await fixture.put("flying", "done", "gone", "aside", "dead", "pending")
        await fixture.put("blocked", hold=True)
        await fixture.take()
        await fixture.complete("done")
        await fixture.engine.operate(CancelJobs(), named("gone"), OPERATION)
        await fixture.dead_letter("aside", "dead")
        await fixture.engine.operate(ArchiveJobs(), named("aside"), OPERATION)
        before = await fixture.engine.get(["dead", other])
        with pytest.raises(IllegalTransition) as refused:
            await fixture.engine.operate(ReplayJobs(), named("dead", other), OPERATION)
        assert (refused.value.job_id, refused.value.move) == (other, "replay")
        assert await fixture.engine.get(["dead", other]) == before

    @on_engine
    async def test_an_unknown_id_refuses_the_whole_call(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a")
        with pytest.raises(JobNotFound) as refused:
            await fixture.engine.operate(ReplayJobs(), named("a", "nobody"), OPERATION)
        assert refused.value.job_id == "nobody"
        assert await fixture.state("a") is State.DEAD

    @on_engine
    async def test_a_job_outside_the_callers_reach_cannot_be_replayed(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a", tenant="acme", scope="library:42")
        await fixture.put_dead("b", tenant="acme", scope="library:43")
        for caller in (Caller("other"), Caller("acme", ("library:42",))):
            with pytest.raises(JobNotFound):
                await fixture.engine.operate(
                    ReplayJobs(), named("a", "b"), OPERATION, caller=caller
                )
        done = await fixture.engine.operate(
            ReplayJobs(), wanted(), OPERATION, caller=Caller("acme", ("library:42",))
        )
        assert ids(done) == ["a"]
        assert await fixture.find(states=(State.DEAD,)) == ["b"]

    @on_engine
    async def test_a_limit_takes_the_oldest_first_and_reports_more(
        self, fixture: EngineFixture
    ) -> None:
        for name in ("c", "b", "a", "d"):
            await fixture.put_dead(name)
            fixture.clock.advance(1)
        first = await fixture.engine.operate(ReplayJobs(), wanted(), OPERATION, limit=3)
        assert (ids(first), first.more) == (["c", "b", "a"], True)
        last = await fixture.engine.operate(ReplayJobs(), wanted(), OPERATION, limit=3)
        assert (ids(last), last.more) == (["d"], False)
        assert await fixture.engine.operate(ReplayJobs(), wanted(), OPERATION) == AdminResult([])

    @on_engine
    async def test_a_limit_applies_to_named_ids_too(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a", "b", "c", "d")
        with pytest.raises(JobNotFound):
            await fixture.engine.operate(ReplayJobs(), named(*"abcdx"), OPERATION, limit=2)
        done = await fixture.engine.operate(ReplayJobs(), named(*"dcba"), OPERATION, limit=2)
        assert (ids(done), done.more) == (["a", "b"], True)
        assert await fixture.find(states=(State.DEAD,)) == ["c", "d"]

    @on_engine
    async def test_more_than_a_page_is_replayed_in_one_call(self, fixture: EngineFixture) -> None:
        names = [f"j{number:04}" for number in range(1_200)]
        await fixture.put_dead(*names)
        done = await fixture.engine.operate(ReplayJobs(), wanted(), OPERATION, limit=1_100)
        assert (ids(done), done.more) == (names[:1_100], True)
        assert (await fixture.counts()).pending == 1_100

    @on_engine
    async def test_a_filter_picks_by_reason_class_queue_tenant_scope_and_time(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("old")
        fixture.clock.advance(100)
        await fixture.put_dead("good", tenant="acme", scope="library:42/book:7")
        await fixture.put_dead("elsewhere", queue="mail")
        await fixture.put("pending")
        done = await fixture.engine.operate(
            ReplayJobs(),
            wanted(
                error_reasons=("upstream_5xx",),
                classes=(FailureClass.TRANSIENT,),
                queues=("default",),
                tenant="acme",
                scope="library:42",
                finished_from_us=fixture.clock.now_us(),
            ),
            OPERATION,
        )
        assert ids(done) == ["good"]

    @on_engine
    async def test_deterministic_failures_are_kept_and_counted_unless_a_fix_is_named(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("wrong1", "wrong2", failure=WRONG)
        await fixture.put_dead("slow")
        done = await fixture.engine.operate(ReplayJobs(), wanted(), OPERATION, limit=1)
        assert (ids(done), done.kept, done.more) == (["slow"], 2, False)
        done = await fixture.engine.operate(ReplayJobs(), named("wrong1"), OPERATION)
        assert (ids(done), done.kept) == ([], 1)
        done = await fixture.engine.operate(
            ReplayJobs(fixed="the column is there"), wanted(), OPERATION
        )
        assert (ids(done), done.kept) == (["wrong1", "wrong2"], 0)
        [note] = (await fixture.history("wrong1")).notes
        assert "the column is there" in note.text
        assert OPERATION.why in note.text

    @on_engine
    async def test_a_filter_for_deterministic_failures_replays_no_others(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("wrong", failure=WRONG)
        await fixture.put_dead("slow")
        only = wanted(classes=(FailureClass.DETERMINISTIC,))
        done = await fixture.engine.operate(ReplayJobs(), only, OPERATION)
        assert done == AdminResult([], kept=1)
        assert (await fixture.counts()).dead == 2

    @on_engine
    async def test_a_dead_job_whose_unique_key_is_taken_is_not_replayed(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a", unique="k")
        await fixture.put_dead("b", unique="k")
        await fixture.put_dead("other")
        done = await fixture.engine.operate(ReplayJobs(), wanted(), OPERATION, limit=2)
        assert (ids(done), done.kept) == (["a", "other"], 1)
        done = await fixture.engine.operate(ReplayJobs(), named("b"), OPERATION)
        assert (ids(done), done.kept) == ([], 1)
        assert await fixture.state("b") is State.DEAD
        await fixture.complete("a", "other")
        assert ids(await fixture.engine.operate(ReplayJobs(), named("b"), OPERATION)) == ["b"]

    @on_engine
    async def test_a_replayed_job_holds_its_unique_key_again(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a", unique="k")
        await fixture.engine.operate(ReplayJobs(), named("a"), OPERATION)
        assert await fixture.put("b", unique="k") == ["a"]

    @on_engine
    async def test_a_waiting_claim_is_woken_by_a_replay(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a")
        waiting = WaitingClaim(fixture)
        await waiting.still_waits()
        await fixture.engine.operate(ReplayJobs(), wanted(), OPERATION)
        assert await waiting.ids() == ["a"]

    @on_engine
    async def test_a_filter_for_other_states_is_refused(self, fixture: EngineFixture) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.operate(ReplayJobs(), wanted(states=(State.PENDING,)), OPERATION)
        assert refused.value.field == "states"
