"""Verifies, prints and salvages a journal that no process has open.

Nothing here changes the directory that it reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from secrets import token_bytes

import msgspec

from holdfast.engines.dump.format import (
    BLOCK_RECORDS,
    DumpedEvent,
    DumpedFlag,
    DumpedGroup,
    DumpedJob,
    DumpedOutage,
    DumpedPolicy,
    DumpedProjection,
    DumpedRecord,
    DumpedSchedule,
    DumpedSubscription,
    DumpHead,
    DumpRecord,
)
from holdfast.engines.embedded.history import AppliedEffect
from holdfast.model.access import SYSTEM
from holdfast.model.effects import (
    LOG_NAMES,
    SETTINGS,
    Effect,
    Enqueued,
    EventAppended,
    Purged,
    job_key,
)
from holdfast.model.errors import CorruptLog, HoldfastError, InvalidInput, UnknownFormat
from holdfast.model.event import Event
from holdfast.model.event_search import EVERY_EVENT
from holdfast.model.job import Job, State
from holdfast.model.projection import without_tables

from .events.store import SqliteEvents
from .history.check import verify as verify_history
from .history.store import SqliteHistory
from .restore import restore
from .snapshots.snapshot import (
    read_head,
    read_snapshot,
    snapshot_names,
)
from .state.state import TOKENS_PER_SEGMENT_BITS, JournalState, share_names
from .wal import frames
from .wal.disk import LOG, SNAPSHOTS, Disk, read_all
from .wal.frames import BadFrame, Frame, FrameKind
from .wal.log_reader import LogEnd, LogReader, Visit, kept_names, read_kept, segment_numbers
from .wal.recovery import covered_seq, effects_of, newest_head, newest_snapshot, recover
from .wal.schema import SCHEMA, RecordReader
from .wal.segments import SegmentHead, segment_name


@contextmanager
def read_directory(disk: Disk) -> Iterator[tuple[JournalState, SqliteHistory | None]]:
    """Yield the recovered state, and the history if there is one; raise as opening does."""
    database = disk.database()
    history = SqliteHistory.open(database, upgrade=False) if database.exists() else None
    try:
        history_seq = 0 if history is None else history.checkpoint
        state = recover(disk, JournalState(history_seq=history_seq)).state
        if history is not None:
            state.add_counts(history.tallies())
        yield state, history
    finally:
        if history is not None:
            history.close()


def all_jobs(state: JournalState, history: SqliteHistory | None) -> list[Job]:
    """Return every job, finished ones too; what is in memory is newer than history."""
    jobs = [*(() if history is None else history.jobs()), *state.jobs()]
    return list({(job.tenant, job.id): job for job in jobs}.values())


class VerifyReport(msgspec.Struct, frozen=True):
    """What ``verify`` found."""

    snapshots: list[str]
    segments: list[str]
    kept_segments: list[str]
    """Needless segments that are kept for inspection."""
    first_seq: int
    last_seq: int
    records: int
    jobs: int
    events: int
    closed_in_order: bool
    torn_bytes: int
    problems: list[str]
    """What is damaged, a sentence each; empty if nothing is."""


def verify(disk: Disk) -> VerifyReport:
    """Check every checksum of every file, and that the records are consistent."""
    problems: list[str] = []
    for name in snapshot_names(disk):
        try:
            read_snapshot(disk, name, lambda jobs, _head: deque(jobs, maxlen=0).clear())
        except HoldfastError as error:
            problems.append(str(error))
    seqs: list[int] = []
    records = 0

    def visit(frame: Frame, name: str, _offset: int) -> None:
        nonlocal records
        effects_of(frame, name, {})
        seqs.append(frame.first_seq)
        records += frame.count

    for name in kept_names(disk):
        try:
            read_kept(disk, name, visit)
        except HoldfastError as error:
            problems.append(str(error))
    end: LogEnd | None = None
    try:
        end = _read_log(disk, visit)
    except HoldfastError as error:
        problems.append(str(error))
    jobs = 0
    try:
        with read_directory(disk) as (state, history):
            jobs = sum(sum(msgspec.structs.astuple(one)) for one in state.counts(SYSTEM).values())
            problems.extend(state.problems())
            if history is not None:
                problems.extend(verify_history(history))
        expected_seq = covered_seq(newest_head(disk))
        if expected_seq:  # the snapshots rely on history up to there
            SqliteHistory.open(disk.database(), expected_seq=expected_seq, upgrade=False).close()
    except HoldfastError as error:
        if str(error) not in problems:
            problems.append(str(error))
    events, damage = _verify_events(disk, 0 if end is None else end.last_seq)
    problems.extend(damage)
    return VerifyReport(
        snapshots=snapshot_names(disk),
        segments=[segment_name(number) for number in segment_numbers(disk)],
        kept_segments=kept_names(disk),
        first_seq=seqs[0] if seqs else 0,
        last_seq=0 if end is None else end.last_seq,
        records=records,
        jobs=jobs,
        events=events,
        closed_in_order=end is not None and end.closed,
        torn_bytes=0 if end is None else len(end.torn),
        problems=problems,
    )


def _verify_events(disk: Disk, last_seq: int) -> tuple[int, list[str]]:
    """Return how many events are stored, and what is wrong with them."""
    head = newest_head(disk)
    try:
        store = SqliteEvents.open(
            disk.events(), expected_seq=head.last_event_seq if head else 0, writes=False
        )
    except HoldfastError as error:
        return 0, [str(error)]
    problems: list[str] = []
    try:
        problems = store.verify()
        if last_seq:
            store.check_reach(last_seq)
        return store.count(EVERY_EVENT, SYSTEM), problems
    except HoldfastError as error:
        return 0, [*problems, str(error)]
    finally:
        store.close()


class LogRecord(msgspec.Struct, frozen=True):
    """One record of the log, for people to read."""

    seq: int
    type: str
    job_id: str
    tenant: str
    timestamp: float
    checksum: str
    """Of its frame: the frame is what is written, synced and checked."""
    file: str
    offset: int
    effect: Effect


def dump(disk: Disk) -> Iterator[LogRecord]:
    """Yield the records of the log, oldest first; raise where one cannot be read.

    Those of needless segments come first, as far as these are kept for inspection.
    """
    readers: dict[str, RecordReader] = {}
    for name in kept_names(disk):
        yield from _records(partial(read_kept, disk, name), readers)
    yield from _records(partial(_read_log, disk), readers)


def _records(
    read: Callable[[Visit], object], readers: dict[str, RecordReader]
) -> Iterator[LogRecord]:
    """Yield the records of the frames that are read, and then raise what stopped it."""
    found: list[tuple[Frame, str, int]] = []
    error: HoldfastError | None = None
    try:
        read(lambda frame, name, offset: found.append((frame, name, offset)))
    except HoldfastError as damage:
        error = damage
    for frame, name, offset in found:
        for seq, effect in enumerate(effects_of(frame, name, readers), frame.first_seq):
            if isinstance(effect, EventAppended):
                tenant, job_id = effect.event.tenant, effect.event.id
            else:
                tenant, job_id = ("", "") if isinstance(effect, SETTINGS) else job_key(effect)
            yield LogRecord(
                seq,
                LOG_NAMES[type(effect)],
                job_id,
                tenant,
                effect.at_us / 1_000_000,
                f"{frame.crc:08x}",
                name,
                offset,
                effect,
            )
    if error is not None:
        raise error


class StateDump(msgspec.Struct, frozen=True):
    """Every job as of one moment, for people to read."""

    queue: list[Job]
    in_flight: list[Job]
    completed: list[Job]
    dead: list[Job]
    cancelled: list[Job]
    last_seq: int
    last_at_us: int
    schema_ver: int = SCHEMA


def dump_state(disk: Disk) -> StateDump:
    """Return the state at the end of the log: snapshot, log and history together."""
    jobs: dict[tuple[str, str], Job] = {}
    late: list[AppliedEffect] = []
    database = disk.database()
    history = SqliteHistory.open(database, upgrade=False) if database.exists() else None
    try:
        # History first, as of now: then the log has everything that it has, and may have more.
        stored = iter(()) if history is None else history.dump()
        history_seq = 0 if history is None else history.checkpoint
        state = recover(disk, JournalState(late.append, history_seq)).state
        finished = (one.job for batch in stored for one in batch if isinstance(one, DumpedJob))
        jobs = {(job.tenant, job.id): job for job in finished}
    finally:
        if history is not None:
            history.close()
    for applied in late:
        if isinstance(applied.effect, Purged):
            jobs.pop(job_key(applied.effect), None)
        elif isinstance(applied.effect, Enqueued):  # finished, in a snapshot from before history
            jobs[job_key(applied.effect)] = applied.effect.job
    jobs |= {(job.tenant, job.id): job for job in state.jobs()}

    def within(*states: State) -> list[Job]:
        return [job for job in jobs.values() if job.state in states]

    return StateDump(
        queue=within(State.PENDING, State.BLOCKED),
        in_flight=within(State.IN_FLIGHT),
        completed=within(State.COMPLETED),
        dead=within(State.DEAD, State.ARCHIVED),
        cancelled=within(State.CANCELLED),
        last_seq=state.seq,
        last_at_us=state.last_at_us,
    )


class SalvageReport(msgspec.Struct, frozen=True):
    """What ``salvage`` could copy out."""

    jobs: int
    last_seq: int
    missing: list[tuple[int, int]]
    """Ranges of sequence numbers (first, last) that could not be read."""
    contradicting: int
    """Records that were read but cannot be applied without the missing ones."""
    history_lost: str = ""
    """Why finished jobs and dead letters could not be copied, if they could not."""
    events: int = 0
    events_lost: str = ""
    """Why some events could not be copied, if they could not."""


def salvage(
    source: Disk, target: Disk, random_bytes: Callable[[int], bytes] = token_bytes
) -> SalvageReport:
    """Copy everything that is whole into an empty directory.

    Sequence numbers and tokens continue above everything that was seen.
    """
    if target.names(LOG) or target.names(SNAPSHOTS):
        raise InvalidInput("target", f"{target.root} is not empty")
    history, history_lost = _whole_history(source)
    try:
        events = _SalvagedEvents(source)
        empty = JournalState(
            history_seq=0 if history is None else history.checkpoint, record_event=events.add
        )
        state, newest, _damaged = newest_snapshot(source, empty)
        covered = 0 if newest is None else newest.last_seq
        missing: list[tuple[int, int]] = []
        contradicting = 0
        last_seq = covered
        for frame, effects in _whole_frames(source):
            end_seq = frame.first_seq + frame.count - 1
            if end_seq <= last_seq:
                continue
            if frame.first_seq > last_seq + 1:
                missing.append((last_seq + 1, frame.first_seq - 1))
            for seq, effect in enumerate(effects, frame.first_seq):
                contradicting += not _fold_if_possible(state, effect, seq)
            last_seq = end_seq
        # Above any seq and token that the unreadable part may have issued.
        last_seq = max(last_seq, events.last_position) + 1_000_000
        last_token = (max([0, *segment_numbers(source)]) + 1) << TOKENS_PER_SEGMENT_BITS
        saved = restore(
            target, _salvaged(state, history, events, last_seq, last_token), random_bytes
        )
    finally:
        if history is not None:
            history.close()
    return SalvageReport(
        saved.jobs,
        last_seq,
        missing,
        contradicting,
        history_lost,
        events.count,
        events.lost,
    )


class _SalvagedEvents:
    """The events that are whole, in their store or in the log."""

    def __init__(self, source: Disk) -> None:
        self.lost = ""
        self._from_log: dict[int, Event] = {}
        self._store: SqliteEvents | None = None
        head = newest_head(source)
        expected_seq = head.last_event_seq if head else 0
        try:
            self._store = SqliteEvents.open(
                source.events(), expected_seq=expected_seq, writes=False
            )
        except HoldfastError as error:
            self.lost = str(error)
        self.last_position = expected_seq if self._store is None else self._store.checkpoint
        self.count = 0

    def add(self, event: Event) -> None:
        """Take an event of the log: the store may lack it."""
        self._from_log[event.position] = event
        self.last_position = max(self.last_position, event.position)

    def records(self) -> Iterator[list[DumpRecord]]:
        """Yield what is whole, by position."""
        batch: list[DumpRecord] = []
        for event in self._whole():
            self.count += 1
            batch.append(DumpedEvent(event))
            if len(batch) == BLOCK_RECORDS:
                yield batch
                batch = []
        yield batch
        if self._store is not None:
            self._store.close()

    def _whole(self) -> Iterator[Event]:
        """Yield the events of the store, with those of the log where it lacks them."""
        late = deque(sorted(self._from_log.items()))
        for event, problem in self._store.whole() if self._store is not None else ():
            if event is None:
                self.lost = self.lost or problem
                continue
            while late and late[0][0] < event.position:
                yield late.popleft()[1]
            if late and late[0][0] == event.position:
                late.popleft()
            yield event
        yield from (event for _position, event in late)


def _whole_history(source: Disk) -> tuple[SqliteHistory | None, str]:
    """Return the history if it can be trusted, or why not."""
    try:
        if not source.database().exists():
            return None, "there is none" if covered_seq(newest_head(source)) else ""
        history = SqliteHistory.open(source.database(), upgrade=False)
    except HoldfastError as error:
        return None, str(error)
    problems = verify_history(history)
    if problems:
        history.close()
        return None, problems[0]
    return history, ""


def _salvaged(
    state: JournalState,
    history: SqliteHistory | None,
    events: _SalvagedEvents,
    last_seq: int,
    last_token: int,
) -> Iterator[list[DumpRecord]]:
    """Return what was saved, as the records of a dump."""
    records: list[DumpRecord] = [DumpHead("journal", state.last_at_us, last_seq, last_token)]
    records += [DumpedPolicy(*one) for one in state.policies.items()]
    records += [DumpedFlag(*one) for one in state.flags.items()]
    records += [DumpedSchedule(*one) for one in state.schedules.items()]
    records += [DumpedGroup(*one) for one in state.group_lives.items()]
    records += [DumpedOutage(one) for one in state.outages.all()]
    records += [DumpedSubscription(one) for one in state.subscriptions.values()]
    records += [DumpedProjection(without_tables(one)) for one in state.projections.values()]
    records += [DumpedRecord(one) for one in state.records.values() if not one.expires_at_us]
    records += [DumpedJob(job) for job in state.jobs()]
    yield records
    if history is not None:
        yield from history.dump()
    yield from events.records()


def _fold_if_possible(state: JournalState, effect: Effect, seq: int) -> bool:
    try:
        state.fold(effect, seq)
    except (HoldfastError, LookupError):
        return False
    return True


def _whole_frames(disk: Disk) -> Iterator[tuple[Frame, list[Effect]]]:
    """Yield every whole frame of records, whatever is between them."""
    for number in segment_numbers(disk):
        name = segment_name(number)
        data = read_all(disk, name)
        salt = _salt_of(data)
        offset: int | None = 0
        while offset is not None:
            try:
                frame = frames.read(data, offset, salt if offset else 0)
            except BadFrame:
                offset = frames.find_after(data, offset, salt)
                continue
            if frame is None:
                break
            offset = frame.end
            if frame.kind == FrameKind.RECORDS:
                try:
                    effects = effects_of(frame, name, {})
                except (CorruptLog, UnknownFormat):
                    continue
                for effect in effects:
                    job = getattr(effect, "job", None)
                    if isinstance(job, Job):
                        share_names(job)
                yield frame, effects


def _salt_of(data: bytes) -> int | None:
    """Return the segment's salt; None, which checks less, when it is lost."""
    try:
        first = frames.read(data, 0)
        if first is not None:
            return msgspec.msgpack.decode(first.payload, type=SegmentHead).salt
    except (BadFrame, msgspec.MsgspecError):
        pass
    return None


def _read_log(disk: Disk, visit: Callable[[Frame, str, int], None]) -> LogEnd:
    """Read as much of the log as is contiguous, including what a snapshot covers."""
    numbers = segment_numbers(disk)
    whole = not numbers or numbers == list(range(1, numbers[-1] + 1))
    # An interrupted clean-up may have left older segments: they are not needed.
    for name in reversed(snapshot_names(disk)):
        try:
            head = read_head(disk, name)
        except CorruptLog:
            continue
        # The log of a store that was restored begins after its first snapshot.
        if head.first_segment in numbers and (not whole or head.first_segment == 1):
            reader = LogReader(disk, prev_crc=head.last_crc, last_seq=head.last_seq)
            return reader.read(head.first_segment, visit)
    if whole:
        return LogReader(disk).read(1, visit)
    raise CorruptLog(
        segment_name(numbers[0]), 0, 0, "earlier segments are missing and no snapshot covers them"
    )
