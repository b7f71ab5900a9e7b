"""Where flushes happen: on the event loop while that costs less than a thread, else on one."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

SLOW_SECONDS = 0.003
"""A flush that took longer than this sends those after it to the thread."""
QUICK_IN_A_ROW = 16
"""How many quick ones there bring them back."""

Work = Callable[[], None]
Done = Callable[[BaseException | None], None]


class FlushRunner(Protocol):
    """Runs flushes, one after another."""

    @property
    def here(self) -> bool:
        """Whether the event loop itself is at work now: if it hangs, then on the disk."""

    def submit(self, work: Work, done: Done, *, small: bool) -> None:
        """Do the work, then call ``done`` on the event loop with what it raised.

        ``small`` promises that nothing but the disk could make it long.
        """

    def close(self) -> None:
        """Stop; nothing is under way any more."""


class InlineRunner:
    """Does the work at once, on the event loop."""

    here = False

    def submit(self, work: Work, done: Done, *, small: bool = True) -> None:  # noqa: ARG002 - alike
        """Do it now."""
        self.here = True
        error = _raised_by(work)
        self.here = False
        done(error)

    def close(self) -> None:
        """Have nothing to stop."""


class ThreadRunner:
    """Does the work on one thread, so that a slow disk never blocks the event loop."""

    here = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: queue.SimpleQueue[tuple[Work, Done] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="holdfast-flush", daemon=True)
        self._thread.start()

    def submit(self, work: Work, done: Done, *, small: bool = True) -> None:  # noqa: ARG002 - alike
        """Hand it to the thread."""
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
    """Does small work on the event loop while the disk is quick, everything else on a thread.

    A hand-over to a thread and back costs about as much as a sync of a good disk, and the event
    loop has nothing to answer before the sync anyway. A disk that becomes slow holds it up once:
    after that the thread is used, until the disk has been quick for a while.
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
        """Do it here or there."""
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
    except BaseException as error:  # noqa: BLE001 - the waiters must hear of anything
        return error
    return None
