"""A connection that sends statements itself, below the driver's cursors: at half their cost.

A cursor has to find out the types of its parameters, whether to prepare, and whether the socket is
writable. Our statements are known, cast each parameter, and are sent together (ADR 24).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import tuple_row
from psycopg.waiting import Ready, Wait, wait_async

from .arrays import packed
from .pending_reply import PendingReply
from .sansio import Row
from .statements import NumberedStatement

T = TypeVar("T")
_Value: TypeAlias = bytes | None
_CANCEL_SECONDS = 5.0
"""How long the server may take to cancel a statement whose caller has gone."""
_POLL_SECONDS = 0.1
"""How often the socket and the deadline are checked while a call is under way."""
_BINARY, _TEXT = Format.BINARY, Format.TEXT
_UNDO = b"ROLLBACK"
"""Also ends the implicit transaction of statements that are sent together."""


class BoundStatement(NamedTuple):
    """A statement, its parameters, and the name under which the server shall prepare it."""

    statement: NumberedStatement
    parameters: Mapping[str, object]
    name: bytes | None = None


class StatementNotBuilt(Exception):
    """The next statement could not be built, so nothing was done; ``cause`` is why."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class PipelineConnection(AsyncConnection[Row]):
    """A connection of the driver with ``execute_batch`` and ``listen``.

    The event loop watches its socket from one call to the next: to register it for each call takes
    as long as the rest of the call.
    """

    def __init__(self, pgconn: PGconn) -> None:
        super().__init__(pgconn, row_factory=tuple_row)
        self._known_statements: set[bytes] = set()
        self._row_loader = Transformer(self)
        self._reply: PendingReply | None = None
        self._watched: int | None = None
        self._watches_writes = False
        self._timer: asyncio.TimerHandle | None = None

    async def execute_batch(
        self,
        statements: list[BoundStatement] | Iterator[BoundStatement],
        timeout_seconds: float,
    ) -> list[list[Row]]:
        """Send statements together, and wait for the whole reply; return the rows of each.

        Outside of a transaction they are one. Raise the first error; what follows it was not done.
        An iterator builds them while the server runs the earlier ones: raise
        ``StatementNotBuilt`` if it fails, which ends the transaction, and nothing of it was done.
        Raise ``TimeoutError`` if the reply takes longer: then the outcome is unknown.
        """
        pgconn = self.pgconn
        reply = PendingReply(pgconn)
        failed: Exception | None = None
        pgconn.enter_pipeline_mode()
        try:
            failed = self._send_all(statements, reply)
            pgconn.pipeline_sync()
            await self._exchange(reply, timeout_seconds)
        except BaseException as error:
            if not self._leave_pipeline():
                await self.close()
            if failed is not None and isinstance(error, Exception):
                raise failed from error  # nothing was done, whatever happened to the connection
            raise
        finally:
            if any(reply.expected):
                self._known_statements |= reply.prepared()
        self._leave_pipeline()
        if failed is not None:
            raise failed
        return self._rows(reply)

    def _send_all(
        self, statements: Iterable[BoundStatement], reply: PendingReply
    ) -> Exception | None:
        """Send these; if one cannot be built, undo the others and return why."""
        streamed = not isinstance(statements, list)
        try:
            for statement, values, formats in _encoded(statements):
                reply.expected += self._send(statement, values, formats, reply.expected)
                if streamed:
                    self.pgconn.flush()
        except (StatementNotBuilt, psycopg.DataError, TypeError) as error:
            with contextlib.suppress(psycopg.Error):  # if it is lost, nothing was done
                self.pgconn.send_query_params(_UNDO, None)
                reply.expected.append(None)
            return error
        return None

    async def listen(self, on_notification: Callable[[str], None]) -> None:
        """Call this with the text of each notification until the connection ends; raise why."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def read() -> None:
            try:
                for _twice in (1, 2):  # some event loops report input and its end only once
                    self.pgconn.consume_input()
                    while (notice := self.pgconn.notifies()) is not None:
                        on_notification(notice.extra.decode())
            except psycopg.Error as error:
                self._unwatch()
                if not ended.done():
                    ended.set_exception(error)

        self._unwatch()
        self._watched = self.pgconn.socket
        loop.add_reader(self._watched, read)
        try:
            await ended
        finally:
            self._unwatch()

    async def wait(self, gen: PQGen[T], *how: float | None, **named: float | None) -> T:
        """Wait as the driver does, for its own calls: it watches the socket itself."""
        self._unwatch()
        return await super().wait(gen, *how, **named)  # type: ignore[arg-type]

    async def close(self) -> None:
        """Close the connection; a call that is under way notices at the next poll."""
        self._unwatch()
        await super().close()

    def _leave_pipeline(self) -> bool:
        try:
            self.pgconn.exit_pipeline_mode()
        except psycopg.Error:
            return False
        return True

    # --- exchange --------------------------------------------------------------------------

    async def _exchange(self, reply: PendingReply, timeout_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        reply.deadline = loop.time() + timeout_seconds
        self._reply = reply
        if self._timer is None:
            self._timer = loop.call_later(_POLL_SECONDS, self._poll)
        try:
            if self._watched is None:
                self._watched = self.pgconn.socket
                loop.add_reader(self._watched, self._advance, Ready.R)
            self._advance(None)
            await reply.done
        except (asyncio.CancelledError, TimeoutError):
            if reply.complete and not reply.done.cancelled():
                reply.done.exception()  # mark it as retrieved
            await self._abandon(reply)
            raise

    def _poll(self) -> None:
        """Read the socket and check the deadline, repeatedly while there are calls.

        Some event loops report a socket that failed only once, before all input is read.
        """
        self._timer = None
        reply = self._reply
        if reply is None:
            return  # the next call starts the timer again
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_POLL_SECONDS, self._poll)
        self._advance(Ready.R)
        if self._reply is reply and loop.time() >= reply.deadline:
            reply.expire()

    def _advance(self, ready: Ready | None) -> None:
        """Take the call that is under way as far as it goes without waiting."""
        reply = self._reply
        if reply is None:
            self._unwatch()  # no call is under way: the server closes, or sends a notice
            return
        wanted = reply.advance(ready)
        if wanted is None:
            self._reply = None
            if self.pgconn.status != ConnStatus.OK:
                self._unwatch()  # at once: the number of the socket may be reused soon
        if (wanted == Wait.RW) != self._watches_writes and self._watched is not None:
            self._watches_writes = not self._watches_writes
            loop = asyncio.get_running_loop()
            if self._watches_writes:
                loop.add_writer(self._watched, self._advance, Ready.W)
            else:
                loop.remove_writer(self._watched)

    async def _abandon(self, reply: PendingReply) -> None:
        """Have the server cancel the call, or close the connection."""
        self._reply = None
        if reply.complete:
            return  # a cancel request would hit the next call
        self._unwatch()
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self.cancel_safe(timeout=_CANCEL_SECONDS)
                await wait_async(reply.exchange, self.pgconn.socket, _POLL_SECONDS)
        except (psycopg.Error, OSError, TimeoutError):
            await self.close()
        except BaseException:
            await self.close()  # the cancel request may still be on its way
            raise

    def _unwatch(self) -> None:
        watched, writes = self._watched, self._watches_writes
        self._watched, self._watches_writes = None, False
        if watched is None:
            return
        loop = asyncio.get_running_loop()
        if writes:
            with contextlib.suppress(OSError):  # closed already
                loop.remove_writer(watched)
        with contextlib.suppress(OSError):
            loop.remove_reader(watched)

    # --- statements and rows -----------------------------------------------------------------

    def _send(
        self,
        statement: BoundStatement,
        values: list[_Value],
        formats: list[Format],
        before: Sequence[bytes | None],
    ) -> list[bytes | None]:
        """Send one statement; return what to expect for it."""
        name, text = statement.name, statement.statement.text
        if name is None or self.prepare_threshold is None:
            self.pgconn.send_query_params(text, values, None, formats, Format.BINARY)
            return [None]
        known = name in self._known_statements or name in before
        if not known:
            self.pgconn.send_prepare(name, text)
        self.pgconn.send_query_prepared(name, values, formats, Format.BINARY)
        return [None] if known else [name, None]

    def _rows(self, reply: PendingReply) -> list[list[Row]]:
        rows: list[list[Row]] = []
        for name, result in zip(reply.expected, reply.results, strict=True):
            status = result.status
            if status == ExecStatus.TUPLES_OK:
                rows.append(self._rows_of(result))
            elif status != ExecStatus.COMMAND_OK:
                raise errors.error_from_result(result)
            elif name is None:
                rows.append([])
        return rows

    def _rows_of(self, result: PGresult) -> list[Row]:
        count = result.ntuples
        if not count:
            return []
        self._row_loader.set_pgresult(result, format=Format.BINARY)
        return self._row_loader.load_rows(0, count, tuple)


def _encoded(
    statements: Iterable[BoundStatement],
) -> Iterator[tuple[BoundStatement, list[_Value], list[Format]]]:
    """Yield each with its parameters; raise ``StatementNotBuilt`` if the next cannot be built."""
    remaining = iter(statements)
    while True:
        try:
            statement = next(remaining, None)
        except Exception as error:
            raise StatementNotBuilt(error) from error  # any kind: it is not an error of the server
        if statement is None:
            return
        yield statement, *_values(statement)


def _values(statement: BoundStatement) -> tuple[list[_Value], list[Format]]:
    values: list[_Value] = []
    formats: list[Format] = []
    parameters = statement.parameters
    for name in statement.statement.names:
        value = parameters[name]
        if type(value) is list:
            value = packed(value)
        if type(value) is bytes:
            values.append(value)
            formats.append(_BINARY)
            continue
        if isinstance(value, str):
            value = value.encode()
            if b"\0" in value:
                raise psycopg.DataError("text for PostgreSQL must not contain NUL")
        elif value is not None:
            value = _digits(value)
        values.append(value)
        formats.append(_TEXT)
    return values, formats


def _digits(value: object) -> bytes:
    if isinstance(value, int):
        return b"%d" % value  # booleans too: the server accepts 1 and 0
    if isinstance(value, float):
        return repr(value).encode()
    raise TypeError(f"a parameter cannot be a {type(value).__name__}")
