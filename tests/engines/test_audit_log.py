"""Every entry of the audit is a log event: once, when it is durable, on every engine."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engines.contract import Engine
from holdfast.engines.embedded.core import EmbeddedCore
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.wal.group_commit import GroupCommit
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.actions import CancelJobs, NoteJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.effects import ScheduleState
from holdfast.model.fleet import WorkerCommand
from holdfast.model.job import Edit, NewJob
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter


def who(action: str, *more: AuditEntry) -> Attribution:
    return Attribution("ann", "because", (AuditEntry(action, "x", "y", "ann"), *more))


async def everything(engine: Engine) -> None:
    """Do all that leaves an entry."""
    await engine.enqueue([NewJob(task="t", id=name) for name in ("a", "b", "c")])
    (job,) = (await engine.claim(queues=["default"], worker="w", limit=1)).jobs
    await engine.reclaim(forced=[job], attribution=who("reclaim"))
    await engine.edit(job, Edit(priority=3), who("edit"))
    await engine.operate(CancelJobs(), Filter(), who("cancel", AuditEntry("two", "x", "", "ann")))
    await engine.operate(NoteJobs("secret"), Filter(), who("job.note"))
    await engine.set_policy("q", QueuePolicy(paused=True), who("policy"))
    await engine.set_flag("f", who("flag"), on=True)
    await engine.set_schedule("s", ScheduleState("@daily", "UTC", "t", "q"), who("schedule"))
    await engine.command(WorkerCommand("drain"), ["p"], who("command"), ttl_seconds=5)
    await engine.audit([AuditEntry("denied", "x", "", "eve", reason="no")])


@pytest.fixture(params=["memory", "journal"])
def open_engine(request, tmp_path):
    async def make() -> Engine:
        if request.param == "memory":
            return MemoryEngine()
        return await JournalEngine.open(tmp_path / "data")

    return make


def logged(caplog) -> list[int]:
    return [one.number for one in caplog.records if one.name == "holdfast.audit"]


async def test_every_entry_is_logged_once_and_in_order(open_engine, caplog):
    caplog.set_level("INFO")
    engine = await open_engine()
    await everything(engine)
    numbers = [record.number for record in await engine.audited()]
    await engine.close()
    assert len(numbers) == 10
    assert logged(caplog) == numbers
    events = [one.getMessage() for one in caplog.records if one.name == "holdfast.audit"]
    assert events[2] == ("audit.entry number=3 action=cancel resource=x y user=ann count=3"), (
        "what was done is in it"
    )
    assert "eve" in events[-1]


async def test_an_entry_that_never_became_durable_is_not_logged(tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO")
    engine = await JournalEngine.open(tmp_path / "data")
    await engine.set_flag("f", who("flag"), on=True)

    def fail(_self: object, callers: int = 1) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(OSError("the disk is gone"))
        return future

    try:
        with monkeypatch.context() as patched:
            patched.setattr(GroupCommit, "durable_future", fail)
            with pytest.raises(OSError, match="gone"):
                await engine.set_flag("f", who("flag"), on=False)
    finally:
        await engine.close()
    assert logged(caplog) == [1]


async def test_an_entry_whose_caller_went_away_is_logged_with_the_next(
    tmp_path, caplog, monkeypatch
):
    caplog.set_level("INFO")
    engine = await JournalEngine.open(tmp_path / "data")
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with monkeypatch.context() as patched:
        patched.setattr(GroupCommit, "durable_future", lambda _self, callers=1: never)
        task = asyncio.create_task(engine.set_flag("f", who("flag"), on=True))
        for _turn in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert logged(caplog) == []
    await engine.set_flag("f", who("flag"), on=False)
    await engine.close()
    assert logged(caplog) == [1, 2]


async def test_control_logging_before_durability_fails_the_test_above(
    tmp_path, caplog, monkeypatch
):
    async def too_soon(self: EmbeddedCore) -> None:
        return None

    monkeypatch.setattr(EmbeddedCore, "_flushed", too_soon)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await test_an_entry_that_never_became_durable_is_not_logged(tmp_path, caplog, monkeypatch)
