"""Tenants, scopes, counts and closing."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engines.contract import Counts
from holdfast.model.access import Caller
from holdfast.model.errors import (
    AccessDenied,
    EngineClosed,
    InvalidInput,
    LeaseLost,
)
from holdfast.model.outcome import (
    cancelled,
    completed,
    dead,
    release,
    snooze,
)

from .fixture import FAILURE, OPTIONS, EngineFixture, Suite, new_job, on_engine, settle_down


class ReachRules(Suite):
    """Tenants, scopes, counts and closing."""

    @on_engine
    async def test_tenants_have_ids_of_their_own(self, fixture: EngineFixture) -> None:
        await fixture.engine.enqueue([new_job(id="a"), new_job(id="a", tenant="acme")])
        [theirs] = await fixture.engine.get(["a"], tenant="acme")
        assert theirs is not None
        assert theirs.tenant == "acme"
        assert (await fixture.counts()).pending == 2

    @on_engine
    async def test_enqueueing_into_a_foreign_tenant_or_scope_is_refused(
        self, fixture: EngineFixture
    ) -> None:
        caller = Caller("acme", ("library:42",))
        cases = [
            ("tenant", new_job(tenant="other", scope="library:42")),
            ("scope", new_job(tenant="acme", scope="library:43")),
            ("scope", new_job(tenant="acme", scope="library:421")),
            ("scope", new_job(tenant="acme")),
            # The error must not reveal other problems of the job to this caller.
            ("tenant", new_job(id="a", depends_on=("a",), tenant="other")),
        ]
        for field, job in cases:
            with pytest.raises(AccessDenied) as refused:
                await fixture.engine.enqueue([job], caller=caller)
            assert refused.value.field == field
        with pytest.raises(InvalidInput):
            await fixture.engine.enqueue([new_job(tenant="acme", scope=7)], caller=caller)
        good = new_job(tenant="acme", scope="library:42/book:7")
        assert len(await fixture.engine.enqueue([good], caller=caller)) == 1
        assert (await fixture.counts()).pending == 1

    @on_engine
    async def test_a_foreign_job_does_not_exist(self, fixture: EngineFixture) -> None:
        await fixture.engine.enqueue(
            [
                new_job(id="a", tenant="acme", scope="library:42"),
                new_job(id="b", tenant="acme", scope="library:43", expires_seconds=1),
                new_job(id="c", tenant="other"),
            ]
        )
        reader = Caller("acme", ("library:42",))
        assert await fixture.engine.get(["c"], tenant="other", caller=reader) == [None]
        seen = await fixture.engine.get(["a", "b"], tenant="acme", caller=reader)
        assert [job is not None for job in seen] == [True, False]
        assert await fixture.engine.counts(caller=reader) == {"default": Counts(pending=1)}
        whole = await fixture.engine.counts(caller=Caller("acme"))
        assert whole == {"default": Counts(pending=2)}
        fixture.clock.advance(1)
        assert (await fixture.engine.reclaim(caller=reader)).expired == []
        assert await fixture.take_ids(caller=reader) == ["a"]
        assert await fixture.take_ids(caller=Caller("nobody")) == []

    @on_engine
    async def test_a_foreign_caller_cannot_touch_a_lease(self, fixture: EngineFixture) -> None:
        await fixture.engine.enqueue([new_job(id="a", tenant="acme")])
        [job] = await fixture.take()
        stranger = Caller("other")
        answers = await fixture.engine.settle([completed(job)], caller=stranger)
        assert isinstance(answers[0], LeaseLost)
        extended = await fixture.engine.extend([job], lease_seconds=9, caller=stranger)
        assert isinstance(extended[0], LeaseLost)
        assert (await fixture.engine.reclaim(forced=[job], caller=stranger)).lost == []
        fixture.clock.advance(60)
        assert (await fixture.engine.reclaim(caller=stranger)).lost == []
        assert await fixture.engine.settle([completed(job)], caller=Caller("acme")) == [None]

    @on_engine
    async def test_a_unique_key_in_a_foreign_scope_is_not_given_away(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("secret", scope="library:43", unique="k")
        caller = Caller("default", ("library:42",))
        with pytest.raises(AccessDenied) as refused:
            await fixture.engine.enqueue([new_job(scope="library:42", unique="k")], caller=caller)
        assert "secret" not in str(refused.value)

    @on_engine
    async def test_every_job_is_counted_in_exactly_one_state(self, fixture: EngineFixture) -> None:
        await fixture.put("p", "s", "c", "x", "d", "f")
        await fixture.put("other", queue="mail")
        jobs = await fixture.take(5)
        await fixture.settle(
            release(jobs[0]),
            snooze(jobs[1], 60),
            completed(jobs[2]),
            cancelled(jobs[3]),
            dead(jobs[4], FAILURE),
        )
        await fixture.take(1)
        assert await fixture.engine.counts() == {
            "default": Counts(pending=2, in_flight=1, completed=1, cancelled=1, dead=1),
            "mail": Counts(pending=1),
        }

    @on_engine
    async def test_a_closed_engine_refuses_everything(self, fixture: EngineFixture) -> None:
        other = await self.open_engine(fixture.clock, OPTIONS)
        waiting = asyncio.create_task(other.claim(queues=["default"], worker="w", wait_seconds=60))
        await settle_down()
        await other.close()
        await other.close()
        with pytest.raises(EngineClosed):
            await waiting
        for call in (
            other.enqueue([new_job()]),
            other.settle([]),
            other.get(["a"]),
            other.counts(),
            other.reclaim(),
            other.validate(),
            other.claim(queues=["default"], worker="w"),
        ):
            with pytest.raises(EngineClosed):
                await call

    @on_engine
    async def test_the_queues_that_have_unfinished_jobs_are_named(
        self, fixture: EngineFixture
    ) -> None:
        assert await fixture.engine.queues() == []
        await fixture.set_policy("fair", fair=True)
        await fixture.put("d", queue="done")
        await fixture.complete("d", queues=["done"])
        await fixture.put_dead("b", queue="buried")
        await fixture.put("f", queue="flying")
        await fixture.take(queues=["flying"])
        await fixture.put("l", queue="later", delay_seconds=60)
        await fixture.put("h", queue="held", hold=True)
        await fixture.put("k1", "k2", queue="keyed", key="k")
        await fixture.take(queues=["keyed"])
        await fixture.put("t", queue="fair", tenant="acme", scope="library:42")
        await fixture.put("p1", "p2", queue="plain", priority=7)
        named = ["fair", "flying", "held", "keyed", "later", "plain"]
        assert await fixture.engine.queues() == named
        acme = Caller(tenant="acme")
        assert await fixture.engine.queues(caller=acme) == ["fair"]
        inside = Caller(tenant="acme", scopes=("library:4",))
        assert await fixture.engine.queues(caller=inside) == []
