"""The engine of an application, and the event loop that it belongs to.

Calls from other loops and threads are made on that loop; a forked process opens its own engine.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from .engines.contract import Engine, OnDuplicate, Receipt
from .engines.forwarding import ForwardingEngine
from .model.errors import InvalidInput, WrongLoop
from .model.event import EventReceipt, NewEvent
from .model.job import NewJob
from .operations.events import append_all, batches
from .settings import Settings
from .stores.opening import open_engine, postgres_options

if TYPE_CHECKING:
    from .engines.postgres.options import PostgresOptions

T = TypeVar("T")
EngineCall = Callable[[Engine], Awaitable[T]]

_PORTAL_SECONDS = 10.0


class TestEngine(Protocol):
    """For tests: an engine on an event loop that runs only on request."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop."""

    @property
    def engine(self) -> Engine:
        """The engine."""

    def call(self, work: Coroutine[object, object, T]) -> T:
        """Run this on the loop to its end, and no jobs meanwhile."""

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run this on the loop to its end, and jobs meanwhile."""


class Binding:
    """Makes calls on the engine, from any loop or thread."""

    def __init__(
        self, settings: Callable[[], Settings], *, own: bool, key: str | None = None
    ) -> None:
        self._settings = settings
        self._own = own
        self._key = key
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: Engine | None = None
        self._opening: asyncio.Lock | None = None
        self._portal: asyncio.AbstractEventLoop | None = None
        self._test_engine: TestEngine | None = None

    @property
    def in_test(self) -> bool:
        """Whether calls go to the engine of a test."""
        return self._test_engine is not None

    def use_test_engine(self, test_engine: TestEngine | None) -> None:
        """Use the engine of this stage, or with None the application's own again."""
        self._test_engine = test_engine

    def adopt(self, engine: Engine | None) -> None:
        """Use this engine on the running loop; None ends that. For a daemon's engine."""
        self._check_process()
        self._engine = engine
        self._loop = None if engine is None else asyncio.get_running_loop()

    def runs_on_another_loop(self) -> bool:
        """Whether calls on this event loop are made on another, in another thread."""
        there = self._loop if self._test_engine is None else self._test_engine.loop
        return there is not None and there is not _running_loop()

    async def call(self, verb: EngineCall[T], *, waits: bool = False) -> T:
        """Call the engine and return the result.

        ``waits`` is for calls that wait for jobs: a test engine runs jobs meanwhile.
        """
        self._check_process()
        here = asyncio.get_running_loop()
        if (test_engine := self._test_engine) is not None:
            if here is test_engine.loop:
                return await verb(test_engine.engine)
            # A test with an event loop of its own: the test engine's runs in a thread.
            run = test_engine.run if waits else test_engine.call
            return await asyncio.to_thread(run, _awaiting(verb, test_engine.engine))
        with self._lock:
            if self._loop is not here:
                self._forget_ended_loop()
            if self._loop is None:
                self._loop, self._opening = here, asyncio.Lock()
            there = self._loop
        if there is here:
            return await self._call_here(verb)
        future = asyncio.run_coroutine_threadsafe(self._call_here(verb), there)
        return await asyncio.wrap_future(future)

    def call_sync(self, verb: EngineCall[T], *, waits: bool = False) -> T:
        """Call the engine from synchronous code, and wait for the result; see ``call``."""
        self._check_process()
        there = (
            self._test_engine.loop if self._test_engine is not None else self._loop_for_threads()
        )
        if there is _running_loop():
            raise WrongLoop(
                "this would make the event loop wait for itself: await the call without _sync, or "
                "make it from a thread"
            )
        if (test_engine := self._test_engine) is not None:
            run = test_engine.run if waits else test_engine.call
            return run(_awaiting(verb, test_engine.engine))
        return asyncio.run_coroutine_threadsafe(self._call_here(verb), there).result()

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        on_duplicate: OnDuplicate = "refuse",
        connection: object = None,
    ) -> list[Receipt]:
        """Enqueue; with a connection of the caller's, in its transaction and without an engine."""
        if connection is None:
            return await self.call(lambda engine: engine.enqueue(jobs, on_duplicate=on_duplicate))
        options = self._join_options()
        from .engines.postgres import joined_verbs  # noqa: PLC0415 - an extra

        return await joined_verbs.enqueue(
            connection, jobs, options=options, on_duplicate=on_duplicate
        )

    def enqueue_sync(
        self,
        jobs: Sequence[NewJob],
        on_duplicate: OnDuplicate = "refuse",
        connection: object = None,
    ) -> list[Receipt]:
        """See ``enqueue``; for synchronous code."""
        if connection is None:
            return self.call_sync(lambda engine: engine.enqueue(jobs, on_duplicate=on_duplicate))
        options = self._join_options()
        from .engines.postgres import joined_verbs  # noqa: PLC0415 - an extra

        return joined_verbs.enqueue_sync(
            connection, jobs, options=options, on_duplicate=on_duplicate
        )

    async def append(
        self, events: Sequence[NewEvent], connection: object = None
    ) -> list[EventReceipt]:
        """Append events, as many in a commit as it takes; see ``enqueue`` for ``connection``."""
        if connection is None:
            return await self.call(lambda engine: append_all(engine, events))
        options = self._join_options()
        from .engines.postgres import joined_verbs  # noqa: PLC0415 - an extra

        receipts: list[EventReceipt] = []
        for some in batches(events):
            receipts += await joined_verbs.append(connection, some, options=options)
        return receipts

    def append_sync(
        self, events: Sequence[NewEvent], connection: object = None
    ) -> list[EventReceipt]:
        """See ``append``; for synchronous code."""
        if connection is None:
            return self.call_sync(lambda engine: append_all(engine, events))
        options = self._join_options()
        from .engines.postgres import joined_verbs  # noqa: PLC0415 - an extra

        receipts: list[EventReceipt] = []
        for some in batches(events):
            receipts += joined_verbs.append_sync(connection, some, options=options)
        return receipts

    def _join_options(self) -> PostgresOptions:
        """Return the options of the store, or raise if it cannot join a transaction."""
        self._check_process()
        if self._test_engine is not None:
            raise _cannot_join("a rehearsal keeps work in memory")
        engine = self._engine
        while isinstance(engine, ForwardingEngine):
            engine = engine.engine
        settings = self._settings()
        if not settings.on_server if engine is None else engine.capabilities.name != "postgres":
            kept = (
                settings.store_shown if engine is None else f"a {engine.capabilities.name} engine"
            )
            raise _cannot_join(f"this application's is {kept}")
        options = postgres_options(settings)
        from .engines.postgres.engine import PostgresEngine  # noqa: PLC0415 - an extra

        return engine.options if isinstance(engine, PostgresEngine) else options

    async def close(self) -> None:
        """Close the engine, on the loop that it belongs to."""
        self._check_process()
        if self._engine is not None and self._loop is asyncio.get_running_loop():
            engine, self._engine, self._loop = self._engine, None, None
            await engine.close()
        elif self._engine is not None:
            await asyncio.to_thread(self.close_sync)

    def close_sync(self) -> None:
        """Close the engine, and end its thread if it has one."""
        self._check_process()
        if self._loop is not None and self._loop is _running_loop():
            raise WrongLoop("this would make the event loop wait for itself: await close() instead")
        portal, self._portal = self._portal, None
        engine, self._engine = self._engine, None
        loop, self._loop = self._loop, None
        if loop is None or loop.is_closed():
            return
        if engine is not None:
            if loop.is_running() or loop is portal:
                asyncio.run_coroutine_threadsafe(engine.close(), loop).result(_PORTAL_SECONDS)
            else:
                loop.run_until_complete(engine.close())
        if portal is not None:
            portal.call_soon_threadsafe(portal.stop)

    async def _call_here(self, verb: EngineCall[T]) -> T:
        if self._engine is None:
            self._opening = self._opening or asyncio.Lock()
            async with self._opening:
                if self._engine is None:
                    self._engine = await open_engine(self._settings(), own=self._own, key=self._key)
        return await verb(self._engine)

    def _loop_for_threads(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            self._forget_ended_loop()
            if self._loop is None:
                self._portal = asyncio.new_event_loop()
                self._loop, self._opening = self._portal, None
                thread = threading.Thread(
                    target=_serve, args=(self._portal,), name="holdfast-calls", daemon=True
                )
                thread.start()
            return self._loop

    def _forget_ended_loop(self) -> None:
        """Forget a loop that has ended, and the engine that is of no use without it."""
        loop, engine = self._loop, self._engine
        if loop is None or (not loop.is_closed() and (loop.is_running() or loop is self._portal)):
            return
        if engine is not None and engine.capabilities.durable:
            if not engine.capabilities.shared:
                raise WrongLoop(
                    "this process owns the store, and the event loop on which it was opened has "
                    "ended: `await app.close()` on that loop before it ends"
                )
            self._engine = None
        self._loop = None

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            # A forked child: the parent's engine, loop and thread are not here.
            self._lock = threading.Lock()
            self._reset()


def _cannot_join(why: str) -> InvalidInput:
    return InvalidInput(
        "connection",
        f"only a PostgreSQL store can join a transaction of the caller's, and {why}: set "
        "HOLDFAST_STORE=postgresql://user@host/database, or enqueue without connection=",
    )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _awaiting(verb: EngineCall[T], engine: Engine) -> T:
    return await verb(engine)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
