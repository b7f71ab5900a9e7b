"""The audit: a chain of entries, each committed with the change that it records."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, execute, execute_all
from holdfast.model import audit as auditing
from holdfast.model.audit import AuditEntry, AuditHead, AuditRecord


def add_audit(entries: Sequence[AuditEntry], now_us: int) -> SansIO[AuditHead]:
    """Append entries to the chain; one transaction at a time does that."""
    yield from execute("lock_keys", names=["audit"])
    found = yield from execute("read_audit_head")
    head = AuditHead(*found[0]) if found else AuditHead()
    records: list[AuditRecord] = []
    for entry in entries:
        record = auditing.chain(head, entry, now_us)
        head = auditing.head_of(record)
        records.append(record)
    if records:
        yield from execute_all(rows.add_audit(records))
    return head


def add_audit_now(entries: Sequence[AuditEntry], context: CallContext) -> SansIO[AuditHead]:
    """Append entries that record no change of this transaction."""
    [[[now_us]]] = yield from execute_all(context.now())
    return (yield from add_audit(entries, now_us))


def take_unlogged(limit: int) -> SansIO[list[AuditRecord]]:
    """Return the records that no process has logged yet, and count them as logged."""
    [[number]] = yield from execute("read_audit_logged")
    records = yield from audited(number, limit)
    if records:
        yield from execute("advance_audit_logged", number=records[-1].number)
    return records


def audited(after: int, limit: int) -> SansIO[list[AuditRecord]]:
    """Return the records after this number."""
    found = yield from execute("read_audit", after=after, limit=limit)
    return [rows.audit_record(number, record) for number, record in found]
