"""A batch of dump records, as COPY and the statements of the verbs take it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast.engines.dump.format import (
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
    DumpRecord,
)
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.admin.groups import put_life
from holdfast.engines.postgres.admin.operations import put_statement
from holdfast.engines.postgres.admin.policies import policy_columns
from holdfast.engines.postgres.admin.projections import put_statement as put_projection
from holdfast.engines.postgres.admin.records import set_statement
from holdfast.engines.postgres.connection.sansio import Statement
from holdfast.engines.postgres.events.rows import put_events, put_subscription
from holdfast.engines.postgres.outages import outage_columns
from holdfast.model.event import Event
from holdfast.model.job import Job, State

_FIRST = (
    *("created_at_us", "run_at_us", "seqs", "tokens", "claimed_at_us", "lease_until_us"),
    *("attempts", "max_attempts", "priorities", "states", "stops", "tenants", "ids", "scopes"),
    *("queues", "tasks", "workers"),
)
_THEN = (
    *("expires_at_us", "uniques", "estimated_seconds", "max_processing_seconds", "keys"),
    *("key_seqs", "waiting_for", "failures", "replay_runs", "mores"),
)
_COPIED: Mapping[str, tuple[str, ...]] = {
    "copy_jobs": (*_FIRST, "payloads", *_THEN, "lines", "tied"),
    "copy_dead": (
        *(*_FIRST, "payloads", *_THEN, "finished_at_us"),
        *("error_reasons", "failure_classes", "fingerprints", "messages", "statuses"),
    ),
    "copy_history": (*_FIRST, "kept_payloads", "results", *_THEN, "finished_at_us"),
}
"""The columns of each statement, in its order."""
_NO_LINE = 0


class HighestNumbers(NamedTuple):
    """The highest sequence number, token and fan-out version of all records so far."""

    seq: int = 0
    token: int = 0
    fanout_version: int = 0

    def with_record(self, record: DumpRecord) -> HighestNumbers:
        """Return the numbers including this record."""
        if isinstance(record, DumpedJob):
            job = record.job
            return self._with(max(job.seq, job.ties.key_seq), job.token)
        if isinstance(record, DumpedAttempt):
            return self._with(token=record.attempt.token)
        if isinstance(record, DumpedEvent):
            return self._with(record.event.position, version=record.event.fanout_version)
        if isinstance(record, DumpedSubscription):
            return self._with(version=record.subscription.since_version)
        if isinstance(record, DumpHead):
            return self._with(record.last_seq, record.last_token)
        return self

    def _with(self, seq: int = 0, token: int = 0, version: int = 0) -> HighestNumbers:
        return HighestNumbers(
            max(self.seq, seq), max(self.token, token), max(self.fanout_version, version)
        )


class RestoreBatch:
    """Records that are written in one transaction."""

    def __init__(self) -> None:
        self.records = 0
        self.size_bytes = 0
        self._jobs: dict[str, list[Job]] = {name: [] for name in _COPIED}
        self._attempts: list[DumpedAttempt] = []
        self._notes: list[DumpedNote] = []
        self._audit: list[DumpedAudit] = []
        self._events: list[Event] = []
        self._settings: list[Statement] = []

    def add(self, record: DumpRecord, size_bytes: int) -> None:
        """Add a record."""
        self.records += 1
        self.size_bytes += size_bytes
        if isinstance(record, DumpedJob):
            self._jobs[_destination(record.job)].append(record.job)
        elif isinstance(record, DumpedAttempt):
            self._attempts.append(record)
        elif isinstance(record, DumpedNote):
            self._notes.append(record)
        elif isinstance(record, DumpedAudit):
            self._audit.append(record)
        elif isinstance(record, DumpedEvent):
            self._events.append(record.event)
        elif (setting := _setting(record)) is not None:
            self._settings.append(setting)

    def copies(self) -> Iterator[tuple[str, Iterable[Sequence[object]]]]:
        """Yield the COPY statements, and their rows."""
        for name, jobs in self._jobs.items():
            if jobs:
                columns = _columns(name, jobs)
                yield name, zip(*(columns[key] for key in _COPIED[name]), strict=True)

    def statements(self) -> Iterator[Statement]:
        """Yield the other statements."""
        yield from self._settings
        if self._attempts:
            yield rows.add_attempts(
                [(one.tenant, one.id, one.created_at_us, one.attempt) for one in self._attempts]
            )
        if self._notes:
            yield rows.add_notes(
                [(one.tenant, one.id, one.created_at_us, one.note) for one in self._notes]
            )
        if self._audit:
            yield rows.add_audit([one.record for one in self._audit])
        if self._events:
            yield put_events(self._events)


def _setting(record: DumpRecord) -> Statement | None:
    """Return the statement for a record of which a store has few."""
    if isinstance(record, DumpedPolicy):
        return Statement("put_policy", policy_columns(record.queue, record.policy))
    if isinstance(record, DumpedFlag):
        return Statement("set_flag", {"name": record.name, "to": record.on})
    if isinstance(record, DumpedSchedule):
        parameters = {"name": record.name, "schedule": rows.pack(record.schedule)}
        return Statement("set_schedule", parameters)
    if isinstance(record, DumpedOutage):
        return Statement("add_outage", outage_columns(record.outage))
    if isinstance(record, DumpedOperation):
        return put_statement(record.operation)
    if isinstance(record, DumpedGroup):
        return put_life(record.id, record.life)
    if isinstance(record, DumpedSubscription):
        return put_subscription(record.subscription)
    if isinstance(record, DumpedRecord):
        return set_statement(record.record.kind, record.record.name, record.record)
    if isinstance(record, DumpedProjection):
        return put_projection(record.state)
    return None


def _destination(job: Job) -> str:
    if not job.state.finished:
        return "copy_jobs"
    return "copy_dead" if job.state in (State.DEAD, State.ARCHIVED) else "copy_history"


def _columns(name: str, jobs: Sequence[Job]) -> dict[str, Sequence[object]]:
    columns = {
        **rows.columns(jobs),
        "waiting_for": [list(job.ties.waiting_for) or None for job in jobs],
    }
    if name == "copy_jobs":
        # No job may be claimed before all are there.
        columns["lines"] = [_NO_LINE] * len(jobs)
        columns["tied"] = [job.ties.key is not None or job.replays is not None for job in jobs]
    elif name == "copy_dead":
        columns |= rows.failure_columns(jobs)
    else:
        columns["kept_payloads"] = [job.payload or None for job in jobs]
    return {key: column for key, column in columns.items() if isinstance(column, list)}
