"""The audit in the store: read in pages, either way, and searched.

A search reads every record from its place on, a page at a time. There are no columns to search by:
people make these entries, so there are few, and only a body that its checksum covers is believed.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from holdfast.model.audit import WHOLE_AUDIT, AuditFilter, AuditRecord
from holdfast.model.errors import AuditAltered, CorruptHistory
from holdfast.model.search import MAX_PAGE

from .rows import AUDIT, only
from .statements import ask, statement


class AuditSource(NamedTuple):
    """A connection in a read transaction, the file's name, and the direction of reading."""

    connection: sqlite3.Connection
    file: str
    newest: bool


def search(source: AuditSource, wanted: AuditFilter, after: int, limit: int) -> list[AuditRecord]:
    """Return the first matching records after this number, or the last before it; 0: all.

    Raise ``AuditAltered`` for a record that cannot be read.
    """
    found: list[AuditRecord] = []
    size = limit if wanted == WHOLE_AUDIT else MAX_PAGE
    while len(found) < limit:
        page = _page(source, after, size)
        found += filter(wanted.matches, page)
        if len(page) < size:
            break
        after = page[-1].number
    return found[:limit]


def _page(source: AuditSource, after: int, limit: int) -> list[AuditRecord]:
    if source.newest and not after:
        [[last]] = source.connection.execute(statement("read_audit_end")).fetchall()
        after = last + 1
    path = "read_audit_newest" if source.newest else "read_audit"
    found = ask(source.connection, statement(path), {"after": after, "limit": limit})
    try:
        records = only(AUDIT.read(found, source.file))
        return records[::-1] if source.newest else records
    except CorruptHistory as error:
        if error.row:
            raise AuditAltered(int(error.row), error.problem) from None
        if limit == 1:
            unreadable = after - 1 if source.newest else after + 1
            raise AuditAltered(unreadable, error.problem) from None
    # The whole page is not valid text: find the entry.
    records = []
    while one := _page(source, records[-1].number if records else after, 1):
        records += one
    return records
