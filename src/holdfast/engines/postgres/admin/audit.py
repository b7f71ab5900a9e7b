"""The audit: a chain of entries, each committed with the change that it records."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, execute, execute_all
from holdfast.model import audit as auditing
from holdfast.model.audit import (
    MAX_NUMBER,
    WHOLE_AUDIT,
    AuditEntry,
    AuditFilter,
    AuditHead,
    AuditRecord,
)


def add_audit(entries: Sequence[AuditEntry], now_us: int) -> SansIO[AuditHead]:
    """Append entries to the chain; one transaction at a time does that.

    Code from before migration 15 has another lock: who is second then violates the primary key, and
    is tried again.
    """
    yield from execute("lock_audit")
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
    records = yield from search(WHOLE_AUDIT, number, limit, newest=False)
    if records:
        yield from execute("advance_audit_logged", number=records[-1].number)
    return records


def search(
    wanted: AuditFilter, after: int, limit: int, *, newest: bool
) -> SansIO[list[AuditRecord]]:
    """Return the matching records after this number, or before it; 0: all."""
    path = "find_audit_newest" if newest else "find_audit"
    after = after or MAX_NUMBER if newest else after
    found = yield from execute(path, **_conditions(wanted), after=after, limit=limit)
    return [rows.audit_record(number, record) for number, record in found]


def _conditions(wanted: AuditFilter) -> dict[str, object]:
    prefixes = [rows.without_nul(one) for one in wanted.actions if one.endswith(".")]
    actions = [rows.without_nul(one) for one in wanted.actions if not one.endswith(".")]
    return {
        "users": [rows.without_nul(one) for one in wanted.by] or None,
        "any_action": not wanted.actions,
        "actions": actions,
        "prefixes": prefixes,
        "resource_type": _nullable(wanted.resource_type),
        "resource_id": _nullable(wanted.resource_id),
        "tenant": _nullable(wanted.tenant),
        "from_us": wanted.from_us,
        "to_us": wanted.to_us,
        "text": rows.without_nul(wanted.text) or None,
    }


def _nullable(text: str | None) -> str | None:
    return None if text is None else rows.without_nul(text)
