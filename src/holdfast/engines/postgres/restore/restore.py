"""Restore: loads a dump into empty tables, in parts, so that it can continue after an interruption.

While a load is under way a row records its progress, and no engine opens. The row is deleted when
everything has been read back and compared; until then no job can be claimed.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

import psycopg
from msgspec.structs import replace
from psycopg import AsyncConnection
from psycopg import errors as pg

from holdfast.engines.dump.digest import DumpDigest, digest_of
from holdfast.engines.dump.format import DumpHead, DumpRecord
from holdfast.engines.postgres import dump as dump_module
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.database import SET_SEARCH_PATH, Database
from holdfast.engines.postgres.connection.sansio import Row, SansIO, execute
from holdfast.engines.postgres.connection.statements import statement
from holdfast.engines.postgres.errors import check_url, place, translated
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.errors import CorruptDump, InvalidInput, StorageError, Unavailable
from holdfast.model.job import MAX_TIME_US, MICROSECONDS

from .batch import HighestNumbers, RestoreBatch

PART_RECORDS = 5_000
PART_BYTES = 8 << 20
"""After how many records or bytes a transaction ends."""
FOREVER_SECONDS = MAX_TIME_US / MICROSECONDS
"""For ``remember_seconds``: nothing in a dump is too old."""
_EMPTY_DIGEST = bytes(32)


class RestoreMark(NamedTuple):
    """How many records are written, and a hash of them in their order."""

    records: int
    digest: bytes

    def after(self, encoded: bytes) -> RestoreMark:
        """Return the mark with one more record."""
        return RestoreMark(self.records + 1, hashlib.sha256(self.digest + encoded).digest())


class RestoreResult(NamedTuple):
    """The dump's digest, that of what was read back, and how many records were there before."""

    contents: DumpDigest
    read_back: DumpDigest
    known_records: int


class ProgressHooks(NamedTuple):
    """Called with how many jobs were sent, and how many were read back."""

    gone: Callable[[int], None] = lambda _jobs: None
    read_back: Callable[[int], None] = lambda _jobs: None


async def load(
    url: str,
    batches: AsyncIterator[Sequence[DumpRecord]],
    *,
    options: PostgresOptions | None = None,
    hooks: ProgressHooks | None = None,
    anew: bool = False,
    part_records: int = PART_RECORDS,
) -> RestoreResult:
    """Load a dump into empty tables; continue a load of the same dump that was interrupted.

    ``anew`` deletes what an interrupted load left. Raise ``InvalidInput`` if the tables are not
    empty, or were begun with another dump; ``CorruptDump``, ``StorageError``, ``Unavailable``.
    """
    options = replace(options or PostgresOptions(), remember_seconds=FOREVER_SECONDS)
    database = Database(check_url(url), options)
    # A dump without a head is refused before anything is changed.
    first = await anext(batches, None)
    if not first or not isinstance(first[0], DumpHead):
        raise CorruptDump("the dump", "it has no head")
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(database.close)
        await database.open()  # raises what the schema lacks
        connection = await database.connect()
        stack.push_async_callback(connection.close)
        restore = _Restore(database, connection, hooks or ProgressHooks(), part_records)
        try:
            return await restore.run(first, batches, anew=anew)
        except pg.UniqueViolation as error:
            problem = f"it has something twice ({error.diag.message_detail})"
            raise CorruptDump("the dump", problem) from error
        except (psycopg.Error, OSError) as error:
            raise translated(error, url, options.schema) from error


def unfinished_restore() -> SansIO[RestoreMark | None]:
    """Return the progress of a load that is not finished."""
    found = yield from execute("read_loading")
    return RestoreMark(*found[0]) if found else None


async def refuse_unfinished_restore(database: Database) -> None:
    """Raise ``Unavailable`` while a load is under way, or if one was interrupted."""
    mark = await database.read(unfinished_restore)
    if mark is not None:
        raise Unavailable(
            f"{_where(database)}: a load is under way or was interrupted after "
            f"{mark.records:,} records. Run the same holdfast move or holdfast load again to "
            "finish it, or holdfast move --anew to begin again"
        )


def _where(database: Database) -> str:
    return f"schema {database.options.schema!r} in {place(database.url)}"


class _Restore:
    def __init__(
        self,
        database: Database,
        connection: AsyncConnection[Row],
        hooks: ProgressHooks,
        part_records: int,
    ) -> None:
        self._contents = DumpDigest()
        self._database = database
        self._connection = connection
        self._hooks = hooks
        self._part_records = part_records
        self._part = RestoreBatch()
        self._numbers = HighestNumbers()
        self._seen = self._written = RestoreMark(0, _EMPTY_DIGEST)

    async def run(
        self,
        first: Sequence[DumpRecord],
        batches: AsyncIterator[Sequence[DumpRecord]],
        *,
        anew: bool,
    ) -> RestoreResult:
        """Load everything, compare, and let engines open it."""
        known = await self._begin(anew=anew)
        await self._take(first, known)
        async for batch in batches:
            await self._take(batch, known)
        await self._flush(known)
        read_back = await self._compare()
        await self._finish()
        return RestoreResult(self._contents, read_back, known.records)

    async def _begin(self, *, anew: bool) -> RestoreMark:
        """Mark the tables as being loaded; return the progress of an earlier load."""
        async with self._transaction():
            await self._execute("lock_loading")
            found = await self._execute("read_loading")
            if found and not anew:
                return RestoreMark(*found[0])
            if found:
                await self._execute("drop_loading")
            occupied = {name for (name,) in await self._execute("find_occupied")}
            if occupied == {"waiting"}:
                raise Unavailable(
                    f"{_where(self._database)}: workers wait for jobs there: stop the workers of "
                    "this store first"
                )
            if occupied:
                names = ", ".join(sorted(occupied - {"waiting"}))
                raise InvalidInput(
                    "store", f"{_where(self._database)} is not empty: there are rows in {names}"
                )
            await self._execute("begin_loading", {"digest": _EMPTY_DIGEST})
        return self._written

    async def _take(self, batch: Sequence[DumpRecord], known: RestoreMark) -> None:
        """Load these records, except those that are there already."""
        for record in batch:
            encoded = self._contents.add(record)
            self._numbers = self._numbers.with_record(record)
            if isinstance(record, DumpHead):
                continue
            self._seen = self._seen.after(encoded)
            if self._seen.records <= known.records:
                self._written = self._seen
                if self._seen.records == known.records and self._seen != known:
                    raise _other_dump(self._database)
                continue
            self._part.add(record, len(encoded))
            if self._part.records >= self._part_records or self._part.size_bytes >= PART_BYTES:
                await self._write()
        self._hooks.gone(self._contents.counts["job"])

    async def _flush(self, known: RestoreMark) -> None:
        """Write the last part."""
        if self._seen.records < known.records:
            raise _other_dump(self._database)
        if self._part.records:
            await self._write()

    async def _write(self) -> None:
        part, self._part = self._part, RestoreBatch()
        async with self._transaction():
            old = self._written
            step = {"old_records": old.records, "old_digest": old.digest, **self._seen._asdict()}
            self._check_ours(await self._execute("advance_loading", step))
            for name, rows in part.copies():
                async with (
                    self._connection.cursor() as cursor,
                    cursor.copy(self._sql(name)) as copy,
                ):
                    for row in rows:
                        await copy.write_row(row)
            for each in part.statements():
                await self._execute(each.name, each.parameters)
        self._written = self._seen

    async def _compare(self) -> DumpDigest:
        """Read everything back; raise ``StorageError`` unless it is what was loaded."""
        context = CallContext(self._database.options, "")
        found = await digest_of(
            dump_module.records(self._database, context, "postgres"), self._hooks.read_back
        )
        if found != self._contents:
            kinds = sorted({*found.counts, *self._contents.counts})
            counts = ", ".join(
                f"{found.counts[kind]:,} of {self._contents.counts[kind]:,} {kind} records"
                for kind in kinds
            )
            raise StorageError(
                f"{_where(self._database)} does not contain what was loaded ({counts}; sha256 "
                f"{found.sha256}, not {self._contents.sha256}): another process wrote there. Stop "
                "it, and begin again with holdfast move --anew"
            )
        return found

    async def _finish(self) -> None:
        """Make jobs claimable, set the sequences, and let engines open the store."""
        async with self._transaction():
            await self._connection.execute("SET LOCAL statement_timeout = 0")
            await self._execute("lock_loading")
            self._check_ours(await self._execute("end_loading", self._written._asdict()))
            await self._execute("analyze")
            await self._execute("promote_all")
            await self._execute("mark_all_tied")
            await self._execute("set_sequences", self._numbers._asdict())
            await self._execute("set_fanout", self._numbers._asdict())
            await self._execute("skip_audit_logged")

    def _check_ours(self, changed: list[Row]) -> None:
        if not changed:
            raise Unavailable(
                f"{_where(self._database)}: another load is under way there: let it finish"
            )

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        async with self._connection.transaction():
            await self._connection.execute(SET_SEARCH_PATH)
            yield

    async def _execute(
        self, name: str, parameters: Mapping[str, object] | None = None
    ) -> list[Row]:
        cursor = self._connection.cursor(binary=True)
        await cursor.execute(self._sql(name), parameters)
        return await cursor.fetchall() if cursor.description is not None else []

    def _sql(self, name: str) -> bytes:
        return statement(name, self._database.options.schema)


def _other_dump(database: Database) -> InvalidInput:
    return InvalidInput(
        "store",
        f"{_where(database)} is half loaded with something else, or the source has changed since: "
        "begin again with holdfast move --anew",
    )
