"""Queue policies: limits, pauses and outages, changed at run time."""

from __future__ import annotations

import pytest

from holdfast.model.access import Caller
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import AccessDenied, ChangedMeanwhile, InvalidInput
from holdfast.model.outcome import completed, dead, release, retry
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy, Rate

from .fixture import FAILURE, OPERATION, EngineFixture, Suite, WaitingClaim, on_engine

LIMITED = QueuePolicy(max_in_flight=2)


class PolicyRules(Suite):
    """Every limit, alone and combined with others."""

    @on_engine
    async def test_a_policy_is_stored_until_it_is_removed(self, fixture: EngineFixture) -> None:
        assert await fixture.engine.policies() == {}
        await fixture.engine.set_policy("default", LIMITED, OPERATION)
        await fixture.engine.set_policy("mail", QueuePolicy(paused=True), OPERATION)
        assert await fixture.engine.policies() == {
            "default": LIMITED,
            "mail": QueuePolicy(paused=True),
        }
        await fixture.engine.set_policy("default", None, OPERATION)
        await fixture.engine.set_policy("mail", QueuePolicy(), OPERATION)
        assert await fixture.engine.policies() == {}

    @on_engine
    async def test_a_paused_queue_hands_out_nothing_and_others_go_on(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("held", priority=5)
        [running] = await fixture.take()
        await fixture.put("a")
        await fixture.put("b", queue="mail")
        await fixture.set_policy(paused=True)
        assert await fixture.take_ids(queues=["default", "mail"]) == ["b"]
        assert await fixture.settle(completed(running)) == [None]
        await fixture.engine.set_policy("default", None, OPERATION)
        assert await fixture.take_ids() == ["a"]

    @on_engine
    async def test_max_in_flight(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(max_in_flight=2)
        await fixture.put("a", "b", "c", "d")
        first, _second = await fixture.take(9)
        assert await fixture.take_ids() == []
        await fixture.settle(completed(first))
        assert await fixture.take_ids() == ["c"]

    @on_engine
    async def test_max_in_flight_counts_what_was_claimed_before_it(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", "b", "c", "d")
        jobs = await fixture.take(3)
        await fixture.set_policy(max_in_flight=2)
        await fixture.settle(completed(jobs[0]))
        assert await fixture.take_ids() == []
        await fixture.settle(completed(jobs[1]))
        assert await fixture.take_ids() == ["d"]

    @on_engine
    async def test_max_per_tenant_leaves_room_for_others(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(max_per_tenant=1)
        await fixture.put("big1", "big2", tenant="big", priority=5)
        await fixture.put("small1", "small2", tenant="small")
        assert await fixture.take_ids() == ["big1", "small1"]
        assert await fixture.take_ids() == []
        [job] = await fixture.engine.get(["big1"], tenant="big")
        assert job is not None
        await fixture.settle(completed(job))
        assert await fixture.take_ids() == ["big2"]

    @on_engine
    async def test_max_per_key_without_ordering(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(max_per_key=2, ordered=False)
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.put("b1", key="b")
        await fixture.put("free1", "free2", "free3")
        await fixture.put("acme", key="a", tenant="acme")
        expected = ["a1", "a2", "b1", "free1", "free2", "free3", "acme"]
        assert await fixture.take_ids() == expected
        await fixture.settle(completed(await fixture.job("a2")))
        assert await fixture.take_ids() == ["a3"]

    @on_engine
    async def test_max_per_key_does_not_lift_the_ordering(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(max_per_key=2)
        await fixture.put("a1", "a2", key="a")
        assert await fixture.take_ids() == ["a1"]

    @on_engine
    async def test_limits_combine(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(
            max_in_flight=4, max_per_tenant=3, max_per_key=1, rate=Rate(5, 60.0), ordered=False
        )
        await fixture.put("a1", "a2", key="a", tenant="x")
        await fixture.put("x1", "x2", "x3", tenant="x")
        await fixture.put("y1", "y2", tenant="y")
        jobs = await fixture.take(9)
        assert [job.id for job in jobs] == ["a1", "x1", "x2", "y1"]
        await fixture.settle(*map(completed, jobs))
        assert await fixture.take_ids() == ["a2"], "the fifth of the minute"

    @on_engine
    async def test_a_queue_at_its_limit_does_not_hold_up_another(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.set_policy("slow", max_in_flight=1)
        await fixture.put("s1", "s2", queue="slow", priority=5)
        await fixture.put("a", "b")
        assert await fixture.take_ids(queues=["slow", "default"]) == ["s1", "a", "b"]

    @on_engine
    async def test_a_limit_counts_jobs_that_the_caller_does_not_reach(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.set_policy(max_in_flight=1)
        await fixture.put("theirs", tenant="other")
        await fixture.put("ours", tenant="acme")
        await fixture.take(1, caller=Caller("other"))
        assert await fixture.take_ids(caller=Caller("acme")) == []

    @pytest.mark.parametrize("end", ["completed", "dead", "retry", "release", "lost"])
    @on_engine
    async def test_a_waiting_claim_is_woken_when_a_place_gets_free(
        self, fixture: EngineFixture, end: str
    ) -> None:
        await fixture.set_policy(max_in_flight=1)
        await fixture.put("a", task="other")
        await fixture.put("b")
        [job] = await fixture.take()
        waiting = WaitingClaim(fixture, tasks=["t"])
        await waiting.still_waits()
        if end == "lost":
            await fixture.engine.reclaim(forced=[job])
        else:
            await fixture.settle(
                {
                    "completed": completed(job),
                    "dead": dead(job, FAILURE),
                    "retry": retry(job, FAILURE, 5),
                    "release": release(job),
                }[end]
            )
        assert await waiting.ids() == ["b"]

    @pytest.mark.parametrize("after", [None, QueuePolicy(max_in_flight=2)])
    @pytest.mark.parametrize("before", [QueuePolicy(paused=True), QueuePolicy(max_in_flight=1)])
    @on_engine
    async def test_a_waiting_claim_is_woken_when_more_is_allowed(
        self, fixture: EngineFixture, before: QueuePolicy, after: QueuePolicy | None
    ) -> None:
        await fixture.put("a", "b")
        await fixture.take()
        await fixture.engine.set_policy("default", before, OPERATION)
        waiting = WaitingClaim(fixture)
        await waiting.still_waits()
        await fixture.engine.set_policy("default", after, OPERATION)
        assert await waiting.ids() == ["b"]

    @on_engine
    async def test_a_stale_expected_value_does_not_overwrite_a_change(
        self, fixture: EngineFixture
    ) -> None:
        engine = fixture.engine
        await engine.set_policy("default", LIMITED, OPERATION, expected=DEFAULT_POLICY)
        for expected in (DEFAULT_POLICY, QueuePolicy(paused=True)):
            with pytest.raises(ChangedMeanwhile):
                await engine.set_policy("default", None, OPERATION, expected=expected)
        assert await engine.policies() == {"default": LIMITED}
        await engine.set_policy("default", None, OPERATION, expected=LIMITED)
        assert await engine.policies() == {}
        daily, weekly = (
            ScheduleState("0 0 * * *", "UTC", "t", "default", paused=paused)
            for paused in (False, True)
        )
        await engine.set_schedule("s", daily, OPERATION)
        with pytest.raises(ChangedMeanwhile):
            await engine.set_schedule("s", daily, OPERATION, expected=weekly)
        await engine.set_schedule("s", weekly, OPERATION, expected=daily)
        assert await engine.schedules() == {"s": weekly}

    @on_engine
    async def test_a_limited_caller_may_not_set_policies(self, fixture: EngineFixture) -> None:
        for caller in (Caller("acme"), Caller(None, ("library:42",))):
            with pytest.raises(AccessDenied):
                await fixture.engine.set_policy("default", LIMITED, OPERATION, caller=caller)
        assert await fixture.engine.policies() == {}

    @pytest.mark.parametrize(
        ("policy", "field"),
        [
            (QueuePolicy(paused=1), "paused"),  # type: ignore[arg-type]
            (QueuePolicy(fair="yes"), "fair"),  # type: ignore[arg-type]
            (QueuePolicy(ordered=None), "ordered"),  # type: ignore[arg-type]
            (QueuePolicy(max_in_flight=0), "max_in_flight"),
            (QueuePolicy(max_in_flight=True), "max_in_flight"),
            (QueuePolicy(max_per_tenant=-1), "max_per_tenant"),
            (QueuePolicy(max_per_key=1.5), "max_per_key"),  # type: ignore[arg-type]
            (QueuePolicy(rate=Rate(0, 1.0)), "rate"),
            (QueuePolicy(rate=Rate(1, 0.0)), "rate"),
            (QueuePolicy(rate=Rate(1, float("nan"))), "rate"),
            (QueuePolicy(rate="10/minute"), "rate"),  # type: ignore[arg-type]
            (QueuePolicy(outage_until_us=-1), "outage_until_us"),
            ({"paused": True}, "policy"),
        ],
    )
    @on_engine
    async def test_a_bad_policy_is_refused_and_the_old_one_stays(
        self, fixture: EngineFixture, policy: QueuePolicy, field: str
    ) -> None:
        await fixture.engine.set_policy("default", LIMITED, OPERATION)
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.set_policy("default", policy, OPERATION)
        assert refused.value.field == field
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.set_policy("", LIMITED, OPERATION)
        assert refused.value.field == "queue"
        assert await fixture.engine.policies() == {"default": LIMITED}
