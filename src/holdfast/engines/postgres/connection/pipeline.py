"""A connection that says our statements itself, below the driver's cursors: at half their cost.

A cursor finds out at each call what it is given, whether to prepare it, and whether the socket
takes it. Our statements are known, name the type of each parameter, and go out together.
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
_END_SECONDS = 5.0
"""How long the server may take to end what nobody waits for any more."""
_LOOK_SECONDS = 0.1
"""How often what takes long is looked at, whether or not something came."""
_BINARY, _TEXT = Format.BINARY, Format.TEXT
_UNDO = b"ROLLBACK"
"""Ends a transaction that nobody began too: that of statements that go out together."""


class BoundStatement(NamedTuple):
    """A statement, what goes into it, and by which name the server shall know it from then on."""

    statement: NumberedStatement
    parameters: Mapping[str, object]
    name: bytes | None = None


class StatementNotBuilt(Exception):
    """What was to be said next could not be made, so nothing was done; ``cause`` says why."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class PipelineConnection(AsyncConnection[Row]):
    """A connection of the driver's that has ``tell`` beside all else.

    The event loop watches its socket from one call to the next: to have it watched anew each time
    takes as long as the rest of a call.
    """

    def __init__(self, pgconn: PGconn) -> None:
        super().__init__(pgconn, row_factory=tuple_row)
        self._known_statements: set[bytes] = set()
        self._row_loader = Transformer(self)
        self._call: PendingReply | None = None
        self._watched: int | None = None
        self._writes = False
        self._timer: asyncio.TimerHandle | None = None

    async def tell(
        self, sayings: list[BoundStatement] | Iterator[BoundStatement], seconds: float
    ) -> list[list[Row]]:
        """Send statements together, and wait for all answers; return the rows of each.

        Outside of a transaction they are one. Raise the first error; what follows it was not done.
        An iterator builds them while the server runs the earlier ones: raise
        ``StatementNotBuilt`` if it fails, which ends the transaction, and nothing of it was done.
        Raise ``TimeoutError`` after so many seconds: then nobody knows what was done.
        """
        pgconn = self.pgconn
        call = PendingReply(pgconn)
        failed: Exception | None = None
        pgconn.enter_pipeline_mode()
        try:
            failed = self._say(sayings, call)
            pgconn.pipeline_sync()
            await self._exchange(call, seconds)
        except BaseException as error:
            if not self._leave_pipeline():
                await self.close()
            if failed is not None and isinstance(error, Exception):
                raise failed from error  # whatever became of the rest: nothing was to be done
            raise
        finally:
            if any(call.expected):
                self._known_statements |= call.prepared()
        self._leave_pipeline()
        if failed is not None:
            raise failed
        return self._told(call)

    def _say(self, sayings: Iterable[BoundStatement], call: PendingReply) -> Exception | None:
        """Send these; if one cannot be said, see to it that none is done, and return why."""
        at_once = isinstance(sayings, list)
        try:
            for saying, values, formats in _ready(sayings):
                call.expected += self._send(saying, values, formats, call.expected)
                if not at_once:
                    self.pgconn.flush()
        except (StatementNotBuilt, psycopg.DataError, TypeError) as error:
            with contextlib.suppress(psycopg.Error):  # it is gone: then nothing was done either
                self.pgconn.send_query_params(_UNDO, None)
                call.expected.append(None)
            return error
        return None

    async def hear(self, heard: Callable[[str], None]) -> None:
        """Pass on what notifications say, as they come, until the connection ends; raise why."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def read() -> None:
            try:
                for _twice in (1, 2):  # some event loops tell of what came and of its end at once
                    self.pgconn.consume_input()
                    while (notice := self.pgconn.notifies()) is not None:
                        heard(notice.extra.decode())
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
        """Wait as the driver does for what it does itself. It has the socket watched then."""
        self._unwatch()
        return await super().wait(gen, *how, **named)  # type: ignore[arg-type]

    async def close(self) -> None:
        """Hang up."""
        self._unwatch()
        await super().close()  # a call that is under way hears of it at the next look

    def _leave_pipeline(self) -> bool:
        try:
            self.pgconn.exit_pipeline_mode()
        except psycopg.Error:
            return False
        return True

    # --- a call ------------------------------------------------------------------------------

    async def _exchange(self, call: PendingReply, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        call.late_at = loop.time() + seconds
        self._call = call
        if self._timer is None:
            self._timer = loop.call_later(_LOOK_SECONDS, self._look)
        try:
            if self._watched is None:
                self._watched = self.pgconn.socket
                loop.add_reader(self._watched, self._go_on, Ready.R)
            self._go_on(None)
            await call.ended
        except (asyncio.CancelledError, TimeoutError):
            if call.over and not call.ended.cancelled():
                call.ended.exception()  # nobody else will ask for it
            await self._give_up(call)
            raise

    def _look(self) -> None:
        """Look without having been called, and at the clock; again and again while there are calls.

        Some event loops tell of a socket that failed once only, before all that came is read.
        """
        self._timer = None
        call = self._call
        if call is None:
            return  # the next call has it looked at again
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_LOOK_SECONDS, self._look)
        self._go_on(Ready.R)
        if self._call is call and loop.time() >= call.late_at:
            call.expire()

    def _go_on(self, ready: Ready | None) -> None:
        """Take the call that is under way as far as it goes by now."""
        call = self._call
        if call is None:
            self._unwatch()  # nobody asked: the other side hangs up, or has something to say
            return
        wanted = call.go_on(ready)
        if wanted is None:
            self._call = None
            if self.pgconn.status != ConnStatus.OK:
                self._unwatch()  # at once: the number of the socket may be another's soon
        if (wanted == Wait.RW) != self._writes and self._watched is not None:
            self._writes = not self._writes
            loop = asyncio.get_running_loop()
            if self._writes:
                loop.add_writer(self._watched, self._go_on, Ready.W)
            else:
                loop.remove_writer(self._watched)

    async def _give_up(self, call: PendingReply) -> None:
        """See to it that the server ends what nobody waits for, or hang up."""
        self._call = None
        if call.over:
            return  # a request to end it would end what comes next
        self._unwatch()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self.cancel_safe(timeout=_END_SECONDS)
                await wait_async(call.answers, self.pgconn.socket, _LOOK_SECONDS)
        except (psycopg.Error, OSError, TimeoutError):
            await self.close()
        except BaseException:
            await self.close()  # that request may still be on its way
            raise

    def _unwatch(self) -> None:
        watched, writes = self._watched, self._writes
        self._watched, self._writes = None, False
        if watched is None:
            return
        loop = asyncio.get_running_loop()
        if writes:
            with contextlib.suppress(OSError):  # it is closed already
                loop.remove_writer(watched)
        with contextlib.suppress(OSError):
            loop.remove_reader(watched)

    # --- what is said, and what is answered --------------------------------------------------

    def _send(
        self,
        saying: BoundStatement,
        values: list[_Value],
        formats: list[Format],
        before: Sequence[bytes | None],
    ) -> list[bytes | None]:
        """Return what will be answered."""
        name, text = saying.name, saying.statement.text
        if name is None or self.prepare_threshold is None:
            self.pgconn.send_query_params(text, values, None, formats, Format.BINARY)
            return [None]
        known = name in self._known_statements or name in before
        if not known:
            self.pgconn.send_prepare(name, text)
        self.pgconn.send_query_prepared(name, values, formats, Format.BINARY)
        return [None] if known else [name, None]

    def _told(self, call: PendingReply) -> list[list[Row]]:
        told: list[list[Row]] = []
        for name, result in zip(call.expected, call.results, strict=True):
            status = result.status
            if status == ExecStatus.TUPLES_OK:
                told.append(self._rows_of(result))
            elif status != ExecStatus.COMMAND_OK:
                raise errors.error_from_result(result)
            elif name is None:
                told.append([])
        return told

    def _rows_of(self, result: PGresult) -> list[Row]:
        count = result.ntuples
        if not count:
            return []
        self._row_loader.set_pgresult(result, format=Format.BINARY)
        return self._row_loader.load_rows(0, count, tuple)


def _ready(
    sayings: Iterable[BoundStatement],
) -> Iterator[tuple[BoundStatement, list[_Value], list[Format]]]:
    """Yield each with its parameters; raise ``StatementNotBuilt`` if the next cannot be built."""
    making = iter(sayings)
    while True:
        try:
            saying = next(making, None)
        except Exception as error:
            raise StatementNotBuilt(error) from error  # of whatever kind: it is not the server's
        if saying is None:
            return
        yield saying, *_values(saying)


def _values(saying: BoundStatement) -> tuple[list[_Value], list[Format]]:
    values: list[_Value] = []
    formats: list[Format] = []
    parameters = saying.parameters
    for name in saying.statement.names:
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
                raise psycopg.DataError("a text for PostgreSQL must not contain NUL")
        elif value is not None:
            value = _digits(value)
        values.append(value)
        formats.append(_TEXT)
    return values, formats


def _digits(value: object) -> bytes:
    if isinstance(value, int):
        return b"%d" % value  # a truth value too: 1 and 0 are what the server takes
    if isinstance(value, float):
        return repr(value).encode()
    raise TypeError(f"no parameter is a {type(value).__name__}")
