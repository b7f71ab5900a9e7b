"""The audit as log events: each entry is logged when it is durable."""

from __future__ import annotations

import msgspec

from holdfast.engines.structured_log import StructuredLog
from holdfast.model.actions import NoteJobs
from holdfast.model.audit import AuditEntry, AuditRecord

log = StructuredLog("holdfast.audit")


class _Facts(msgspec.Struct):
    count: int | None = None
    kept: int | None = None


def log_audit(record: AuditRecord) -> None:
    """Log an entry of the audit."""
    if not log.enabled_for("audit.entry"):
        return
    entry = record.entry
    facts = _facts(entry)
    log.emit(
        "audit.entry",
        number=record.number,
        action=entry.action,
        resource=f"{entry.resource_type} {entry.resource_id}".strip(),
        user=entry.user_id,
        why=_reason(entry),
        count=facts.count,
        kept=facts.kept,
        tenant=entry.tenant or None,
    )


def _facts(entry: AuditEntry) -> _Facts:
    try:
        return msgspec.json.decode(entry.changes, type=_Facts)
    except msgspec.MsgspecError:
        return _Facts()


def _reason(entry: AuditEntry) -> str | None:
    # A note is only for people who may see the job.
    return None if entry.action == f"job.{NoteJobs.name}" else entry.reason or None
