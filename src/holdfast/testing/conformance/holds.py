"""A dead job holds later jobs of its key until an operator decides about it."""

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
    """How a dead job affects the other jobs of its key."""

    @on_engine
    async def test_a_dead_job_holds_later_jobs_of_its_key(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.dead_letter("a1")
        await fixture.put("a4", key="a")
        await fixture.put("free")
        assert await fixture.take_ids() == ["free"]
        assert (await fixture.counts()).pending == 3

    @on_engine
    async def test_a_job_that_used_up_its_attempts_holds_its_key_too(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", key="a", max_attempts=1)
        await fixture.settle(retry((await fixture.take())[0], FAILURE))
        assert await fixture.state("a1") is State.DEAD
        assert await fixture.take_ids() == []

    @on_engine
    async def test_a_dead_job_does_not_hold_earlier_jobs_of_its_key(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", key="a")
        await fixture.put("a2", key="a", expires_seconds=5)
        await fixture.put("a3", key="a")
        fixture.clock.advance(5)
        assert [job.id for job in (await fixture.engine.reclaim()).expired] == ["a2"]
        assert (await fixture.group()).held_behind == 1
        await fixture.complete("a1")
        assert await fixture.take_ids() == []

    @on_engine
    async def test_other_keys_tenants_and_queues_are_not_held(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.dead_letter("a1")
        await fixture.put("b1", key="b")
        await fixture.put("acme", key="a", tenant="acme")
        await fixture.put("mail", key="a", queue="mail")
        assert await fixture.take_ids(queues=["default", "mail"]) == ["b1", "acme", "mail"]

    @on_engine
    async def test_held_jobs_are_counted(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.put("a3", key="a", delay_seconds=60)
        await fixture.put("a4", key="a", hold=True)
        await fixture.dead_letter("a1")
        assert (await fixture.group()).held_behind == 3
        await fixture.engine.operate(CancelJobs(), named("a2"), OPERATION)
        assert (await fixture.group()).held_behind == 2
        await fixture.put("a5", key="a")
        assert (await fixture.group()).held_behind == 3

    @on_engine
    async def test_a_job_held_by_several_dead_jobs_is_counted_once(
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
        await fixture.dead_letter("a1")
        await fixture.set_policy(ordered=False)
        assert (await fixture.group()).held_behind == 0
        await fixture.complete("a2")
        await fixture.set_policy(ordered=True)
        assert (await fixture.group()).held_behind == 1
        assert await fixture.take_ids() == []

    @on_engine
    async def test_a_replayed_job_is_first_in_its_key_again(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.dead_letter("a1")
        fixture.clock.advance(5)
        await fixture.put("a3", key="a")
        await fixture.engine.operate(ReplayJobs(), named("a1"), OPERATION)
        for job_id in ("a1", "a2", "a3"):
            await fixture.complete(job_id)
            assert await fixture.engine.groups() == []

    @on_engine
    async def test_a_replayed_later_job_waits_for_earlier_jobs_of_its_key(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", key="a")
        await fixture.put("a2", key="a", expires_seconds=5)
        fixture.clock.advance(5)
        await fixture.engine.reclaim()
        await fixture.engine.operate(ReplayJobs(fixed="more workers"), named("a2"), OPERATION)
        await fixture.complete("a1")
        await fixture.complete("a2")

    @pytest.mark.parametrize("verb", [ArchiveJobs(), PurgeJobs()], ids=lambda action: action.name)
    @on_engine
    async def test_archiving_or_purging_the_dead_job_releases_the_next(
        self, fixture: EngineFixture, verb: AnyAction
    ) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.dead_letter("a1")
        await fixture.engine.operate(verb, named("a1"), OPERATION)
        assert await fixture.engine.groups() == []
        await fixture.complete("a2")
        await fixture.complete("a3")

    @on_engine
    async def test_a_restored_job_holds_its_key_again(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.dead_letter("a1")
        await fixture.engine.operate(ArchiveJobs(), named("a1"), OPERATION)
        await fixture.complete("a2")
        await fixture.engine.operate(RestoreJobs(), named("a1"), OPERATION)
        assert await fixture.take_ids() == []
        assert (await fixture.group()).held_behind == 1
        await fixture.engine.operate(ReplayJobs(), named("a1"), OPERATION)
        await fixture.complete("a1")
        await fixture.complete("a3")

    @on_engine
    async def test_a_restored_and_replayed_job_waits_for_a_later_job_in_flight(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.dead_letter("a1")
        await fixture.engine.operate(ArchiveJobs(), named("a1"), OPERATION)
        [second] = await fixture.take()
        await fixture.engine.operate(RestoreJobs(), named("a1"), OPERATION)
        await fixture.engine.operate(ReplayJobs(), named("a1"), OPERATION)
        assert await fixture.take_ids() == []
        await fixture.settle(completed(second))
        await fixture.complete("a1")
        await fixture.complete("a3")

    @pytest.mark.parametrize("verb", ["replay", "archive", "purge", "ordered"])
    @on_engine
    async def test_a_waiting_claim_is_woken_when_a_key_is_released(
        self, fixture: EngineFixture, verb: str
    ) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.dead_letter("a1")
        waiting = WaitingClaim(fixture)
        await waiting.still_waits()
        if verb == "replay":
            await fixture.engine.operate(ReplayJobs(), named("a1"), OPERATION)
        elif verb == "archive":
            await fixture.engine.operate(ArchiveJobs(), named("a1"), OPERATION)
        elif verb == "purge":
            await fixture.engine.operate(PurgeJobs(), named("a1"), OPERATION)
        else:
            await fixture.set_policy(ordered=False)
        assert await waiting.ids() == ["a1" if verb == "replay" else "a2"]
