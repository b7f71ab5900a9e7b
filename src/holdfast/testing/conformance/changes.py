"""The feed of what has changed."""

from __future__ import annotations

from holdfast.engines.contract import Engine
from holdfast.model.access import Caller
from holdfast.model.actions import CancelJobs
from holdfast.model.audit import AuditEntry
from holdfast.model.job import Edit, NewJob
from holdfast.model.outcome import completed
from holdfast.model.search import Filter

from .fixture import OPERATION, EngineFixture, Suite, on_engine


class ChangeRules(Suite):
    """A mark differs when its topic has changed, and no other topic's does."""

    @on_engine
    async def test_a_topic_changes_with_everything_that_happens_to_its_jobs(
        self, fixture: EngineFixture
    ) -> None:
        engine = fixture.engine
        await engine.enqueue([NewJob(task="t", id="other", queue="rest", tenant="b")])
        seen = await _marks(engine)
        mail = ("a", "queue:mail")

        async def changed() -> set[tuple[str, str]]:
            nonlocal seen
            before, seen = seen, await _marks(engine)
            names = before.keys() | seen.keys()
            return {name for name in names if before.get(name) != seen.get(name)}

        assert await changed() == set(), "nothing has happened"
        await engine.enqueue([NewJob(task="t", id="j", queue="mail", tenant="a")])
        assert await changed() == {mail}
        [job] = await engine.get(["j"], tenant="a")
        assert job is not None
        await engine.edit(job, Edit(priority=3), OPERATION)
        assert mail in await changed()
        claim = await engine.claim(queues=["mail"], worker="w")
        assert mail in await changed()
        await engine.extend(claim.jobs, lease_seconds=60)
        await changed()
        await engine.settle([completed(claim.jobs[0])])
        assert await changed() == {mail}
        await engine.enqueue([NewJob(task="t", id="k", queue="mail", tenant="a")])
        assert await changed() == {mail}
        await engine.operate(CancelJobs(), Filter(ids=("k",)), OPERATION)
        assert mail in await changed()
        await engine.audit([AuditEntry("look", "job", "j", "ann")])
        assert await changed() == {("", "audit")}

    @on_engine
    async def test_a_limited_caller_sees_its_tenant_alone_and_with_scopes_no_names(
        self, fixture: EngineFixture
    ) -> None:
        engine = fixture.engine
        await engine.changes()
        for tenant in ("a", "b"):
            await engine.enqueue([NewJob(task="t", queue=f"q{tenant}", tenant=tenant)])
        await engine.audit([AuditEntry("look", "job", "j", "ann")])
        mine = (await engine.changes(caller=Caller("a"))).marks
        assert [(one.tenant, one.topic) for one in mine] == [("a", "queue:qa")]
        scoped = (await engine.changes(caller=Caller("a", ("library:1",)))).marks
        assert [(one.tenant, one.topic) for one in scoped] == [("a", "jobs")]


async def _marks(engine: Engine) -> dict[tuple[str, str], str]:
    found = await engine.changes()
    return {(one.tenant, one.topic): one.mark for one in found.marks}
