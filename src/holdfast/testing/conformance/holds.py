"""A dead one in a key: it holds what is behind it until a person has decided."""

from __future__ import annotations

import pytest

from holdfast.model.actions import (
    AnyAction,
    ArchiveJobs,
    CancelJobs,
    PurgeJobs,
    ReplayJobs,
    RestoreJobs,
)
from holdfast.model.job import State
from holdfast.model.outcome import completed, retry

from .fixture import FAILURE, OPERATION, EngineFixture, Suite, WaitingClaim, named, on_engine


class HoldRules(Suite):
    """What a dead job of a key does to the others of it."""

    @on_engine
    async def test_a_dead_one_holds_what_is_behind_it(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.bury("a1")
        await fixture.put("a4", key="a")
        await fixture.put("free")
        assert await fixture.take_ids() == ["free"]
        assert (await fixture.counts()).pending == 3

    @on_engine
    async def test_one_whose_attempts_are_used_up_holds_as_well(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", key="a", max_attempts=1)
        await fixture.settle(retry((await fixture.take())[0], FAILURE))
        assert await fixture.state("a1") is State.DEAD
        assert await fixture.take_ids() == []

    @on_engine
    async def test_a_dead_one_does_not_hold_what_is_before_it(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", key="a")
        await fixture.put("a2", key="a", expires_seconds=5)
        await fixture.put("a3", key="a")
        fixture.clock.advance(5)
        assert [job.id for job in (await fixture.engine.reclaim()).expired] == ["a2"]
        assert (await fixture.group()).held_behind == 1
        await fixture.work_off("a1")
        assert await fixture.take_ids() == []

    @on_engine
    async def test_other_keys_tenants_and_queues_are_not_held(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.bury("a1")
        await fixture.put("b1", key="b")
        await fixture.put("acme", key="a", tenant="acme")
        await fixture.put("mail", key="a", queue="mail")
        assert await fixture.take_ids(queues=["default", "mail"]) == ["b1", "acme", "mail"]

    @on_engine
    async def test_what_is_held_can_be_counted(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.put("a3", key="a", delay_seconds=60)
        await fixture.put("a4", key="a", hold=True)
        await fixture.bury("a1")
        assert (await fixture.group()).held_behind == 3
        await fixture.engine.operate(CancelJobs(), named("a2"), OPERATION)
        assert (await fixture.group()).held_behind == 2
        await fixture.put("a5", key="a")
        assert (await fixture.group()).held_behind == 3

    @on_engine
    async def test_what_is_behind_several_dead_ones_is_counted_once(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", key="a", expires_seconds=5)
        await fixture.put("b1", key="b", expires_seconds=5)
        await fixture.put("a3", key="a")
        await fixture.put("b2", key="b")
        fixture.clock.advance(5)
        await fixture.engine.reclaim()
        group = await fixture.group()
        assert (group.count, group.held_behind) == (3, 2)

    @on_engine
    async def test_nothing_is_held_without_ordering(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.bury("a1")
        await fixture.allow(ordered=False)
        assert (await fixture.group()).held_behind == 0
        await fixture.work_off("a2")
        await fixture.allow(ordered=True)
        assert (await fixture.group()).held_behind == 1
        assert await fixture.take_ids() == []

    @on_engine
    async def test_a_replayed_one_is_first_in_its_key_again(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.bury("a1")
        fixture.clock.advance(5)
        await fixture.put("a3", key="a")
        await fixture.engine.operate(ReplayJobs(), named("a1"), OPERATION)
        for job_id in ("a1", "a2", "a3"):
            await fixture.work_off(job_id)
            assert await fixture.engine.groups() == []

    @on_engine
    async def test_a_later_one_that_is_replayed_waits_for_those_before_it(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", key="a")
        await fixture.put("a2", key="a", expires_seconds=5)
        fixture.clock.advance(5)
        await fixture.engine.reclaim()
        await fixture.engine.operate(ReplayJobs(fixed="more workers"), named("a2"), OPERATION)
        await fixture.work_off("a1")
        await fixture.work_off("a2")

    @pytest.mark.parametrize("verb", [ArchiveJobs(), PurgeJobs()], ids=lambda action: action.name)
    @on_engine
    async def test_laying_it_aside_lets_the_next_go(
        self, fixture: EngineFixture, verb: AnyAction
    ) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.bury("a1")
        await fixture.engine.operate(verb, named("a1"), OPERATION)
        assert await fixture.engine.groups() == []
        await fixture.work_off("a2")
        await fixture.work_off("a3")

    @on_engine
    async def test_a_restored_one_holds_again(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.bury("a1")
        await fixture.engine.operate(ArchiveJobs(), named("a1"), OPERATION)
        await fixture.work_off("a2")
        await fixture.engine.operate(RestoreJobs(), named("a1"), OPERATION)
        assert await fixture.take_ids() == []
        assert (await fixture.group()).held_behind == 1
        await fixture.engine.operate(ReplayJobs(), named("a1"), OPERATION)
        await fixture.work_off("a1")
        await fixture.work_off("a3")

    @on_engine
    async def test_a_restored_one_that_is_replayed_waits_for_a_later_one_in_flight(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.bury("a1")
        await fixture.engine.operate(ArchiveJobs(), named("a1"), OPERATION)
        [second] = await fixture.take()
        await fixture.engine.operate(RestoreJobs(), named("a1"), OPERATION)
        await fixture.engine.operate(ReplayJobs(), named("a1"), OPERATION)
        assert await fixture.take_ids() == []
        await fixture.settle(completed(second))
        await fixture.work_off("a1")
        await fixture.work_off("a3")

    @pytest.mark.parametrize("verb", ["replay", "archive", "purge", "ordered"])
    @on_engine
    async def test_a_waiting_claim_is_woken_when_nothing_holds_any_more(
        self, fixture: EngineFixture, verb: str
    ) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.bury("a1")
        waiting = WaitingClaim(fixture)
        await waiting.still_waits()
        if verb == "replay":
            await fixture.engine.operate(ReplayJobs(), named("a1"), OPERATION)
        elif verb == "archive":
            await fixture.engine.operate(ArchiveJobs(), named("a1"), OPERATION)
        elif verb == "purge":
            await fixture.engine.operate(PurgeJobs(), named("a1"), OPERATION)
        else:
            await fixture.allow(ordered=False)
        assert await waiting.ids() == ["a1" if verb == "replay" else "a2"]
