"""Every single-bit flip and every truncation of an 8 KiB log and of a snapshot."""

import asyncio
import random
from functools import cache

import pytest

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.inspection import verify
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.snapshots.snapshot import read_snapshot, snapshot_names
from holdfast.engines.journal.wal import frames
from holdfast.engines.journal.wal.recovery import recover
from holdfast.engines.journal.wal.segments import segment_name
from holdfast.model.errors import CorruptLog, HoldfastError
from holdfast.model.job import Job, NewJob
from holdfast.model.outcome import completed
from holdfast.testing import SimDisk, VirtualClock

from .sweep import swept

SIZE = 8192
OPTIONS = JournalOptions(inline=True, segment_bytes=SIZE, remember_seconds=1e6)
LOG = segment_name(1)


def seeded(seed: int):
    rng = random.Random(seed)
    return rng.randbytes


class Written:
    """A log, and the state after each of its frames."""

    def __init__(self, *, closed: bool) -> None:
        self.prefixes: dict[int, list[Job]] = {}
        self.frame_starts: list[int] = []
        self.disk = asyncio.run(self._write(closed=closed))
        self.content = self.disk.content(LOG)

    async def _write(self, *, closed: bool) -> SimDisk:
        disk, clock, rng = SimDisk(), VirtualClock(), random.Random(7)
        engine = await JournalEngine.open(
            disk, clock=clock, options=OPTIONS, random_bytes=seeded(7)
        )
        state, writer = engine._state, engine._writer
        self.prefixes[0] = []
        while writer._current.offset < SIZE - 1_300:
            self.frame_starts.append(writer._current.offset)
            payload = b'{"x":"' + rng.randbytes(rng.randrange(150)).hex().encode() + b'"}'
            await engine.enqueue([NewJob(task="t", payload=payload)])
            self.prefixes[state.seq] = list(state.jobs())
            self.frame_starts.append(writer._current.offset)
            claim = await engine.claim(queues=["default"], worker="w")
            self.prefixes[state.seq] = list(state.jobs())
            self.frame_starts.append(writer._current.offset)
            await engine.settle([completed(job) for job in claim.jobs])
            self.prefixes[state.seq] = list(state.jobs())
        self.last_seq = state.seq
        if closed:
            await engine.close()
        return disk.crash()

    @property
    def last_frame(self) -> int:
        """Where the last frame begins."""
        return self.frame_starts[-1]


@cache
def written(*, closed: bool) -> Written:
    return Written(closed=closed)


def flips_misread(log: Written, bits: range) -> list[str]:
    """Flip these bits one at a time; return what recovery got wrong."""
    wrong = []
    end = len(log.content.rstrip(b"\0"))
    for bit in bits:
        log.disk.flip_bit(LOG, bit)
        try:
            found = recover(log.disk)
        except CorruptLog as damage:
            if damage.file != LOG or not 0 <= damage.offset <= SIZE or damage.seq < 0:
                wrong.append(f"bit {bit}: {damage}")
        except Exception as error:  # noqa: BLE001 - anything else is what we look for
            wrong.append(f"bit {bit}: {type(error).__name__}: {error}")
        else:
            state = found.state
            if list(state.jobs()) != log.prefixes.get(state.seq):
                wrong.append(f"bit {bit}: not a prefix")
            elif state.seq != log.last_seq:
                wrong.append(f"bit {bit}: {state.seq} of {log.last_seq} kept")
            elif bit // 8 < end:
                wrong.append(f"bit {bit}: not noticed")
        finally:
            log.disk.flip_bit(LOG, bit)
    return wrong


def test_every_bit_flip_of_a_log_left_by_a_crash_is_found():
    """Even in the last frame: it was written whole, so it is not taken for a torn end."""
    assert flips_misread(written(closed=False), swept(range(SIZE * 8), 5)) == []


def test_every_bit_flip_of_a_closed_log_is_corrupt_log():
    log = written(closed=True)
    bits = swept(range(len(log.content) * 8), 5)
    assert len(log.content) >= SIZE - 1_300
    assert flips_misread(log, bits) == []
    assert log.content[-1], "there is no blank part in which a flip could go unnoticed"


def test_control_without_the_header_checksum_damage_is_misread(monkeypatch):
    """The test above bites: a flipped length then passes for a torn end."""
    real = frames.read
    monkeypatch.setattr(frames, "read", lambda data, offset, salt=0: real(data, offset, None))
    monkeypatch.setattr(frames, "looks_torn", looks_torn_trusting_any_header)
    log = written(closed=False)
    header = range(log.last_frame * 8, (log.last_frame + frames.HEADER.size) * 8)
    assert any("kept" in wrong for wrong in flips_misread(log, header))


def looks_torn_trusting_any_header(buffer, offset, salt):
    length = frames.HEADER.unpack_from(buffer, offset)[4]
    end = offset + frames.OVERHEAD + length
    return end > len(buffer) or not any(buffer[end - 4 : end])


@pytest.mark.parametrize("closed", [True, False])
def test_every_truncation_is_corrupt_log(closed):
    """A segment is allocated whole and synced before its first use: a short one was cut."""
    log = written(closed=closed)
    for length in swept(range(len(log.content)), 3):
        disk = log.disk.crash()
        disk.cut(LOG, length)
        with pytest.raises(CorruptLog) as damage:
            recover(disk)
        assert damage.value.file == LOG


def test_every_sector_lost_from_the_last_write_is_a_torn_end():
    """Whatever sectors of the last frame arrived: it is cut, and all before it is kept."""
    disk, clock = SimDisk(), VirtualClock()

    async def run() -> tuple[int, list[Job], int]:
        engine = await JournalEngine.open(disk, clock=clock, options=OPTIONS)
        await engine.enqueue([NewJob(task="t", id="kept")])
        before = list(engine._state.jobs())
        start = engine._writer._current.offset
        payload = random.Random(5).randbytes(900).hex().encode()
        await engine.enqueue([NewJob(task="t", id="torn", payload=b'{"x":"' + payload + b'"}')])
        return start, before, engine._writer._current.offset

    start, before, end = asyncio.run(run())
    content = disk.content(LOG)
    sectors = [(max(start, at), min(at + 512, end)) for at in range(start // 512 * 512, end, 512)]
    for present in range(2 ** len(sectors) - 1):
        torn = bytearray(content)
        for index, (first, last) in enumerate(sectors):
            if not present >> index & 1:
                torn[first:last] = bytes(last - first)
        found_disk = disk.crash()
        found_disk.put(LOG, bytes(torn))
        found = recover(found_disk)
        assert list(found.state.jobs()) == before
        assert (found.end.torn_offset is not None) == (present != 0)


@pytest.mark.parametrize("damage", ["removed", "repeated", "exchanged", "stale"])
def test_a_segment_that_is_not_where_it_belongs_is_found(damage):
    async def run() -> SimDisk:
        disk = SimDisk()
        engine = await JournalEngine.open(disk, clock=VirtualClock(), options=OPTIONS)
        for _segment in range(3):
            for _job in range(5):
                await engine.enqueue([NewJob(task="t", payload={"x": "y" * 100})])
            await engine.commit.run(engine._writer.seal)
        await engine.enqueue([NewJob(task="t")])
        return disk.crash()

    disk = asyncio.run(run())
    first, second, third = (disk.content(segment_name(number)) for number in (1, 2, 3))
    if damage == "removed":
        disk.remove(segment_name(2))
    elif damage == "repeated":
        disk.put(segment_name(2), first)
    elif damage == "exchanged":
        disk.put(segment_name(2), third)
        disk.put(segment_name(3), second)
    else:
        other = asyncio.run(run())
        disk.put(segment_name(2), other.content(segment_name(2)))
    with pytest.raises(CorruptLog):
        recover(disk)
    assert verify(disk).problems


# --- snapshots -------------------------------------------------------------------------------


@cache
def snapshotted() -> tuple[SimDisk, list[Job]]:
    """Two snapshots, the segments since the older one, and the state."""

    async def run() -> tuple[SimDisk, list[Job]]:
        disk, clock, rng = SimDisk(), VirtualClock(), random.Random(3)
        engine = await JournalEngine.open(
            disk, clock=clock, options=OPTIONS, random_bytes=seeded(9)
        )
        for size in (10, 190):
            for _job in range(33):
                await engine.enqueue([NewJob(task="t", payload={"x": rng.randbytes(size).hex()})])
            await engine.compact()
        await engine.enqueue([NewJob(task="t")])
        jobs = list(engine._state.jobs())
        await engine.close()
        return disk.crash(), jobs

    return asyncio.run(run())


def by_id(jobs: list[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: job.id)


def by_seq(jobs: list[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: job.seq)


def check_fallback(disk: SimDisk, jobs: list[Job]) -> None:
    newest = snapshot_names(disk)[0]
    found = recover(disk)
    assert by_seq(list(found.state.jobs())) == by_seq(jobs)
    assert [damage.file for damage in found.damaged_snapshots] == [newest]


def test_every_bit_flip_of_a_snapshot_is_found_and_costs_nothing():
    disk, jobs = snapshotted()
    newest = snapshot_names(disk)[0]
    assert len(disk.content(newest)) >= 8_000
    for bit in swept(range(len(disk.content(newest)) * 8), 5):
        disk.flip_bit(newest, bit)
        with pytest.raises(CorruptLog) as damage:
            read_snapshot(disk, newest, lambda jobs, _head: list(jobs).clear())
        assert damage.value.file == newest
        if bit % 101 == 0:
            check_fallback(disk, jobs)
        disk.flip_bit(newest, bit)


def test_every_truncation_of_a_snapshot_is_found_and_costs_nothing():
    disk, jobs = snapshotted()
    newest = snapshot_names(disk)[0]
    for length in swept(range(len(disk.content(newest))), 3):
        cut = disk.crash()
        cut.cut(newest, length)
        with pytest.raises(CorruptLog):
            read_snapshot(cut, newest, lambda jobs, _head: list(jobs).clear())
        if length % 101 == 0:
            check_fallback(cut, jobs)


def test_two_damaged_snapshots_are_corrupt_log():
    disk, _jobs = snapshotted()
    broken = disk.crash()
    for name in snapshot_names(broken):
        broken.flip_bit(name, 999)
    with pytest.raises(CorruptLog) as damage:
        recover(broken)
    assert damage.value.file == snapshot_names(broken)[0]
    assert len(verify(broken).problems) >= 2


def test_recovering_what_was_recovered_changes_nothing():
    log = written(closed=False)
    disk = log.disk.crash()

    async def reopen() -> list[Job]:
        engine = await JournalEngine.open(disk, clock=VirtualClock(), options=OPTIONS)
        jobs = by_id(engine.kept())
        await engine.close()
        return jobs

    lives = [asyncio.run(reopen()) for _life in range(4)]
    assert lives == [by_id(log.prefixes[log.last_seq])] * 4


def test_damage_is_never_opened_for_writing():
    log = written(closed=True)
    disk = log.disk.crash()
    disk.flip_bit(LOG, 4_000)
    before = {name: disk.content(name) for name in disk.names("log")}

    async def run() -> None:
        with pytest.raises(CorruptLog, match="salvage"):
            await JournalEngine.open(disk, clock=VirtualClock(), options=OPTIONS)

    asyncio.run(run())
    assert {name: disk.content(name) for name in disk.names("log")} == before


def test_typed_errors_only_for_a_directory_of_noise():
    rng = random.Random(11)
    for size in (0, 1, 31, 32, 36, 100, SIZE):
        disk = SimDisk()
        disk.put(LOG, rng.randbytes(size))
        with pytest.raises(HoldfastError):
            recover(disk)
