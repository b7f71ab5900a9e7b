"""Replies that are awaited: what the server will answer, and what has come so far."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait


class PendingReply:
    """The reply to statements that were sent together."""

    def __init__(self, pgconn: PGconn) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.deadline: float
        self.expected: list[bytes | None] = []
        """For each result: the name of the statement that it prepares, or None for rows."""
        self.results: list[PGresult] = []
        self.exchange = _exchange(pgconn, self)
        self.complete = False

    def advance(self, ready: Ready | None) -> Wait | None:
        """Go on until it must wait; return for what, or None once the reply is complete."""
        error: psycopg.Error | None = None
        try:
            return next(self.exchange) if ready is None else self.exchange.send(ready)
        except StopIteration:
            pass
        except psycopg.Error as raised:
            error = raised
        self.complete = True
        if not self.done.done():
            if error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error)
        return None

    def expire(self) -> None:
        """Raise ``TimeoutError`` in the caller."""
        if not self.done.done():
            self.done.set_exception(TimeoutError())

    def prepared(self) -> set[bytes]:
        """Return the names of the statements that the server has prepared."""
        return {
            name
            for name, result in zip(self.expected, self.results, strict=False)
            if name is not None and result.status == ExecStatus.COMMAND_OK
        }


def _exchange(pgconn: PGconn, reply: PendingReply) -> PQGen[None]:
    """Send what is left to send; fetch all expected results."""
    while pgconn.flush():
        if (yield Wait.RW) == Ready.R:
            pgconn.consume_input()  # else both sides could wait for the other to read
    ends = 0
    while True:
        while pgconn.is_busy():
            yield Wait.R
            _consume(pgconn, reply.results)
        result = pgconn.get_result()
        if result is None:
            ends += 1
            if ends > len(reply.expected):
                raise psycopg.OperationalError("the connection ended before the reply was complete")
        elif result.status == ExecStatus.PIPELINE_SYNC:
            return
        else:
            reply.results.append(result)


def _consume(pgconn: PGconn, results: Sequence[PGresult]) -> None:
    """Read what has come. If the connection ended, raise the server's reason if it gave one."""
    try:
        pgconn.consume_input()
    except psycopg.OperationalError:
        for result in results:
            if result.status == ExecStatus.FATAL_ERROR:
                reason = errors.error_from_result(result)
                if isinstance(reason, psycopg.OperationalError):
                    raise reason from None
        raise
