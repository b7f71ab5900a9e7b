"""``holdfast`` with one of its promises broken, to show that the tests would notice.

``python unsafe.py BROKEN_PROMISE run …``
"""

import asyncio
import errno
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from holdfast.cli.main import main
from holdfast.engines.contract import HeldJob
from holdfast.engines.embedded import commands
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.wal import segments
from holdfast.engines.journal.wal.group_commit import GroupCommit
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.caller_transaction import join_sync
from holdfast.engines.postgres.jobs.settle_statements import settle_full
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.engines.postgres.read_models.sessions import Session
from holdfast.engines.postgres.read_models.transactions import GenerationTransactions, SettledJobs
from holdfast.engines.read_models.contract import Apply, JobName, RowWriter
from holdfast.engines.read_models.sqlite_file import SqliteFile
from holdfast.engines.read_models.sqlite_store import SqliteReadModels
from holdfast.model.access import DEFAULT_TENANT, SYSTEM, Caller
from holdfast.model.errors import LeaseLost
from holdfast.model.job import Job, State
from holdfast.model.outcome import Outcome
from holdfast.model.read_model import ReadModel

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from .ledger import note
else:
    from ledger import note  # this is run as a script

PAUSE_SECONDS = 60.0
"""Long enough to be killed in it."""


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


def settle_first() -> None:
    """Settle the jobs of events, and store their rows a while later."""
    usual = SqliteReadModels.apply

    async def apply_late(
        self: SqliteReadModels,
        table: ReadModel,
        generation: int,
        apply: Apply,
        outcomes: Sequence[Outcome],
    ) -> list[LeaseLost | None]:
        answers = await self._settler.settle(outcomes)
        note("settled", table.name, 1)
        await asyncio.sleep(PAUSE_SECONDS)
        await usual(self, table, generation, apply, outcomes)
        return answers

    SqliteReadModels.apply = apply_late  # type: ignore[method-assign]


def settle_first_on_the_server() -> None:
    """Settle the jobs of events in a transaction before that of their rows."""
    usual = GenerationTransactions.apply_and_settle

    def apply_late(
        self: GenerationTransactions,
        session: Session,
        apply: Apply,
        outcomes: Sequence[Outcome],
        lost: Collection[JobName],
        context: CallContext,
    ) -> SettledJobs:
        options = context.options
        assert isinstance(options, PostgresOptions)
        with psycopg.connect(session.connection.info.dsn) as other:
            join_sync(other, lambda _context: settle_full(outcomes, SYSTEM, context), options)
        note("settled", self.table.name, 1)
        time.sleep(PAUSE_SECONDS)
        return usual(self, session, apply, outcomes, lost, context)

    GenerationTransactions.apply_and_settle = apply_late  # type: ignore[method-assign]


def forget_applied() -> None:
    """Note nowhere which jobs were applied, and settle them a while later."""
    usual = SqliteFile.apply

    def apply_only(
        self: SqliteFile,
        change: Callable[[RowWriter], None],
        applied: Collection[JobName],
        settled: Collection[JobName],
    ) -> None:
        usual(self, change, (), settled)
        note("applied", self.table.name, 1)
        time.sleep(PAUSE_SECONDS)

    SqliteFile.apply = apply_only  # type: ignore[method-assign]


def stop_without_files() -> None:
    """Take a file that cannot be opened for a failed write."""
    segments.CANNOT_GROW = frozenset({errno.ENOSPC})  # type: ignore[attr-defined]


PROMISES: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        answer_early,
        keep_leases,
        trust_everybody,
        settle_first,
        settle_first_on_the_server,
        forget_applied,
        stop_without_files,
    )
}

if __name__ == "__main__":
    PROMISES[sys.argv.pop(1)]()
    main()
