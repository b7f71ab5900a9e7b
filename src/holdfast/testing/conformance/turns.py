"""Rates, and fair share between tenants."""

from __future__ import annotations

from holdfast.model.access import Caller
from holdfast.model.outcome import completed, release
from holdfast.model.policy import Rate

from .fixture import EngineFixture, Suite, WaitingClaim, on_engine


class RateRules(Suite):
    """At most N claims per period."""

    @on_engine
    async def test_a_rate_allows_a_burst_and_then_one_at_a_time(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.set_policy(rate=Rate(3, 30.0))
        await fixture.put(*"abcdef")
        assert await fixture.take_ids(2) == ["a", "b"]
        assert await fixture.take_ids() == ["c"]
        fixture.clock.advance(9.9)
        assert await fixture.take_ids() == []
        fixture.clock.advance(0.1)
        assert await fixture.take_ids() == ["d"]

    @on_engine
    async def test_after_a_rest_there_is_a_whole_burst_again_and_no_more(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.set_policy(rate=Rate(2, 20.0))
        await fixture.put(*"abcdef")
        await fixture.take(2)
        fixture.clock.advance(10)
        assert await fixture.take_ids() == ["c"]
        fixture.clock.advance(500)
        assert await fixture.take_ids() == ["d", "e"]

    @on_engine
    async def test_a_released_job_has_used_the_rate(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(rate=Rate(1, 10.0))
        await fixture.put("a")
        await fixture.settle(release((await fixture.take())[0]))
        assert await fixture.take_ids() == []
        fixture.clock.advance(10)
        assert await fixture.take_ids() == ["a"]

    @on_engine
    async def test_a_rate_counts_claims_not_jobs_in_flight(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(rate=Rate(2, 10.0))
        await fixture.put(*"abc")
        await fixture.settle(*map(completed, await fixture.take(2)))
        assert await fixture.take_ids() == []

    @on_engine
    async def test_a_waiting_claim_is_woken_when_the_rate_allows_more(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.set_policy(rate=Rate(2, 20.0))
        await fixture.put(*"abc")
        await fixture.take(2)
        waiting = WaitingClaim(fixture)
        await waiting.still_waits()
        fixture.clock.advance(10)
        assert await waiting.ids() == ["c"]


class FairShareRules(Suite):
    """Tenants take turns."""

    @on_engine
    async def test_tenants_take_turns_one_job_each(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(fair=True)
        await fixture.put(*(f"big{number}" for number in range(5)), tenant="big")
        await fixture.put("small0", "small1", tenant="small")
        await fixture.put("tiny0", tenant="tiny")
        assert await fixture.take_ids(8) == [
            *("big0", "small0", "tiny0", "big1", "small1", "big2", "big3", "big4")
        ]

    @on_engine
    async def test_turns_go_on_over_several_claims(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(fair=True)
        await fixture.put(*(f"big{number}" for number in range(4)), tenant="big")
        await fixture.put("small0", "small1", tenant="small")
        order: list[str] = []
        while jobs := await fixture.take():
            order += [job.id for job in jobs]
            await fixture.settle(*map(completed, jobs))
        assert order == ["big0", "small0", "big1", "small1", "big2", "big3"]

    @on_engine
    async def test_one_tenant_with_many_jobs_delays_anothers_by_at_most_one_turn(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.set_policy(fair=True)
        await fixture.put(*(f"big{number}" for number in range(200)), tenant="big", priority=9)
        await fixture.take(50)
        for number in range(3):
            fixture.clock.advance(1)
            await fixture.put(f"late{number}", tenant="late", priority=-9)
            assert f"late{number}" in await fixture.take_ids(2)

    @on_engine
    async def test_priorities_count_inside_a_tenant_only(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(fair=True)
        await fixture.put("big_low", tenant="big")
        await fixture.put("big_high", tenant="big", priority=5)
        await fixture.put("big_higher", tenant="big", priority=9)
        await fixture.put("small", tenant="small", priority=-5)
        assert await fixture.take_ids() == ["big_higher", "small", "big_high", "big_low"]

    @on_engine
    async def test_without_fair_share_priorities_count_across_tenants(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("big1", "big2", tenant="big", priority=5)
        await fixture.put("small", tenant="small")
        assert await fixture.take_ids() == ["big1", "big2", "small"]

    @on_engine
    async def test_a_tenant_at_its_limit_misses_its_turn(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(fair=True, max_per_tenant=2)
        await fixture.put("big1", "big2", "big3", tenant="big")
        await fixture.put("small1", tenant="small")
        assert await fixture.take_ids() == ["big1", "small1", "big2"]

    @on_engine
    async def test_fair_share_keeps_the_order_of_keys(self, fixture: EngineFixture) -> None:
        await fixture.set_policy(fair=True)
        await fixture.put("big1", "big2", tenant="big", key="k")
        await fixture.put("big3", tenant="big")
        await fixture.put("small1", tenant="small", key="k")
        assert await fixture.take_ids() == ["big1", "small1", "big3"]

    @on_engine
    async def test_only_tenants_that_the_caller_reaches_take_turns(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.set_policy(fair=True)
        await fixture.put("big1", "big2", tenant="big")
        await fixture.put("small1", tenant="small")
        assert await fixture.take_ids(1, caller=Caller("big")) == ["big1"]
        assert await fixture.take_ids(2) == ["small1", "big2"]
