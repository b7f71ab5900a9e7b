"""The registry of the processes that run jobs, and commands to them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import (
    SansIO,
    Statement,
    execute,
    execute_all,
    execute_and_commit,
)
from holdfast.model.audit import AuditEntry
from holdfast.model.errors import WorkerIdInUse
from holdfast.model.fleet import (
    REMEMBERED_SECONDS,
    CommandAnswer,
    SentCommand,
    WorkerEntry,
    WorkerProcess,
)
from holdfast.model.job import MICROSECONDS

from .audit import add_audit

_PROCESS = msgspec.msgpack.Decoder(WorkerProcess)
_COMMAND = msgspec.msgpack.Decoder(SentCommand)
_ANSWER = msgspec.msgpack.Decoder(CommandAnswer)


def renew(
    process: WorkerProcess,
    ttl_seconds: float,
    answers: Sequence[CommandAnswer],
    context: CallContext,
) -> SansIO[list[SentCommand] | None]:
    """Renew the entry of a process, in one statement; return None if it has none that is live."""
    [[[renewed, commands]]] = yield from execute_and_commit(
        _renewal(process, ttl_seconds, answers, context)
    )
    return [_COMMAND.decode(command) for command in commands] if renewed else None


def enter(
    process: WorkerProcess,
    ttl_seconds: float,
    answers: Sequence[CommandAnswer],
    context: CallContext,
) -> SansIO[list[SentCommand]]:
    """Enter a process; of two that have one name the second is refused."""
    yield from execute("lock_keys", names=["fleet"])
    parameters = {**_entry(process, ttl_seconds, context), "names": list(process.processes)}
    for [packed] in (yield from execute("enter_worker", **parameters)):
        other = _PROCESS.decode(packed)
        raise WorkerIdInUse(other.name, other.host, other.pid)
    [[[_renewed, commands]]] = yield from execute_all(
        _renewal(process, ttl_seconds, answers, context)
    )
    return [_COMMAND.decode(command) for command in commands]


def depart(process_id: str) -> SansIO[None]:
    """Remove a process."""
    yield from execute_and_commit(Statement("drop_worker", {"id": process_id}))


def workers(context: CallContext, *, gone: bool) -> SansIO[list[WorkerEntry]]:
    """Return the processes, by name."""
    remember_us = int(REMEMBERED_SECONDS * MICROSECONDS)
    found = yield from execute(
        "list_workers", now_us=context.now_us, gone=gone, remember_us=remember_us
    )
    entries = [
        WorkerEntry(_PROCESS.decode(packed), seen_at_us, live) for packed, seen_at_us, live in found
    ]
    return sorted(entries, key=lambda entry: (entry.process.name, entry.process.id))


def send(
    sent: SentCommand,
    process_ids: Sequence[str],
    ttl_seconds: float,
    audit: Sequence[AuditEntry],
    context: CallContext,
) -> SansIO[None]:
    """Send a command, with its audit."""
    parameters = {
        "id": sent.id,
        "workers": list(process_ids),
        "ttl_us": int(ttl_seconds * MICROSECONDS),
        "command": rows.pack(sent),
        "now_us": context.now_us,
    }
    [[[now_us]], _done] = yield from execute_all(
        context.now(), Statement("send_command", parameters)
    )
    yield from add_audit(audit, now_us)


def answers(command_id: str) -> SansIO[list[CommandAnswer]]:
    """Return the answers to a command so far."""
    found = yield from execute("read_answers", id=command_id)
    return [_ANSWER.decode(packed) for (packed,) in found]


def _renewal(
    process: WorkerProcess,
    ttl_seconds: float,
    answers: Sequence[CommandAnswer],
    context: CallContext,
) -> Statement:
    parameters = {
        **_entry(process, ttl_seconds, context),
        "command_ids": [answer.command_id for answer in answers],
        "answers": [rows.pack(answer) for answer in answers],
    }
    return Statement("renew_worker", parameters)


def _entry(process: WorkerProcess, ttl_seconds: float, context: CallContext) -> dict[str, object]:
    return {
        "id": process.id,
        "ttl_us": int(ttl_seconds * MICROSECONDS),
        "process": rows.pack(process),
        "now_us": context.now_us,
    }
