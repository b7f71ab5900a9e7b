"""Checks of the records of a dump: what no store would have taken is refused.

Names, sizes and JSON go through the same checks as an enqueue, an append or an action. A name that
cannot be printed would fail every claim of its queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from holdfast.engines.contract import MOST_PAYLOAD_BYTES
from holdfast.model.audit import CHANGES_LIMIT, NAME_LIMIT, TEXT_LIMIT
from holdfast.model.errors import InvalidInput
from holdfast.model.event import Event, NewEvent, accept_event, check_event_id
from holdfast.model.failure import Failure, check_failure
from holdfast.model.fingerprint import FINGERPRINT_LIMIT
from holdfast.model.group_life import MAX_ACTS, GroupLife
from holdfast.model.history import AttemptRecord, Note
from holdfast.model.job import (
    BAD_PAYLOAD,
    MAX_DEPENDENCIES,
    MAX_RESULT_BYTES,
    PRIORITIES,
    Job,
    check_id,
    check_name,
    check_payload,
    check_scope,
    check_size,
    encode_payload,
)
from holdfast.model.operation import MAX_CANARY, Operation, check_rate
from holdfast.model.outage import Outage, check_dependency
from holdfast.model.projection import MAX_REBUILDS, ProjectionState, check_projection_name

from .format import (
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

_EVENT_FIELDS = frozenset(NewEvent.__struct_fields__)
_MAX_REASONS = 1_000
"""Of members that an operation has left out."""
_MAX_GENERATIONS = 1_000


def check_record(record: DumpRecord) -> None:
    """Raise ``InvalidInput`` naming what is wrong with a record."""
    _CHECKS[type(record)](record)


def _check_job(record: DumpedJob) -> None:
    job = record.job
    _check_place(job.tenant, job.id)
    for field in ("queue", "task"):
        check_name(field, getattr(job, field))
    for field, name in (("unique", job.unique), ("key", job.ties.key), ("worker", job.worker)):
        if name:
            check_id(name, field)
    if job.scope:
        check_scope(job.scope)
    check_size("priority", job.priority, *PRIORITIES)
    _check_bodies(job)
    for field in ("depends_on", "waiting_for"):
        _check_names(field, getattr(job.ties, field), MAX_DEPENDENCIES)
    _check_failure(job.failure)
    if job.replays is not None:
        _check_text("last_by", job.replays.last_by, NAME_LIMIT)
        _check_text("last_why", job.replays.last_why)
        _check_text("run", job.replays.run)
    _check_text("cancel_reason", job.cancel_reason)


def _check_bodies(job: Job) -> None:
    if job.payload or not job.state.finished:  # a finished job may have lost its payload
        check_payload(encode_payload(job.payload), MOST_PAYLOAD_BYTES)
    if job.result is not None:
        if len(job.result) > MAX_RESULT_BYTES:
            raise InvalidInput("result", f"it has more than {MAX_RESULT_BYTES:,} bytes")
        try:
            msgspec.json.decode(job.result)
        except BAD_PAYLOAD as error:
            raise InvalidInput("result", f"not JSON ({error})") from None


def _check_attempt(record: DumpedAttempt) -> None:
    _check_place(record.tenant, record.id)
    attempt: AttemptRecord = record.attempt
    _check_text("worker", attempt.worker, NAME_LIMIT * 2)
    _check_text("ending", attempt.ending, NAME_LIMIT)
    _check_failure(attempt.failure)


def _check_note(record: DumpedNote) -> None:
    _check_place(record.tenant, record.id)
    note: Note = record.note
    _check_text("by", note.by, NAME_LIMIT)
    _check_text("text", note.text)
    if note.before is not None:
        check_payload(note.before, MOST_PAYLOAD_BYTES)


def _check_policy(record: DumpedPolicy) -> None:
    check_name("queue", record.queue)
    record.policy.check()


def _check_schedule(record: DumpedSchedule) -> None:
    check_id(record.name, "name")
    for field in ("expression", "time_zone", "task", "queue"):
        check_name(field, getattr(record.schedule, field))


def _check_outage(record: DumpedOutage) -> None:
    outage: Outage = record.outage
    check_dependency(outage.dependency)
    for field in ("by", "why", "error_reason", "message", "ended_by", "ended_why"):
        _check_text(field, getattr(outage, field))


def _check_operation(record: DumpedOperation) -> None:
    operation: Operation = record.operation
    check_id(operation.id, "operation")
    operation.action.check()
    operation.wanted.check()
    for field in ("by", "why", "note"):
        _check_text(field, getattr(operation, field))
    if operation.rate is not None:
        check_rate(operation.rate)
    if operation.caller.tenant is not None:
        check_id(operation.caller.tenant, "tenant")
    for scope in operation.caller.scopes:
        check_scope(scope)
    if len(operation.canaries) > MAX_CANARY or len(operation.skipped) > _MAX_REASONS:
        raise InvalidInput("operation", "it has more canaries or reasons than an operation can")
    for reason in operation.skipped:
        _check_text("skipped", reason)


def _check_group(record: DumpedGroup) -> None:
    check_id(record.id, "group")
    life: GroupLife = record.life
    check_name("queue", life.queue)
    check_name("task", life.task)
    for field in ("error_reason", "owner"):
        _check_text(field, getattr(life, field), NAME_LIMIT)
    _check_text("fingerprint", life.fingerprint, FINGERPRINT_LIMIT)
    _check_text("fixed_in", life.fixed_in)
    if len(life.acts) > MAX_ACTS:
        raise InvalidInput("acts", f"there are more than {MAX_ACTS}")
    for act in life.acts:
        for field in ("by", "text", "value"):
            _check_text(field, getattr(act, field))


def _check_audit(record: DumpedAudit) -> None:
    record.record.entry.check()
    for field in ("previous_hash", "hash"):
        _check_text(field, getattr(record.record, field), NAME_LIMIT)


def _check_projection(record: DumpedProjection) -> None:
    state: ProjectionState = record.state
    check_projection_name(state.name)
    if len(state.past) > MAX_REBUILDS or len(state.versions) > _MAX_GENERATIONS:
        raise InvalidInput("projection", "it has more rebuilds or generations than are kept")
    for rebuild in (*state.past, *([] if state.rebuild is None else [state.rebuild])):
        for field in ("id", "by", "why", "cursor", "hash", "live_hash"):
            _check_text(field, getattr(rebuild, field))
        _check_text("error", rebuild.error, CHANGES_LIMIT)


def _check_event(record: DumpedEvent) -> None:
    event: Event = record.event
    fields = {name: getattr(event, name) for name in Event.__struct_fields__}
    given = {name: value for name, value in fields.items() if name in _EVENT_FIELDS}
    accept_event(NewEvent(**given), check_event_id(event.id), 0, 0, 0)


def _check_place(tenant: str, job_id: str) -> None:
    check_name("tenant", tenant)
    check_id(job_id)


def _check_names(field: str, names: tuple[str, ...], most: int) -> None:
    if len(names) > most:
        raise InvalidInput(field, f"there are more than {most:,}")
    for name in names:
        check_id(name, field)


def _check_failure(failure: Failure | None) -> None:
    if failure is not None:
        check_failure(failure)


def _check_text(field: str, text: str, longest: int = TEXT_LIMIT) -> None:
    if len(text) > longest:
        raise InvalidInput(field, f"it has more than {longest:,} characters")


_CHECKS: Mapping[type, Callable[..., object]] = {
    DumpHead: lambda head: _check_text("engine", head.engine, NAME_LIMIT),
    DumpedJob: _check_job,
    DumpedAttempt: _check_attempt,
    DumpedNote: _check_note,
    DumpedPolicy: _check_policy,
    DumpedFlag: lambda flag: check_id(flag.name, "flag"),
    DumpedSchedule: _check_schedule,
    DumpedOutage: _check_outage,
    DumpedOperation: _check_operation,
    DumpedAudit: _check_audit,
    DumpedGroup: _check_group,
    DumpedSubscription: lambda one: one.subscription.check(),
    DumpedProjection: _check_projection,
    DumpedEvent: _check_event,
    DumpedRecord: lambda one: one.record.check(),
}
