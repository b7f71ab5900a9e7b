"""Why a job is not claimed: every blocker, and none exactly when a claim of all returns the job."""

from __future__ import annotations

import pytest

from holdfast.engines.contract import MAX_CLAIM, MAX_EXPLAINED
from holdfast.model.access import Caller
from holdfast.model.actions import ArchiveJobs, CancelJobs
from holdfast.model.errors import InvalidInput
from holdfast.model.explain import Blocker, BlockerKind
from holdfast.model.job import State
from holdfast.model.outcome import retry
from holdfast.model.policy import QueuePolicy, Rate

from .fixture import FAILURE, OPERATION, EngineFixture, Suite, named, on_engine

SECOND_US = 1_000_000


class ExplainRules(Suite):
    """``Engine.explain`` names everything that keeps a job from being claimed."""

    @on_engine
    async def test_a_due_job_has_no_blocker_and_its_place(self, fixture: EngineFixture) -> None:
        await fixture.put("a", "b")
        await fixture.put("first", priority=5)
        answers = await fixture.engine.explain(["first", "a", "b", "nobody"])
        assert [one and (one.blockers, one.ahead) for one in answers] == [
            ((), 0),
            ((), 1),
            ((), 2),
            None,
        ]
        [one] = await fixture.engine.explain(["a"])
        assert one is not None
        assert one.job == await fixture.job("a")
        assert one.at_us == fixture.clock.now_us()

    @on_engine
    async def test_a_job_that_runs_or_is_finished_is_named_by_its_state(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("done")
        await fixture.complete("done")
        await fixture.put_dead("dead", "aside")
        await fixture.engine.operate(ArchiveJobs(), named("aside"), OPERATION)
        await fixture.put("gone")
        await fixture.engine.operate(CancelJobs(), named("gone"), OPERATION)
        await fixture.put("running")
        await fixture.take(1)
        for name, state in (
            ("done", State.COMPLETED),
            ("dead", State.DEAD),
            ("aside", State.ARCHIVED),
            ("gone", State.CANCELLED),
            ("running", State.IN_FLIGHT),
        ):
            assert await _blockers(fixture, name) == [Blocker(BlockerKind.STATE, state=state)]

    @on_engine
    async def test_dependencies_and_the_confirmation_are_named(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("dead")
        await fixture.put("open")
        await fixture.put("held", hold=True)
        await fixture.put("after", depends_on=("dead", "open", "held"))
        assert await _blockers(fixture, "held") == [Blocker(BlockerKind.CONFIRMATION)]
        assert await _blockers(fixture, "after") == [
            Blocker(BlockerKind.DEPENDENCY, "dead", State.DEAD),
            Blocker(BlockerKind.DEPENDENCY, "open", State.PENDING),
            Blocker(BlockerKind.DEPENDENCY, "held", State.BLOCKED),
        ]

    @on_engine
    async def test_the_head_of_a_key_is_named_pending_running_and_dead(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("k1", "k2", "k3", key="k")
        await fixture.put("other", key="k", tenant="acme")
        assert await _blockers(fixture, "k1") == []
        assert await _blockers(fixture, "k3") == [Blocker(BlockerKind.KEY, "k1", State.PENDING)]
        [job] = await fixture.take(1)
        assert await _blockers(fixture, "k3") == [Blocker(BlockerKind.KEY, "k1", State.IN_FLIGHT)]
        await fixture.settle(retry(job, FAILURE, 60.0))
        assert await _blockers(fixture, "k2") == [Blocker(BlockerKind.KEY, "k1", State.PENDING)]
        fixture.clock.advance(61)
        await fixture.dead_letter("k1", caller=Caller("default"))
        for name in ("k2", "k3"):
            assert await _blockers(fixture, name) == [Blocker(BlockerKind.KEY, "k1", State.DEAD)]
        await fixture.set_policy(ordered=False)
        assert await _blockers(fixture, "k3") == []

    @on_engine
    async def test_time_is_named_until_it_comes_and_expiry_once_it_has(
        self, fixture: EngineFixture
    ) -> None:
        now_us = fixture.clock.now_us()
        await fixture.put("later", delay_seconds=60.0)
        await fixture.put("brief", expires_seconds=30.0)
        due_us, ends_us = now_us + 60 * SECOND_US, now_us + 30 * SECOND_US
        assert await _blockers(fixture, "later") == [Blocker(BlockerKind.RUN_AT, until_us=due_us)]
        assert await _blockers(fixture, "brief") == []
        fixture.clock.advance(60)
        assert await _blockers(fixture, "later") == []
        assert await _blockers(fixture, "brief") == [Blocker(BlockerKind.EXPIRED, until_us=ends_us)]

    @on_engine
    async def test_a_pause_is_named_beside_what_else_keeps_a_job_back(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        await fixture.put("held", hold=True)
        await fixture.set_policy(paused=True)
        assert await _blockers(fixture, "a") == [Blocker(BlockerKind.PAUSED)]
        assert await _blockers(fixture, "held") == [
            Blocker(BlockerKind.CONFIRMATION),
            Blocker(BlockerKind.PAUSED),
        ]

    @on_engine
    async def test_limits_are_named_with_what_runs_and_what_comes_before(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.set_policy(max_in_flight=3)
        await fixture.put("a", "b", "c", "d")
        assert await _blockers(fixture, "c") == []
        limit = BlockerKind.MAX_IN_FLIGHT
        assert await _blockers(fixture, "d") == [Blocker(limit, most=3, ahead=3)]
        await fixture.take(2)
        assert await _blockers(fixture, "c") == []
        assert await _blockers(fixture, "d") == [Blocker(limit, most=3, in_flight=2, ahead=1)]

    @on_engine
    async def test_limits_of_a_tenant_and_of_a_key_count_theirs_alone(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.set_policy(max_per_tenant=2, max_per_key=1, ordered=False)
        await fixture.put("x", tenant="acme")
        await fixture.put("a", "b", key="k")
        await fixture.put("c")
        assert await _blockers(fixture, "b") == [Blocker(BlockerKind.MAX_PER_KEY, most=1, ahead=1)]
        await fixture.take(3)
        of_tenant = Blocker(BlockerKind.MAX_PER_TENANT, most=2, in_flight=2)
        of_key = Blocker(BlockerKind.MAX_PER_KEY, most=1, in_flight=1)
        assert await _blockers(fixture, "b") == [of_tenant, of_key]

    @on_engine
    async def test_a_rate_is_named_with_the_time_of_its_next_room(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.set_policy(rate=Rate(2, 60.0))
        await fixture.put("a", "b", "c")
        now_us = fixture.clock.now_us()
        assert await _blockers(fixture, "b") == []
        [blocker] = await _blockers(fixture, "c")
        assert blocker == Blocker(
            BlockerKind.RATE, until_us=now_us + 30 * SECOND_US, most=2, ahead=2
        )
        await fixture.take(2)
        [blocker] = await _blockers(fixture, "c")
        assert (blocker.until_us, blocker.ahead) == (now_us + 30 * SECOND_US, 0)
        fixture.clock.advance(30)
        assert await _blockers(fixture, "c") == []

    @on_engine
    async def test_the_turn_of_a_tenant_is_a_place_and_no_blocker(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.set_policy(fair=True)
        await fixture.put("a", "b", "c")
        await fixture.put("x", tenant="acme")
        places = [one.ahead for one in await fixture.engine.explain(["a", "b", "c"]) if one]
        [other] = await fixture.engine.explain(["x"], tenant="acme")
        assert other is not None
        assert sorted([*places, other.ahead]) == [0, 1, 2, 3]
        assert other.ahead < places[1], "one job each"

    @pytest.mark.parametrize(
        "policy",
        [
            QueuePolicy(),
            QueuePolicy(fair=True, max_in_flight=4),
            QueuePolicy(max_per_tenant=2),
            QueuePolicy(max_per_key=1, ordered=False),
            QueuePolicy(rate=Rate(3, 60.0), fair=True),
            QueuePolicy(max_in_flight=5, max_per_tenant=3, rate=Rate(4, 10.0)),
            QueuePolicy(paused=True),
        ],
        ids=str,
    )
    @on_engine
    async def test_nothing_keeps_back_exactly_what_a_claim_of_all_returns(
        self, fixture: EngineFixture, policy: QueuePolicy
    ) -> None:
        await fixture.engine.set_policy("default", policy, OPERATION)
        names: list[str] = []
        for number in range(30):
            name = f"j{number}"
            names.append(name)
            await fixture.put(
                name,
                priority=number % 3,
                key=f"k{number % 4}" if number % 2 else None,
                delay_seconds=60.0 if number % 7 == 6 else None,
                hold=number % 11 == 10,
                tenant="acme" if number % 5 == 4 else "default",
            )
        await fixture.take(2)
        free: set[str] = set()
        for tenant in ("default", "acme"):
            answers = await fixture.engine.explain(names, tenant=tenant)
            free |= {one.job.id for one in answers if one is not None and not one.blockers}
        claimed = await fixture.take(MAX_CLAIM)
        assert free == {job.id for job in claimed}

    @on_engine
    async def test_only_jobs_within_reach_are_explained(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        assert await fixture.engine.explain(["a"], caller=Caller("acme")) == [None]
        too_many = [f"j{number}" for number in range(MAX_EXPLAINED + 1)]
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.explain(too_many)
        assert refused.value.field == "ids"


async def _blockers(fixture: EngineFixture, job_id: str) -> list[Blocker]:
    [found] = await fixture.engine.explain([job_id])
    assert found is not None, f"{job_id} is gone"
    return list(found.blockers)
