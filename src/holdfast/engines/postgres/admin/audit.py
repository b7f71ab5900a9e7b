"""The audit: a chain of entries, each committed with what it is about."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.engines.postgres import rows
from holdfast.engines.postgres.connection.sansio import SansIO, Statement, execute, execute_all
from holdfast.model import audit as auditing
from holdfast.model.audit import AuditEntry, AuditHead, AuditRecord

_RECORD = msgspec.msgpack.Decoder(AuditRecord)


def add_audit(entries: Sequence[AuditEntry], now_us: int) -> SansIO[AuditHead]:
    """Add entries to the end of the chain, of which one transaction at a time is in charge."""
    yield from execute("lock_keys", names=["audit"])
    found = yield from execute("read_audit_head")
    head = AuditHead(*found[0]) if found else AuditHead()
    records: list[AuditRecord] = []
    for entry in entries:
        record = auditing.chain(head, entry, now_us)
        head = auditing.head_of(record)
        records.append(record)
    if records:
        yield from execute_all(
            Statement(
                "add_audit",
                {
                    "numbers": [record.number for record in records],
                    "hashes": [record.hash for record in records],
                    "records": [rows.pack(record) for record in records],
                },
            )
        )
    return head


def audited(after: int, limit: int) -> SansIO[list[AuditRecord]]:
    """Return the records after this number."""
    found = yield from execute("read_audit", after=after, limit=limit)
    return [_RECORD.decode(record) for (record,) in found]
