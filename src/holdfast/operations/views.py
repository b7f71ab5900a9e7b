"""What people see: jobs, queues, workers and failures, with times as dates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.engines.contract import Counts
from holdfast.model.access import DEFAULT_TENANT
from holdfast.model.audit import AuditRecord
from holdfast.model.fleet import (
    ProcessSlots,
    RunningAttempt,
    WorkerEntry,
    WorkerProcess,
    unserved,
)
from holdfast.model.group_life import group_id, group_key
from holdfast.model.history import AttemptRecord, History, Note
from holdfast.model.job import MICROSECONDS, Job, State
from holdfast.model.lifecycle import attempts_used

_LAST_SECOND = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


class QueueRates(msgspec.Struct, frozen=True):
    """What flowed through a queue, of the whole store."""

    enqueued_per_second: float
    completed_per_second: float
    retried_per_second: float
    dead_per_second: float


class QueueStatus(msgspec.Struct, frozen=True):
    """The counts of one queue, and what its last sample says."""

    queue: str
    counts: Counts
    held: int | None = None
    """How many jobs wait behind a dead one of their key; this and the rest are None without a
    recent sample: they are taken while a daemon runs."""
    oldest_age_seconds: float | None = None
    """For how long the oldest due job has waited."""
    rates: QueueRates | None = None
    sampled_at: datetime | None = None


class Status(msgspec.Struct, frozen=True):
    """The counts of all queues, and the state of the live daemons."""

    pending: int
    in_flight: int
    completed: int
    dead: int
    blocked: int
    cancelled: int
    archived: int
    queues: list[QueueStatus]
    running: list[RunningAttempt] = []
    """The running attempts. Of a server, those that run for more than a second; attempts in worker
    processes show no progress."""
    slots: Mapping[str, int] = {}
    """The number of slots in each process of a daemon, by the queue that they serve; of several
    daemons, added up."""
    processes: Mapping[str, ProcessSlots | None] = {}
    """The processes of the daemon by number, of several daemons by the name of the worker; None
    for one that has not reported yet."""
    draining: bool = False
    """Whether every daemon claims nothing."""
    totals: Mapping[str, float] = {}
    """The counters of the daemons since their start, by name, added up."""
    tasks: list[str] = []
    """The tasks that a daemon knows."""
    unserved: list[str] = []
    """The queues with pending jobs that no live daemon serves."""
    outages: list[str] = []
    """The dependencies that are out or recovering, a line each."""


class JobView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job for people: times as dates, the token as text, without unset fields."""

    id: str
    status: str
    task: str
    queue: str
    payload: msgspec.Raw
    attempt: int
    """How many attempts of the budget are used: never more than ``max_attempts``."""
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
    total_attempts: int = 0
    """All attempts, if a replay gave the job a fresh budget."""
    http_status: int | None = None
    """The HTTP status of its last failure."""
    group: str = ""
    """The group of failures that a dead letter is in."""

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
            attempt=attempts_used(job),
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
            total_attempts=job.attempt if job.attempts_before_replay else 0,
            http_status=None if failure is None else failure.status,
            group=group_id(key) if job.state is State.DEAD and (key := group_key(job)) else "",
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
    http_status: int | None = None

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
            http_status=None if failure is None else failure.status,
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


class ReasonView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reason: a sentence, and the command that would change it, if there is one."""

    kind: str
    """A ``BlockerKind``; or ``worker``, ``task`` or ``slots``, which no claim knows about."""
    text: str
    command: str = ""
    job: str = ""
    """The job that it waits for."""
    until: datetime | None = None
    """When time alone ends it."""


class ExplanationView(msgspec.Struct, frozen=True):
    """Why a job does not run, or that it does."""

    id: str
    tenant: str
    status: str
    queue: str
    task: str
    claimable: bool
    """Whether a claim would return it now."""
    ahead: int
    """If so: how many due jobs of its queue come before it."""
    blocking: list[ReasonView]
    """What keeps a claim from returning it; for one that is not waiting, what happened to it."""
    advisory: list[ReasonView]
    """What the live workers lack to claim it."""


class HistoryView(msgspec.Struct, frozen=True):
    """A job and its history, oldest first."""

    job: JobView
    attempts: list[AttemptView]
    notes: list[NoteView]
    explanation: ExplanationView | None = None
    """Why it does not run, if it waits."""

    @classmethod
    def of(
        cls,
        history: History,
        running: RunningAttempt | None = None,
        explanation: ExplanationView | None = None,
    ) -> HistoryView:
        """Return the history for people."""
        return cls(
            JobView.of(history.job, running),
            [AttemptView.of(attempt) for attempt in history.attempts],
            [NoteView.of(note) for note in history.notes],
            explanation,
        )


class JobPage(msgspec.Struct, frozen=True):
    """Some jobs; ``cursor`` is for the next page, and empty if there is none.

    ``previous`` is for the page before, and empty if it is not known that there is one.
    """

    jobs: list[JobView]
    cursor: str = ""
    previous: str = ""


class WorkerView(msgspec.Struct, frozen=True):
    """A worker: the leases that it holds, and if it has announced itself, what it is."""

    worker: str
    leases: int
    tasks: Mapping[str, int]
    """How many jobs of each task it holds."""
    oldest_claim_at: datetime | None = None
    first_lease_ends_at: datetime | None = None
    name: str = ""
    """The worker_id of its daemon, for ``--worker``; empty if it has not announced itself."""
    host: str = ""
    pid: int = 0
    version: str = ""
    started_at: datetime | None = None
    seen_at: datetime | None = None
    slots: int = 0
    busy: int = 0
    draining: bool = False
    queues: tuple[str, ...] | None = None
    """The queues that it serves; None: all."""
    known_tasks: tuple[str, ...] = ()
    metrics: str = ""

    @classmethod
    def of(cls, worker: str, jobs: Sequence[Job], entry: WorkerEntry | None = None) -> WorkerView:
        """Return the worker that holds these jobs."""
        tasks: dict[str, int] = {}
        for job in jobs:
            tasks[job.task] = tasks.get(job.task, 0) + 1
        found = cls(
            worker,
            len(jobs),
            dict(sorted(tasks.items())),
            date_of(min(job.claimed_at_us for job in jobs)) if jobs else None,
            date_of(min(job.lease_until_us for job in jobs)) if jobs else None,
        )
        if entry is None:
            return found
        process = entry.process
        slots = process.processes[worker] or ProcessSlots(0, 0, draining=False)
        return msgspec.structs.replace(
            found,
            name=process.name,
            host=process.host,
            pid=process.pids[worker][0] if worker in process.pids else 0,
            version=process.version,
            started_at=date_of(process.started_at_us),
            seen_at=date_of(entry.seen_at_us),
            slots=slots.slots,
            busy=slots.busy,
            draining=process.draining,
            queues=process.queues,
            known_tasks=process.tasks,
            metrics=process.metrics,
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
    """How many jobs were changed, and how many were left as they were."""

    done: int
    kept: int = 0
    ids: list[str] = []
    """The first changed ones."""


def status_of(counts: Mapping[str, Counts], fleet: Sequence[WorkerProcess] = ()) -> Status:
    """Return the status, with the counts of all queues added up, and those of all daemons."""
    total = {
        field: sum(getattr(count, field) for count in counts.values())
        for field in Counts.__struct_fields__
    }
    queues = [QueueStatus(queue, counts[queue]) for queue in sorted(counts)]
    slots: Counter[str] = Counter()
    totals: dict[str, float] = {}
    processes: dict[str, ProcessSlots | None] = {}
    for process in fleet:
        slots.update(process.slots)
        for name, value in process.totals.items():
            totals[name] = totals.get(name, 0) + value
        for number, (worker, found) in enumerate(process.processes.items(), 1):
            processes[str(number) if len(fleet) == 1 else worker] = found
    if "recovery_seconds" in totals:
        slowest = max(process.totals.get("recovery_seconds", 0.0) for process in fleet)
        totals["recovery_seconds"] = slowest
    return Status(
        **total,
        queues=queues,
        running=[run for process in fleet for run in process.running],
        slots=slots,
        processes=processes,
        draining=bool(fleet) and all(process.draining for process in fleet),
        totals=totals,
        tasks=sorted({task for process in fleet for task in process.tasks}),
        unserved=unserved([item.queue for item in queues if item.counts.pending], fleet),
    )


def date_of(moment_us: int) -> datetime:
    """Return a time in microseconds as a date; one after the year 9999 as the end of it."""
    return datetime.fromtimestamp(min(moment_us / MICROSECONDS, _LAST_SECOND), UTC)
