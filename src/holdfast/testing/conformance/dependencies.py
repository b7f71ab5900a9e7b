"""Dependencies: when a job is blocked, and when it is unblocked."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engines.contract import Admission, Counts
from holdfast.model.access import Caller
from holdfast.model.errors import InvalidInput, UnknownDependency
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import completed, retry

from .fixture import FAILURE, EngineFixture, Suite, WaitingClaim, new_job, on_engine


class DependencyRules(Suite):
    """Jobs wait until their dependencies are completed."""

    @on_engine
    async def test_a_job_is_blocked_until_the_last_of_its_dependencies_is_completed(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", "b")
        await fixture.put("last", depends_on=("a", "b"))
        assert await fixture.counts() == Counts(blocked=1, pending=2)
        first, second = await fixture.take(3)
        await fixture.settle(completed(first))
        job = await fixture.job("last")
        assert (job.state, job.ties.waiting_for) == (State.BLOCKED, ("b",))
        assert job.ties.depends_on == ("a", "b")
        await fixture.settle(retry(second, FAILURE))
        assert await fixture.take_ids() == ["b"]
        await fixture.settle(completed(await fixture.job("b")))
        job = await fixture.job("last")
        assert (job.state, job.ties.waiting_for) == (State.PENDING, ())
        await fixture.complete("last")

    @on_engine
    async def test_dependencies_completed_in_one_call_free_a_job_once(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", "b")
        await fixture.put("last", depends_on=("a", "b", "a"))
        answer = await fixture.claim(limit=9, settle=map(completed, await fixture.take(2)))
        assert [job.id for job in answer.jobs] == ["last"]

    @on_engine
    async def test_a_diamond_runs_in_the_order_of_its_dependencies(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.engine.enqueue(
            [
                new_job(id="bottom", depends_on=("left", "right"), priority=9),
                new_job(id="left", depends_on=("top",)),
                new_job(id="right", depends_on=("top",)),
                new_job(id="top"),
            ]
        )
        for step in (["top"], ["left", "right"], ["bottom"]):
            await fixture.complete(*step)
        assert await fixture.counts() == Counts(completed=4)

    @pytest.mark.parametrize("jobs", [("b", "a"), ("a", "b")])
    @on_engine
    async def test_a_dependency_may_come_in_the_same_call_before_or_after(
        self, fixture: EngineFixture, jobs: tuple[str, str]
    ) -> None:
        made = {"a": new_job(id="a"), "b": new_job(id="b", depends_on=("a",))}
        await fixture.engine.enqueue([made[one] for one in jobs])
        await fixture.complete("a")
        await fixture.complete("b")

    @on_engine
    async def test_a_dependency_on_a_unique_job_that_exists_is_one_on_the_existing_job(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("first", unique="u")
        receipts = await fixture.engine.enqueue(
            [
                new_job(id="second", unique="u"),
                new_job(id="third", unique="u"),
                new_job(id="fourth", unique="v"),
                new_job(id="fifth", unique="v"),
                new_job(id="last", depends_on=("second", "third", "fifth")),
            ]
        )
        assert [receipt.id for receipt in receipts] == [
            "first",
            "first",
            "fourth",
            "fourth",
            "last",
        ]
        job = await fixture.job("last")
        assert (job.state, job.ties.depends_on) == (State.BLOCKED, ("first", "fourth"))
        await fixture.complete("first", "fourth")
        await fixture.complete("last")

    @on_engine
    async def test_a_cycle_through_a_unique_job_is_refused(self, fixture: EngineFixture) -> None:
        with pytest.raises(InvalidInput, match="circle") as refused:
            await fixture.engine.enqueue(
                [
                    new_job(id="a", unique="u", depends_on=("b",)),
                    new_job(id="again", unique="u"),
                    new_job(id="b", depends_on=("again",)),
                ]
            )
        assert refused.value.field == "depends_on"
        assert await fixture.counts() == Counts()

    @on_engine
    async def test_an_unknown_dependency_is_refused_and_nothing_is_enqueued(
        self, fixture: EngineFixture
    ) -> None:
        with pytest.raises(UnknownDependency) as refused:
            await fixture.engine.enqueue([new_job(id="a"), new_job(id="b", depends_on=("nix",))])
        assert (refused.value.job_id, refused.value.dependency) == ("b", "nix")
        assert refused.value.field == "depends_on"
        assert await fixture.engine.get(["a", "b"]) == [None, None]

    @pytest.mark.parametrize(
        ("needs", "circle"),
        [
            ({"ann": ["ann"]}, ["ann"]),
            ({"ann": ["bob"], "bob": ["ann"]}, ["ann", "bob"]),
            (
                {"eve": [], "ann": ["eve", "bob"], "bob": ["cid"], "cid": ["ann"], "dan": ["ann"]},
                ["ann", "bob", "cid"],
            ),
        ],
    )
    @on_engine
    async def test_a_dependency_cycle_is_refused_and_named(
        self, fixture: EngineFixture, needs: dict[str, list[str]], circle: list[str]
    ) -> None:
        jobs = [new_job(id=one, depends_on=tuple(others)) for one, others in needs.items()]
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.enqueue(jobs)
        assert refused.value.field == "depends_on"
        assert [one for one in needs if one in str(refused.value)] == circle
        assert await fixture.counts() == Counts()

    @pytest.mark.parametrize(
        "depends_on", ["a", 7, ("",), (7,), ("x" * 256,), ("a",) * 3 + (None,)]
    )
    @on_engine
    async def test_bad_dependencies_are_refused(
        self, fixture: EngineFixture, depends_on: object
    ) -> None:
        await fixture.put("a")
        with pytest.raises(InvalidInput) as refused:
            await fixture.put("b", depends_on=depends_on)
        assert refused.value.field == "depends_on"
        assert await fixture.counts() == Counts(pending=1)

    @on_engine
    async def test_too_many_dependencies_are_refused(self, fixture: EngineFixture) -> None:
        many = tuple(await fixture.put(*(f"n{number}" for number in range(1_001))))
        with pytest.raises(InvalidInput) as refused:
            await fixture.put("b", depends_on=many)
        assert refused.value.field == "depends_on"
        await fixture.put("c", depends_on=many[1:])
        assert await fixture.state("c") is State.BLOCKED

    @on_engine
    async def test_a_dependency_that_is_completed_already_counts_as_met(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("done")
        await fixture.complete("done")
        await fixture.put("open")
        await fixture.put("a", depends_on=("done",))
        await fixture.put("b", depends_on=("done", "open"))
        assert await fixture.state("a") is State.PENDING
        assert (await fixture.job("b")).ties.waiting_for == ("open",)

    @on_engine
    async def test_a_delayed_job_waits_for_its_time_after_its_dependencies(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        await fixture.put("b", depends_on=("a",), delay_seconds=60)
        await fixture.complete("a")
        assert await fixture.state("b") is State.PENDING
        assert await fixture.take_ids() == []
        fixture.clock.advance(60)
        assert await fixture.take_ids() == ["b"]

    @on_engine
    async def test_a_job_is_ordered_by_the_time_of_its_unblocking(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", priority=5)
        await fixture.put("b", depends_on=("a",))
        fixture.clock.advance(1)
        await fixture.put("c")
        fixture.clock.advance(1)
        await fixture.complete("a")
        assert await fixture.take_ids() == ["c", "b"]

    @on_engine
    async def test_another_tenants_job_is_unknown(self, fixture: EngineFixture) -> None:
        await fixture.put("a", tenant="acme")
        with pytest.raises(UnknownDependency):
            await fixture.put("b", depends_on=("a",))
        await fixture.put("a")
        await fixture.put("b", depends_on=("a",))
        [acme] = await fixture.take(1, caller=Caller("acme"))
        await fixture.settle(completed(acme))
        assert await fixture.state("b") is State.BLOCKED

    @on_engine
    async def test_a_job_in_a_foreign_scope_is_unknown(self, fixture: EngineFixture) -> None:
        await fixture.put("a", scope="library:43")
        caller = Caller("default", ("library:42",))
        job = new_job(id="b", depends_on=("a",), scope="library:42")
        with pytest.raises(UnknownDependency):
            await fixture.engine.enqueue([job], caller=caller)
        assert await fixture.engine.get(["b"]) == [None]

    @on_engine
    async def test_concurrent_enqueues_find_dependencies_within_reach(
        self, fixture: EngineFixture
    ) -> None:
        caller = Caller("default", ("library:42",))
        ours = new_job(id="b", depends_on=("a",), scope="library:42")
        answers = await asyncio.gather(
            fixture.engine.enqueue([new_job(id="a", scope="library:43")]),
            fixture.engine.enqueue([ours], caller=caller),
            fixture.engine.enqueue([new_job(id="c", depends_on=("a",))]),
            return_exceptions=True,
        )
        assert isinstance(answers[1], UnknownDependency)
        assert await fixture.counts() == Counts(blocked=1, pending=1)
        await fixture.complete("a")
        await fixture.complete("c")

    @on_engine
    async def test_a_skipped_duplicate_is_still_a_dependency(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        jobs: list[NewJob] = [new_job(id="a"), new_job(id="b", depends_on=("a",))]
        receipts = await fixture.engine.enqueue(jobs, on_duplicate="skip")
        admissions = [receipt.admission for receipt in receipts]
        assert admissions == [Admission.SKIPPED, Admission.CREATED]
        assert await fixture.state("b") is State.BLOCKED

    @on_engine
    async def test_a_waiting_claim_is_woken_by_an_unblock(self, fixture: EngineFixture) -> None:
        await fixture.put("a", queue="other")
        await fixture.put("b", depends_on=("a",))
        waiting = WaitingClaim(fixture)
        await waiting.still_waits()
        await fixture.complete("a", queues=["other"])
        assert await waiting.ids() == ["b"]
