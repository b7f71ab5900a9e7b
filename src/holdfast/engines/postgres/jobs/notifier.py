"""LISTEN/NOTIFY: one connection that listens for new work, and checks that notifications arrive.

A process that waits registers in a table, so that no notification is sent in vain. Work that comes
between its last look and that moment sends none: so it looks once more before it sleeps. Where
notifications do not arrive (a pooler in transaction mode swallows them), that is logged, and only
polling finds the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Collection, Iterator

from psycopg import sql

from holdfast.engines.entropy import random_bytes
from holdfast.engines.postgres.connection.sansio import Statement, execute_and_commit
from holdfast.engines.postgres.errors import first_line, place
from holdfast.engines.postgres.resources import EngineResources
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import EngineClosed, Unavailable
from holdfast.model.job import MICROSECONDS

log = StructuredLog("holdfast.postgres")

REGISTERED_SECONDS = 15.0
"""How long others notify us after we last waited; short, because each notification costs them."""
RENEW_SECONDS = 4.0
ECHO_SECONDS = 5.0
"""How long a notification to ourselves may take to arrive."""
PROBE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 30.0
MANY_QUEUES = 256
"""Who waits for more queues than this is notified of work in any: each enqueue reads the names."""
_EVERY_QUEUE = ""
"""Stands for every queue: no name of a queue is empty."""
_ECHO = "\n"
"""The start of notifications to ourselves: no name of a queue has it."""


class Notifier:
    """Wakes the claims that wait in this process when other processes enqueue jobs for them."""

    def __init__(self, resources: EngineResources) -> None:
        self._database = resources.database
        self._waiters = resources.waiters
        self._clock = resources.clock
        self._context = resources.context
        self._name = random_bytes(8).hex()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.listening = False
        """Whether notifications arrive, as far as is known."""
        self._warned = False
        """Whether it was logged that they do not."""
        self._expected_echo = ""
        self._echoed = asyncio.Event()
        self._waiting: Counter[str] = Counter()
        self._wanted_us: dict[str, int] = {}
        self._registered: frozenset[str] = frozenset()
        self._until_us = 0
        self._registering = asyncio.Lock()

    # --- for claims --------------------------------------------------------------------------

    def covers(self, queues: Collection[str]) -> bool:
        """Whether a notification is sent for jobs that come into these queues from now on."""
        # The registration must last until it is renewed.
        least_us = self._clock.now_us() + int(1.5 * RENEW_SECONDS * MICROSECONDS)
        return self.listening and least_us < self._until_us and self._registered.issuperset(queues)

    async def register(self, queues: Collection[str]) -> bool:
        """Register for these queues. Return whether that was possible: then look once more."""
        if self._closed or not self._database.options.listen:
            return False
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_listening())
        if not self.listening:
            return False  # claims are woken when that changes
        async with self._registering:
            if not self.covers(queues):
                await self._write(queues)
        return True

    @contextlib.contextmanager
    def waiting(self, queues: Collection[str]) -> Iterator[None]:
        """Stay registered for these queues during the ``with`` block."""
        for queue in queues:
            self._waiting[queue] += 1
        try:
            yield
        finally:
            for queue in queues:
                self._waiting[queue] -= 1
                if not self._waiting[queue]:
                    del self._waiting[queue]

    async def close(self) -> None:
        """Stop listening."""
        self._closed = True
        if self._task is not None:
            while not self._task.done():  # connecting may swallow a cancellation
                self._task.cancel()
                await asyncio.wait([self._task], timeout=1.0)

    async def _write(self, queues: Collection[str] = ()) -> None:
        """Register for these queues, and for all that claims wait for or waited for recently."""
        now_us = self._clock.now_us()
        for_us = int(REGISTERED_SECONDS * MICROSECONDS)
        self._wanted_us.update(dict.fromkeys([*self._waiting, *queues], now_us))
        self._wanted_us = {
            queue: at_us for queue, at_us in self._wanted_us.items() if at_us > now_us - for_us
        }
        wanted = sorted(self._wanted_us)
        context = self._context()
        parameters = {
            "listener": self._name,
            "for_us": for_us,
            "queues": wanted if len(wanted) <= MANY_QUEUES else [_EVERY_QUEUE],
            "now_us": context.now_us,
        }
        await self._database.perform(
            lambda: execute_and_commit(Statement("register_listener", parameters)), idempotent=True
        )
        self._registered, self._until_us = frozenset(wanted), now_us + for_us

    # --- the connection ----------------------------------------------------------------------

    async def _keep_listening(self) -> None:
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._listen()
            except EngineClosed:
                return
            except Exception as error:  # noqa: BLE001 - logged, and tried again
                if self.listening:  # until now
                    pause_seconds = _FIRST_PAUSE_SECONDS
                else:
                    self._warn(error)
            finally:
                self.listening = False
            if self._closed:
                return
            await asyncio.sleep(pause_seconds * random.uniform(0.5, 1.0))
            pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)

    async def _listen(self) -> None:
        """Listen until that fails; raise why."""
        connection = await self._database.connect(self._database.options.listen_url)
        try:
            channel = sql.Identifier(self._context().channel)
            async with asyncio.timeout(self._database.options.statement_timeout_seconds):
                await connection.execute(sql.SQL("LISTEN {}").format(channel))
            parts = [
                asyncio.ensure_future(connection.listen(self._on_notification)),
                asyncio.ensure_future(self._probe()),
            ]
            try:
                ended, _others = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                ended.pop().result()
            finally:
                for part in parts:
                    part.cancel()
                await asyncio.gather(*parts, return_exceptions=True)
        finally:
            await connection.close()

    def _on_notification(self, text: str) -> None:
        if not text.startswith(_ECHO):
            self._waiters.wake((), [text])
        elif text == self._expected_echo:
            self._echoed.set()

    async def _probe(self) -> None:
        """Check repeatedly that notifications arrive; stay registered in between."""
        while True:
            try:
                await self._send_echo()
            except Unavailable:
                if not self.listening:
                    raise
            else:
                await self._expect_echo()
            if not self.listening:
                self._begin()
            for _time in range(int(PROBE_SECONDS / RENEW_SECONDS)):
                await asyncio.sleep(RENEW_SECONDS * random.uniform(0.9, 1.1))
                await self._renew()

    async def _send_echo(self) -> None:
        self._echoed.clear()
        self._expected_echo = f"{_ECHO}{self._name}/{random_bytes(4).hex()}"
        echo = Statement("echo", {"channel": self._context().channel, "text": self._expected_echo})
        await self._database.perform(lambda: execute_and_commit(echo), idempotent=True)

    async def _expect_echo(self) -> None:
        try:
            async with asyncio.timeout(ECHO_SECONDS):
                await self._echoed.wait()
        except TimeoutError:
            raise Unavailable(
                f"a notification to this process did not arrive within {ECHO_SECONDS:g} s: a "
                "pooler in transaction mode swallows them. Set listen_url to the server itself"
            ) from None

    def _begin(self) -> None:
        self.listening = True
        self._until_us = 0  # a server that crashed has forgotten the registrations
        self._waiters.wake_all()  # work may have come meanwhile
        if self._warned:
            self._warned = False
            log.emit("postgres.notified", store=place(self._database.url))

    async def _renew(self) -> None:
        """Stay registered while claims wait."""
        if not self._waiting:
            return
        async with self._registering:
            too_late = self._clock.now_us() >= self._until_us
            with contextlib.suppress(Unavailable):  # then ``covers`` becomes false
                await self._write()
        if too_late:
            self._waiters.wake_all()

    def _warn(self, error: Exception) -> None:
        if self._warned:
            return
        self._warned = True
        why = error if isinstance(error, Unavailable) else Unavailable(first_line(error))
        log.emit(
            "postgres.not_notified",
            store=place(self._database.url),
            seconds=self._database.options.poll_interval_seconds,
            error=why,
        )
