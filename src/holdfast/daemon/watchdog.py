"""Notices that the event loop is blocked: logs what blocks it, and later restarts the process.

A task that blocks the loop stops heartbeats, timers and signals: nothing inside the loop can help.
After a second its name and place are logged, after ``stall_seconds`` the process restarts. That
counts as a loss for the jobs that were running; a job that causes two runs in a process of its own
from then on, where its time-out can kill it.
"""

from __future__ import annotations

import asyncio
import faulthandler
import math
import os
import sys
import threading
import time
from collections.abc import Callable

from holdfast.engines.structured_log import StructuredLog
from holdfast.worker.attempt import Attempt
from holdfast.worker.loop_stack import attempt_in, stack_text, waits_for_events

log = StructuredLog("holdfast.worker")

BLOCKED_SECONDS = 1.0
"""How long the loop may be blocked before that is logged."""
_LEAVE_SECONDS = 0.5


def restart_process() -> None:
    """Replace this process by a new one with the same command line, without a clean shutdown."""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves


def exit_in_time(loop: asyncio.AbstractEventLoop, code: int) -> None:
    """Exit the process if the event loop does not end by itself; call it last.

    Everything is closed by then and nothing is lost. But a task that ignores its cancellation, or
    a call in a pool's thread, would keep the loop open.
    """

    def watch() -> None:
        time.sleep(_LEAVE_SECONDS)
        if not loop.is_closed():
            sys.stderr.write("holdfast: a task or thread did not stop; exiting anyway\n")
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    threading.Thread(target=watch, name="holdfast-leave", daemon=True).start()


class Watchdog:
    """A thread that checks for heartbeats of the loop on which it was made."""

    def __init__(
        self,
        stall_seconds: float | None,
        act: Callable[[], None] = restart_process,
        excused: Callable[[], bool] = lambda: False,
        *,
        blocked_seconds: float = BLOCKED_SECONDS,
    ) -> None:
        """``act`` is called after ``stall_seconds``; None: never.

        While ``excused`` returns true, the loop may be blocked: by the disk, not by a task.
        """
        self._stall_seconds = math.inf if stall_seconds is None else stall_seconds
        self._blocked_seconds = blocked_seconds
        self._act = act
        self._excused = excused
        self._interval_seconds = min(self._stall_seconds, blocked_seconds) / 4
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._beat = time.monotonic()
        self._reported_beat = 0.0
        self._stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._heartbeat()
        threading.Thread(target=self._watch, name="holdfast-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def _heartbeat(self) -> None:
        self._beat = time.monotonic()
        self._timer = self._loop.call_later(self._interval_seconds, self._heartbeat)

    def _watch(self) -> None:
        looked = time.monotonic()
        while not self._stopped.wait(self._interval_seconds):
            now = time.monotonic()
            if now - looked > 2 * self._interval_seconds + 1 or self._excused():
                # This thread did not run either: the whole process was paused. Or the disk hangs,
                # which a restart would not fix.
                self._beat = max(self._beat, now)
            looked = now
            silent_seconds = now - self._beat
            if silent_seconds - self._interval_seconds > self._blocked_seconds:
                self._report(silent_seconds - self._interval_seconds)
            if silent_seconds > self._stall_seconds:
                sys.stderr.write(
                    f"holdfast: the event loop has not moved for {self._stall_seconds:g} s: a "
                    "task holds it. Starting over; this is where it hangs:\n"
                )
                sys.stderr.flush()
                faulthandler.dump_traceback(all_threads=True)
                self._act()
                return

    def _report(self, seconds: float) -> None:
        """Log what blocks the loop, once for each time."""
        frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - the documented way
        if self._reported_beat == self._beat or frame is None or waits_for_events(frame):
            return
        self._reported_beat = self._beat
        attempt, place = attempt_in(frame), stack_text(frame)
        # In a thread of its own: if the log is what blocks, this one must go on.
        report = threading.Thread(
            target=_log_blocked, args=(attempt, seconds, place), name="holdfast-log", daemon=True
        )
        report.start()


def _log_blocked(attempt: Attempt | None, seconds: float, place: str) -> None:
    log.emit(
        "worker.loop_blocked",
        about=None if attempt is None else attempt.job,
        seconds=round(seconds, 1),
        trace=place,
    )
