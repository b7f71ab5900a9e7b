"""Jobs of one key run one at a time, in the order of enqueueing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.engines.contract import Counts
from holdfast.model.actions import CancelJobs
from holdfast.model.errors import InvalidInput
from holdfast.model.job import Edit, Job
from holdfast.model.outcome import Outcome, cancelled, completed, lost, release, retry, snooze

from .fixture import (
    FAILURE,
    OPERATION,
    EngineFixture,
    Suite,
    WaitingClaim,
    named,
    new_job,
    on_engine,
)

GIVE_BACK: dict[str, Callable[[Job], Outcome]] = {
    "retry": lambda job: retry(job, FAILURE, 5),
    "release": release,
    "snooze": lambda job: snooze(job, 5),
    "lost": lambda job: lost(job, "killed"),
}


class KeyRules(Suite):
    """Order within a key, and what it does not affect."""

    @on_engine
    async def test_one_claim_takes_only_the_first_of_a_key(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.put("b1", "b2", key="b")
        await fixture.put("free1", "free2")
        assert await fixture.take_ids() == ["a1", "b1", "free1", "free2"]
        assert (await fixture.job("a2")).ties.key == "a"

    @on_engine
    async def test_nothing_of_a_key_is_claimed_while_one_is_in_flight(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", key="a")
        [first] = await fixture.take()
        assert await fixture.take_ids() == []
        await fixture.settle(completed(first))
        assert await fixture.take_ids() == ["a2"]

    @on_engine
    async def test_a_key_goes_in_the_order_of_enqueueing_whatever_the_priority(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", key="a", priority=-5)
        await fixture.put("a2", key="a", priority=5)
        await fixture.put("free")
        await fixture.complete("free", "a1")
        await fixture.complete("a2")

    @on_engine
    async def test_settling_the_first_and_claiming_the_next_is_one_step(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", key="a")
        [first] = await fixture.take()
        answer = await fixture.claim(settle=[completed(first)])
        assert [job.id for job in answer.jobs] == ["a2"]

    @pytest.mark.parametrize("ending", GIVE_BACK)
    @on_engine
    async def test_a_released_or_retried_job_keeps_its_place_in_its_key(
        self, fixture: EngineFixture, ending: str
    ) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.put("free")
        [first] = await fixture.take()
        await fixture.settle(GIVE_BACK[ending](first))
        fixture.clock.advance(5)
        taken = await fixture.take_ids()
        assert sorted(taken) == ["a1", "free"], "its place in the key is kept"
        assert await fixture.take_ids() == []

    @on_engine
    async def test_a_first_job_in_backoff_holds_the_others(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.settle(retry((await fixture.take())[0], FAILURE, delay_seconds=5))
        assert await fixture.take_ids() == []
        fixture.clock.advance(5)
        assert await fixture.take_ids() == ["a1"]

    @on_engine
    async def test_a_lost_lease_keeps_the_place_in_the_key(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.take()
        assert [job.id for job in (await fixture.expire_leases()).lost] == ["a1"]
        assert await fixture.take_ids() == ["a1"]

    @on_engine
    async def test_a_scheduled_first_job_holds_the_others(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", key="a", delay_seconds=60)
        await fixture.put("a2", key="a")
        assert await fixture.take_ids() == []
        fixture.clock.advance(60)
        assert await fixture.take_ids() == ["a1"]

    @on_engine
    async def test_a_blocked_first_job_holds_the_others(self, fixture: EngineFixture) -> None:
        await fixture.put("needed")
        await fixture.put("a1", key="a", depends_on=("needed",))
        await fixture.put("a2", key="a")
        await fixture.complete("needed")
        assert await fixture.take_ids() == ["a1"]

    @on_engine
    async def test_an_edit_does_not_change_the_order_of_a_key(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.engine.edit(await fixture.job("a2"), Edit(priority=9), OPERATION)
        later_us = fixture.clock.now_us() + 5_000_000
        await fixture.engine.edit(await fixture.job("a1"), Edit(run_at_us=later_us), OPERATION)
        assert await fixture.take_ids() == []
        fixture.clock.advance(5)
        assert await fixture.take_ids() == ["a1"]

    @on_engine
    async def test_keys_are_per_tenant_and_queue(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", key="a")
        await fixture.put("acme1", "acme2", key="a", tenant="acme")
        await fixture.put("mail1", "mail2", key="a", queue="mail")
        taken = await fixture.take_ids(queues=["default", "mail"])
        assert taken == ["a1", "acme1", "mail1"]

    @on_engine
    async def test_a_first_job_of_an_unknown_task_holds_the_others(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", key="a", task="new")
        await fixture.put("a2", key="a")
        assert await fixture.take_ids(tasks=["t"]) == []
        assert await fixture.take_ids() == ["a1"]

    @on_engine
    async def test_cancelling_the_first_job_releases_the_next(self, fixture: EngineFixture) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.engine.operate(CancelJobs(), named("a1"), OPERATION)
        [second] = await fixture.take()
        assert second.id == "a2"
        await fixture.settle(cancelled(second))
        assert await fixture.take_ids() == ["a3"]

    @on_engine
    async def test_without_ordering_jobs_of_a_key_run_concurrently(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", "a3", "a4", key="a")
        await fixture.take()
        await fixture.set_policy(ordered=False)
        assert await fixture.take_ids(2) == ["a2", "a3"]
        await fixture.set_policy(ordered=True)
        assert await fixture.take_ids() == []

    @on_engine
    async def test_turning_ordering_on_again_restores_the_order(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a1", "a2", "a3", key="a")
        await fixture.set_policy(ordered=False)
        jobs = await fixture.take(2)
        await fixture.engine.set_policy("default", None, OPERATION)
        await fixture.settle(release(jobs[0]))
        assert await fixture.take_ids() == [], "the second one is in flight"
        await fixture.settle(completed(jobs[1]))
        await fixture.complete("a1")
        await fixture.complete("a3")

    @pytest.mark.parametrize("finish", ["completed", "cancelled", "cancel", "release"])
    @on_engine
    async def test_a_waiting_claim_is_woken_when_the_key_gets_free(
        self, fixture: EngineFixture, finish: str
    ) -> None:
        await fixture.put("a1", key="a", task="other")
        await fixture.put("a2", key="a")
        [first] = await fixture.take()
        waiting = WaitingClaim(fixture, tasks=["t", "other"])
        await waiting.still_waits()
        if finish == "cancel":
            await fixture.engine.operate(CancelJobs(), named("a1"), OPERATION)
            await waiting.still_waits()
            await fixture.settle(release(first))
        else:
            outcomes = {"completed": completed, "cancelled": cancelled, "release": release}
            await fixture.settle(outcomes[finish](first))
        assert await waiting.ids() == ["a1" if finish == "release" else "a2"]

    @pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", 7])
    @on_engine
    async def test_a_bad_key_is_refused(self, fixture: EngineFixture, key: object) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.enqueue([new_job(id="good"), new_job(key=key)])
        assert refused.value.field == "key"
        assert await fixture.counts() == Counts()
