"""Golden files with events: of the log and snapshots, and of a dump."""

import io
import os
from pathlib import Path

from holdfast.engines.dump.format import FORMAT, DumpedProjection, DumpRecord, write_dump
from holdfast.engines.dump.reading import read_dump
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.state.state import JournalState
from holdfast.engines.journal.wal import schema
from holdfast.engines.journal.wal.recovery import recover
from holdfast.model.audit import Attribution
from holdfast.model.event import Event, NewEvent
from holdfast.model.job import Job
from holdfast.model.outcome import completed
from holdfast.model.projection import ProjectionState
from holdfast.model.subscription import Subscription
from holdfast.testing import SimDisk, VirtualClock

from .test_schema import GOLDEN, golden

OPTIONS = JournalOptions(inline=True, segment_bytes=16_384, remember_seconds=1e6)
FOLDER = "5-events"
DUMP = Path(__file__).parents[2] / "dump" / "golden" / "format3.dump"
WHO = Attribution("ann", "a test")
CHRONICLE = Subscription("chronicle", "chronicle", "projection.chronicle")
PROJECTION = ProjectionState(name="chronicle", versions={1: 1})
BOOKS = Subscription("books", "books", "projection.books", ("book.renamed",))


def new_event(number: int) -> NewEvent:
    """Return an event; some have every field."""
    full = {
        "tenant": "acme",
        "scope": "library:42",
        "actor_name": "Ann",
        "before": {"title": "石头记"},
        "after": {"title": "红楼梦"},
        "diff": [1, None],
        "reason": "typo",
        "request_id": "r",
        "correlation_id": "c",
        "causation_id": "d",
        "trace_id": "t",
        "device": "phone",
        "client": "app",
        "ip": "10.0.0.7",
        "occurred_at_us": 1_700_000_000_000_000,
    }
    return NewEvent(
        id=f"01900000-0000-7000-8000-{number:012x}",
        event_type="book.renamed" if number % 2 else "book.lent",
        entity_type="book",
        entity_id=str(number % 3),
        actor_id="ann",
        payload={"number": number},
        **(full if number % 4 == 1 else {}),  # type: ignore[arg-type]
    )


async def worked(disk: SimDisk) -> JournalEngine:
    """Append before and after a snapshot, and complete some of the jobs."""
    seeded = iter(range(1, 1_000))
    engine = await JournalEngine.open(
        disk,
        clock=VirtualClock(),
        options=OPTIONS,
        random_bytes=lambda count: bytes([next(seeded) % 256]) * count,
    )
    for one in (CHRONICLE, BOOKS):
        await engine.set_subscription(one.name, one, WHO)
    await engine.set_projection(PROJECTION, WHO, expected=None)
    await engine.append([new_event(number) for number in range(5)])
    claim = await engine.claim(queues=["chronicle"], worker="w", limit=2)
    await engine.settle([completed(claim.jobs[0])])
    await engine.compact()
    await engine.append([new_event(number) for number in range(5, 9)])
    await engine.settle([completed(claim.jobs[1])])
    return engine


async def dumped(engine: JournalEngine) -> bytes:
    file = io.BytesIO()
    await write_dump(file, engine.dump())
    return file.getvalue()


def records(content: bytes) -> list[DumpRecord]:
    return [record for batch in read_dump(io.BytesIO(content)) for record in batch]


def recovered(disk: SimDisk) -> tuple[JournalState, list[Event]]:
    """Return the state, and the events that the log has after the snapshot."""
    events: list[Event] = []
    found = recover(disk, JournalState(record_event=events.append))
    assert found.snapshot is not None
    assert found.end.closed
    return found.state, events


def jobs_of(state: JournalState) -> list[Job]:
    return sorted(state.jobs(), key=lambda job: job.id)


async def test_the_golden_log_and_snapshot_with_events_are_read():
    disk = SimDisk()
    await (await worked(disk)).close()
    if os.environ.get("HOLDFAST_WRITE_GOLDEN") and FOLDER.startswith(str(schema.SCHEMA)):
        for place in ("log", "snapshots"):
            (GOLDEN / f"schema{FOLDER}" / place).mkdir(parents=True, exist_ok=True)
            for name in disk.names(place):
                (GOLDEN / f"schema{FOLDER}" / name).write_bytes(disk.content(name))
    state, events = recovered(golden(FOLDER))
    wanted, wanted_events = recovered(disk)
    assert jobs_of(state) == jobs_of(wanted)
    assert state.subscriptions == wanted.subscriptions
    assert state.projections == wanted.projections
    assert list(state.subscriptions) == ["chronicle", "books"]
    assert events == wanted_events
    assert {5, 6, 7, 8} <= {int(event.id[-2:], 16) for event in events}


async def test_the_golden_dump_with_events_is_read():
    engine = await worked(SimDisk())
    today = await dumped(engine)
    await engine.close()
    if os.environ.get("HOLDFAST_WRITE_GOLDEN") and DUMP.stem == f"format{FORMAT}":
        DUMP.parent.mkdir(exist_ok=True)
        DUMP.write_bytes(today)
    found = records(DUMP.read_bytes())
    as_of_then = [
        DumpedProjection(PROJECTION) if isinstance(one, DumpedProjection) else one
        for one in records(today)
    ]
    assert found == as_of_then, "dumps did not yet say that the tables stay behind"
    kinds = {type(record).__name__ for record in found}
    assert {"DumpedEvent", "DumpedSubscription", "DumpedProjection", "DumpedJob"} <= kinds
