"""``holdfast`` with one of its promises broken, to show that the tests would notice.

``python unsafe.py BROKEN_PROMISE run …``
"""

import asyncio
import errno
import sys
import time
from collections.abc import Callable

from holdfast.cli.main import main
from holdfast.engines.contract import HeldJob
from holdfast.engines.embedded import commands
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.wal import segments
from holdfast.engines.journal.wal.group_commit import GroupCommit
from holdfast.model.access import DEFAULT_TENANT, Caller
from holdfast.model.job import Job, State
from holdfast.model.outcome import Outcome


def answer_early() -> None:
    """Answer before anything is written, on a disk that takes its time."""
    flush = GroupCommit._flush

    def slow_flush(self: GroupCommit, batch: object) -> None:
        time.sleep(0.3)
        flush(self, batch)  # type: ignore[arg-type]

    def no_landing(self: GroupCommit, callers: int = 1) -> asyncio.Future[None] | None:
        if self._in_flight is None and not self._launching:
            self._loop.call_soon(self._launch)
        return None

    GroupCommit._flush = slow_flush  # type: ignore[method-assign]
    GroupCommit.durable_future = no_landing  # type: ignore[method-assign]


def keep_leases() -> None:
    """Leave the leases of the last owner's slots to run out."""

    async def end_none(self: JournalEngine, *, closed_in_order: bool) -> int:
        return 0

    JournalEngine._end_own_leases = end_none  # type: ignore[method-assign]


def trust_everybody() -> None:
    """Let anybody settle a job that is in flight, whoever holds it."""

    def held(self: commands.Commands, lease: HeldJob | Outcome, caller: Caller) -> Job | None:
        job = self._core.state.get(DEFAULT_TENANT, lease.id)
        return job if job is not None and job.state is State.IN_FLIGHT else None

    commands.Commands._held = held  # type: ignore[method-assign]


def stop_without_files() -> None:
    """Take a file that cannot be opened for a failed write."""
    segments.CANNOT_GROW = frozenset({errno.ENOSPC})  # type: ignore[attr-defined]


PROMISES: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (answer_early, keep_leases, trust_everybody, stop_without_files)
}

if __name__ == "__main__":
    PROMISES[sys.argv.pop(1)]()
    main()
