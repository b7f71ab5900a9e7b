"""A journal that nobody owns at the moment, as an engine that only looks: nothing is changed.

After a crash the log knows things that the past has not been told yet. Its owner will tell it;
whoever only looks keeps both in mind instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from holdfast.engines.clock import Clock, SystemClock
from holdfast.engines.contract import Capabilities, EngineOptions
from holdfast.engines.embedded.engine import EmbeddedEngine
from holdfast.engines.embedded.history import AppliedEffect, HistoryStore, StateCounts
from holdfast.engines.embedded.memory_history import MemoryHistory
from holdfast.engines.entropy import random_bytes
from holdfast.model.access import Caller
from holdfast.model.audit import AuditRecord
from holdfast.model.effects import Audited, Effect, Purged
from holdfast.model.errors import EngineClosed
from holdfast.model.failure_groups import group_letters
from holdfast.model.history import AttemptRecord, Note, completing_attempt
from holdfast.model.job import Job, State
from holdfast.model.search import MAX_PAGE, FailureGroup, Filter, Place, place_of

from .history.feed import HistoryFeed
from .history.row_changes import KEPT
from .history.store import SqliteHistory
from .state.queries import JournalState
from .wal.disk import Disk
from .wal.recovery import covered_seq, recover


class ReadonlyJournalEngine(EmbeddedEngine):
    """Answers every verb that looks; what would change something is refused."""


async def open_readonly(
    disk: Disk, options: EngineOptions | None = None, clock: Clock | None = None
) -> ReadonlyJournalEngine:
    """Read the directory, or raise as becoming its owner does; where nothing is, find nothing."""
    told: list[AppliedEffect] = []
    expected_seq, database = covered_seq(disk), disk.database()
    cold = None
    if expected_seq or database.exists():
        cold = SqliteHistory.open(database, expected_seq=expected_seq)
    try:
        state = recover(disk, JournalState(told.append, 0 if cold is None else cold.checkpoint))
    except BaseException:
        if cold is not None:
            cold.close()
        raise
    late = [one for one in told if type(one.effect) in KEPT]
    return ReadonlyJournalEngine(
        Capabilities(name="journal", durable=True, shared=True),
        state.state,
        ReadonlyLog(),
        _past(state.state, cold, late),
        clock or SystemClock(),
        random_bytes,
        options or EngineOptions(),
    )


def _past(
    state: JournalState, cold: SqliteHistory | None, late: Sequence[AppliedEffect]
) -> HistoryStore:
    if cold is not None:
        state.credit(cold.tallies())
        return ReadonlyHistory(cold, state.get, state.finished, late)
    past = MemoryHistory()
    past.jobs = {(job.tenant, job.id): job for job in state.jobs()}
    for happened in late:
        past.tell(happened)
    return past


class ReadonlyLog:
    """Takes nothing: whoever looks has nothing to make durable."""

    @property
    def crowded(self) -> bool:
        """Nobody waits here."""
        return False

    def add(self, effects: Sequence[Effect], first_seq: int, *, essential: bool) -> None:
        """Refuse it."""
        del effects, first_seq, essential
        raise EngineClosed("this store was opened to be looked at: become its owner to change it")

    def stop(self, error: BaseException) -> None:
        """Have nothing to stop."""

    def landing(self, callers: int = 1) -> None:
        """Have nothing to wait for."""

    async def close(self) -> None:
        """Have nothing to let go of."""


class ReadonlyHistory(HistoryFeed):
    """The past as it is on disk, and beside it what the log says happened since."""

    def __init__(
        self,
        store: SqliteHistory,
        current: Callable[[str, str], Job | None],
        finished: Callable[[], Iterable[Job]],
        late: Sequence[AppliedEffect],
    ) -> None:
        """Take the store, how to ask the state, and what happened after the checkpoint."""
        super().__init__(store, durable_seq=self._kept_seq)
        self._current = current
        self._finished = finished
        self._tail = MemoryHistory()
        self._late = bool(late)
        self._late_audit: list[AuditRecord] = []
        self._purged: set[tuple[str, str]] = set()
        for happened in late:
            self._tail.tell(happened)
            if isinstance(happened.effect, Audited):
                self._late_audit.append(happened.effect.record)
            if isinstance(happened.effect, Purged):
                self._purged.add((happened.effect.tenant, happened.effect.id))

    async def _kept_seq(self) -> int:
        return self.store.checkpoint  # so that nothing is ever fed

    def get(self, tenant: str, job_id: str) -> Job | None:
        """See ``HistoryStore.get``."""
        return None if (tenant, job_id) in self._purged else super().get(tenant, job_id)

    async def find(
        self, wanted: Filter, caller: Caller, after: Place | None, limit: int, *, newest: bool
    ) -> list[Job]:
        """See ``HistoryStore.find``."""
        most = limit + len(self._purged)
        found = await super().find(wanted, caller, after, most, newest=newest)
        return [job for job in found if (job.tenant, job.id) not in self._purged][:limit]

    async def groups(self, wanted: Filter, caller: Caller) -> list[FailureGroup]:
        """See ``HistoryStore.groups``."""
        if not self._late:
            return await super().groups(wanted, caller)
        if wanted.states and State.DEAD not in wanted.states:
            return []
        wanted = replace(wanted, states=(State.DEAD,))
        dead = [
            job
            for job in self._finished()
            if wanted.matches(job) and caller.reaches(job.tenant, job.scope)
        ]
        after: Place | None = None
        while True:
            page = await self.find(wanted, caller, after, MAX_PAGE, newest=False)
            dead += [job for job in page if self._current(job.tenant, job.id) is None]
            if len(page) < MAX_PAGE:
                return group_letters(dead)
            after = place_of(page[-1])

    async def history(self, job: Job) -> tuple[list[AttemptRecord], list[Note]]:
        """See ``HistoryStore.history``."""
        attempts, notes = await super().history(job)
        later, remarks = await self._tail.history(job)
        if completing_attempt(job) is not None:
            attempts.pop()  # both know it
        return [*attempts, *later], [*notes, *remarks]

    async def audit(self, after: int, limit: int) -> Sequence[AuditRecord]:
        """See ``HistoryStore.audit``."""
        kept = await super().audit(after, limit)
        late = [one for one in self._late_audit if one.number > after]
        return [*kept, *late][:limit]

    async def forget(self, before_us: int) -> StateCounts:
        """Show no more of what its owner is to forget, and leave that to its owner."""
        self.store.hide(before_us)
        return {}
