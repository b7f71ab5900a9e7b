"""Jobs as rows: what statements filter by has columns of its own, the rest is packed into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.model.access import Caller
from holdfast.model.audit import AuditRecord
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import AuditAltered
from holdfast.model.failure import Failure
from holdfast.model.fingerprint import fingerprint
from holdfast.model.group_life import GroupLife
from holdfast.model.history import RETRIED, AttemptRecord, Note
from holdfast.model.job import NO_TIES, Job, Replays, State, Ties, Whole
from holdfast.model.outage import Outage
from holdfast.model.policy import QueuePolicy

from .connection.sansio import Row, Statement

STATES = (
    State.BLOCKED,
    State.PENDING,
    State.IN_FLIGHT,
    State.COMPLETED,
    State.CANCELLED,
    State.DEAD,
    State.ARCHIVED,
)
NUMBERS: Mapping[State, int] = {state: number for number, state in enumerate(STATES)}
"""How states are stored. Never give a number to another state."""

_SEPARATOR = "\x1f"
"""Between ids in a text: no id contains it, as it is not printable."""


class ExtraColumns(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What most jobs do not have. New fields go at the end."""

    version: Whole = 1
    losses: Whole = 0
    attempts_before_replay: Whole = 0
    depends_on: tuple[str, ...] = ()
    hold: bool = False
    replays: Replays | None = None
    cancel_reason: str = ""


_NO_EXTRA = ExtraColumns()
_ENCODER = msgspec.msgpack.Encoder()
_EXTRA = msgspec.msgpack.Decoder(ExtraColumns)
_FAILURE = msgspec.msgpack.Decoder(Failure)
ATTEMPT = msgspec.msgpack.Decoder(AttemptRecord)
NOTE = msgspec.msgpack.Decoder(Note)
POLICY = msgspec.msgpack.Decoder(QueuePolicy)
SCHEDULE = msgspec.msgpack.Decoder(ScheduleState)
GROUP_LIFE = msgspec.msgpack.Decoder(GroupLife)
OUTAGE = msgspec.msgpack.Decoder(Outage)
_AUDIT_RECORD = msgspec.msgpack.Decoder(AuditRecord)


def job_of(row: Row) -> Job:
    """Return the job of a row of any table."""
    failure, finished_at_us, result, key, key_seq, waiting_for, stop_requested, packed = row[21:]
    extra = _NO_EXTRA if packed is None else _EXTRA.decode(packed)
    ties = NO_TIES
    if key is not None or packed is not None or waiting_for is not None:
        waits = () if waiting_for is None else tuple(waiting_for)
        ties = Ties(key, key_seq or 0, extra.depends_on, waits, extra.hold)
    fields: tuple[Any, ...] = (
        *row[:11],
        STATES[row[11]],
        *row[12:17],
        extra.version,
        *row[17:21],
        extra.losses,
        None if failure is None else _FAILURE.decode(failure),
        finished_at_us,
        result,
        extra.attempts_before_replay,
        ties,
        extra.replays,
        stop_requested,
        extra.cancel_reason,
    )
    return Job(*fields)


def _extra_of(job: Job) -> bytes | None:
    extra = ExtraColumns(
        job.version,
        job.losses,
        job.attempts_before_replay,
        job.ties.depends_on,
        job.ties.hold,
        job.replays,
        job.cancel_reason,
    )
    return None if extra == _NO_EXTRA else _ENCODER.encode(extra)


def columns(jobs: Sequence[Job]) -> dict[str, object]:
    """Return these jobs as columns, for a statement that writes them to any table."""
    waits = [_SEPARATOR.join(job.ties.waiting_for) or None for job in jobs]
    return {
        "created_at_us": [job.created_at_us for job in jobs],
        "run_at_us": [job.run_at_us for job in jobs],
        "seqs": [job.seq for job in jobs],
        "tokens": [job.token for job in jobs],
        "claimed_at_us": [job.claimed_at_us for job in jobs],
        "lease_until_us": [job.lease_until_us for job in jobs],
        "finished_at_us": [job.finished_at_us for job in jobs],
        "attempts": [job.attempt for job in jobs],
        "max_attempts": [job.max_attempts for job in jobs],
        "priorities": [job.priority for job in jobs],
        "states": [NUMBERS[job.state] for job in jobs],
        "stops": [job.stop_requested for job in jobs],
        "tenants": [job.tenant for job in jobs],
        "ids": [job.id for job in jobs],
        "scopes": [job.scope for job in jobs],
        "queues": [job.queue for job in jobs],
        "tasks": [job.task for job in jobs],
        "workers": [job.worker for job in jobs],
        "payloads": [job.payload for job in jobs],
        "results": [job.result for job in jobs],
        "expires_at_us": [job.expires_at_us for job in jobs],
        "uniques": [job.unique for job in jobs],
        "estimated_seconds": [job.estimated_seconds for job in jobs],
        "max_processing_seconds": [job.max_processing_seconds for job in jobs],
        "keys": [job.ties.key for job in jobs],
        "key_seqs": [None if job.ties.key is None else job.ties.key_seq for job in jobs],
        "waits": waits,
        "failures": [None if job.failure is None else pack(job.failure) for job in jobs],
        "replay_runs": [None if job.replays is None else job.replays.run for job in jobs],
        "mores": [_extra_of(job) for job in jobs],
    }


def failure_columns(jobs: Sequence[Job]) -> dict[str, object]:
    """Return the columns by which dead letters are found and grouped."""
    failures = [job.failure or Failure.of("unexpected", "") for job in jobs]
    return {
        "error_reasons": [failure.error_reason for failure in failures],
        "failure_classes": [failure.failure_class.value for failure in failures],
        "fingerprints": [without_nul(fingerprint(failure.message)) for failure in failures],
        "messages": [without_nul(failure.message) for failure in failures],
        "statuses": [failure.status for failure in failures],
    }


def without_nul(text: str) -> str:
    """Return a text that PostgreSQL can store: without NUL."""
    return text.replace("\0", "\ufffd")


def pack(value: msgspec.Struct) -> bytes:
    """Return a struct as bytes."""
    return _ENCODER.encode(value)


def names(jobs: Iterable[tuple[str, str]]) -> dict[str, object]:
    """Return the names of jobs, tenant and id, as columns."""
    listed = list(jobs)
    return {"tenants": [name[0] for name in listed], "ids": [name[1] for name in listed]}


def add_attempts(
    attempts: Sequence[tuple[str, str, int, AttemptRecord]], queues: Sequence[str] | None = None
) -> Statement:
    """Return the statement that records attempts, each with its job's tenant, id and creation.

    With the queue of each, those whose job is tried again count in the rates of its queue.
    """
    tenants, ids, made_us, records = map(list, zip(*attempts, strict=True))
    columns = {"tenants": tenants, "ids": ids, "made_us": made_us}
    retried_us = [
        record.ended_at_us if queues and record.ending in RETRIED else None for record in records
    ]
    return Statement(
        "add_attempts",
        {
            **columns,
            "tokens": [record.token for record in records],
            "attempts": [pack(one) for one in records],
            "queues": [None] * len(records) if queues is None else list(queues),
            "retried_us": retried_us,
        },
    )


def add_notes(notes: Sequence[tuple[str, str, int, Note]]) -> Statement:
    """Return the statement that records notes, each with its job's tenant, id and creation."""
    tenants, ids, made_us, records = map(list, zip(*notes, strict=True))
    columns = {"tenants": tenants, "ids": ids, "made_us": made_us}
    return Statement("add_notes", {**columns, "notes": [pack(one) for one in records]})


def add_operation_outcomes(counts: Mapping[tuple[str, State], int]) -> Statement:
    """Return the statement that counts how members of operations ended."""
    columns = {
        "operations": [without_nul(operation_id) for operation_id, _state in counts],
        "states": [NUMBERS[state] for _operation_id, state in counts],
        "counts": list(counts.values()),
    }
    return Statement("add_operation_outcomes", columns)


def audit_record(number: int, packed: bytes) -> AuditRecord:
    """Return the record of the audit with this number, or raise ``AuditAltered``."""
    try:
        return _AUDIT_RECORD.decode(packed)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise AuditAltered(number, str(error)) from None


def add_audit(records: Sequence[AuditRecord]) -> Statement:
    """Return the statement that appends audit records."""
    columns = {
        "numbers": [record.number for record in records],
        "hashes": [record.hash for record in records],
        "records": [pack(record) for record in records],
    }
    return Statement("add_audit", columns)


def find_unique(uniques: Sequence[tuple[str, str, str]]) -> Statement:
    """Return the statement that reads the unfinished jobs of these tenants, queues and uniques."""
    columns = {
        "tenants": [one[0] for one in uniques],
        "queues": [one[1] for one in uniques],
        "uniques": [one[2] for one in uniques],
    }
    return Statement("find_unique", columns)


def reach(caller: Caller) -> dict[str, object]:
    """Return the reach of a caller as parameters."""
    return {"caller_tenant": caller.tenant, "caller_scopes": list(caller.scopes) or None}
