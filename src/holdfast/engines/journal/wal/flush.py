"""Where flushes run: on the event loop while that is cheaper, otherwise on a thread."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

SLOW_SECONDS = 0.003
"""A flush that takes longer moves the next ones to the thread."""
QUICK_IN_A_ROW = 16
"""So many fast flushes in a row move them back."""

Work = Callable[[], None]
Done = Callable[[BaseException | None], None]


class FlushRunner(Protocol):
    """Runs flushes, one after another."""

    @property
    def here(self) -> bool:
        """Whether the event loop itself runs a flush now: if it hangs, then on the disk."""

    def submit(self, work: Work, done: Done, *, small: bool) -> None:
        """Run the work, then call ``done`` on the event loop with what it raised.

        ``small``: only a slow disk could make it take long.
        """

    def close(self) -> None:
        """Stop; no work is under way."""


class InlineRunner:
    """Runs the work at once, on the event loop."""

    here = False

    def submit(self, work: Work, done: Done, *, small: bool = True) -> None:  # noqa: ARG002 - alike
        """See ``FlushRunner``."""
        self.here = True
        error = _raised_by(work)
        self.here = False
        done(error)

    def close(self) -> None:
        """Do nothing."""


class ThreadRunner:
    """Runs the work on one thread, so that a slow disk never blocks the event loop."""

    here = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: queue.SimpleQueue[tuple[Work, Done] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="holdfast-flush", daemon=True)
        self._thread.start()

    def submit(self, work: Work, done: Done, *, small: bool = True) -> None:  # noqa: ARG002 - alike
        """See ``FlushRunner``."""
        self._work.put((work, done))

    def close(self) -> None:
        """Stop the thread."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            self._loop.call_soon_threadsafe(done, _raised_by(work))


class AdaptiveRunner:
    """Runs small work on the event loop while the disk is fast, everything else on a thread.

    A switch to a thread and back costs about as much as a sync of a good disk, and the event loop
    has nothing to answer before the sync anyway. A disk that becomes slow blocks it once: after
    that the thread is used, until the disk has been fast for a while.
    """

    def __init__(
        self, thread: FlushRunner, seconds: Callable[[], float] = time.perf_counter
    ) -> None:
        self._thread = thread
        self._inline = InlineRunner()
        self._seconds = seconds
        self._quick_in_a_row = 0

    @property
    def here(self) -> bool:
        """See ``FlushRunner``."""
        return self._inline.here

    def submit(self, work: Work, done: Done, *, small: bool) -> None:
        """See ``FlushRunner``."""
        if not small:
            self._thread.submit(work, done, small=False)
            return
        runner = self._inline if self._quick_in_a_row >= QUICK_IN_A_ROW else self._thread
        runner.submit(lambda: self._measured(work), done, small=True)

    def close(self) -> None:
        """Stop the thread."""
        self._thread.close()

    def _measured(self, work: Work) -> None:
        began = self._seconds()
        work()
        quick = self._seconds() - began <= SLOW_SECONDS
        # No lock: one piece of work is under way at a time.
        self._quick_in_a_row = self._quick_in_a_row + 1 if quick else 0


def _raised_by(work: Work) -> BaseException | None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - the waiters get any error
        return error
    return None
