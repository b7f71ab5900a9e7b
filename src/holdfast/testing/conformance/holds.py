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
    async def test_a_dead_one_holds_what_is_behind_it(self, desk: EngineFixture) -> None:
        await desk.put("a1", "a2", "a3", key="a")
        await desk.bury("a1")
        await desk.put("a4", key="a")
        await desk.put("free")
        assert await desk.take_ids() == ["free"]
        assert (await desk.counts()).pending == 3

    @on_engine
    async def test_one_whose_attempts_are_used_up_holds_as_well(self, desk: EngineFixture) -> None:
        await desk.put("a1", "a2", key="a", max_attempts=1)
        await desk.settle(retry((await desk.take())[0], FAILURE))
        assert await desk.state("a1") is State.DEAD
        assert await desk.take_ids() == []

    @on_engine
    async def test_a_dead_one_does_not_hold_what_is_before_it(self, desk: EngineFixture) -> None:
        await desk.put("a1", key="a")
        await desk.put("a2", key="a", expires_seconds=5)
        await desk.put("a3", key="a")
        desk.clock.advance(5)
        assert [job.id for job in (await desk.engine.reclaim()).expired] == ["a2"]
        assert (await desk.group()).held_behind == 1
        await desk.work_off("a1")
        assert await desk.take_ids() == []

    @on_engine
    async def test_other_keys_tenants_and_queues_are_not_held(self, desk: EngineFixture) -> None:
        await desk.put("a1", "a2", key="a")
        await desk.bury("a1")
        await desk.put("b1", key="b")
        await desk.put("acme", key="a", tenant="acme")
        await desk.put("mail", key="a", queue="mail")
        assert await desk.take_ids(queues=["default", "mail"]) == ["b1", "acme", "mail"]

    @on_engine
    async def test_what_is_held_can_be_counted(self, desk: EngineFixture) -> None:
        await desk.put("a1", "a2", key="a")
        await desk.put("a3", key="a", delay_seconds=60)
        await desk.put("a4", key="a", hold=True)
        await desk.bury("a1")
        assert (await desk.group()).held_behind == 3
        await desk.engine.operate(CancelJobs(), named("a2"), OPERATION)
        assert (await desk.group()).held_behind == 2
        await desk.put("a5", key="a")
        assert (await desk.group()).held_behind == 3

    @on_engine
    async def test_what_is_behind_several_dead_ones_is_counted_once(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a1", "a2", key="a", expires_seconds=5)
        await desk.put("b1", key="b", expires_seconds=5)
        await desk.put("a3", key="a")
        await desk.put("b2", key="b")
        desk.clock.advance(5)
        await desk.engine.reclaim()
        group = await desk.group()
        assert (group.count, group.held_behind) == (3, 2)

    @on_engine
    async def test_nothing_is_held_without_ordering(self, desk: EngineFixture) -> None:
        await desk.put("a1", "a2", "a3", key="a")
        await desk.bury("a1")
        await desk.allow(ordered=False)
        assert (await desk.group()).held_behind == 0
        await desk.work_off("a2")
        await desk.allow(ordered=True)
        assert (await desk.group()).held_behind == 1
        assert await desk.take_ids() == []

    @on_engine
    async def test_a_replayed_one_is_first_in_its_key_again(self, desk: EngineFixture) -> None:
        await desk.put("a1", "a2", key="a")
        await desk.bury("a1")
        desk.clock.advance(5)
        await desk.put("a3", key="a")
        await desk.engine.operate(ReplayJobs(), named("a1"), OPERATION)
        for job_id in ("a1", "a2", "a3"):
            await desk.work_off(job_id)
            assert await desk.engine.groups() == []

    @on_engine
    async def test_a_later_one_that_is_replayed_waits_for_those_before_it(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a1", key="a")
        await desk.put("a2", key="a", expires_seconds=5)
        desk.clock.advance(5)
        await desk.engine.reclaim()
        await desk.engine.operate(ReplayJobs(fixed="more workers"), named("a2"), OPERATION)
        await desk.work_off("a1")
        await desk.work_off("a2")

    @pytest.mark.parametrize("verb", [ArchiveJobs(), PurgeJobs()], ids=lambda action: action.name)
    @on_engine
    async def test_laying_it_aside_lets_the_next_go(
        self, desk: EngineFixture, verb: AnyAction
    ) -> None:
        await desk.put("a1", "a2", "a3", key="a")
        await desk.bury("a1")
        await desk.engine.operate(verb, named("a1"), OPERATION)
        assert await desk.engine.groups() == []
        await desk.work_off("a2")
        await desk.work_off("a3")

    @on_engine
    async def test_a_restored_one_holds_again(self, desk: EngineFixture) -> None:
        await desk.put("a1", "a2", "a3", key="a")
        await desk.bury("a1")
        await desk.engine.operate(ArchiveJobs(), named("a1"), OPERATION)
        await desk.work_off("a2")
        await desk.engine.operate(RestoreJobs(), named("a1"), OPERATION)
        assert await desk.take_ids() == []
        assert (await desk.group()).held_behind == 1
        await desk.engine.operate(ReplayJobs(), named("a1"), OPERATION)
        await desk.work_off("a1")
        await desk.work_off("a3")

    @on_engine
    async def test_a_restored_one_that_is_replayed_waits_for_a_later_one_in_flight(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a1", "a2", "a3", key="a")
        await desk.bury("a1")
        await desk.engine.operate(ArchiveJobs(), named("a1"), OPERATION)
        [second] = await desk.take()
        await desk.engine.operate(RestoreJobs(), named("a1"), OPERATION)
        await desk.engine.operate(ReplayJobs(), named("a1"), OPERATION)
        assert await desk.take_ids() == []
        await desk.settle(completed(second))
        await desk.work_off("a1")
        await desk.work_off("a3")

    @pytest.mark.parametrize("verb", ["replay", "archive", "purge", "ordered"])
    @on_engine
    async def test_a_waiting_claim_is_woken_when_nothing_holds_any_more(
        self, desk: EngineFixture, verb: str
    ) -> None:
        await desk.put("a1", "a2", key="a")
        await desk.bury("a1")
        waiting = WaitingClaim(desk)
        await waiting.still_waits()
        if verb == "replay":
            await desk.engine.operate(ReplayJobs(), named("a1"), OPERATION)
        elif verb == "archive":
            await desk.engine.operate(ArchiveJobs(), named("a1"), OPERATION)
        elif verb == "purge":
            await desk.engine.operate(PurgeJobs(), named("a1"), OPERATION)
        else:
            await desk.allow(ordered=False)
        assert await waiting.ids() == ["a1" if verb == "replay" else "a2"]
