"""Groups of dead letters."""

from __future__ import annotations

from holdfast.model.actions import ArchiveJobs, PurgeJobs, ReplayJobs, RestoreJobs
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import State
from holdfast.model.outcome import completed, dead
from holdfast.model.search import HOUR_US, FailureGroup, Filter

from .fixture import FAILURE, OPERATION, WRONG, EngineFixture, Suite, named, on_engine


class GroupRules(Suite):
    """How dead letters are grouped."""

    @on_engine
    async def test_a_group_has_reason_count_times_and_tenants(self, fixture: EngineFixture) -> None:
        to_the_hour_us = HOUR_US - fixture.clock.now_us() % HOUR_US
        fixture.clock.advance(to_the_hour_us / 1e6)
        began_us = fixture.clock.now_us()
        for number, (tenant, scope) in enumerate(
            [("a", "library:1"), ("a", "library:2"), ("b", "library:1"), ("a", "library:1")]
        ):
            fixture.clock.advance(10)
            failure = Failure.of("timeout", f"no answer from 10.0.0.{number} in {number} s")
            await fixture.put_dead(f"j{number}", failure=failure, tenant=tenant, scope=scope)
        assert await fixture.engine.groups() == [
            FailureGroup(
                queue="default",
                error_reason="timeout",
                failure_class=FailureClass.TRANSIENT,
                fingerprint="no answer from <address> in <number> s",
                hour_us=began_us,
                count=4,
                first_at_us=began_us + 10_000_000,
                last_at_us=began_us + 40_000_000,
                tenants=2,
                scopes=3,
            )
        ]

    @on_engine
    async def test_reason_queue_hour_and_fingerprint_separate_groups(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a")
        await fixture.put_dead("b", queue="mail")
        await fixture.put_dead("c", failure=WRONG)
        await fixture.put_dead("d", failure=Failure.of("upstream_5xx", "502 from the gateway"))
        fixture.clock.advance(3_600)
        await fixture.put_dead("e")
        groups = await fixture.engine.groups()
        assert [group.count for group in groups] == [1] * 5
        assert {(group.queue, group.error_reason) for group in groups} == {
            ("default", "upstream_5xx"),
            ("mail", "upstream_5xx"),
            ("default", "mapping_error"),
        }
        assert len({group.fingerprint for group in groups}) == 3
        assert len({group.hour_us for group in groups}) == 2

    @on_engine
    async def test_the_largest_group_comes_first_then_the_latest(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a", queue="one")
        fixture.clock.advance(1)
        await fixture.put_dead("b", queue="two")
        fixture.clock.advance(1)
        await fixture.put_dead("c", "d", queue="three")
        groups = await fixture.engine.groups()
        assert [group.queue for group in groups] == ["three", "two", "one"]

    @on_engine
    async def test_only_what_is_dead_now_is_in_a_group(self, fixture: EngineFixture) -> None:
        await fixture.put("done", "failing")
        jobs = await fixture.take(2)
        await fixture.settle(completed(jobs[0]), dead(jobs[1], FAILURE))
        await fixture.put_dead("replayed", "archived", "purged")
        assert (await fixture.group()).count == 4
        await fixture.engine.operate(ReplayJobs(), named("replayed"), OPERATION)
        assert (await fixture.group()).count == 3
        await fixture.engine.operate(ArchiveJobs(), named("archived"), OPERATION)
        assert (await fixture.group()).count == 2
        await fixture.engine.operate(PurgeJobs(), named("purged"), OPERATION)
        assert (await fixture.group()).count == 1
        await fixture.engine.operate(RestoreJobs(), named("archived"), OPERATION)
        assert (await fixture.group()).count == 2

    @on_engine
    async def test_a_filter_limits_the_groups(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a", "b", tenant="acme")
        await fixture.put_dead("c", failure=WRONG)
        [group] = await fixture.engine.groups(Filter(tenant="acme"))
        assert (group.error_reason, group.count) == ("upstream_5xx", 2)
        [group] = await fixture.engine.groups(Filter(classes=(FailureClass.DETERMINISTIC,)))
        assert (group.error_reason, group.count) == ("mapping_error", 1)
        [group] = await fixture.engine.groups(Filter(ids=("a",)))
        assert group.count == 1
        assert await fixture.engine.groups(Filter(states=(State.ARCHIVED,))) == []

    @on_engine
    async def test_the_fields_of_a_group_find_its_jobs(self, fixture: EngineFixture) -> None:
        empty = Failure("unexpected", FailureClass.UNKNOWN, "")
        for number, failure in enumerate((FAILURE, WRONG, empty)):
            await fixture.put_dead(f"j{number}", failure=failure)
        groups = await fixture.engine.groups()
        assert len(groups) == 3
        for group in groups:
            page = await fixture.engine.find(
                Filter(
                    states=(State.DEAD,),
                    queues=(group.queue,),
                    error_reasons=(group.error_reason,),
                    fingerprint=group.fingerprint,
                    finished_from_us=group.hour_us,
                    finished_to_us=group.hour_us + HOUR_US,
                )
            )
            [job] = page.jobs
            assert job.failure is not None
            assert job.failure.error_reason == group.error_reason
