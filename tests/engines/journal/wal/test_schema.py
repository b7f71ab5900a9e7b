"""Stored versions: golden files, migration on read, refusal of what is unknown."""

import asyncio
import logging
import os
import zlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.engines.contract import Counts
from holdfast.engines.embedded.engine import EmbeddedEngine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.readonly_engine import open_readonly
from holdfast.engines.journal.snapshots.snapshot import snapshot_names
from holdfast.engines.journal.wal import frames, schema
from holdfast.engines.journal.wal.recovery import recover
from holdfast.engines.journal.wal.segments import segment_name
from holdfast.model.errors import UnknownFormat
from holdfast.model.failure import Failure
from holdfast.model.job import FORGETTABLE, Job, NewJob
from holdfast.model.outcome import completed, dead, release, retry
from holdfast.testing import SimDisk, VirtualClock

GOLDEN = Path(__file__).parent.parent / "golden"
OPTIONS = JournalOptions(inline=True, segment_bytes=4096, remember_seconds=1e6)
FAILURE = Failure.of("upstream_5xx", "503")


async def work(engine: JournalEngine) -> list[Job]:
    await engine.enqueue(
        [
            NewJob(
                task="mail",
                id=f"j{n}",
                payload={"n": n},
                priority=n % 2,
                unique=f"u{n}",
                max_attempts=3,
            )
            for n in range(5)
        ]
    )
    await engine.enqueue(
        [
            NewJob(task="mail", id="later", scope="library:42", delay_seconds=60, max_attempts=3),
            NewJob(
                task="mail",
                id="short",
                tenant="acme",
                queue="slow",
                expires_seconds=30,
                max_attempts=3,
            ),
        ]
    )
    jobs = (await engine.claim(queues=["default"], worker="w", limit=4)).jobs
    await engine.extend(jobs[:1], lease_seconds=50)
    await engine.settle([completed(jobs[0], b"1"), retry(jobs[1], FAILURE), dead(jobs[2], FAILURE)])
    await engine.compact()
    await engine.settle([release(jobs[3])])
    await engine.claim(queues=["slow"], worker="w2")
    return sorted(engine.kept(), key=lambda job: job.id)


def write_golden() -> None:
    """Write the golden files of today's version: only when it is new."""

    async def run() -> None:
        seeded = iter(range(1, 1_000))
        engine = await JournalEngine.open(
            disk,
            clock=VirtualClock(),
            options=OPTIONS,
            random_bytes=lambda count: bytes([next(seeded) % 256]) * count,
        )
        await work(engine)
        await engine.close()

    disk = SimDisk()
    asyncio.run(run())
    for place in ("log", "snapshots"):
        folder = GOLDEN / f"schema{schema.SCHEMA}"
        (folder / place).mkdir(parents=True, exist_ok=True)
        for name in disk.names(place):
            (folder / name).write_bytes(disk.content(name))


def golden(version: int | str = 1) -> SimDisk:
    disk = SimDisk()
    folder = GOLDEN / f"schema{version}"
    for path in folder.rglob("*.*"):
        disk.put(str(path.relative_to(folder)), path.read_bytes())
    return disk


def expected() -> list[Job]:
    async def run() -> list[Job]:
        engine = await JournalEngine.open(SimDisk(), clock=VirtualClock(), options=OPTIONS)
        return await work(engine)

    return asyncio.run(run())


def as_kept_by(version: int, job: Job) -> Job | None:
    """Return what the files of a version have of a job."""
    if version < 4:  # all of a batch had the same time then
        job = replace(job, created_at_us=VirtualClock().now_us())
    if not job.state.finished:
        return job
    if version > 1:
        return None  # finished jobs are in history
    return replace(job, payload=b"") if job.state in FORGETTABLE else job


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_the_golden_files_of_every_version_are_read(version):
    if os.environ.get("HOLDFAST_WRITE_GOLDEN"):
        write_golden()
    found = recover(golden(version))
    assert found.snapshot is not None
    assert found.end.closed
    kept = [as_kept_by(version, job) for job in expected()]
    assert sorted(found.state.jobs(), key=lambda job: job.id) == [job for job in kept if job]


def test_older_records_are_migrated_step_by_step_and_that_is_logged(monkeypatch, caplog):
    """As if 2 had renamed a queue, and 3 turned priorities round; later ones changed nothing."""

    def jobs_in(records: list) -> list:
        """Return the raw jobs: a snapshot's records, or those inside an ENQUEUE, whose tag is 1."""
        return [
            record[2] if record[0] == 1 else record
            for record in records
            if record[0] == 1 or isinstance(record[0], str)
        ]

    def rename(records: list) -> list:
        for job in jobs_in(records):
            job[3] = {"default": "main"}.get(job[3], job[3])
        return records

    def turn_round(records: list) -> list:
        for job in jobs_in(records):
            assert job[3] != "default", "steps come in their order"
            job[6] = -job[6]
        return records

    wanted = expected()
    steps = {1: rename, 2: turn_round, 3: list, 4: list, 5: list}
    monkeypatch.setattr(schema, "LOG_STEPS", steps)
    monkeypatch.setattr(schema, "SNAPSHOT_STEPS", steps)
    with caplog.at_level(logging.INFO, "holdfast.journal"):
        found = recover(golden())
        said = [line.getMessage() for line in caplog.records if "migrated" in line.getMessage()]
    migrated = sorted(found.state.jobs(), key=lambda job: job.id)
    assert [job.queue for job in migrated] == [
        job.queue.replace("default", "main") for job in wanted
    ]
    assert [job.priority for job in migrated] == [-job.priority for job in wanted]
    assert all("from_schema=1 to_schema=6" in line for line in said)
    assert len(said) == 2, "once for the snapshot, once for the segment"


def restamped(disk: SimDisk, name: str, change) -> None:
    """Change the header of a file's first frame and make its checksums right again."""
    data = bytearray(disk.content(name))
    fields = list(frames.HEADER.unpack_from(data, 0))
    change(fields)
    length = fields[4]
    bare = frames.HEADER.pack(*fields[:8], 0)[:-4]
    header_crc = zlib.crc32(bare)
    start = frames.HEADER.size
    crc = zlib.crc32(bytes(data[start : start + length]), header_crc)
    data[:start] = bare + frames.CRC.pack(header_crc)
    data[start + length : start + length + 4] = frames.CRC.pack(crc)
    disk.put(name, bytes(data))


@pytest.mark.parametrize("what", ["format", "schema"])
@pytest.mark.parametrize("where", ["segment", "snapshot"])
def test_an_unknown_version_is_refused_with_the_file_and_nothing_is_changed(what, where):
    disk = golden()
    segments = [name for name in disk.names("log") if name.endswith(".seg")]
    name = segments[-1] if where == "segment" else snapshot_names(disk)[0]

    def change(fields: list) -> None:
        fields[1 if what == "format" else 3] = 9

    restamped(disk, name, change)

    async def run() -> None:
        with pytest.raises(UnknownFormat, match="newer") as refused:
            await JournalEngine.open(disk, clock=VirtualClock(), options=OPTIONS)
        assert (refused.value.file, refused.value.found) == (name, 9)

    asyncio.run(run())
    assert disk.calls == 0


def test_what_is_written_is_always_todays_version():
    disk = SimDisk()

    async def run() -> None:
        engine = await JournalEngine.open(disk, clock=VirtualClock(), options=OPTIONS)
        await work(engine)
        await engine.close()

    asyncio.run(run())
    frame = frames.read(disk.content(segment_name(2)), 0)
    assert frame is not None
    assert frame.schema == schema.SCHEMA == 6


async def counted(engine: EmbeddedEngine) -> tuple[dict[str, Counts], list[tuple[str, str]]]:
    """Return the counts of every queue, and every job with its state."""
    jobs = (await engine.find(limit=100)).jobs
    return dict(await engine.counts()), sorted((job.id, job.state.value) for job in jobs)


async def test_a_store_of_version_1_shows_its_finished_jobs_before_it_was_ever_run():
    clock = VirtualClock()
    reader = await open_readonly(golden(), OPTIONS, clock)
    before = await counted(reader)
    assert (await reader.history(["j1"]))[0] is not None
    await reader.close()
    owner = await JournalEngine.open(golden(), clock=clock, options=OPTIONS)
    assert await counted(owner) == before
    assert ("j1", "completed") in before[1]
    assert ("j0", "dead") in before[1]
    await owner.close()


async def test_an_older_store_is_migrated_once_and_written_back(caplog):
    caplog.set_level(logging.INFO, "holdfast.journal")
    disk, clock = golden(), VirtualClock()

    def said() -> list[str]:
        found = [line.getMessage() for line in caplog.records if "migrated" in line.getMessage()]
        caplog.clear()
        return found

    owner = await JournalEngine.open(disk, clock=clock, options=OPTIONS)
    first = await counted(owner)
    assert all("from_schema=1 to_schema=6" in line for line in said())
    written = frames.read(disk.content(snapshot_names(disk)[0]), 0)
    assert written is not None
    assert written.schema == schema.SCHEMA
    crashed = disk.crash()  # what was written back survives without a clean close
    await owner.close()
    said()
    for copy in (disk, crashed):
        again = await JournalEngine.open(copy, clock=clock, options=OPTIONS)
        assert said() == []
        assert await counted(again) == first
        await again.close()


async def test_control_without_writing_back_it_is_migrated_again(monkeypatch, caplog):
    async def nothing(_engine: JournalEngine) -> None:
        pass

    monkeypatch.setattr(JournalEngine, "_write_back", nothing)
    with pytest.raises(AssertionError):
        await test_an_older_store_is_migrated_once_and_written_back(caplog)
