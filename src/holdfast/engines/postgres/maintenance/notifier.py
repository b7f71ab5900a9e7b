"""Being told of new work: one connection that listens, and proves to itself that it hears.

A process that waits says so in a table, so that nobody is notified in vain. What it must not miss
is work that came between its last look and that moment: so it looks once more before it sleeps.
Where notifications do not come (a pooler in transaction mode swallows them), that is said, and
polling alone finds the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from psycopg import sql

from holdfast.engines.clock import Clock
from holdfast.engines.embedded.waiters import ClaimWaiters
from holdfast.engines.entropy import random_bytes
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.database import Database
from holdfast.engines.postgres.connection.sansio import Statement, execute_last
from holdfast.engines.postgres.errors import place, said
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import EngineClosed, Unavailable
from holdfast.model.job import MICROSECONDS

log = StructuredLog("holdfast.postgres")

REGISTERED_SECONDS = 15.0
"""How long others notify us after we waited last: to notify costs them, so it is not long."""
RENEW_SECONDS = 4.0
ECHO_SECONDS = 5.0
"""How long a notification of our own may take to come back."""
PROBE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 30.0
_ECHO = "\n"
"""What notifications to ourselves begin with: no name of a queue does."""


class Notifier:
    """Wakes the claims that wait in this process when others put work into their queues."""

    def __init__(
        self,
        database: Database,
        arrivals: ClaimWaiters,
        clock: Clock,
        conditions: Callable[[], CallContext],
    ) -> None:
        self._database = database
        self._waiters = arrivals
        self._clock = clock
        self._conditions = conditions
        self._name = random_bytes(8).hex()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.hears = False
        """Whether notifications come, as far as we know."""
        self._silent = False
        """Whether it was said that they do not."""
        self._expected = ""
        self._echoed = asyncio.Event()
        self._waiting: Counter[str] = Counter()
        self._wanted_us: dict[str, int] = {}
        self._registered: frozenset[str] = frozenset()
        self._until_us = 0
        self._registering = asyncio.Lock()

    # --- for claims --------------------------------------------------------------------------

    def tells_of(self, queues: Collection[str]) -> bool:
        """Whether work that comes into these queues from now on wakes who waits for it."""
        # Whoever falls asleep now must be registered until that is renewed.
        least_us = self._clock.now_us() + int(1.5 * RENEW_SECONDS * MICROSECONDS)
        return self.hears and least_us < self._until_us and self._registered.issuperset(queues)

    async def register(self, queues: Collection[str]) -> bool:
        """Have work in these queues told of. Return whether it is, so that a last look helps."""
        if self._closed or not self._database.options.listen:
            return False
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_listening())
        if not self.hears:
            return False  # whoever sleeps is woken when it does
        async with self._registering:
            if not self.tells_of(queues):
                await self._write(queues)
        return True

    @contextlib.contextmanager
    def waiting(self, queues: Collection[str]) -> Iterator[None]:
        """Stay registered for these queues meanwhile."""
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
        """Listen no more."""
        self._closed = True
        if self._task is not None:
            while not self._task.done():  # to connect may swallow a cancellation
                self._task.cancel()
                await asyncio.wait([self._task], timeout=1.0)

    async def _write(self, queues: Collection[str] = ()) -> None:
        """Register for these queues, for all that somebody waits for, and waited for just now."""
        now_us = self._clock.now_us()
        for_us = int(REGISTERED_SECONDS * MICROSECONDS)
        self._wanted_us.update(dict.fromkeys([*self._waiting, *queues], now_us))
        self._wanted_us = {
            queue: at_us for queue, at_us in self._wanted_us.items() if at_us > now_us - for_us
        }
        wanted = sorted(self._wanted_us)
        on = self._conditions()
        parameters = {
            "listener": self._name,
            "for_us": for_us,
            "queues": wanted,
            "now_us": on.now_us,
        }
        await self._database.perform(
            lambda: execute_last(Statement("register_listener", parameters)), harmless=True
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
            except Exception as error:  # noqa: BLE001 - said, and tried again
                if self.hears:  # until now
                    pause_seconds = _FIRST_PAUSE_SECONDS
                else:
                    self._say_silent(error)
            finally:
                self.hears = False
            if self._closed:
                return
            await asyncio.sleep(pause_seconds * random.uniform(0.5, 1.0))
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)

    async def _listen(self) -> None:
        """Listen until that fails; raise why."""
        connection = await self._database.connect(self._database.options.listen_url)
        try:
            channel = sql.Identifier(self._conditions().channel)
            async with asyncio.timeout(self._database.options.statement_timeout_seconds):
                await connection.execute(sql.SQL("LISTEN {}").format(channel))
            parts = [
                asyncio.ensure_future(connection.hear(self._hear)),
                asyncio.ensure_future(self._prove()),
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

    def _hear(self, said: str) -> None:
        if not said.startswith(_ECHO):
            self._waiters.wake((), [said])
        elif said == self._expected:
            self._echoed.set()

    async def _prove(self) -> None:
        """See that notifications come, again and again; stay registered in between."""
        while True:
            try:
                await self._send_echo()
            except Unavailable:
                if not self.hears:
                    raise
            else:
                await self._expect_echo()
            if not self.hears:
                self._begin()
            for _time in range(int(PROBE_SECONDS / RENEW_SECONDS)):
                await asyncio.sleep(RENEW_SECONDS * random.uniform(0.9, 1.1))
                await self._renew()

    async def _send_echo(self) -> None:
        self._echoed.clear()
        self._expected = f"{_ECHO}{self._name}/{random_bytes(4).hex()}"
        echo = Statement("echo", {"channel": self._conditions().channel, "text": self._expected})
        await self._database.perform(lambda: execute_last(echo), harmless=True)

    async def _expect_echo(self) -> None:
        try:
            async with asyncio.timeout(ECHO_SECONDS):
                await self._echoed.wait()
        except TimeoutError:
            raise Unavailable(
                f"a notification of our own did not come back within {ECHO_SECONDS:g} s: a pooler "
                "in transaction mode swallows them. Have listen_url name the server itself"
            ) from None

    def _begin(self) -> None:
        self.hears = True
        self._until_us = 0  # a server that crashed has forgotten who waits
        self._waiters.wake_all()  # nobody knows what came meanwhile
        if self._silent:
            self._silent = False
            log.emit("postgres.notified", store=place(self._database.url))

    async def _renew(self) -> None:
        """Stay registered while somebody waits."""
        if not self._waiting:
            return
        async with self._registering:
            too_late = self._clock.now_us() >= self._until_us
            with contextlib.suppress(Unavailable):  # then claims see that they are not
                await self._write()
        if too_late:
            self._waiters.wake_all()

    def _say_silent(self, error: Exception) -> None:
        if self._silent:
            return
        self._silent = True
        why = error if isinstance(error, Unavailable) else Unavailable(said(error))
        log.emit(
            "postgres.not_notified",
            store=place(self._database.url),
            seconds=self._database.options.poll_interval_seconds,
            error=why,
        )
