"""Calls on their way to the owner: many share one connection, those that wait have their own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from holdfast.engines.protocol import messages
from holdfast.model.errors import HoldfastError

from .connection import Connection, ConnectionBroken, closed, dial

MAX_TOGETHER = 1_000
MAX_TOGETHER_BYTES = 16 << 20
"""How much goes into one request with several calls; a single call may have more."""

Reply = tuple[int, bytes]
Orphaned = Callable[[int, bytes], None]
"""Takes a reply for which nobody waits any more."""


class PendingCall:
    """One call: what is asked, and whoever waits for the reply."""

    __slots__ = ("body", "orphaned", "reply", "until", "verb")

    def __init__(
        self,
        verb: str,
        body: bytes,
        reply: asyncio.Future[Reply],
        until: float,
        orphaned: Orphaned | None,
    ) -> None:
        self.verb = verb
        self.body = body
        self.reply = reply
        self.until = until
        self.orphaned = orphaned

    def finish(self, status: int, body: bytes) -> None:
        """Give the reply to whoever waits."""
        if not self.reply.done():
            self.reply.set_result((status, body))
        elif self.orphaned is not None:
            self.orphaned(status, body)

    def fail(self, error: Exception) -> None:
        """Tell whoever waits that no reply comes."""
        if not self.reply.done():
            self.reply.set_exception(error)


class CallChannel:
    """The connection that calls share.

    One request is under way at a time. Calls that come meanwhile go out together with the next.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._queue: deque[PendingCall] = deque()
        self._under_way: list[PendingCall] = []
        self._quiet: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] = self._loop.create_future()
        self.requests = 0
        """How many requests went out."""

    def submit(
        self, verb: str, body: bytes, until: float, orphaned: Orphaned | None = None
    ) -> asyncio.Future[Reply]:
        """Send a call, or line it up; return a future of the reply.

        It fails with ``ConnectionBroken`` if the connection ended after the call was sent, with
        ``NoOwner`` if no owner answered by ``until`` (loop time), and with ``EngineClosed`` if the
        channel was closed before the call was sent.
        """
        if self._closing.done():
            raise closed()
        errand = PendingCall(verb, body, self._loop.create_future(), until, orphaned)
        connection = self._connection
        if connection is not None and connection.usable and not self._under_way:
            self._send(connection, [errand])
        else:
            self._queue.append(errand)
            if connection is None:
                self._connect()
        return errand.reply

    async def close(self, patience_seconds: float) -> None:
        """Fail what was not sent, wait for what was, and end the connection."""
        self._closing.set_result(None)
        while self._queue:
            self._queue.popleft().fail(closed())
        if self._connecting is not None:
            await self._connecting
        if self._under_way:
            self._quiet = self._loop.create_future()
            await asyncio.wait([self._quiet], timeout=patience_seconds)
        if self._connection is not None:
            ended = self._connection.ended
            self._connection.close()
            await ended

    def replied(self, status: int, body: bytes) -> None:
        """See ``Listener``."""
        errands, self._under_way = self._under_way, []
        if len(errands) == 1:
            errands[0].finish(status, body)
        else:
            _share_out(errands, status, body)
        self._go_on()

    def broke(self) -> None:
        """See ``Listener``."""
        errands, self._under_way = self._under_way, []
        self._connection = None
        for errand in errands:
            errand.fail(ConnectionBroken())
        self._go_on()

    def _go_on(self) -> None:
        if self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)
        if not self._queue:
            return
        if self._connection is None:
            self._connect()
        elif self._connection.usable:
            self._send_together(self._connection)

    def _send_together(self, connection: Connection) -> None:
        """Send what has lined up, as much as one request takes, in order."""
        together: list[PendingCall] = []
        size = 0
        while self._queue and len(together) < MAX_TOGETHER:
            if self._queue[0].reply.done():
                self._queue.popleft()  # gave up before it was sent
                continue
            size += len(self._queue[0].body)
            if together and size > MAX_TOGETHER_BYTES:
                break
            together.append(self._queue.popleft())
        if together:
            self._send(connection, together)

    def _send(self, connection: Connection, errands: list[PendingCall]) -> None:
        self._under_way = errands
        self.requests += 1
        if len(errands) == 1:
            connection.request(messages.PREFIX + errands[0].verb, errands[0].body)
        else:
            calls = [messages.BatchedCall(errand.verb, errand.body) for errand in errands]
            connection.request(messages.CALLS_PATH, messages.write_calls(calls))

    def _connect(self) -> None:
        if self._connecting is None:
            self._connecting = self._loop.create_task(self._dial())

    async def _dial(self) -> None:
        """Connect for whoever is lined up, as long as the patience of any of them lasts."""
        try:
            while self._queue:
                if self._queue[0].reply.done():
                    self._queue.popleft()
                    continue
                first = self._queue[0]
                try:
                    self._connection = await dial(self._path, first.until, self._closing)
                except HoldfastError as error:
                    first.fail(error)
                else:
                    self._connection.listener = self
                    break
        finally:
            self._connecting = None
        self._go_on()


class ClaimChannels:
    """Connections for claims that wait: each has one to itself, and they are used again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._idle: list[Connection] = []
        self._busy: dict[_WaitingClaim, None] = {}
        """In the order in which they came."""
        self._closing: asyncio.Future[None] = self._loop.create_future()

    async def ask(self, verb: str, body: bytes, until: float, orphaned: Orphaned) -> Reply:
        """Send the call and wait for its reply, however long it takes.

        Fails as ``CallChannel.submit`` does. Cancelled, it lets the owner know that nobody waits.
        """
        if self._closing.done():
            raise closed()
        errand = PendingCall(verb, body, self._loop.create_future(), until, orphaned)
        wait = _WaitingClaim(errand, self._busy, self._idle)
        self._busy[wait] = None
        try:
            connection = self._reuse()
            if connection is None:
                connection = await dial(self._path, until, self._closing)
            if self._closing.done():
                connection.close()
                raise closed()
            wait.begin(connection)
            return await errand.reply
        except asyncio.CancelledError:
            wait.give_up()
            raise
        finally:
            if wait.connection is None:
                self._busy.pop(wait, None)

    async def close(self, patience_seconds: float) -> None:
        """Let the owner know that nobody waits, and end the connections."""
        self._closing.set_result(None)
        for wait in list(self._busy):
            wait.give_up()
        busy = [wait.connection for wait in self._busy if wait.connection is not None]
        if busy:
            await asyncio.wait([connection.ended for connection in busy], timeout=patience_seconds)
        for connection in [*busy, *self._idle]:
            connection.close()
            await connection.ended

    def _reuse(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None


class _WaitingClaim:
    """A claim that waits, on the connection that it has to itself."""

    def __init__(
        self, errand: PendingCall, busy: dict[_WaitingClaim, None], idle: list[Connection]
    ) -> None:
        self.connection: Connection | None = None
        self._errand = errand
        self._busy = busy
        self._idle = idle

    def begin(self, connection: Connection) -> None:
        self.connection = connection
        connection.listener = self
        connection.request(messages.PREFIX + self._errand.verb, self._errand.body)

    def give_up(self) -> None:
        if self.connection is not None:
            self.connection.give_up()

    def replied(self, status: int, body: bytes) -> None:
        self._busy.pop(self, None)
        if self.connection is not None and self.connection.usable:
            self._idle.append(self.connection)
        self._errand.finish(status, body)

    def broke(self) -> None:
        self._busy.pop(self, None)
        self._errand.fail(ConnectionBroken())


def _share_out(errands: list[PendingCall], status: int, body: bytes) -> None:
    """Give each its own answer; what was wrong with the request was wrong for all."""
    if status != messages.OK:
        for errand in errands:
            errand.finish(status, body)
        return
    try:
        answers = messages.read_answers(body)
    except messages.UNREADABLE:
        answers = []
    if len(answers) != len(errands):
        for errand in errands:
            errand.fail(ConnectionBroken())  # whatever it was, it was no answer
        return
    for errand, answer in zip(errands, answers, strict=True):
        errand.finish(answer.status, answer.body)
