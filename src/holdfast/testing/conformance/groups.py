"""Groups of dead letters."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.model.actions import ArchiveJobs, PurgeJobs, ReplayJobs, RestoreJobs
from holdfast.model.errors import InvalidInput
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.failure_groups import dead_of_group
from holdfast.model.group_life import GroupKey, group_id
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
        key = GroupKey("default", "t", "timeout", 0, "no answer from <address> in <number> s")
        assert await fixture.engine.groups() == [
            FailureGroup(
                id=group_id(key),
                queue="default",
                task="t",
                error_reason="timeout",
                status=None,
                failure_class=FailureClass.TRANSIENT,
                fingerprint="no answer from <address> in <number> s",
                count=4,
                first_at_us=began_us + 10_000_000,
                last_at_us=began_us + 40_000_000,
                tenants=2,
                scopes=3,
                trend=(*[0] * 23, 4),
            )
        ]

    @on_engine
    async def test_queue_task_reason_status_and_fingerprint_separate_groups(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put_dead("a")
        await fixture.put_dead("b", queue="mail")
        await fixture.put_dead("c", failure=WRONG)
        await fixture.put_dead("d", failure=Failure.of("upstream_5xx", "502 from the gateway"))
        await fixture.put_dead("e", task="other")
        await fixture.put_dead("f", failure=replace(FAILURE, status=503))
        fixture.clock.advance(3_600)
        await fixture.put_dead("g")
        groups = await fixture.engine.groups()
        assert [group.count for group in groups] == [2, 1, 1, 1, 1, 1]
        assert len({group.id for group in groups}) == 6
        assert {(one.queue, one.task, one.error_reason, one.status) for one in groups} == {
            ("default", "t", "upstream_5xx", None),
            ("mail", "t", "upstream_5xx", None),
            ("default", "t", "mapping_error", None),
            ("default", "other", "upstream_5xx", None),
            ("default", "t", "upstream_5xx", 503),
        }
        assert len({group.fingerprint for group in groups}) == 3

    @on_engine
    async def test_each_http_status_of_one_client_is_a_group(self, fixture: EngineFixture) -> None:
        refused = Failure("upstream_4xx", FailureClass.DETERMINISTIC, "the client was refused")
        for status in (400, 401, 404, 409, 422):
            await fixture.put_dead(f"j{status}", failure=replace(refused, status=status))
        await fixture.put_dead("none", failure=refused)
        groups = await fixture.engine.groups()
        assert {group.status for group in groups} == {400, 401, 404, 409, 422, None}
        assert {group.count for group in groups} == {1}
        page = await fixture.engine.find(Filter(statuses=(404, 409)))
        assert [job.id for job in page.jobs] == ["j404", "j409"]
        assert [job.failure.status for job in page.jobs if job.failure] == [404, 409]
        page = await fixture.engine.find(Filter(statuses=(0,)))
        assert [job.id for job in page.jobs] == ["none"]
        [group] = await fixture.engine.groups(Filter(statuses=(422,)))
        assert group.status == 422
        with pytest.raises(InvalidInput, match="not an HTTP status"):
            await fixture.engine.find(Filter(statuses=(9_999,)))

    @on_engine
    async def test_a_group_of_several_classes_is_one(self, fixture: EngineFixture) -> None:
        for number, one in enumerate((FailureClass.UNKNOWN, FailureClass.DETERMINISTIC)):
            failure = Failure("odd", one, f"no {number}")
            await fixture.put_dead(f"j{number}", failure=failure)
        group = await fixture.group()
        assert (group.count, group.tenants, group.scopes) == (2, 1, 1)
        assert group.failure_class is FailureClass.DETERMINISTIC
        [group] = await fixture.engine.groups(Filter(classes=(FailureClass.UNKNOWN,)))
        assert group.count == 1

    @on_engine
    async def test_the_trend_has_the_last_day_by_hour(self, fixture: EngineFixture) -> None:
        await fixture.put_dead("a")
        fixture.clock.advance(2 * 3_600)
        await fixture.put_dead("b", "c")
        assert (await fixture.group()).trend == (*[0] * 21, 1, 0, 2)
        [group] = await fixture.engine.groups(Filter(tenant="default"))
        assert group.trend == (*[0] * 21, 1, 0, 2)
        fixture.clock.advance(22 * 3_600)
        assert (await fixture.group()).trend == (0, 2, *[0] * 22)
        await fixture.engine.operate(PurgeJobs(), named("b"), OPERATION)
        assert (await fixture.group()).trend == (0, 1, *[0] * 22)
        fixture.clock.advance(50 * 3_600)
        assert (await fixture.group()).trend == (0,) * 24

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
            page = await fixture.engine.find(dead_of_group(group))
            [job] = page.jobs
            assert job.failure is not None
            assert job.failure.error_reason == group.error_reason
