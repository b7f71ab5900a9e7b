"""Exports the store as records of a dump, and imports them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar
from zlib import crc32

import msgspec

from holdfast.engines.dump.format import (
    BLOCK_RECORDS,
    DumpedAttempt,
    DumpedAudit,
    DumpedJob,
    DumpedNote,
    DumpRecord,
)
from holdfast.engines.embedded.history import AppliedEffect
from holdfast.model.effects import Enqueued
from holdfast.model.errors import CorruptHistory
from holdfast.model.history import AttemptRecord, Note
from holdfast.model.job import Job

from .aggregates import InternedNames
from .queries import ReadSnapshot
from .rows import AUDIT, DEAD_BODIES, DONE_BODIES, BodyReader, JobBodyRow, body_of
from .statements import ask, statement
from .writer import insert, write

T = TypeVar("T")

_DETAILS = msgspec.json.Decoder(list[tuple[int, int, str, str, str, int]])


def records(source: ReadSnapshot) -> Iterator[list[DumpRecord]]:
    """Yield everything that the source sees: jobs, attempts, notes, the audit."""
    for batch in _jobs(source, "list_done", DONE_BODIES):
        yield [DumpedJob(job) for job in batch]
    for batch in _jobs(source, "list_dead_bodies", DEAD_BODIES):
        yield [DumpedJob(job) for job in batch]
    yield from _details(source, "attempts", AttemptRecord, DumpedAttempt)
    yield from _details(source, "notes", Note, DumpedNote)
    after = 0
    while True:
        values = {"after": after, "limit": BLOCK_RECORDS}
        found = AUDIT.read(ask(source.connection, statement("read_audit"), values), source.file)
        if not found:
            return
        yield [DumpedAudit(record) for _number, record in found]
        after = found[-1][0]


def _jobs(source: ReadSnapshot, name: str, bodies: BodyReader[Job]) -> Iterator[list[Job]]:
    after = 0
    while True:
        values = {"after": after, "limit": BLOCK_RECORDS}
        if name == "list_done":
            values["forget_before_us"] = source.forget_before_us
        found = bodies.read(ask(source.connection, statement(name), values), source.file)
        if not found:
            return
        yield [job for _seq, job in found]
        after = found[-1][0]


def _details(
    source: ReadSnapshot, table: str, kind: type[T], make: Callable[[str, str, int, T], DumpRecord]
) -> Iterator[list[DumpRecord]]:
    decoder = msgspec.json.Decoder(kind)
    after = 0
    while True:
        values = {"after": after, "limit": BLOCK_RECORDS}
        rows = _DETAILS.decode(ask(source.connection, statement(f"list_{table}"), values))
        if not rows:
            return
        batch: list[DumpRecord] = []
        for seq, crc, body, tenant, job_id, created_at_us in sorted(rows):
            if crc32(body.encode()) != crc:
                raise CorruptHistory(source.file, table, str(seq), "its checksum is wrong")
            batch.append(make(tenant, job_id, created_at_us, decoder.decode(body)))
            after = seq
        yield batch


def load(connection: sqlite3.Connection, batches: Iterable[Sequence[DumpRecord]]) -> int:
    """Write the finished jobs and the history of a dump into an empty store.

    Return the highest number that a row got; effects that come after it must have higher ones.
    """
    number = 0
    kinds = InternedNames()
    for batch in batches:
        jobs: list[AppliedEffect] = []
        attempts: list[JobBodyRow] = []
        notes: list[JobBodyRow] = []
        for record in batch:
            number += 1
            if isinstance(record, DumpedJob) and record.job.state.finished:
                known = Enqueued(record.job.created_at_us, record.job)
                jobs.append(AppliedEffect(number, known, None, record.job))
            elif isinstance(record, DumpedAttempt):
                made = record.created_at_us
                body = body_of(record.attempt)
                attempts.append((number, record.tenant, record.id, made, *body))
            elif isinstance(record, DumpedNote):
                body = body_of(record.note)
                notes.append((number, record.tenant, record.id, record.created_at_us, *body))
        write(connection, jobs, kinds)
        insert(connection, "attempts", attempts)
        insert(connection, "notes", notes)
        audit = [one.record for one in batch if isinstance(one, DumpedAudit)]
        insert(connection, "audit", [(record.number, *body_of(record)) for record in audit])
    return number
