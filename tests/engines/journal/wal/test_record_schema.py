"""Golden files with records: of the log and snapshots, and of a dump."""

import os
from pathlib import Path

from holdfast.engines.dump.format import FORMAT, DumpedRecord
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.wal import schema
from holdfast.engines.journal.wal.recovery import recover
from holdfast.model.record import Record
from holdfast.testing import SimDisk, VirtualClock

from .test_event_schema import OPTIONS, WHO, dumped, records
from .test_schema import GOLDEN, golden

FOLDER = "6-records"
DUMP = Path(__file__).parents[2] / "dump" / "golden" / "format4.dump"
KEY = Record("key", "k1", '{"name":"ann"}')
CHANGED = Record("key", "k1", '{"name":"石头"}')
SESSION = Record("session", "s1", "{}", VirtualClock().now_us() + 60_000_000)
LATER = Record("key", "k3", '{"name":"carol"}')


async def worked(disk: SimDisk) -> JournalEngine:
    """Store records before and after a snapshot, and change and remove some."""
    engine = await JournalEngine.open(disk, clock=VirtualClock(), options=OPTIONS)
    for one in (KEY, Record("key", "k2", "{}"), SESSION):
        await engine.set_record(one.kind, one.name, one, WHO, expected=None)
    await engine.compact()
    await engine.set_record("key", "k1", CHANGED, WHO, expected=KEY)
    await engine.set_record("key", "k2", None, WHO, expected=Record("key", "k2", "{}"))
    await engine.set_record("key", "k3", LATER, WHO, expected=None)
    return engine


async def test_the_golden_log_and_snapshot_with_records_are_read():
    if os.environ.get("HOLDFAST_WRITE_GOLDEN") and FOLDER.startswith(str(schema.SCHEMA)):
        disk = SimDisk()
        await (await worked(disk)).close()
        for place in ("log", "snapshots"):
            (GOLDEN / f"schema{FOLDER}" / place).mkdir(parents=True, exist_ok=True)
            for name in disk.names(place):
                (GOLDEN / f"schema{FOLDER}" / name).write_bytes(disk.content(name))
    found = recover(golden(FOLDER))
    assert found.snapshot is not None
    assert found.end.closed
    assert sorted(found.state.records.values(), key=lambda one: one.name) == [
        CHANGED,
        LATER,
        SESSION,
    ]


async def test_the_golden_dump_with_records_is_read():
    engine = await worked(SimDisk())
    today = await dumped(engine)
    await engine.close()
    if os.environ.get("HOLDFAST_WRITE_GOLDEN") and DUMP.stem == f"format{FORMAT}":
        DUMP.write_bytes(today)
    found = records(DUMP.read_bytes())
    kept = [one.record for one in found if isinstance(one, DumpedRecord)]
    assert kept == [CHANGED, LATER], "a session stays behind"
    assert kept == [one.record for one in records(today) if isinstance(one, DumpedRecord)]
