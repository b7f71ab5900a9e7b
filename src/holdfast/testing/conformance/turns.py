"""Rates, turns of tenants, and outages."""

from __future__ import annotations

import pytest

from holdfast.model.access import Caller
from holdfast.model.outcome import completed, dead, release
from holdfast.model.policy import Rate

from .fixture import FAILURE, OPERATION, EngineFixture, Suite, WaitingClaim, on_engine


class RateRules(Suite):
    """At most so many in so many seconds."""

    @on_engine
    async def test_a_rate_allows_a_burst_and_then_one_at_a_time(self, desk: EngineFixture) -> None:
        await desk.allow(rate=Rate(3, 30.0))
        await desk.put(*"abcdef")
        assert await desk.take_ids(2) == ["a", "b"]
        assert await desk.take_ids() == ["c"]
        desk.clock.advance(9.9)
        assert await desk.take_ids() == []
        desk.clock.advance(0.1)
        assert await desk.take_ids() == ["d"]

    @on_engine
    async def test_after_a_rest_there_is_a_whole_burst_again_and_no_more(
        self, desk: EngineFixture
    ) -> None:
        await desk.allow(rate=Rate(2, 20.0))
        await desk.put(*"abcdef")
        await desk.take(2)
        desk.clock.advance(10)
        assert await desk.take_ids() == ["c"]
        desk.clock.advance(500)
        assert await desk.take_ids() == ["d", "e"]

    @on_engine
    async def test_what_is_handed_back_has_used_the_rate(self, desk: EngineFixture) -> None:
        await desk.allow(rate=Rate(1, 10.0))
        await desk.put("a")
        await desk.settle(release((await desk.take())[0]))
        assert await desk.take_ids() == []
        desk.clock.advance(10)
        assert await desk.take_ids() == ["a"]

    @on_engine
    async def test_a_rate_counts_claims_not_jobs_in_flight(self, desk: EngineFixture) -> None:
        await desk.allow(rate=Rate(2, 10.0))
        await desk.put(*"abc")
        await desk.settle(*map(completed, await desk.take(2)))
        assert await desk.take_ids() == []

    @on_engine
    async def test_a_waiting_claim_is_woken_when_the_rate_allows_more(
        self, desk: EngineFixture
    ) -> None:
        await desk.allow(rate=Rate(2, 20.0))
        await desk.put(*"abc")
        await desk.take(2)
        waiting = WaitingClaim(desk)
        await waiting.still_waits()
        desk.clock.advance(10)
        assert await waiting.ids() == ["c"]


class OutageRules(Suite):
    """One at a time, until the outage is over."""

    @on_engine
    async def test_an_outage_lets_one_through_at_a_time(self, desk: EngineFixture) -> None:
        await desk.allow(outage_until_us=desk.clock.now_us() + 60_000_000)
        await desk.put(*"abc")
        [probe] = await desk.take(9)
        assert await desk.take_ids() == []
        await desk.settle(release(probe))
        [probe] = await desk.take(9)
        assert (probe.id, probe.attempt) == ("a", 1)
        await desk.settle(completed(probe))
        assert await desk.take_ids() == ["b"]

    @on_engine
    async def test_an_outage_passes_by_itself(self, desk: EngineFixture) -> None:
        await desk.allow(outage_until_us=desk.clock.now_us() + 60_000_000)
        await desk.put(*"abc")
        await desk.take()
        desk.clock.advance(60)
        assert await desk.take_ids() == ["b", "c"]

    @on_engine
    async def test_work_under_way_when_the_outage_begins_counts(self, desk: EngineFixture) -> None:
        await desk.put(*"abc")
        jobs = await desk.take(2)
        await desk.allow(outage_until_us=desk.clock.now_us() + 60_000_000)
        await desk.settle(dead(jobs[0], FAILURE))
        assert await desk.take_ids() == []
        await desk.settle(dead(jobs[1], FAILURE))
        assert await desk.take_ids() == ["c"]

    @pytest.mark.parametrize("end", ["settled", "passed", "lifted"])
    @on_engine
    async def test_a_waiting_claim_is_woken_when_more_is_let_through(
        self, desk: EngineFixture, end: str
    ) -> None:
        await desk.allow(outage_until_us=desk.clock.now_us() + 30_000_000)
        await desk.put(*"ab")
        [probe] = await desk.take()
        waiting = WaitingClaim(desk)
        await waiting.still_waits()
        if end == "settled":
            await desk.settle(completed(probe))
        elif end == "passed":
            desk.clock.advance(30)
        else:
            await desk.engine.set_policy("default", None, OPERATION)
        assert await waiting.ids() == ["b"]


class FairShareRules(Suite):
    """Tenants take turns."""

    @on_engine
    async def test_tenants_take_turns_one_job_each(self, desk: EngineFixture) -> None:
        await desk.allow(fair=True)
        await desk.put(*(f"big{number}" for number in range(5)), tenant="big")
        await desk.put("small0", "small1", tenant="small")
        await desk.put("tiny0", tenant="tiny")
        assert await desk.take_ids(8) == [
            *("big0", "small0", "tiny0", "big1", "small1", "big2", "big3", "big4")
        ]

    @on_engine
    async def test_turns_go_on_over_several_claims(self, desk: EngineFixture) -> None:
        await desk.allow(fair=True)
        await desk.put(*(f"big{number}" for number in range(4)), tenant="big")
        await desk.put("small0", "small1", tenant="small")
        order: list[str] = []
        while jobs := await desk.take():
            order += [job.id for job in jobs]
            await desk.settle(*map(completed, jobs))
        assert order == ["big0", "small0", "big1", "small1", "big2", "big3"]

    @on_engine
    async def test_one_tenant_with_many_jobs_delays_anothers_by_at_most_one_turn(
        self, desk: EngineFixture
    ) -> None:
        await desk.allow(fair=True)
        await desk.put(*(f"big{number}" for number in range(200)), tenant="big", priority=9)
        await desk.take(50)
        for number in range(3):
            desk.clock.advance(1)
            await desk.put(f"late{number}", tenant="late", priority=-9)
            assert f"late{number}" in await desk.take_ids(2)

    @on_engine
    async def test_priorities_count_inside_a_tenant_only(self, desk: EngineFixture) -> None:
        await desk.allow(fair=True)
        await desk.put("big_low", tenant="big")
        await desk.put("big_high", tenant="big", priority=5)
        await desk.put("big_higher", tenant="big", priority=9)
        await desk.put("small", tenant="small", priority=-5)
        assert await desk.take_ids() == ["big_higher", "small", "big_high", "big_low"]

    @on_engine
    async def test_without_fair_share_priorities_count_across_tenants(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("big1", "big2", tenant="big", priority=5)
        await desk.put("small", tenant="small")
        assert await desk.take_ids() == ["big1", "big2", "small"]

    @on_engine
    async def test_a_tenant_at_its_limit_misses_its_turn(self, desk: EngineFixture) -> None:
        await desk.allow(fair=True, max_per_tenant=2)
        await desk.put("big1", "big2", "big3", tenant="big")
        await desk.put("small1", tenant="small")
        assert await desk.take_ids() == ["big1", "small1", "big2"]

    @on_engine
    async def test_turns_and_keys_go_together(self, desk: EngineFixture) -> None:
        await desk.allow(fair=True)
        await desk.put("big1", "big2", tenant="big", key="k")
        await desk.put("big3", tenant="big")
        await desk.put("small1", tenant="small", key="k")
        assert await desk.take_ids() == ["big1", "small1", "big3"]

    @on_engine
    async def test_a_turn_is_taken_by_whoever_the_caller_reaches(self, desk: EngineFixture) -> None:
        await desk.allow(fair=True)
        await desk.put("big1", "big2", tenant="big")
        await desk.put("small1", tenant="small")
        assert await desk.take_ids(1, caller=Caller("big")) == ["big1"]
        assert await desk.take_ids(2) == ["small1", "big2"]
