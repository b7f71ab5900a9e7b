"""The store of finished jobs, attempts, notes and the audit: one SQLite database.

It is a projection of the log; its checkpoint is written in the same transaction as the rows. It
is synchronous: ``HistoryFeed`` keeps it off the event loop. One thread at a time feeds and
forgets; any thread may read.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from holdfast.engines.dump.format import DumpedJob, DumpRecord
from holdfast.engines.embedded.history import AppliedEffect, StateCounts
from holdfast.engines.journal.wal.disk import DatabaseFile
from holdfast.model.access import Caller
from holdfast.model.audit import WHOLE_AUDIT, AuditFilter, AuditRecord
from holdfast.model.errors import CorruptHistory
from holdfast.model.history import AttemptRecord, Note
from holdfast.model.job import MAX_TIME_US, Job, State
from holdfast.model.search import EVERYTHING, FailureGroup, Filter, Order, Place

from . import audit as audit_module
from . import dump as dump_module
from . import queries
from . import writer as writer_module
from .aggregates import InternedNames, write_tallies
from .database import (
    READERS,
    HistoryCheckpoint,
    connect_readers,
    open_writer,
    read_checkpoint,
    translated,
    upgraded_copy,
    write_checkpoint,
)
from .rows import DEAD_BODIES, DONE_BODIES, Name
from .statements import ask, composed, run, statement
from .where_clause import on_dead, on_done

T = TypeVar("T")

FORGET_STEP = 2_000
_TALLIES = msgspec.json.Decoder(list[tuple[str, str, State, int]])
_NAMES = msgspec.json.Decoder(list[tuple[int, str, str]])


class SqliteHistory:
    """Use ``SqliteHistory.open``."""

    def __init__(
        self, database: DatabaseFile, writer: sqlite3.Connection, checkpoint: HistoryCheckpoint
    ) -> None:
        """Take what ``open`` has prepared."""
        self.database = database
        self.file = database.file
        self.checkpoint = checkpoint.seq
        """Everything up to this seq is stored."""
        self.forget_before_us = checkpoint.forget_before_us
        """Completed and cancelled jobs that finished before this are hidden."""
        self._writer = writer
        self._getter, *readers = connect_readers(database, 1 + READERS)
        self._readers: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        for reader in readers:
            self._readers.put(reader)
        self._kinds = InternedNames()
        self._oldest_us = 0
        """No job that finished before this is left to forget."""
        self.size_bytes = read_size(writer)
        """About how many bytes of completed and cancelled jobs are stored."""

    @classmethod
    def open(
        cls,
        database: DatabaseFile,
        *,
        expected_seq: int = 0,
        last_seq: int | None = None,
        begin_at: int = 0,
        upgrade: bool = True,
    ) -> SqliteHistory:
        """Open the database, or create one whose checkpoint is ``begin_at``.

        ``expected_seq`` is what the snapshots rely on it to cover, ``last_seq`` where the log
        ends. Only with ``upgrade``, which is for the owner, an older database gets today's schema;
        without, a temporary copy of it is used.
        Raise ``HistoryMissing``, ``CorruptHistory``, ``UnknownFormat`` or ``StorageError``.
        """
        try:
            if not upgrade and database.exists():
                database = upgraded_copy(database)
            writer, checkpoint = open_writer(
                database, expected_seq=expected_seq, last_seq=last_seq, begin_at=begin_at
            )
            try:
                return cls(database, writer, checkpoint)
            except BaseException:
                writer.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise translated(error, database.file) from error

    def close(self) -> None:
        """Close the database."""
        self._getter.close()
        for _ in range(READERS):
            self._readers.get().close()
        self._writer.close()  # last: SQLite then checkpoints its own log

    # --- write -------------------------------------------------------------------------------

    def feed(self, applied: Sequence[AppliedEffect], checkpoint: int) -> None:
        """Store these effects up to this seq in one transaction; skip those already stored.

        Raise ``StorageError``; then nothing has changed.
        """

        def work(connection: sqlite3.Connection, known: HistoryCheckpoint) -> HistoryCheckpoint:
            new = applied
            if applied and not known.seq < applied[0].seq <= applied[-1].seq <= checkpoint:
                new = [one for one in applied if known.seq < one.seq <= checkpoint]
            writer_module.write(connection, new, self._kinds)
            return HistoryCheckpoint(max(known.seq, checkpoint), known.forget_before_us)

        self._transact(work)

    def forget(self, before_us: int, *, after: int = 0) -> tuple[StateCounts, int | None]:
        """Drop some completed and cancelled jobs that finished before this.

        Return how many were dropped, and where the next step starts; None when none is left.
        """
        self.hide(before_us)
        gone: dict[tuple[str, str, State], int] = {}
        until: int | None = None

        def work(
            connection: sqlite3.Connection, known: HistoryCheckpoint
        ) -> HistoryCheckpoint | None:
            nonlocal until
            until, oldest_us = connection.execute(
                statement("step_to_forget"), {"after": after, "limit": FORGET_STEP}
            ).fetchall()[0]
            if until is None or oldest_us >= before_us:
                # Rows are ordered by when jobs finished: the later ones are younger.
                self._oldest_us = before_us if until is None or after else oldest_us
                until = None
                return None
            gone.update(_forget(connection, after, until, before_us))
            return known._replace(forget_before_us=max(known.forget_before_us, before_us))

        self._transact(work)
        return gone, until

    def forget_excess(self, max_bytes: int) -> StateCounts:
        """Drop some of the completed and cancelled jobs that finished first, if all are too large.

        Return how many were dropped.
        """
        gone: dict[tuple[str, str, State], int] = {}

        def work(
            connection: sqlite3.Connection, known: HistoryCheckpoint
        ) -> HistoryCheckpoint | None:
            excess_bytes = read_size(connection) - max_bytes
            values = {"excess_bytes": excess_bytes, "limit": FORGET_STEP}
            [(until,)] = connection.execute(statement("step_to_bound"), values).fetchall()
            if until is None:
                return None
            gone.update(_forget(connection, 0, until, MAX_TIME_US))
            return known

        self._transact(work)
        return gone

    def has_forgotten(self, before_us: int) -> bool:
        """Whether certainly no job that finished before this is left."""
        return before_us <= self._oldest_us

    def hide(self, before_us: int) -> None:
        """Hide completed and cancelled jobs that finished before this."""
        self.forget_before_us = max(self.forget_before_us, before_us)

    def _transact(
        self, work: Callable[[sqlite3.Connection, HistoryCheckpoint], HistoryCheckpoint | None]
    ) -> None:
        """Run this in a transaction with the checkpoint it returns; None rolls it back."""
        connection = self._writer
        try:
            connection.execute("BEGIN IMMEDIATE")
            checkpoint = work(connection, read_checkpoint(connection, self.file))
            if checkpoint is None:
                connection.execute("ROLLBACK")
                return
            write_checkpoint(connection, checkpoint)
            size_bytes = read_size(connection)
            self.database.commit(connection)
        except BaseException as error:
            self._kinds.forget()
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error | OSError):
                raise translated(error, self.file) from error
            raise
        self.checkpoint, self.size_bytes = checkpoint.seq, size_bytes

    # --- read --------------------------------------------------------------------------------

    def get(self, tenant: str, job_id: str) -> Job | None:
        """Return the finished job, unless it is forgotten. One caller at a time."""
        values = {"tenant": tenant, "id": job_id, "forget_before_us": self.forget_before_us}
        try:
            rows = self._getter.execute(statement("read_job"), values).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self.file) from error
        if not rows:
            return None
        jobs = []
        for table, seq, crc, body in rows:
            bodies = DEAD_BODIES if table == b"dead" else DONE_BODIES
            job = bodies.one(seq, crc, body, self.file)
            if (job.tenant, job.id) != (tenant, job_id):
                raise CorruptHistory(self.file, table.decode(), str(seq), "it is another job's")
            jobs.append(job)
        return max(jobs, key=lambda job: job.created_at_us)

    def find(
        self, wanted: Filter, caller: Caller, after: Place | None, limit: int, order: Order
    ) -> list[Job]:
        """See ``HistoryStore.find``."""
        with self.reading() as connection:
            return queries.find(
                queries.ReadSnapshot(connection, self.file, self.forget_before_us),
                queries.PageQuery(wanted, caller, limit, order),
                after,
            )

    def count_matching(self, wanted: Filter, caller: Caller, most: int) -> int:
        """See ``HistoryStore.count_matching``."""
        with self.reading() as connection:
            source = queries.ReadSnapshot(connection, self.file, self.forget_before_us)
            return queries.count(source, wanted, caller, most)

    def groups(self, wanted: Filter, caller: Caller, now_us: int) -> list[FailureGroup]:
        """See ``HistoryStore.groups``."""
        with self.reading() as connection:
            source = queries.ReadSnapshot(connection, self.file, self.forget_before_us)
            return queries.groups(source, wanted, caller, now_us)

    def history(self, job: Job) -> tuple[list[AttemptRecord], list[Note]]:
        """See ``HistoryStore.history``."""
        with self.reading() as connection:
            return queries.history(connection, self.file, job)

    def audit(
        self, after: int, limit: int, wanted: AuditFilter = WHOLE_AUDIT, *, newest: bool = False
    ) -> list[AuditRecord]:
        """See ``HistoryStore.audit``."""
        with self.reading() as connection:
            source = audit_module.AuditSource(connection, self.file, newest=newest)
            return audit_module.search(source, wanted, after, limit)

    def count(self, caller: Caller) -> dict[tuple[str, str, State], int]:
        """See ``HistoryStore.count``."""
        found: dict[tuple[str, str, State], int] = {}
        with self.reading() as connection:
            done = on_done(EVERYTHING, caller, self.forget_before_us)
            dead = on_dead(EVERYTHING, caller, None)
            for name, conditions in (("tally_done", done), ("tally_dead", dead)):
                if conditions is not None:
                    sql = composed(name, conditions.where)
                    found |= read_tally(ask(connection, sql, conditions.values))
        return found

    def dump(self) -> Iterator[list[DumpRecord]]:
        """Return everything that is stored now, whatever is written meanwhile."""
        try:
            [connection] = connect_readers(self.database, 1)
            connection.execute("BEGIN")
            read_checkpoint(connection, self.file)  # fixes what this connection sees
        except (sqlite3.Error, OSError) as error:
            raise translated(error, self.file) from error
        source = queries.ReadSnapshot(connection, self.file, self.forget_before_us)

        def batches() -> Iterator[list[DumpRecord]]:
            try:
                yield from dump_module.records(source)
            except (sqlite3.Error, OSError) as error:
                raise translated(error, self.file) from error
            finally:
                connection.close()

        return batches()

    def load(self, batches: Iterable[Sequence[DumpRecord]], last_seq: Callable[[], int]) -> int:
        """Fill an empty store from a dump; return the checkpoint, at least ``last_seq()``."""

        def work(connection: sqlite3.Connection, known: HistoryCheckpoint) -> HistoryCheckpoint:
            number = dump_module.load(connection, batches)
            return HistoryCheckpoint(max(number, last_seq(), known.seq), known.forget_before_us)

        self._transact(work)
        return self.checkpoint

    def jobs(self) -> list[Job]:
        """Return every finished job, for tests."""
        return [
            record.job for batch in self.dump() for record in batch if isinstance(record, DumpedJob)
        ]

    def tallies(self) -> dict[tuple[str, str, State], int]:
        """Return how many jobs of each tenant, queue and state are stored."""
        with self.reading() as connection:
            return read_tally(ask(connection, statement("read_tallies")))

    def names(self, table: str, after: int, limit: int) -> tuple[list[Name], int | None]:
        """Return some of the names in ``done`` or ``dead``, and where the next ones begin."""
        with self.reading() as connection:
            values = {"after": after, "limit": limit}
            rows = _NAMES.decode(ask(connection, statement(f"list_{table}_names"), values))
        names = [(tenant, job_id) for _seq, tenant, job_id in rows]
        return names, max(row[0] for row in rows) if rows else None

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a read transaction."""
        connection = self._readers.get()
        try:
            connection.execute("BEGIN")
            yield connection
        except (sqlite3.Error, OSError) as error:
            raise translated(error, self.file) from error
        finally:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("COMMIT")
            self._readers.put(connection)


def read_size(connection: sqlite3.Connection) -> int:
    """Return how many bytes of completed and cancelled jobs there are."""
    [(size_bytes,)] = connection.execute(statement("read_done_size")).fetchall()
    return int(size_bytes)


def read_tally(found: bytes) -> dict[tuple[str, str, State], int]:
    """Return the tally that a statement found."""
    return {(tenant, queue, state): count for tenant, queue, state, count in _TALLIES.decode(found)}


def _forget(
    connection: sqlite3.Connection, after: int, until: int, before_us: int
) -> Mapping[tuple[str, str, State], int]:
    values = {"after": after, "until": until, "before_us": before_us}
    gone = read_tally(ask(connection, statement("tally_forgotten"), values))
    for name in ("forget_attempts", "forget_notes", "subtract_forgotten_size", "forget_done"):
        run(connection, name, values)
    write_tallies(connection, Counter({key: -count for key, count in gone.items()}))
    return gone
