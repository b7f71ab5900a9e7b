"""The samples of a journal: a small SQLite file beside the log, which may be lost at any time.

Nothing of it is synced. A file that cannot be read is replaced by an empty one, and one that cannot
be written costs the samples of that time: neither is ever an error for the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.engines.ownership import claim_database
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import EngineClosed, StoreNotOurs
from holdfast.model.samples import (
    QueueSample,
    SampleQuery,
    Series,
    SummedRow,
    Tier,
    columns_of,
    series_of,
)

log = StructuredLog("holdfast.journal")

T = TypeVar("T")

APPLICATION_ID = 0x48465350
"""Identifies the file as ours: HFSP."""
SCHEMA_VERSION = 1
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_MEMORY = ":memory:"


@cache
def _statement(name: str) -> str:
    return (files(__package__) / "sql" / f"{name}.sql").read_text("utf-8")


class SqliteSamples:
    """See ``SampleStore``. One thread at a time uses the file: that of ``threads``, if given."""

    def __init__(
        self,
        path: str,
        threads: Callable[[int, str], Executor] | None = None,
        *,
        writes: bool = True,
    ) -> None:
        self._path = path
        self._writes = writes
        self._thread = None if threads is None else threads(1, "holdfast-samples")
        self._connection: sqlite3.Connection | None = None
        self._failing = False
        self._used = False

    async def add(self, at_us: int, samples: Mapping[str, QueueSample]) -> None:
        """See ``SampleStore.add``."""
        if not self._writes:
            raise EngineClosed("this store was opened to be looked at: become its owner to sample")
        rows = [
            (tier.value, at_us // tier_us * tier_us, queue, *columns_of(sample))
            for queue, sample in samples.items()
            for tier, tier_us in ((Tier.SAMPLE, 1), (Tier.MINUTE, Tier.MINUTE.step_us))
        ]
        oldest = [(tier.value, at_us - tier.kept_us) for tier in Tier]

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_statement("put_sample"), rows)
            connection.executemany(_statement("forget_samples"), oldest)
            connection.execute("COMMIT")

        await self._run(write, None)

    async def read(self, query: SampleQuery) -> Series:
        """See ``SampleStore.read``."""
        values = {
            "tier": query.tier.value,
            "from_us": query.from_us,
            "to_us": query.to_us,
            "step_us": query.step_us,
            "queues": msgspec.json.encode(query.queues).decode(),
        }

        def read(connection: sqlite3.Connection) -> list[SummedRow]:
            return connection.execute(_statement("read_samples"), values).fetchall()

        return series_of(await self._run(read, []))

    async def close(self) -> None:
        """See ``SampleStore.close``."""
        if self._used:
            await self._in_thread(self._disconnect)
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        self._used = True
        return await self._in_thread(lambda: self._attempt(work, otherwise))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _attempt(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Do this; return ``otherwise`` if the file does not allow it."""
        if not self._writes and not Path(self._path).exists():
            return otherwise
        try:
            try:
                found = work(self._connected())
            except sqlite3.Error as error:
                if not self._is_damage(error):
                    raise
                self._discard(error)
                found = work(self._connected())
        except (sqlite3.Error, OSError, StoreNotOurs) as error:
            self._disconnect()
            if not self._failing:
                self._failing = True
                log.emit("samples.failed", file=self._path, error=error)
            return otherwise
        self._failing = False
        return found

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        path = self._path if self._writes else f"{Path(self._path).absolute().as_uri()}?mode=ro"
        if self._path != _MEMORY:
            claim_database(Path(self._path), create=self._writes)
        connection = sqlite3.connect(
            path, uri=not self._writes, isolation_level=None, check_same_thread=False
        )
        try:
            if self._writes:
                for pragma in ("synchronous = OFF", "journal_mode = TRUNCATE"):
                    connection.execute(f"PRAGMA {pragma}").fetchall()
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        """Create what a new file lacks; raise ``ForeignFile`` for one that is not ours."""
        [(tables,)] = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        [(application_id,)] = connection.execute("PRAGMA application_id").fetchall()
        [(version,)] = connection.execute("PRAGMA user_version").fetchall()
        if not tables and self._writes:
            connection.execute(_statement("create_samples"))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif (application_id, version) != (APPLICATION_ID, SCHEMA_VERSION):
            raise ForeignFile("it is of another version or another program")
        [(problem,)] = connection.execute("PRAGMA quick_check(1)").fetchall()
        if problem != "ok":
            raise ForeignFile(problem)

    def _is_damage(self, error: Exception) -> bool:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        return isinstance(error, ForeignFile) or code in _DAMAGED

    def _discard(self, error: Exception) -> None:
        """Delete the file, so that another one is begun; only its owner does that."""
        self._disconnect()
        if not self._writes:
            return
        log.emit("samples.discarded", file=self._path, error=error)
        with contextlib.suppress(OSError):
            for suffix in ("", "-journal"):
                Path(self._path + suffix).unlink(missing_ok=True)

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


class ForeignFile(sqlite3.DatabaseError):
    """The file is not one of samples that this version can use."""
