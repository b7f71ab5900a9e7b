"""What people see: jobs, queues, workers and failures, with times as dates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.engines.contract import Counts
from holdfast.model.access import DEFAULT_TENANT
from holdfast.model.audit import AuditRecord
from holdfast.model.history import AttemptRecord, History, Note
from holdfast.model.job import MICROSECONDS, Job, State
from holdfast.model.search import FailureGroup


class RunningAttempt(msgspec.Struct, frozen=True):
    """A running attempt."""

    job_id: str
    task: str
    queue: str
    attempt: int
    seconds: float
    progress_share: float | None
    progress_note: str


class QueueStatus(msgspec.Struct, frozen=True):
    """The counts of one queue."""

    queue: str
    counts: Counts


class ProcessSlots(msgspec.Struct, frozen=True):
    """The slots of one process of a daemon, by its last report."""

    slots: int
    busy: int
    draining: bool
    """Whether the process knows that it must claim no more."""


class Status(msgspec.Struct, frozen=True):
    """The counts of all queues, and the state of the daemon."""

    pending: int
    in_flight: int
    completed: int
    dead: int
    blocked: int
    cancelled: int
    archived: int
    queues: list[QueueStatus]
    running: list[RunningAttempt] = []
    """The running attempts of the daemon; those in its worker processes show no progress."""
    slots: Mapping[str, int] = {}
    """The number of slots in each process of the daemon, by the queue that they serve."""
    processes: Mapping[str, ProcessSlots | None] = {}
    """The processes of the daemon by number; None for one that has not reported yet."""
    draining: bool = False
    totals: Mapping[str, float] = {}
    """The counters of the daemon since its start, by name."""
    tasks: list[str] = []
    """The tasks that the daemon knows."""


class JobView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job for people: times as dates, the token as text, without unset fields."""

    id: str
    status: str
    task: str
    queue: str
    payload: msgspec.Raw
    attempt: int
    max_attempts: int
    priority: int
    created_at: datetime
    run_at: datetime
    version: int
    tenant: str = DEFAULT_TENANT
    scope: str = ""
    losses: int = 0
    token: str = ""
    worker: str = ""
    claimed_at: datetime | None = None
    lease_until: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    unique: str | None = None
    key: str | None = None
    depends_on: tuple[str, ...] = ()
    waiting_for: tuple[str, ...] = ()
    hold: bool = False
    replay_count: int = 0
    last_replayed_at: datetime | None = None
    last_replayed_by: str = ""
    last_replayed_reason: str = ""
    cancel_reason: str = ""
    error_reason: str = ""
    failure_class: str = ""
    last_error: str = ""
    traceback: str = ""
    result: Any = None
    running: RunningAttempt | None = None

    @classmethod
    def of(cls, job: Job, running: RunningAttempt | None = None) -> JobView:
        """Return the job for people."""
        failure, replays = job.failure, job.replays
        return cls(
            id=job.id,
            status=job.state.value,
            task=job.task,
            queue=job.queue,
            payload=msgspec.Raw(job.payload or b"null"),
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            priority=job.priority,
            created_at=date_of(job.created_at_us),
            run_at=date_of(job.run_at_us),
            version=job.version,
            tenant=job.tenant,
            scope=job.scope,
            losses=job.losses,
            token=str(job.token) if job.token else "",
            worker=job.worker,
            claimed_at=date_of(job.claimed_at_us) if job.claimed_at_us else None,
            lease_until=date_of(job.lease_until_us) if job.state is State.IN_FLIGHT else None,
            finished_at=date_of(job.finished_at_us) if job.finished_at_us else None,
            expires_at=date_of(job.expires_at_us) if job.expires_at_us else None,
            unique=job.unique,
            key=job.ties.key,
            depends_on=job.ties.depends_on,
            waiting_for=job.ties.waiting_for,
            hold=job.ties.hold,
            replay_count=0 if replays is None else replays.count,
            last_replayed_at=None if replays is None else date_of(replays.last_at_us),
            last_replayed_by="" if replays is None else replays.last_by,
            last_replayed_reason="" if replays is None else replays.last_why,
            cancel_reason=job.cancel_reason,
            error_reason="" if failure is None else failure.error_reason,
            failure_class="" if failure is None else failure.failure_class.value,
            last_error="" if failure is None else failure.message,
            traceback="" if failure is None else failure.traceback,
            result=None if job.result is None else msgspec.Raw(job.result),
            running=running,
        )


class AttemptView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt that has ended."""

    number: int
    ending: str
    started_at: datetime
    ended_at: datetime
    duration_seconds: float
    worker: str = ""
    error_reason: str = ""
    failure_class: str = ""
    error: str = ""

    @classmethod
    def of(cls, attempt: AttemptRecord) -> AttemptView:
        """Return the attempt for people."""
        failure = attempt.failure
        return cls(
            number=attempt.number,
            ending=attempt.ending,
            started_at=date_of(attempt.started_at_us),
            ended_at=date_of(attempt.ended_at_us),
            duration_seconds=attempt.duration_seconds,
            worker=attempt.worker,
            error_reason="" if failure is None else failure.error_reason,
            failure_class="" if failure is None else failure.failure_class.value,
            error="" if failure is None else failure.message,
        )


class NoteView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An action or a note of a person."""

    kind: str
    at: datetime
    by: str
    text: str
    payload_before: msgspec.Raw = msgspec.Raw(b"null")

    @classmethod
    def of(cls, note: Note) -> NoteView:
        """Return the note for people."""
        before = msgspec.Raw(b"null" if note.before is None else note.before)
        return cls(note.kind.value, date_of(note.at_us), note.by, note.text, before)


class HistoryView(msgspec.Struct, frozen=True):
    """A job and its history, oldest first."""

    job: JobView
    attempts: list[AttemptView]
    notes: list[NoteView]

    @classmethod
    def of(cls, history: History, running: RunningAttempt | None = None) -> HistoryView:
        """Return the history for people."""
        return cls(
            JobView.of(history.job, running),
            [AttemptView.of(attempt) for attempt in history.attempts],
            [NoteView.of(note) for note in history.notes],
        )


class JobPage(msgspec.Struct, frozen=True):
    """Some jobs; ``cursor`` is for the next page, and empty if there is none."""

    jobs: list[JobView]
    cursor: str = ""


class GroupView(msgspec.Struct, frozen=True):
    """A group of similar dead letters."""

    error_reason: str
    failure_class: str
    queue: str
    count: int
    held_behind: int
    tenants: int
    scopes: int
    first_at: datetime
    last_at: datetime
    fingerprint: str

    @classmethod
    def of(cls, group: FailureGroup) -> GroupView:
        """Return the group for people."""
        return cls(
            error_reason=group.error_reason,
            failure_class=group.failure_class.value,
            queue=group.queue,
            count=group.count,
            held_behind=group.held_behind,
            tenants=group.tenants,
            scopes=group.scopes,
            first_at=date_of(group.first_at_us),
            last_at=date_of(group.last_at_us),
            fingerprint=group.fingerprint,
        )


class WorkerView(msgspec.Struct, frozen=True):
    """A worker that holds leases: how many, of which tasks, since and until when."""

    worker: str
    leases: int
    tasks: Mapping[str, int]
    oldest_claim_at: datetime
    first_lease_ends_at: datetime

    @classmethod
    def of(cls, worker: str, jobs: Sequence[Job]) -> WorkerView:
        """Return the worker that holds these jobs."""
        tasks: dict[str, int] = {}
        for job in jobs:
            tasks[job.task] = tasks.get(job.task, 0) + 1
        return cls(
            worker,
            len(jobs),
            dict(sorted(tasks.items())),
            date_of(min(job.claimed_at_us for job in jobs)),
            date_of(min(job.lease_until_us for job in jobs)),
        )


class AuditView(msgspec.Struct, frozen=True):
    """An audit entry with its place in the chain."""

    number: int
    timestamp: datetime
    action: str
    resource_type: str
    resource_id: str
    user_id: str
    changes: msgspec.Raw
    reason: str
    tenant: str
    hash: str

    @classmethod
    def of(cls, record: AuditRecord) -> AuditView:
        """Return the record for people."""
        entry = record.entry
        return cls(
            record.number,
            date_of(record.at_us),
            entry.action,
            entry.resource_type,
            entry.resource_id,
            entry.user_id,
            msgspec.Raw(entry.changes.encode()),
            entry.reason,
            entry.tenant,
            record.hash,
        )


class OperationResult(msgspec.Struct, frozen=True):
    """How many jobs an operation changed, and how many it left as they were."""

    done: int
    kept: int = 0
    ids: list[str] = []
    """The first changed ones."""


class OperationPreview(msgspec.Struct, frozen=True):
    """What an operation would change."""

    would: int
    kept: int
    jobs: list[JobView]
    """The first of them."""


def status_of(
    counts: Mapping[str, Counts],
    running: Sequence[RunningAttempt] = (),
    slots: Mapping[str, int] | None = None,
    processes: Mapping[str, ProcessSlots | None] | None = None,
    totals: Mapping[str, float] | None = None,
    tasks: Iterable[str] = (),
    *,
    draining: bool = False,
) -> Status:
    """Return the status, with the counts of all queues added up."""
    total = {
        field: sum(getattr(count, field) for count in counts.values())
        for field in Counts.__struct_fields__
    }
    queues = [QueueStatus(queue, counts[queue]) for queue in sorted(counts)]
    return Status(
        **total,
        queues=queues,
        running=list(running),
        slots=slots or {},
        processes=processes or {},
        draining=draining,
        totals=totals or {},
        tasks=sorted(tasks),
    )


def date_of(moment_us: int) -> datetime:
    """Return a time in microseconds as a date."""
    return datetime.fromtimestamp(moment_us / MICROSECONDS, UTC)
