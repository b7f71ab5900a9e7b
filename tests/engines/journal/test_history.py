"""The journal and its history: what is recorded, stored, missing, and a lost file."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.engines.contract import Counts
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.history.feed import HistoryFeed
from holdfast.engines.journal.inspection import verify
from holdfast.engines.journal.options import DamagedHistory, JournalOptions
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.model.actions import PurgeJobs, ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import (
    CorruptHistory,
    DuplicateId,
    HistoryMissing,
    InvalidInput,
    StorageError,
)
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import completed, dead
from holdfast.model.search import Filter
from holdfast.testing import SimDisk, VirtualClock
from holdfast.testing.conformance.fixture import settle_down

FAILURE = Failure.of("upstream_5xx", "503")
WHY = Attribution("ops", "mended")
OPTIONS = JournalOptions(inline=True, segment_bytes=8192, remember_seconds=1e6)
FILE = "cold.sqlite"


async def opened(where: SimDisk | Path, **asked: Any) -> JournalEngine:
    options: dict[str, Any] = {"segment_bytes": 8192, "remember_seconds": 1e6, **asked}
    if isinstance(where, SimDisk):
        options["inline"] = True
    return await JournalEngine.open(where, clock=VirtualClock(), options=JournalOptions(**options))


async def a_life(engine: JournalEngine) -> None:
    """Two dead, one completed, one pending; compacted, so that the history is relied on."""
    await engine.enqueue([NewJob(task="t", id=f"j{n}") for n in range(4)])
    jobs = (await engine.claim(queues=["default"], worker="w", limit=3)).jobs
    await engine.settle([completed(jobs[0]), dead(jobs[1], FAILURE), dead(jobs[2], FAILURE)])
    await engine.compact()


async def lived(where: Path) -> None:
    engine = await opened(where)
    await a_life(engine)
    await engine.close()


def full(*_asked: object) -> None:
    raise OSError(28, "no space left on device")


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(100, len(data), 997):
        data[at] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (lambda path: path.unlink(), HistoryMissing),
        (lambda path: path.write_bytes(b""), HistoryMissing),
        (damage, CorruptHistory),
        (lambda path: path.write_bytes(path.read_bytes()[:5000]), CorruptHistory),
        (lambda path: path.write_bytes(b"not a database at all" * 500), CorruptHistory),
    ],
    ids=["missing", "empty", "flipped", "cut", "foreign"],
)
def test_a_file_that_is_gone_or_damaged_stops_the_start_and_is_begun_anew_when_asked(
    tmp_path, harm, error
):
    asyncio.run(lived(tmp_path))
    harm(tmp_path / FILE)

    async def run() -> None:
        with pytest.raises(error, match="history anew"):
            await opened(tmp_path)
        engine = await opened(tmp_path, history=DamagedHistory.ANEW)
        assert await engine.counts() == {"default": Counts(pending=1)}
        [job] = (await engine.claim(queues=["default"], worker="w")).jobs
        assert job.id == "j3"
        await engine.settle([dead(job, FAILURE)])
        await engine.close()
        again = await opened(tmp_path)
        assert await again.counts() == {"default": Counts(dead=1)}
        assert (await again.operate(ReplayJobs(), Filter(ids=("j3",)), WHY)).jobs[
            0
        ].state is State.PENDING
        await again.close()

    asyncio.run(run())
    aside = list(tmp_path.glob(f"{FILE}.damaged-*"))
    assert bool(aside) == (error is CorruptHistory or ((tmp_path / FILE).exists() and bool(aside)))


def test_verify_finds_a_history_that_is_damaged_or_missing(tmp_path):
    asyncio.run(lived(tmp_path))
    assert verify(LocalDisk(tmp_path)).problems == []
    damage(tmp_path / FILE)
    assert FILE in verify(LocalDisk(tmp_path)).problems[0]
    (tmp_path / FILE).unlink()
    assert any(FILE in problem for problem in verify(LocalDisk(tmp_path)).problems)


async def test_a_history_from_another_store_is_refused(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    await lived(first)

    engine = await opened(second)
    await engine.close()
    (first / FILE).rename(second / FILE)
    with pytest.raises(CorruptHistory, match="goes up to seq"):
        await opened(second)


async def test_without_a_snapshot_a_missing_history_is_rebuilt_from_the_log():
    disk = SimDisk()
    engine = await opened(disk)
    await engine.enqueue([NewJob(task="t", id="a")])
    [job] = (await engine.claim(queues=["default"], worker="w")).jobs
    await engine.settle([dead(job, FAILURE)])
    await engine.close()
    found = disk.crash()
    found.database().set_aside()
    again = await opened(found)
    assert await again.counts() == {"default": Counts(dead=1)}
    [history] = await again.history(["a"])
    assert history is not None
    assert [attempt.ending for attempt in history.attempts] == ["dead"]
    await again.close()


async def test_what_was_purged_just_before_a_kill_is_not_found_afterwards(monkeypatch):
    disk = SimDisk()
    engine = await opened(disk)
    await a_life(engine)
    with monkeypatch.context() as patched:
        # The purge is in the log when the process dies, and has not reached the history.
        patched.setattr(HistoryFeed, "_feed_soon", lambda _past: None)
        patched.setattr(HistoryFeed, "flush", settle_down_instead)
        await engine.operate(PurgeJobs(), Filter(ids=("j1",)), WHY)
        found = disk.crash()
    again = await opened(found)
    assert await again.get(["j1"]) == [None]
    await again.close()


async def settle_down_instead(_past: HistoryFeed) -> None:
    await settle_down()


async def test_finished_jobs_leave_memory_and_their_ids_are_still_refused(tmp_path):
    engine = await opened(tmp_path)
    await a_life(engine)
    assert [job.id for job in engine._state.jobs()] == ["j3"]
    for job_id in ("j0", "j1"):
        with pytest.raises(DuplicateId):
            await engine.enqueue([NewJob(task="t", id=job_id)])
    await engine.close()


async def test_segments_stay_until_history_has_what_is_in_them(monkeypatch):
    disk = SimDisk()
    engine = await opened(disk)
    await engine.enqueue([NewJob(task="t", id=f"j{n}") for n in range(9)])
    jobs = (await engine.claim(queues=["default"], worker="w", limit=9)).jobs
    await engine.settle([dead(job, FAILURE) for job in jobs])
    before = disk.names("log")
    monkeypatch.setattr(engine._history.store, "feed", full)
    with pytest.raises(StorageError):
        await engine.compact()
    monkeypatch.undo()
    assert disk.names("snapshots") == []
    assert set(before) <= set(disk.names("log"))
    assert await engine.counts() == {"default": Counts(dead=9)}
    assert await engine.compact() is not None
    await engine.close()
    again = await opened(disk.crash())
    assert await again.counts() == {"default": Counts(dead=9)}
    await again.close()


async def test_claims_wait_while_history_is_too_far_behind(tmp_path, monkeypatch):
    engine = await opened(tmp_path, max_history_backlog=10, segment_bytes=1 << 16)
    monkeypatch.setattr(engine._history.store, "feed", full)
    await engine.enqueue([NewJob(task="t", id=f"j{n}") for n in range(30)])
    jobs = (await engine.claim(queues=["default"], worker="w", limit=20)).jobs
    await engine.settle([completed(job) for job in jobs[1:]])
    with pytest.raises(StorageError):
        await engine.find()
    assert (await engine.counts())["default"].completed == 19, "counting needs no history"
    async with asyncio.timeout(5):
        last = await engine.claim(
            queues=["default"], worker="w", limit=20, settle=[completed(jobs[0])]
        )
    assert (last.settled, last.jobs) == ([None], []), "outcomes are taken all the same"
    claim = asyncio.ensure_future(engine.claim(queues=["default"], worker="w", limit=20))
    await settle_down()
    assert not claim.done()
    await engine.enqueue([NewJob(task="t", id="meanwhile")])
    monkeypatch.undo()
    assert len((await claim).jobs) == 11
    await engine.close()


def test_a_word_for_the_history_that_is_not_known_is_refused():
    with pytest.raises(InvalidInput, match="required, anew"):
        JournalOptions(history="sometimes")  # type: ignore[arg-type]
    assert JournalOptions(history="anew").history is DamagedHistory.ANEW  # type: ignore[arg-type]
