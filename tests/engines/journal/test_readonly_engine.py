"""A store that nobody owns, looked at: the same answers as its owner's, and nothing changed."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.engines.contract import Engine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.readonly_engine import ReadonlyHistory, open_readonly
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.model.actions import (
    ArchiveJobs,
    CancelJobs,
    ConfirmJobs,
    NoteJobs,
    PurgeJobs,
    ReplayJobs,
)
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import CorruptLog, EngineClosed, HistoryMissing
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import completed, dead, retry
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter, Order

WHY = Attribution("ann", "to see", (AuditEntry("job.test", "job", "", "ann"),))
IDS = [f"job-{number}" for number in range(24)]
FILTERS = (
    Filter(),
    Filter(states=(State.DEAD,)),
    Filter(states=(State.COMPLETED, State.CANCELLED)),
    Filter(queues=("mail",)),
    Filter(error_reasons=("timeout",)),
    Filter(classes=(FailureClass.DETERMINISTIC,)),
    Filter(text="COLUMN"),
    Filter(ids=("job-1", "job-5", "job-20")),
    Filter(attempts_from=2),
    Filter(keys=("k",)),
)


async def answers(engine: Engine) -> dict[str, Any]:
    """Everything that can be asked."""
    found: dict[str, Any] = {
        "counts": dict(await engine.counts()),
        "validate": await engine.validate(),
        "policies": dict(await engine.policies()),
        "flags": dict(await engine.flags()),
        "schedules": dict(await engine.schedules()),
        "audit": await engine.audited(),
        "audit after": await engine.audited(after=2, limit=2),
        "history": await engine.history(IDS),
        "get": await engine.get(IDS),
    }
    for number, wanted in enumerate(FILTERS):
        found[f"groups {number}"] = await engine.groups(wanted)
        for order in Order:
            jobs, cursor = [], ""
            while True:
                page = await engine.find(wanted, cursor=cursor, limit=3, order=order)
                jobs += page.jobs
                cursor = page.cursor
                if not cursor:
                    break
            found[f"find {number} {order}"] = jobs
            found[f"count {number}"] = await engine.count(wanted, cap=7)
    return found


async def live(engine: Engine) -> None:
    """A bit of everything happens."""
    await engine.enqueue(
        [
            NewJob(
                task="t",
                id=job_id,
                queue="mail" if number % 3 else "default",
                max_attempts=2,
                key="k" if number in (8, 9) else None,
                hold=number == 23,
            )
            for number, job_id in enumerate(IDS)
        ]
    )
    await engine.operate(CancelJobs(), Filter(ids=("job-22",)), WHY)
    await engine.operate(ConfirmJobs(), Filter(ids=("job-23",)), WHY)
    jobs = (await engine.claim(queues=["mail", "default"], worker="w", limit=18)).jobs
    settled: list[Any] = []
    for number, job in enumerate(jobs):
        if number % 3 == 0:
            settled.append(completed(job, b"1"))
        elif number % 3 == 1:
            settled.append(dead(job, Failure.of("mapping_error", f"no column {number}")))
        else:
            settled.append(retry(job, Failure.of("timeout", "no answer"), 0.0))
    await engine.settle(settled)
    again = (await engine.claim(queues=["mail", "default"], worker="w2", limit=4)).jobs
    await engine.settle([retry(job, Failure.of("timeout", "again")) for job in again])


async def operate(engine: Engine) -> None:
    """People look after what is dead."""
    page = await engine.find(Filter(states=(State.DEAD,)))
    names = [job.id for job in page.jobs]
    await engine.operate(ReplayJobs(fixed="the column"), Filter(ids=(names[0],)), WHY)
    await engine.operate(ArchiveJobs(), Filter(ids=(names[1],)), WHY)
    await engine.operate(NoteJobs("looked at"), Filter(ids=tuple(names[:3])), WHY)
    await engine.set_policy("mail", QueuePolicy(max_in_flight=3), WHY)
    await engine.set_flag("auto", WHY, on=True)
    await engine.set_schedule("s", ScheduleState("@daily", "UTC", "t", "mail"), WHY)


async def read(path: Path, look: Callable[[Engine], Awaitable[Any]]) -> Any:
    engine = await open_readonly(LocalDisk(path))
    try:
        return await look(engine)
    finally:
        await engine.close()


def files(path: Path) -> dict[str, bytes]:
    """What may not change: everything but what SQLite keeps beside its file to share memory."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and "cold.sqlite" not in file.name
    }


async def test_after_a_close_a_reader_answers_as_the_owner_did(tmp_path):
    engine = await JournalEngine.open(tmp_path / "store")
    await live(engine)
    await operate(engine)
    expected = await answers(engine)
    await engine.close()
    before = files(tmp_path)
    assert await read(tmp_path / "store", answers) == expected
    assert files(tmp_path) == before


@pytest.mark.parametrize("fed", [False, True], ids=["nothing kept", "some kept"])
async def test_after_a_crash_it_has_what_history_lacks(tmp_path, fed):
    """The control is beside it: without what is late in mind, the answers are others."""

    engine = await JournalEngine.open(tmp_path / "store")
    await live(engine)
    if fed:
        await engine.counts()  # which waits until all is kept
        await operate(engine)
    shutil.copytree(tmp_path / "store", tmp_path / "crashed")
    expected = await answers(engine)
    await engine.close()
    before = files(tmp_path / "crashed")

    async def look(reader: Engine) -> None:
        history = reader._core.history  # type: ignore[attr-defined]
        assert isinstance(history, ReadonlyHistory)
        assert history._late
        found = await answers(reader)
        assert found == expected
        if not fed:
            history._late = False
            assert await reader.groups() != expected["groups 0"]

    await read(tmp_path / "crashed", look)
    assert files(tmp_path / "crashed") == before
    # Its owner opens it afterwards as if nobody had looked.
    again = await JournalEngine.open(tmp_path / "crashed")
    assert (await again.groups()) == expected["groups 0"]
    await again.close()


async def test_what_was_purged_just_before_a_crash_is_gone(tmp_path, monkeypatch):
    engine = await JournalEngine.open(tmp_path / "store")
    await live(engine)
    await engine.counts()
    page = await engine.find(Filter(states=(State.DEAD,)))
    gone = tuple(job.id for job in page.jobs[:2])
    flush = engine._core.history.flush
    copied: list[int] = []

    async def crash() -> None:
        if engine._core.history.unfed and not copied:  # type: ignore[attr-defined]
            copied.append(1)
            shutil.copytree(tmp_path / "store", tmp_path / "crashed")
        await flush()

    monkeypatch.setattr(engine._core.history, "flush", crash)
    await engine.operate(PurgeJobs(), Filter(ids=gone), WHY)
    assert copied
    expected = await answers(engine)
    await engine.close()
    assert await read(tmp_path / "crashed", answers) == expected
    assert expected["get"][IDS.index(gone[0])] is None


async def test_nothing_can_be_changed_and_nothing_is_made(tmp_path):
    reader = await open_readonly(LocalDisk(tmp_path / "nowhere"))
    with pytest.raises(EngineClosed, match="to be looked at"):
        await reader.enqueue([NewJob(task="t")])
    with pytest.raises(EngineClosed):
        await reader.set_flag("f", WHY, on=True)
    assert await reader.find() == (await reader.find())
    await reader.close()
    assert list(tmp_path.iterdir()) == []


async def test_what_an_owner_would_refuse_a_reader_refuses_too(tmp_path):
    options = JournalOptions(segment_bytes=64 * 1024, compact_bytes=1)
    engine = await JournalEngine.open(tmp_path / "store", options=options)
    await live(engine)
    await engine.compact()
    await engine.close()
    shutil.copytree(tmp_path / "store", tmp_path / "damaged")
    (tmp_path / "store" / "cold.sqlite").unlink()
    with pytest.raises(HistoryMissing):
        await open_readonly(LocalDisk(tmp_path / "store"))
    for place in ("snapshots", "log"):
        for file in (tmp_path / "damaged" / place).iterdir():
            file.write_bytes(file.read_bytes()[:100] + b"\xff" * 100 + file.read_bytes()[200:])
    with pytest.raises(CorruptLog):
        await open_readonly(LocalDisk(tmp_path / "damaged"))
