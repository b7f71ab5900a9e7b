"""Statements that are under way: what is expected of the server, and what has come."""

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
    """Statements that are under way."""

    def __init__(self, pgconn: PGconn) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.late_at: float
        self.expected: list[bytes | None] = []
        """What will be answered: the name of what gets prepared, nothing for rows."""
        self.results: list[PGresult] = []
        self.answers = _answers(pgconn, self)
        self.over = False

    def go_on(self, ready: Ready | None) -> Wait | None:
        """Go on until it must wait; return for what, or nothing once it has ended."""
        error: psycopg.Error | None = None
        try:
            return next(self.answers) if ready is None else self.answers.send(ready)
        except StopIteration:
            pass
        except psycopg.Error as raised:
            error = raised
        self.over = True
        if not self.ended.done():
            if error is None:
                self.ended.set_result(None)
            else:
                self.ended.set_exception(error)
        return None

    def expire(self) -> None:
        """Be waited for no longer."""
        if not self.ended.done():
            self.ended.set_exception(TimeoutError())

    def prepared(self) -> set[bytes]:
        """Return the names that the server knows by now."""
        return {
            name
            for name, result in zip(self.expected, self.results, strict=False)
            if name is not None and result.status == ExecStatus.COMMAND_OK
        }


def _answers(pgconn: PGconn, call: PendingReply) -> PQGen[None]:
    """Send what is left to send; take the results of all that is expected."""
    while pgconn.flush():
        if (yield Wait.RW) == Ready.R:
            pgconn.consume_input()  # else both sides might wait for the other to read
    ends = 0
    while True:
        while pgconn.is_busy():
            yield Wait.R
            _consume(pgconn, call.results)
        result = pgconn.get_result()
        if result is None:
            ends += 1
            if ends > len(call.expected):
                raise psycopg.OperationalError("the connection ended before all answers had come")
        elif result.status == ExecStatus.PIPELINE_SYNC:
            return
        else:
            call.results.append(result)


def _consume(pgconn: PGconn, results: Sequence[PGresult]) -> None:
    """Read what has come. If that was the end, raise what the server said of it, if it did."""
    try:
        pgconn.consume_input()
    except psycopg.OperationalError:
        for result in results:
            if result.status == ExecStatus.FATAL_ERROR:
                said = errors.error_from_result(result)
                if isinstance(said, psycopg.OperationalError):
                    raise said from None
        raise
