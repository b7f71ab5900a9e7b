"""Verify, dump and salvage."""

import asyncio

import pytest

from holdfast.engines.contract import Counts
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.inspection import StateDump, dump, dump_state, salvage, verify
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.snapshots.snapshot import snapshot_names
from holdfast.engines.journal.wal.segments import segment_name
from holdfast.model.actions import PurgeJobs, ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import CorruptLog, InvalidInput
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import completed, dead, retry
from holdfast.model.search import Filter
from holdfast.testing import SimDisk, VirtualClock

OPTIONS = JournalOptions(inline=True, segment_bytes=16 * 1024)
FAILURE = Failure.of("timeout", "slow")
WHY = Attribution("ann", "to see")


async def open_on(disk: SimDisk) -> JournalEngine:
    return await JournalEngine.open(disk, clock=VirtualClock(), options=OPTIONS)


def worked() -> SimDisk:
    """A directory in which something of everything happened, left open."""

    async def run() -> SimDisk:
        disk = SimDisk()
        engine = await open_on(disk)
        await engine.enqueue([NewJob(task="t", id=f"j{n}") for n in range(4)])
        jobs = (await engine.claim(queues=["default"], worker="w", limit=4)).jobs
        await engine.settle([completed(jobs[0]), retry(jobs[1], FAILURE), dead(jobs[2], FAILURE)])
        return disk.crash()

    return asyncio.run(run())


def compacted(disk: SimDisk) -> SimDisk:
    async def run() -> None:
        engine = await open_on(disk)
        await engine.compact()
        await engine.close()

    asyncio.run(run())
    return disk


def test_verify_finds_nothing_wrong_with_a_good_directory():
    report = verify(worked())
    assert report.problems == []
    assert (report.records, report.first_seq, report.last_seq, report.jobs) == (11, 1, 11, 4)
    assert not report.closed_in_order


def test_verify_of_an_empty_directory():
    report = verify(SimDisk())
    assert (report.problems, report.records, report.jobs) == ([], 0, 0)


def test_verify_names_what_is_damaged_and_changes_nothing():
    disk = worked()
    disk.flip_bit(segment_name(1), 1_600)
    before = {name: disk.content(name) for name in disk.names("log")}
    report = verify(disk)
    assert len(report.problems) == 1
    assert segment_name(1) in report.problems[0]
    assert {name: disk.content(name) for name in disk.names("log")} == before
    assert disk.calls == 0


def test_dump_prints_every_record_by_the_name_people_know():
    records = list(dump(worked()))
    assert [record.seq for record in records] == list(range(1, 12))
    names = [record.type for record in records]
    assert names == ["ENQUEUE"] * 4 + ["DISPATCH"] * 4 + ["ACK", "RETRY", "DEAD"]
    assert records[8].job_id == "j0"
    assert records[0].timestamp == pytest.approx(1_800_000_000)
    assert len(records[0].checksum) == 8


def test_dump_prints_what_can_be_read_before_it_says_what_cannot():
    disk = worked()
    disk.flip_bit(segment_name(1), 8 * (len(disk.content(segment_name(1)).rstrip(b"\0")) - 2))
    seen: list[int] = []

    def read() -> None:
        for record in dump(disk):
            seen.append(record.seq)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(CorruptLog):
        read()
    assert seen == list(range(1, 9))


def ids_of(found: StateDump) -> dict[str, list[str]]:
    names = ("queue", "in_flight", "completed", "dead")
    return {name: sorted(job.id for job in getattr(found, name)) for name in names}


def test_dump_of_the_state():
    assert ids_of(dump_state(SimDisk())) == {
        name: [] for name in ("queue", "in_flight", "completed", "dead")
    }
    for disk in (worked(), compacted(worked())):
        found = dump_state(disk)
        assert ids_of(found) == {
            "queue": ["j1"], "in_flight": ["j3"], "completed": ["j0"], "dead": ["j2"],
        }  # fmt: skip
        assert (found.last_seq, found.schema_ver) == (11, 6)


def test_the_state_is_of_one_moment_whatever_happened_since_the_snapshot():
    async def run() -> None:
        disk = SimDisk()
        engine = await open_on(disk)
        await engine.enqueue([NewJob(task="t", id=f"j{number}") for number in range(5)])
        jobs = (await engine.claim(queues=["default"], worker="w", limit=3)).jobs
        await engine.settle([dead(jobs[0], FAILURE), dead(jobs[1], FAILURE)])
        await engine.compact()
        await engine.settle([completed(jobs[2])])
        await engine.operate(ReplayJobs(), Filter(ids=("j0",)), WHY)
        await engine.operate(PurgeJobs(), Filter(ids=("j1",)), WHY)
        await engine.find(limit=1)  # history has all of that
        for copy in (disk.crash(), disk):
            found = dump_state(copy)
            assert ids_of(found) == {
                "queue": ["j0", "j3", "j4"], "in_flight": [], "completed": ["j2"], "dead": [],
            }  # fmt: skip
            assert found.last_seq == [record.seq for record in dump(copy)][-1]
            await engine.close()

    asyncio.run(run())


def frames_apart() -> SimDisk:
    """Ten jobs, a frame each, in one segment."""

    async def run() -> SimDisk:
        disk = SimDisk()
        engine = await open_on(disk)
        for number in range(10):
            await engine.enqueue([NewJob(task="t", id=f"j{number}")])
        claim = await engine.claim(queues=["default"], worker="w", limit=10)
        await engine.settle([completed(claim.jobs[9])])
        return disk.crash()

    return asyncio.run(run())


def jobs_of(disk: SimDisk) -> dict[str, State]:
    async def run() -> dict[str, State]:
        engine = await open_on(disk)
        assert await engine.validate() == []
        found = await engine.get([f"j{n}" for n in range(10)])
        await engine.enqueue([NewJob(task="t", id="new")])
        [new] = (await engine.claim(queues=["default"], worker="w", tasks=["t"])).jobs
        assert new.token > 1_000_000, "tokens go on above everything that was seen"
        return {job.id: job.state for job in found if job is not None}

    return asyncio.run(run())


def test_salvage_copies_out_everything_around_the_damage():
    source = frames_apart()
    records = list(dump(source))
    fifth = next(record for record in records if record.job_id == "j4")
    source.flip_bit(fifth.file, (fifth.offset + 50) * 8)
    with pytest.raises(CorruptLog):
        jobs_of(source.crash())
    target = SimDisk()
    report = salvage(source, target)
    assert report.missing == [(fifth.seq, fifth.seq)]
    assert report.contradicting == 1, "the claim of the job that is missing"
    found = jobs_of(target)
    assert set(found) == {f"j{n}" for n in range(10)} - {"j4"}
    assert found["j9"] is State.COMPLETED


def test_salvage_reads_a_segment_whose_description_is_lost():
    source = frames_apart()
    source.flip_bit(segment_name(1), 300)
    target = SimDisk()
    report = salvage(source, target)
    assert (report.jobs, report.missing) == (10, [])
    assert jobs_of(target)["j9"] is State.COMPLETED


def test_salvage_falls_back_to_the_log_when_the_snapshots_are_gone():
    source = compacted(frames_apart())
    source.flip_bit(snapshot_names(source)[0], 500)
    target = SimDisk()
    assert salvage(source, target).jobs == 10


def test_salvage_into_a_directory_that_is_not_empty_is_refused():
    with pytest.raises(InvalidInput, match="not empty"):
        salvage(frames_apart(), frames_apart())


def test_salvage_takes_finished_work_along_and_says_when_it_cannot():
    async def look(disk: SimDisk) -> tuple[Counts, int]:
        engine = await open_on(disk)
        counts = (await engine.counts())["default"]
        [history] = await engine.history(["j2"])
        await engine.close()
        return counts, 0 if history is None else len(history.attempts)

    source, target = compacted(worked()), SimDisk()
    report = salvage(source, target)
    assert (report.jobs, report.missing, report.history_lost) == (4, [], "")
    counts, attempts = asyncio.run(look(target))
    assert (counts.pending, counts.completed, counts.dead, attempts) == (1, 1, 1, 1)
    source.database().set_aside()
    without = SimDisk()
    report = salvage(source, without)
    assert report.history_lost == "there is none"
    assert asyncio.run(look(without))[0].pending == 1
