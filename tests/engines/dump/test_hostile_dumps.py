"""A dump may come from anywhere: what it unpacks to is bounded, and every record is checked."""

import hashlib
import io
import struct
import tracemalloc
import zlib

import msgspec
import pytest

from holdfast.engines.dump import reading
from holdfast.engines.dump.format import (
    FORMAT,
    KINDS,
    MAGIC,
    DumpedAttempt,
    DumpedAudit,
    DumpedEvent,
    DumpedFlag,
    DumpedGroup,
    DumpedJob,
    DumpedNote,
    DumpedOperation,
    DumpedOutage,
    DumpedPolicy,
    DumpedProjection,
    DumpedRecord,
    DumpedSchedule,
    DumpedSubscription,
    DumpHead,
    DumpManifest,
    DumpRecord,
    kind_of,
    write_dump,
)
from holdfast.engines.dump.reading import read_dump
from holdfast.model.access import Caller
from holdfast.model.actions import ArchiveJobs
from holdfast.model.audit import AuditEntry, AuditHead, chain
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import CorruptDump
from holdfast.model.event import NewEvent, accept_event
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.group_life import GroupLife
from holdfast.model.history import AttemptRecord, Note, NoteKind
from holdfast.model.job import Job, Ties
from holdfast.model.operation import Operation
from holdfast.model.outage import Outage
from holdfast.model.policy import QueuePolicy, Rate
from holdfast.model.projection import ProjectionState, Rebuild, RebuildMode
from holdfast.model.record import Record
from holdfast.model.search import Filter
from holdfast.model.subscription import Subscription

HEAD = DumpHead("memory", 1, 1, 1)
BAD = "a\x1b]0;owned\x07"
LONG = "x" * 300
DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def a_job(**changes: object) -> Job:
    plain = Job("j1", "default", "", "mail", "send", b"{}", 0, 3, 1, 1, 1)
    return msgspec.structs.replace(plain, **changes)


def an_event(**changes: object):
    new = NewEvent(event_type="book.sold", entity_type="book", entity_id="7", actor_id="anna")
    event = accept_event(new, "00000000-0000-7000-8000-000000000000", 1, 1, 0)
    return DumpedEvent(msgspec.structs.replace(event, **changes))


def dump_of(*blocks: bytes, counts: dict[str, int] | None = None) -> io.BytesIO:
    """Return a dump of these blocks, unpacked, with every checksum right."""
    out = MAGIC + struct.pack("<I", FORMAT)
    for block in blocks:
        packed = zlib.compress(block, 6)
        out += struct.pack("<II", len(packed), zlib.crc32(packed)) + packed
    out += struct.pack("<II", 0, 0)
    manifest = DumpManifest(FORMAT, "memory", 1, counts or {}, hashlib.sha256(out).hexdigest())
    return io.BytesIO(out + msgspec.json.encode(manifest) + b"\n")


def dump_with(*records: DumpRecord) -> io.BytesIO:
    counts = {"head": 1}
    for record in records:
        counts[kind_of(record)] = counts.get(kind_of(record), 0) + 1
    return dump_of(msgspec.msgpack.encode([HEAD, *records]), counts=counts)


def read(file: io.BytesIO) -> list[object]:
    return [record for batch in read_dump(file) for record in batch]


def refused(file: io.BytesIO) -> str:
    with pytest.raises(CorruptDump) as caught:
        read(file)
    return str(caught.value)


# --- size ------------------------------------------------------------------------------------


def peak_bytes(file: io.BytesIO) -> int:
    tracemalloc.start()
    try:
        refused(file)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def flag_bomb() -> io.BytesIO:
    """Return 5,000,000 flags in one block: some 40 KB that become 500 MB."""
    flag = msgspec.msgpack.encode(DumpedFlag("f", on=True))
    return dump_of(b"\xdd" + (5_000_000).to_bytes(4, "big") + flag * 5_000_000)


def test_a_block_of_too_many_records_is_refused_before_it_is_unpacked():
    assert peak_bytes(flag_bomb()) < 4 << 20


def test_control_a_reader_without_the_limit_unpacks_all_of_it(monkeypatch):
    monkeypatch.setattr(reading, "_unpacked", zlib.decompress)
    monkeypatch.setattr(reading, "_record", lambda _raw, name: refuse(name))
    with pytest.raises(AssertionError):
        test_a_block_of_too_many_records_is_refused_before_it_is_unpacked()


def refuse(name: str) -> None:
    raise CorruptDump(name, "enough was seen")


def test_a_block_that_unpacks_to_more_than_the_limit_stops_there(monkeypatch):
    monkeypatch.setattr(reading, "MAX_BLOCK_BYTES", 1 << 20)
    job = DumpedJob(a_job(payload=b'{"a":"%s"}' % (b"x" * (64 << 20))))
    assert peak_bytes(dump_of(msgspec.msgpack.encode([job]))) < 4 << 20
    assert "incomplete or too large" in refused(dump_of(msgspec.msgpack.encode([job])))


def test_a_record_that_no_log_could_hold_is_refused():
    job = DumpedJob(a_job(payload=b'{"a":"%s"}' % (b"x" * (17 << 20))))
    assert "a record has more than" in refused(dump_of(msgspec.msgpack.encode([job])))


async def test_large_records_are_written_in_blocks_that_are_bounded():
    jobs = [
        DumpedJob(a_job(id=f"j{n}", payload=b'{"a":"%s"}' % (b"x" * 250_000))) for n in range(200)
    ]
    file = io.BytesIO()

    async def batches():
        yield [HEAD, *jobs]

    await write_dump(file, batches())
    data, at, sizes = file.getvalue(), len(MAGIC) + 4, []
    while (size := int.from_bytes(data[at : at + 4], "little")) != 0:
        sizes.append(len(zlib.decompress(data[at + 8 : at + 8 + size])))
        at += 8 + size
    assert max(sizes) <= 8 << 20
    assert read(file) == [HEAD, *jobs]


def test_what_is_decoded_at_a_time_is_bounded():
    # As an earlier version wrote it: one block, however large.
    jobs = [
        DumpedJob(a_job(id=f"j{n}", payload=b'{"a":"%s"}' % (b"x" * 250_000))) for n in range(200)
    ]
    file = dump_with(*jobs)
    batches = list(read_dump(file))
    assert [len(batch) for batch in batches] == [68, 67, 66]
    assert [record for batch in batches for record in batch] == [HEAD, *jobs]


def test_a_manifest_that_never_ends_is_refused():
    whole = dump_with(DumpedFlag("f", on=True)).getvalue().rstrip(b"\n")
    assert "manifest" in refused(io.BytesIO(whole[:-1] + b" " * (1 << 20) + b"}"))


# --- records ---------------------------------------------------------------------------------


def failure(**changes: object) -> Failure:
    return msgspec.structs.replace(Failure("timeout", FailureClass.TRANSIENT, "m"), **changes)


def group(**changes: object) -> DumpedGroup:
    life = GroupLife(
        queue="q",
        task="t",
        error_reason="timeout",
        status=None,
        fingerprint="f",
        failure_class=FailureClass.TRANSIENT,
        first_at_us=1,
        last_at_us=1,
        total=1,
    )
    return DumpedGroup("g1", msgspec.structs.replace(life, **changes))


def operation(**changes: object) -> DumpedOperation:
    plain = Operation(
        id="o1",
        action=ArchiveJobs(),
        wanted=Filter(),
        as_of_us=1,
        by="anna",
        why="x",
        started_at_us=1,
    )
    return DumpedOperation(msgspec.structs.replace(plain, **changes))


def projection(**changes: object) -> DumpedProjection:
    return DumpedProjection(msgspec.structs.replace(ProjectionState(name="books"), **changes))


def entry(**changes: object) -> DumpedAudit:
    plain = AuditEntry("job.replay", "job", "j1", "anna")
    made = chain(AuditHead(), plain, 1)
    return DumpedAudit(
        msgspec.structs.replace(made, entry=msgspec.structs.replace(plain, **changes))
    )


def attempt(**changes: object) -> DumpedAttempt:
    plain = AttemptRecord(1, 1, "w", 1, 2, "retry", failure())
    return DumpedAttempt("default", "j1", 1, msgspec.structs.replace(plain, **changes))


SCHEDULE = ScheduleState("* * * * *", "UTC", "t", "q")
GOOD = {
    "job": DumpedJob(a_job()),
    "attempt": attempt(),
    "note": DumpedNote("default", "j1", 1, Note(NoteKind.NOTE, 1, "anna", "seen")),
    "policy": DumpedPolicy("q", QueuePolicy(rate=Rate(1, 1.0))),
    "flag": DumpedFlag("f", on=True),
    "schedule": DumpedSchedule("s", SCHEDULE),
    "outage": DumpedOutage(Outage("api", 1)),
    "operation": operation(),
    "audit": entry(),
    "group": group(),
    "subscription": DumpedSubscription(Subscription("s", "q", "t")),
    "projection": projection(),
    "record": DumpedRecord(Record("key", "k1", "{}")),
    "event": an_event(),
}
REBUILD = Rebuild(id="r", mode=RebuildMode.EMIT, generation=1, by="anna", started_at_us=1)
HOSTILE = {
    **{
        f"job {field}": DumpedJob(a_job(**{field: BAD}))
        for field in ("id", "tenant", "queue", "task", "scope", "unique", "worker")
    },
    "job long queue": DumpedJob(a_job(queue=LONG)),
    "job bidi queue": DumpedJob(a_job(queue="a\u202eb")),
    "job key": DumpedJob(a_job(ties=Ties(key=BAD))),
    "job dependencies": DumpedJob(a_job(ties=Ties(depends_on=("a",) * 2_000))),
    "job dependency": DumpedJob(a_job(ties=Ties(depends_on=(BAD,)))),
    "job priority": DumpedJob(a_job(priority=10**9)),
    "job payload": DumpedJob(a_job(payload=b"[1]")),
    "job payload text": DumpedJob(a_job(payload=b"\xff\xfe")),
    "job payload depth": DumpedJob(a_job(payload=DEEP)),
    "job payload size": DumpedJob(a_job(payload=b'{"a":"%s"}' % (b"x" * (9 << 20)))),
    "job result": DumpedJob(a_job(result=b"{")),
    "job result size": DumpedJob(a_job(result=b'"%s"' % (b"x" * 300_000))),
    "job failure": DumpedJob(a_job(failure=failure(message="m" * 5_000))),
    "job cancel reason": DumpedJob(a_job(cancel_reason="x" * 10_000)),
    "attempt tenant": DumpedAttempt(BAD, "j1", 1, attempt().attempt),
    "attempt worker": attempt(worker="w" * 1_000),
    "attempt failure": attempt(failure=failure(traceback="t" * 50_000)),
    "note id": DumpedNote("default", BAD, 1, Note(NoteKind.NOTE, 1, "anna", "seen")),
    "note by": DumpedNote("default", "j1", 1, Note(NoteKind.NOTE, 1, "a" * 1_000, "seen")),
    "note text": DumpedNote("default", "j1", 1, Note(NoteKind.NOTE, 1, "anna", "s" * 10_000)),
    "policy queue": DumpedPolicy(BAD, QueuePolicy()),
    "policy rate": DumpedPolicy("q", QueuePolicy(rate=Rate(0, 1.0))),
    "flag name": DumpedFlag(BAD, on=True),
    "schedule name": DumpedSchedule(BAD, SCHEDULE),
    "schedule queue": DumpedSchedule("s", msgspec.structs.replace(SCHEDULE, queue=BAD)),
    "outage dependency": DumpedOutage(Outage(BAD, 1)),
    "outage why": DumpedOutage(Outage("api", 1, why="w" * 10_000)),
    "operation id": operation(id=BAD),
    "operation filter": operation(wanted=Filter(queues=(BAD,))),
    "operation caller": operation(caller=Caller(BAD)),
    "operation rate": operation(rate=Rate(0, 0.0)),
    "operation canaries": operation(canaries=(("t", "i"),) * 1_000),
    "operation reasons": operation(skipped={str(n): 1 for n in range(2_000)}),
    "audit changes": entry(changes="{"),
    "audit reason": entry(reason="r" * 10_000),
    "group id": DumpedGroup(BAD, group().life),
    "group queue": group(queue=BAD),
    "group fingerprint": group(fingerprint="f" * 1_000),
    "record name": DumpedRecord(Record("key", BAD, "{}")),
    "record value": DumpedRecord(Record("key", "k1", "[]")),
    "subscription queue": DumpedSubscription(Subscription("s", BAD, "t")),
    "projection name": projection(name=BAD),
    "projection error": projection(rebuild=msgspec.structs.replace(REBUILD, error="e" * 100_000)),
    "projection rebuilds": projection(past=(REBUILD,) * 100),
    "event type": an_event(event_type=BAD),
    "event id": an_event(id=BAD),
    "event payload": an_event(payload=b"[]"),
    "event payload depth": an_event(payload=DEEP),
    "event reason": an_event(reason="r" * 10_000),
    "event device": an_event(device=BAD),
}


@pytest.mark.parametrize("kind", sorted(GOOD))
def test_a_good_record_of_every_kind_is_read(kind):
    assert read(dump_with(GOOD[kind])) == [HEAD, GOOD[kind]]


def test_there_is_a_record_of_every_kind_and_a_hostile_one():
    assert {*GOOD, "head"} == set(KINDS)
    assert {name.partition(" ")[0] for name in HOSTILE} == set(GOOD)


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_record_that_no_store_would_have_taken_is_refused(name):
    said = refused(dump_with(HOSTILE[name]))
    assert f"a record of kind {kind_of(HOSTILE[name])} is not valid" in said
    assert said.isprintable()


def test_control_without_the_checks_hostile_records_are_read(monkeypatch):
    monkeypatch.setattr(reading, "check_record", lambda _record: None)
    for record in HOSTILE.values():
        assert read(dump_with(record)) == [HEAD, record]


def test_a_record_of_an_unknown_kind_is_refused_by_its_name():
    said = refused(dump_of(msgspec.msgpack.encode([HEAD, ["robot", 1, 2]])))
    assert "unknown kind 'robot'" in said
