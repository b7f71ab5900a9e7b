"""Snapshots of the daemon: as often as asked, or when the log has grown enough."""

from holdfast.daemon.daemon_store import SnapshotLoop
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.snapshots.snapshot import snapshot_names
from holdfast.testing import SimDisk
from tests.engines.journal.test_engine import job, opened

SECOND_US = 1_000_000


async def jobs_and_snapshots(disk: SimDisk, engine: JournalEngine, loop: SnapshotLoop) -> list[str]:
    """Change something before every second step; return the newest snapshot after each."""
    newest: list[str] = []
    for number in range(4):
        if number % 2 == 0:
            await engine.enqueue([job(f"j{number}")])
        await loop.step(number * SECOND_US)
        newest.append(snapshot_names(disk)[0] if snapshot_names(disk) else "")
    return newest


async def test_an_interval_that_is_set_makes_a_snapshot_each_time_if_anything_changed():
    disk = SimDisk()
    engine = await opened(disk)
    loop = SnapshotLoop(engine, 0.5)
    assert await loop.step(SECOND_US) == SECOND_US + SECOND_US // 2
    assert snapshot_names(disk) == [], "nothing happened yet"
    first, same, second, same_again = await jobs_and_snapshots(disk, engine, loop)
    assert first
    assert first == same != second == same_again


async def test_without_an_interval_the_size_of_the_log_decides():
    disk = SimDisk()
    engine = await opened(disk, segment_bytes=4096, compact_bytes=8192)
    loop = SnapshotLoop(engine)
    assert await loop.step(0) == 2 * SECOND_US
    assert await jobs_and_snapshots(disk, engine, loop) == [""] * 4
    for number in range(40):
        await engine.enqueue([job(f"more-{number}", payload={"x": "y" * 500})])
    await loop.step(0)
    assert snapshot_names(disk)
