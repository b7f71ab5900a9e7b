"""Long-lived threads for tasks that block; a thread that does not return is abandoned."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence


class _Call:
    __slots__ = ("abandoned", "call", "error", "future", "keys", "value")

    def __init__(
        self, call: Callable[[], object], keys: Sequence[Hashable], future: asyncio.Future[object]
    ) -> None:
        self.call = call
        self.keys = keys
        self.future = future
        self.abandoned = False
        self.value: object = None
        self.error: BaseException | None = None


class ThreadPool:
    """Runs calls in threads and returns their results on the event loop.

    The pool grows to the highest number of concurrent calls. An abandoned call keeps its thread
    until it returns, if ever; another thread replaces it.
    """

    def __init__(self) -> None:
        self.abandoned = 0
        """How many threads still run an abandoned call."""
        self._still_running: dict[Hashable, asyncio.Event] = {}
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._done: deque[_Call] = deque()
        self._collecting = False
        self._threads = 0
        self._busy = 0
        self._lock = threading.Lock()

    def still_runs(self, key: Hashable) -> bool:
        """Whether an abandoned call with this key has not returned."""
        return key in self._still_running

    async def returned(self, key: Hashable) -> None:
        """Wait until no abandoned call with this key runs."""
        while (returned := self._still_running.get(key)) is not None:
            await returned.wait()

    async def run(self, call: Callable[[], object], keys: Sequence[Hashable] = ()) -> object:
        """Run it in a thread; cancelling this abandons the thread: see ``still_runs``, by key."""
        item = _Call(call, keys, self._loop.create_future())
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._serve, name="holdfast-task", daemon=True).start()
        self._calls.put(item)
        try:
            return await item.future
        finally:
            self._busy -= 1
            if not item.future.done() or item.future.cancelled():
                self._abandon(item)

    def close(self) -> None:
        """End idle threads; busy ones end with the process."""
        for _thread in range(self._threads):
            self._calls.put(None)

    def _abandon(self, item: _Call) -> None:
        with self._lock:
            if item.call is _nothing:
                return  # it has returned, and its result is on the way
            item.abandoned = True
            self.abandoned += 1
            self._threads -= 1
            for key in item.keys:
                self._still_running[key] = asyncio.Event()

    def _serve(self) -> None:
        while (item := self._calls.get()) is not None:
            try:
                if not item.abandoned:  # an abandoned call need not start
                    item.value = item.call()
            except BaseException as error:  # noqa: BLE001 - raised to the caller
                item.error = error
            with self._lock:
                item.call = _nothing
                abandoned = item.abandoned
                self.abandoned -= abandoned
            if abandoned:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._has_returned, item.keys)
                return  # another thread has replaced this one
            self._done.append(item)
            if not self._collecting:
                self._collecting = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    return  # the loop is closed

    def _has_returned(self, keys: Sequence[Hashable]) -> None:
        for key in keys:
            if (returned := self._still_running.pop(key, None)) is not None:
                returned.set()

    def _collect(self) -> None:
        self._collecting = False
        while self._done:
            item = self._done.popleft()
            if item.future.done():
                continue
            if item.error is None:
                item.future.set_result(item.value)
            elif isinstance(item.error, StopIteration):
                item.future.set_exception(RuntimeError(f"the task raised {item.error!r}"))
            else:
                item.future.set_exception(item.error)


def _nothing() -> None:
    """Mark a finished call."""
