"""Snapshots: when they are made, what they replace, and what they never cost."""

import asyncio
import errno
import sys
from pathlib import Path

import pytest

from holdfast.engines.contract import Counts
from holdfast.engines.journal import inspection
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.engines.journal.wal.log_reader import kept_names
from holdfast.model.errors import CorruptLog
from holdfast.model.outcome import completed
from holdfast.testing import SimDisk, VirtualClock
from tests.engines.journal.test_engine import job, opened


async def test_sealed_bytes_past_the_threshold_are_compacted_by_another_process(tmp_path):
    """The real thing: real files, a real process, under load."""

    options = JournalOptions(segment_bytes=64 * 1024, compact_bytes=256 * 1024)
    engine = await JournalEngine.open(tmp_path, options=options)
    number = 0
    while not list((tmp_path / "snapshots").glob("*.snap")):
        for _ in range(20):
            number += 1
            await engine.enqueue([job(f"j{number}", payload={"x": "y" * 500})])
            claim = await engine.claim(queues=["default"], worker="w")
            await engine.settle([completed(one) for one in claim.jobs])
    assert await engine.validate() == []
    await engine.close()
    again = await JournalEngine.open(tmp_path, options=options)
    assert (await again.counts())["default"] == Counts(completed=number)
    await again.close()


async def test_nothing_is_compacted_when_nothing_changed():
    disk = SimDisk()
    engine = await opened(disk)
    await engine.enqueue([job("a")])
    assert await engine.compact() is not None
    calls = disk.calls
    assert await engine.compact() is None
    assert disk.calls == calls


async def test_two_snapshots_are_kept_and_the_segments_since_the_older_one():
    disk = SimDisk()
    engine = await opened(disk)
    for number in range(5):
        await engine.enqueue([job(f"j{number}")])
        await engine.compact()
    assert len(disk.names("snapshots")) == 2
    segments = [name for name in disk.names("log") if name.endswith(".seg")]
    assert len(segments) == 3, "one between the snapshots, the current one, its spare"


async def test_old_segments_are_kept_for_a_person_when_asked():
    disk = SimDisk()
    engine = await opened(disk, keep_log_bytes=1_000)
    for number in range(6):
        await engine.enqueue([job(f"j{number}")])
        await engine.compact()
    kept = kept_names(disk)
    sizes = [len(disk.content(name)) for name in kept]
    assert len(kept) > 1
    assert sum(sizes) <= 1_000 < sum(sizes) + max(sizes), "as many as there is room for"
    copy = disk.crash()
    records = list(inspection.dump(copy))
    assert [record.seq for record in records] == list(range(records[0].seq, 7))
    assert records[0].file == kept[0]
    assert records[-1].job_id == "j5"
    report = inspection.verify(copy)
    assert (report.problems, report.kept_segments) == ([], kept)
    again = await opened(copy)
    assert (await again.counts())["default"].pending == 6, "recovery does not read them"


async def test_without_the_setting_nothing_is_kept_and_what_was_kept_goes():
    disk = SimDisk()
    engine = await opened(disk, keep_log_bytes=10_000)
    for number in range(4):
        await engine.enqueue([job(f"j{number}")])
        await engine.compact()
    await engine.close()
    assert kept_names(disk)
    engine = await opened(disk)
    await engine.enqueue([job("last")])
    await engine.compact()
    assert kept_names(disk) == []


async def test_damage_to_a_kept_segment_is_reported_and_stops_nothing_else():
    disk = SimDisk()
    engine = await opened(disk, keep_log_bytes=10_000)
    for number in range(4):
        await engine.enqueue([job(f"j{number}")])
        await engine.compact()
    await engine.close()
    name = kept_names(disk)[0]
    data = bytearray(disk.content(name))
    data[-30] ^= 1
    disk.put(name, bytes(data))
    [problem] = inspection.verify(disk).problems
    assert name in problem
    with pytest.raises(CorruptLog, match=name):
        list(inspection.dump(disk))
    again = await opened(disk)
    assert (await again.counts())["default"].pending == 4


async def test_sequence_numbers_and_tokens_go_on_after_compaction_and_reopening():
    disk, clock = SimDisk(), VirtualClock()
    tokens = []
    for life in range(3):
        engine = await opened(disk, clock)
        await engine.enqueue([job(f"j{life}")])
        [one] = (await engine.claim(queues=["default"], worker="w")).jobs
        tokens.append(one.token)
        await engine.compact()
        await engine.close()
    assert tokens == sorted(set(tokens))


def test_a_failing_compaction_is_said_and_costs_nothing(caplog):
    async def run() -> None:
        disk = SimDisk()
        engine = await opened(disk)
        await engine.enqueue([job("a")])
        create = disk.create

        def create_no_snapshot(name: str) -> int:
            if name.startswith("snapshots/"):
                raise OSError(errno.ENOSPC, "no space left")
            return create(name)

        disk.create = create_no_snapshot  # type: ignore[method-assign]
        await engine._compact_in_background()
        await engine.enqueue([job("b")])
        assert (await engine.counts())["default"].pending == 2

    asyncio.run(run())
    assert "journal.compaction_failed" in caplog.text


async def test_the_compacting_process_leaves_with_its_owner(tmp_path):
    """The owner holds its input open; when that closes, it is gone."""

    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from holdfast.engines.journal.snapshots import compactor\n"
        "import threading\n"
        "compactor.compact = lambda *_: threading.Event().wait()\n"
        "compactor.main()\n",
        stdin=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(
        b'{"root":"x","snapshots":"y","last_segment":1,"remember_seconds":1,"salt":1}\n'
    )
    await process.stdin.drain()
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 20) == 1


async def test_snapshots_may_live_in_another_directory(tmp_path: Path):
    disk = LocalDisk(tmp_path / "data", snapshots=str(tmp_path / "elsewhere"))
    options = JournalOptions(segment_bytes=64 * 1024)
    engine = await JournalEngine.open(disk, options=options)
    await engine.enqueue([job("a")])
    await engine.compact()
    await engine.close()
    assert list((tmp_path / "elsewhere").glob("*.snap"))
    assert not (tmp_path / "data" / "snapshots").exists()


def test_closing_during_a_compaction_leaves_a_directory_that_opens(tmp_path):
    """Whatever moment of it: no process and no thread goes on behind the engine's back."""

    async def run(turns: int) -> None:
        options = JournalOptions(segment_bytes=64 * 1024, compact_bytes=64 * 1024)
        engine = await JournalEngine.open(tmp_path, options=options)
        before = (await engine.counts()).get("default", Counts()).pending
        number = 0
        while engine._compacting is None:
            number += 1
            await engine.enqueue([job(f"{turns}-{number}", payload={"x": "y" * 2_000})])
        for _ in range(turns):
            await asyncio.sleep(0)
        await engine.close()
        again = await JournalEngine.open(tmp_path, options=options)
        assert again.recovery.closed_in_order
        assert (await again.counts())["default"].pending == before + number
        await again.close()

    for turns in (0, 1, 3, 10, 1_000):
        asyncio.run(run(turns))


async def test_compactions_do_not_run_into_each_other(tmp_path):
    engine = await JournalEngine.open(tmp_path, options=JournalOptions(segment_bytes=64 * 1024))
    await engine.enqueue([job("a")])
    first, second = await asyncio.gather(engine.compact(), engine.compact())
    assert first is not None
    assert second is None, "nothing had changed since the first"
    await engine.close()
