"""Several jobs of one key in one claim: their order, and what ends them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.engines.contract import MAX_CLAIM
from holdfast.model.access import Caller
from holdfast.model.actions import CancelJobs
from holdfast.model.errors import InvalidInput, LeaseLost
from holdfast.model.job import Edit, Job, State
from holdfast.model.outage import DependencyReport
from holdfast.model.outcome import (
    Outcome,
    cancelled,
    completed,
    dead,
    lost,
    release,
    retry,
    snooze,
)

from .fixture import FAILURE, OPERATION, EngineFixture, Suite, WaitingClaim, named, on_engine

RETURNS: dict[str, Callable[[Job], Outcome]] = {
    "retry": lambda job: retry(job, FAILURE, 5),
    "snooze": lambda job: snooze(job, 5),
    "dead": lambda job: dead(job, FAILURE),
    "release": release,
}
"""What returns a job to its queue or makes it dead: those behind it must not stay in flight."""


class ChainRules(Suite):
    """What a claim with ``chain`` hands out."""

    @on_engine
    async def test_a_chain_takes_a_key_in_its_order(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", "a4", key="a")
        assert await fixture.take_ids(10, chain=3) == ["a1", "a2", "a3"]
        assert await fixture.take_ids(10, chain=3) == [], "the key is in flight"

    @on_engine
    async def test_without_chain_only_the_first_of_a_key_is_claimed(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", key="a")
        assert await fixture.take_ids(10) == ["a1"]

    @on_engine
    async def test_the_first_of_all_keys_go_before_the_second_of_any(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.put("b1", "b2", key="b")
        await fixture.put("free")
        assert await fixture.take_ids(3, chain=10) == ["a1", "b1", "free"]

    @on_engine
    async def test_what_room_is_left_is_filled_key_by_key(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.put("b1", "b2", key="b")
        await fixture.put("free")
        assert await fixture.take_ids(6, chain=3) == ["a1", "a2", "a3", "b1", "b2", "free"]

    @on_engine
    async def test_a_chain_is_cut_where_the_limit_is(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.put("b1", "b2", key="b")
        assert await fixture.take_ids(4, chain=10) == ["a1", "a2", "a3", "b1"]

    @on_engine
    async def test_a_chain_goes_by_its_key_whatever_the_priority(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", key="a", priority=-5)
        await fixture.put("a2", key="a", priority=5)
        await fixture.put("free")
        assert await fixture.take_ids(10, chain=10) == ["free", "a1", "a2"]

    @on_engine
    async def test_tokens_of_a_chain_rise(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        tokens = [job.token for job in await fixture.take(10, chain=10)]
        assert tokens == sorted(set(tokens)), "each has its own"
        assert len(tokens) == 3

    @on_engine
    async def test_a_chain_does_not_cross_another_task(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", key="a")
        await fixture.put("a2", key="a", task="other")
        await fixture.put("a3", key="a")
        assert await fixture.take_ids(10, chain=10) == ["a1"]

    @on_engine
    async def test_a_chain_does_not_cross_a_job_that_is_not_due(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", key="a")
        await fixture.put("a2", key="a", delay_seconds=60)
        await fixture.put("a3", key="a")
        assert await fixture.take_ids(10, chain=10) == ["a1"]

    @on_engine
    async def test_a_chain_does_not_cross_a_blocked_job(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", key="a")
        await fixture.put("a2", key="a", hold=True)
        await fixture.put("a3", key="a")
        assert await fixture.take_ids(10, chain=10) == ["a1"]

    @on_engine
    async def test_a_chain_does_not_cross_an_expired_job(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", key="a")
        await fixture.put("a2", key="a", expires_seconds=5)
        await fixture.put("a3", key="a")
        fixture.clock.advance(6)
        assert await fixture.take_ids(10, chain=10) == ["a1"]

    @on_engine
    async def test_a_chain_does_not_cross_tenants_or_queues(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", key="a")
        await fixture.put("a1", key="a", tenant="acme")
        await fixture.put("other1", "other2", key="a", queue="other")
        assert await fixture.take_ids(10, chain=10) == ["a1", "a1"]

    @on_engine
    async def test_a_chain_does_not_leave_the_reach_of_its_caller(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", key="a", scope="library:1")
        await fixture.put("a2", key="a", scope="library:2")
        await fixture.put("a3", key="a", scope="library:1")
        caller = Caller("default", ("library:1",))
        assert await fixture.take_ids(10, chain=10, caller=caller) == ["a1"]

    @on_engine
    async def test_a_chain_does_not_cross_a_dead_job(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        jobs = await fixture.take(10, chain=2)
        await fixture.settle(completed(jobs[0]), dead(jobs[1], FAILURE))
        assert await fixture.take_ids(10, chain=10) == []

    @on_engine
    async def test_a_job_with_a_failure_is_claimed_alone(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.settle(retry((await fixture.take())[0], FAILURE))
        [first] = await fixture.take(10, chain=10)
        assert first.id == "a1"
        await fixture.settle(completed(first))
        assert await fixture.take_ids(10, chain=10) == ["a2", "a3"]

    @pytest.mark.parametrize(
        "limit", ["max_in_flight", "max_per_tenant", "max_per_key", "fair", "ordered"]
    )
    @on_engine
    async def test_a_queue_with_limits_has_no_chains(
        self, fixture: EngineFixture, limit: str
    ) -> None:
        await fixture.put("a1", "a2", key="a")
        value = {"fair": True, "ordered": False}.get(limit, 5)
        await fixture.set_policy("default", **{limit: value})
        expected = ["a1", "a2"] if limit == "ordered" else ["a1"]
        jobs = await fixture.take(10, chain=10)
        assert [job.id for job in jobs] == expected
        if limit == "ordered":
            assert await fixture.settle(completed(jobs[1]), completed(jobs[0])) == [None, None]

    @on_engine
    async def test_a_queue_with_an_outage_has_no_chains(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        report = DependencyReport("default", tripped=True, failure=FAILURE)
        await fixture.engine.report_outage([report])
        fixture.clock.advance(60)
        assert await fixture.take_ids(10, chain=10) == ["a1"], "as a probe"

    @pytest.mark.parametrize("chain", [0, -1, MAX_CLAIM + 1, "2", 1.5, None, True])
    @on_engine
    async def test_a_bad_chain_is_refused(self, fixture: EngineFixture, chain: object) -> None:
        with pytest.raises(InvalidInput, match="chain"):
            await fixture.take(10, chain=chain)

    @on_engine
    async def test_a_waiting_claim_gets_a_chain(self, fixture: EngineFixture) -> None:
        await fixture.put("a0", key="a")
        [first] = await fixture.take()
        waiting = WaitingClaim(fixture, chain=10)
        await fixture.put("a1", "a2", key="a")
        await waiting.still_waits()
        await fixture.settle(completed(first))
        assert await waiting.ids() == ["a1", "a2"]


class ChainSettleRules(Suite):
    """How the jobs of a chain end: the order of their key is kept, whatever a worker sends."""

    @on_engine
    async def test_a_chain_is_completed_in_one_call(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", "a4", key="a")
        jobs = await fixture.take(10, chain=3)
        answer = await fixture.claim(limit=10, chain=3, settle=[completed(job) for job in jobs])
        assert answer.settled == [None] * 3
        assert [job.id for job in answer.jobs] == ["a4"]

    @on_engine
    async def test_a_chain_is_completed_one_after_another(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        for job in await fixture.take(10, chain=3):
            assert await fixture.settle(completed(job, b'"done"')) == [None]
            assert (await fixture.job(job.id)).result == b'"done"'
        assert (await fixture.counts()).completed == 3

    @on_engine
    async def test_a_later_one_cannot_end_before_an_earlier_one(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", key="a")
        first, second = await fixture.take(10, chain=2)
        refused = fixture.engine.leases_refused
        for outcome in (completed(second), cancelled(second), dead(second, FAILURE)):
            assert isinstance((await fixture.settle(outcome))[0], LeaseLost)
        assert fixture.engine.leases_refused == refused + 3
        assert await fixture.settle(completed(first), completed(second)) == [None, None]

    @on_engine
    async def test_the_order_of_the_outcomes_counts(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        first, second, third = await fixture.take(10, chain=3)
        answers = await fixture.settle(completed(second), completed(first), completed(third))
        assert [answer is None for answer in answers] == [False, True, False]
        assert await fixture.state("a2") is State.IN_FLIGHT

    @pytest.mark.parametrize("needed", ["a1", "a2", "a3"])
    @on_engine
    async def test_the_order_counts_also_where_a_job_waits_for_one(
        self, fixture: EngineFixture, needed: str
    ) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.put("later", depends_on=(needed,))
        first, second, third = await fixture.take(10, chain=3)
        answers = await fixture.settle(completed(second), completed(first), completed(third))
        assert [answer is None for answer in answers] == [False, True, False]
        assert await fixture.settle(completed(second), completed(third)) == [None, None]
        assert await fixture.take_ids() == ["later"]

    @pytest.mark.parametrize("ending", RETURNS)
    @on_engine
    async def test_when_one_returns_those_behind_it_are_released(
        self, fixture: EngineFixture, ending: str
    ) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        first, second, third = await fixture.take(10, chain=3)
        assert await fixture.settle(completed(first), RETURNS[ending](second)) == [None, None]
        job = await fixture.job("a3")
        assert (job.state, job.attempt, job.losses) == (State.PENDING, 0, 0), "it is not charged"
        assert isinstance((await fixture.settle(completed(third)))[0], LeaseLost)

    @pytest.mark.parametrize("ending", RETURNS)
    @on_engine
    async def test_a_later_one_in_the_same_call_does_not_end_either(
        self, fixture: EngineFixture, ending: str
    ) -> None:
        await fixture.put("a1", "a2", key="a")
        first, second = await fixture.take(10, chain=2)
        answers = await fixture.settle(RETURNS[ending](first), completed(second))
        assert answers[0] is None
        assert isinstance(answers[1], LeaseLost)
        assert await fixture.state("a2") is State.PENDING

    @pytest.mark.parametrize("order", [1, -1])
    @on_engine
    async def test_a_worker_may_release_what_is_behind_a_failure(
        self, fixture: EngineFixture, order: int
    ) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        first, second, third = await fixture.take(10, chain=3)
        outcomes = [retry(first, FAILURE, 5), release(second), release(third)]
        assert await fixture.settle(*outcomes[::order]) == [None] * 3
        assert [(await fixture.job(one)).attempt for one in ("a1", "a2", "a3")] == [1, 0, 0]
        assert await fixture.take_ids(10, chain=3) == []
        fixture.clock.advance(5)
        assert await fixture.take_ids(10, chain=3) == ["a1"]

    @on_engine
    async def test_one_that_is_lost_takes_those_behind_it_along(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        _first, second, _third = await fixture.take(10, chain=3)
        assert await fixture.settle(lost(second, "killed")) == [None]
        states = [(await fixture.job(one)).state for one in ("a1", "a2", "a3")]
        assert states == [State.IN_FLIGHT, State.PENDING, State.PENDING]
        assert [(await fixture.job(one)).losses for one in ("a1", "a2", "a3")] == [0, 1, 1]

    @on_engine
    async def test_a_whole_chain_may_be_lost_at_once(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        jobs = await fixture.take(10, chain=3)
        assert await fixture.settle(*(lost(job, "killed") for job in jobs)) == [None] * 3
        assert [(await fixture.job(job.id)).losses for job in jobs] == [1, 1, 1]

    @on_engine
    async def test_a_cancelled_one_lets_those_behind_it_go_on(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        first, second = await fixture.take(10, chain=2)
        await fixture.engine.operate(CancelJobs(), named("a1"), OPERATION)
        assert await fixture.settle(release(first)) == [None]
        assert await fixture.state("a1") is State.CANCELLED
        assert await fixture.settle(completed(second)) == [None]

    @on_engine
    async def test_a_reclaimed_one_takes_those_behind_it_along(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        first, second, third = await fixture.take(10, chain=3)
        await fixture.settle(completed(first))
        lost_jobs = (await fixture.engine.reclaim(forced=[second])).lost
        assert sorted(job.id for job in lost_jobs) == ["a2", "a3"]
        assert isinstance((await fixture.settle(completed(third)))[0], LeaseLost)
        assert await fixture.take_ids(10, chain=3) == ["a2"]

    @on_engine
    async def test_a_lease_that_ends_first_ends_those_behind_it(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        first, second, third = await fixture.take(10, chain=3, lease_seconds=10)
        await fixture.engine.extend([first, third], lease_seconds=60)
        fixture.clock.advance(11)
        found = (await fixture.engine.reclaim()).lost
        assert sorted(job.id for job in found) == ["a2", "a3"]
        assert await fixture.settle(completed(first)) == [None]
        assert isinstance((await fixture.settle(completed(second)))[0], LeaseLost)

    @on_engine
    async def test_all_of_a_chain_are_extended(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        jobs = await fixture.take(10, chain=2, lease_seconds=10)
        fixture.clock.advance(5)
        answers = await fixture.engine.extend(jobs, lease_seconds=30)
        assert not any(isinstance(answer, LeaseLost) for answer in answers)
        fixture.clock.advance(20)
        assert (await fixture.engine.reclaim()).lost == []

    @on_engine
    async def test_jobs_claimed_without_order_end_in_any_order(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.set_policy(ordered=False)
        first, second = await fixture.take(2)
        await fixture.engine.set_policy("default", None, OPERATION)
        await fixture.engine.extend([first, second], lease_seconds=30)
        assert await fixture.settle(completed(second), completed(first)) == [None, None]

    @on_engine
    async def test_dependents_of_a_chain_are_freed(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.put("b", depends_on=("a1", "a2"))
        jobs = await fixture.take(10, chain=2)
        assert await fixture.settle(*map(completed, jobs)) == [None, None]
        assert await fixture.take_ids() == ["b"]

    @on_engine
    async def test_an_edited_job_is_claimed_with_its_chain(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.engine.edit(await fixture.job("a2"), Edit(payload=b'{"n":2}'), OPERATION)
        jobs = await fixture.take(10, chain=2)
        assert [job.id for job in jobs] == ["a1", "a2"]
        assert jobs[1].payload == b'{"n":2}'

    @on_engine
    async def test_a_long_chain_in_small_parts(self, fixture: EngineFixture) -> None:
        ids = [f"a{number:03}" for number in range(200)]
        await fixture.put(*ids, key="a")
        seen: list[str] = []
        settle: list[Outcome] = []
        while True:
            answer = await fixture.claim(limit=32, chain=32, settle=settle)
            assert answer.settled == [None] * len(settle)
            if not answer.jobs:
                break
            seen += [job.id for job in answer.jobs]
            settle = [completed(job) for job in answer.jobs]
        assert seen == ids

    @on_engine
    async def test_completing_one_of_several_keys_leaves_the_others(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.put("b1", "b2", key="b")
        a1, a2, b1, b2 = await fixture.take(10, chain=2)
        answers = await fixture.settle(completed(b1), completed(a2), completed(b2))
        assert [answer is None for answer in answers] == [True, False, True]
        assert await fixture.state("a1") is State.IN_FLIGHT
        assert await fixture.state("a2") is State.IN_FLIGHT
        assert await fixture.settle(completed(a1), completed(a2)) == [None, None]
