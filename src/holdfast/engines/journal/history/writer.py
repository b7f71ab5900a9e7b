"""Writes a batch of effects into the store: a few statements, whatever the number of jobs.

Many rows go into one statement, bound or as JSON that SQLite parses: single rows would each cost
a switch of the interpreter lock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from time import sleep

import msgspec

from holdfast.engines.embedded.history import AppliedEffect
from holdfast.model import effects as fx
from holdfast.model.errors import InvariantViolation
from holdfast.model.history import Note, attempt_of, note_of
from holdfast.model.job import Job

from .aggregates import AggregateChanges, InternedNames, read_left
from .rows import (
    DEAD,
    DONE,
    DONE_ROW_VALUES,
    BodyRow,
    DeadRow,
    JobBodyRow,
    Name,
    body_of,
    dead_row,
    done_values,
)
from .statements import as_json, ask, inserting, run, statement

PART = 256
"""How many effects are processed before the interpreter lock is released."""
_ROWS_AT_ONCE = (PART, 16, 1)
"""How many rows an insert of completed jobs has; few sizes, so that each is prepared once."""
CHUNK_BYTES = 256 * 1024
"""About how much JSON one statement gets."""

_LONG = frozenset({"attempts", "notes", "dead_bodies", "audit"})
_CREATED = msgspec.json.Decoder(list[tuple[int, int | None]])
_PURGED = msgspec.json.Decoder(list[tuple[int, str, str, str]])


KEPT = frozenset(
    {
        fx.Completed,
        fx.Cancelled,
        fx.Retried,
        fx.Released,
        fx.Snoozed,
        fx.Lost,
        fx.Died,
        fx.Replayed,
        fx.Archived,
        fx.Restored,
        fx.Edited,
        fx.Confirmed,
        fx.StopRequested,
        fx.Noted,
        fx.Purged,
        fx.Audited,
    }
)
"""The effects that leave a row; the others need not be recorded."""


class RowChanges:
    """The row changes of a batch: deletions first, then insertions. It touches no database."""

    def __init__(self) -> None:
        self.purged: dict[Name, int | None] = {}
        """Jobs to delete, and when they were created, if known."""
        self.notes_on_stored: list[tuple[int, Name, Note]] = []
        """Notes on jobs that only the store has."""
        self.done: list[tuple[int, Job]] = []
        self.dying: dict[Name, tuple[int, Job]] = {}
        """Jobs that are in the dead table afterwards, each with the seq of its effect."""
        self.leaving: set[Name] = set()
        """Jobs that may have been in the dead table before."""
        self.attempts: list[JobBodyRow] = []
        self.notes: list[JobBodyRow] = []
        self.audit: list[BodyRow] = []

    @property
    def empty(self) -> bool:
        """Whether nothing changes."""
        return self.settled and not (self.purged or self.notes_on_stored or self.audit)

    @property
    def settled(self) -> bool:
        """Whether the store is as it was when these effects were applied."""
        return not (self.done or self.leaving or self.attempts or self.notes)

    def take(self, applied: AppliedEffect) -> bool:
        """Add an effect; False if those before it must be written first."""
        seq, effect, old, job = applied.seq, applied.effect, applied.old, applied.job
        if isinstance(effect, fx.Audited):
            self.audit.append((effect.record.number, *body_of(effect.record)))
            return True
        known = job or old
        if isinstance(effect, fx.Purged) or known is None:
            return self.settled and self._ask(seq, effect, old)
        self._keep_history(seq, effect, old, known)
        if job is not None:
            self._move(seq, effect, job)
        return True

    def _move(self, seq: int, effect: fx.JobEffect, job: Job) -> None:
        name = job.tenant, job.id
        if isinstance(effect, fx.Replayed):
            self.dying.pop(name, None)
            self.leaving.add(name)
        elif isinstance(effect, fx.Noted):
            return
        elif job.state in DONE:
            self.done.append((seq, job))
        elif job.state in DEAD:
            self.dying[name] = seq, job
            self.leaving.add(name)

    def _ask(self, seq: int, effect: fx.JobEffect, old: Job | None) -> bool:
        """Add what needs a lookup in the store before it can be written."""
        name = fx.job_key(effect)
        if isinstance(effect, fx.Purged):
            self.purged[name] = None if old is None else old.created_at_us
        elif (note := note_of(effect)) is not None:
            self.notes_on_stored.append((seq, name, note))
        return True

    def _keep_history(self, seq: int, effect: fx.JobEffect, old: Job | None, job: Job) -> None:
        made_us = job.created_at_us
        attempt = attempt_of(old, effect)
        if attempt is not None:
            self.attempts.append((seq, job.tenant, job.id, made_us, *body_of(attempt)))
        note = note_of(effect)
        if note is not None:
            self.notes.append((seq, job.tenant, job.id, made_us, *body_of(note)))


def write(
    connection: sqlite3.Connection, applied: Sequence[AppliedEffect], kinds: InternedNames
) -> None:
    """Write the changes of these effects, in the open transaction."""
    changes = RowChanges()
    for start in range(0, len(applied), PART):
        part = applied[start : start + PART]
        done = [(one.seq, one.job) for one in part if type(one.effect) is fx.Completed and one.job]
        if len(done) == len(part):  # nearly always
            changes = _written(connection, changes, kinds)
            _finish(connection, done)
            continue
        for one in part:
            if changes.take(one):
                continue
            # It needs a lookup: the store must be as it was before this effect.
            changes = _written(connection, changes, kinds)
            if not changes.take(one):
                raise InvariantViolation(f"{one.effect!r} cannot be stored")
        sleep(0)  # lets the event loop have the interpreter lock
    _written(connection, changes, kinds)


def _written(
    connection: sqlite3.Connection, changes: RowChanges, kinds: InternedNames
) -> RowChanges:
    """Write these changes, if any; return an empty ``RowChanges`` for the next ones."""
    if changes.empty:
        return changes
    _write(connection, changes, kinds)
    return RowChanges()


def _write(connection: sqlite3.Connection, changes: RowChanges, kinds: InternedNames) -> None:
    aggregates = AggregateChanges()
    if changes.purged:
        _purge(connection, changes, aggregates)
    if changes.notes_on_stored:
        _add_notes(connection, changes)
    if changes.leaving:
        _leave(connection, sorted(changes.leaving), aggregates)
    if changes.dying:
        _die(connection, changes, kinds, aggregates)
    if changes.done:
        _finish(connection, changes.done)
    insert(connection, "attempts", changes.attempts)
    insert(connection, "notes", changes.notes)
    insert(connection, "audit", changes.audit)
    aggregates.write(connection)


def _finish(connection: sqlite3.Connection, done: Sequence[tuple[int, Job]]) -> None:
    """Insert and count completed and cancelled jobs, which are ordered by seq."""
    most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // DONE_ROW_VALUES
    start = size_bytes = 0
    while start < len(done):
        fitting = min(most, len(done) - start)
        size = next(size for size in _ROWS_AT_ONCE if size <= fitting)
        values, bytes_of_part = done_values(done[start : start + size])
        connection.execute(inserting("done", size), values)
        size_bytes += bytes_of_part
        start += size
    run(connection, "add_done_size", {"bytes": size_bytes})
    run(connection, "count_done", {"first": done[0][0], "last": done[-1][0]})


def _purge(
    connection: sqlite3.Connection, changes: RowChanges, aggregates: AggregateChanges
) -> None:
    names = list(changes.purged)
    created = _created(connection, [name for name in names if changes.purged[name] is None])
    known = {name: made for name, made in changes.purged.items() if made is not None}
    jobs = [(*name, made) for name, made in (created | known).items()]
    values = {"jobs": as_json(jobs)}
    rows = _PURGED.decode(ask(connection, statement("look_up_done"), values))
    for _seq, tenant, queue, state in rows:
        aggregates.tallies[tenant, queue, state] -= 1
    gone = {"seqs": as_json([row[0] for row in rows])}
    run(connection, "subtract_deleted_size", gone)
    run(connection, "delete_done", gone)
    _leave(connection, names, aggregates)
    run(connection, "purge_attempts", values)
    run(connection, "purge_notes", values)


def _add_notes(connection: sqlite3.Connection, changes: RowChanges) -> None:
    created = _created(connection, list({name for _seq, name, _note in changes.notes_on_stored}))
    for seq, name, note in changes.notes_on_stored:
        made = created.get(name)
        if made is not None:  # otherwise the job and its notes are gone
            crc, body = body_of(note)
            changes.notes.append((seq, *name, made, crc, body))


def _created(connection: sqlite3.Connection, names: Sequence[Name]) -> dict[Name, int]:
    """Return when these jobs were created, as far as they are in the store."""
    if not names:
        return {}
    found = ask(connection, statement("look_up_created"), {"names": as_json(names)})
    return {names[at]: made for at, made in _CREATED.decode(found) if made is not None}


def _leave(
    connection: sqlite3.Connection, names: Sequence[Name], aggregates: AggregateChanges
) -> None:
    """Delete these from the dead table, if they are there."""
    left = read_left(ask(connection, statement("look_up_dead"), {"names": as_json(names)}))
    if not left:
        return
    for row in left:
        aggregates.leave(row)
    values = {"seqs": as_json([row.seq for row in left])}
    run(connection, "delete_dead", values)
    run(connection, "delete_dead_bodies", values)


def _die(
    connection: sqlite3.Connection,
    changes: RowChanges,
    kinds: InternedNames,
    aggregates: AggregateChanges,
) -> None:
    rows: list[DeadRow] = []
    bodies: list[BodyRow] = []
    seqs = [seq for seq, _job in changes.dying.values()]
    jobs = [job for _seq, job in changes.dying.values()]
    for seq, (job, kind, shape) in zip(seqs, kinds.of(connection, jobs), strict=True):
        aggregates.enter(job, kind, shape)
        rows.append(dead_row(seq, job, kind, shape))
        bodies.append((seq, *body_of(job)))
    insert(connection, "dead", rows)
    insert(connection, "dead_bodies", bodies)


def insert(
    connection: sqlite3.Connection,
    table: str,
    rows: Sequence[DeadRow | BodyRow | JobBodyRow],
) -> None:
    """Insert rows whose last column is a text, in chunks of bounded JSON."""
    encode = _bodies_apart if table in _LONG else as_json
    start = size = 0
    for at, row in enumerate(rows):
        size += len(str(row[-1]))
        if size >= CHUNK_BYTES:
            run(connection, f"insert_{table}", {"rows": encode(rows[start : at + 1])})
            start, size = at + 1, 0
    if start < len(rows):
        run(connection, f"insert_{table}", {"rows": encode(rows[start:])})


def _bodies_apart(rows: Sequence[DeadRow | BodyRow | JobBodyRow]) -> bytes:
    """Return the rows as an object: the other columns, as JSON, are the key of the body.

    SQLite parses a row again for each of its columns: a long body must not be part of it.
    """
    return as_json({as_json(row[:-1]).decode(): row[-1] for row in rows})
