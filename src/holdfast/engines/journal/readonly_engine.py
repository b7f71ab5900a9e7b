"""An engine that reads a journal that no process owns; it changes nothing.

After a crash the log has effects that history lacks. The next owner will record them; this engine
combines both in memory instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.engines.clock import Clock, SystemClock
from holdfast.engines.contract import Capabilities, EngineOptions
from holdfast.engines.embedded.engine import EmbeddedEngine
from holdfast.engines.embedded.history import AppliedEffect, HistoryStore, StateCounts
from holdfast.engines.embedded.memory_history import MemoryHistory
from holdfast.engines.entropy import random_bytes
from holdfast.engines.read_models.sqlite_store import SqliteReadModels
from holdfast.model.access import Caller
from holdfast.model.audit import MAX_NUMBER, WHOLE_AUDIT, AuditFilter, AuditRecord
from holdfast.model.effects import Audited, Effect, Purged
from holdfast.model.errors import EngineClosed
from holdfast.model.event import Event
from holdfast.model.failure_groups import group_dead_jobs
from holdfast.model.history import AttemptRecord, Note, completing_attempt
from holdfast.model.job import MAX_TIME_US, Job, State
from holdfast.model.search import MAX_PAGE, FailureGroup, Filter, Order, Place, place_of

from .events.readonly import ReadonlyEvents
from .events.store import SqliteEvents
from .history.feed import HistoryFeed
from .history.store import SqliteHistory
from .history.writer import KEPT
from .samples.store import SqliteSamples
from .state.state import JournalState
from .wal.disk import Disk
from .wal.recovery import covered_seq, newest_head, recover


class ReadonlyJournalEngine(EmbeddedEngine):
    """Answers every verb that reads; it refuses to change anything."""


async def open_readonly(
    disk: Disk, options: EngineOptions | None = None, clock: Clock | None = None
) -> ReadonlyJournalEngine:
    """Read the directory, or raise as ``JournalEngine.open``; a missing one is empty."""
    unrecorded: list[AppliedEffect] = []
    unstored: list[Event] = []
    head = newest_head(disk)
    expected_seq, database = covered_seq(head), disk.database()
    store, events = None, None
    try:
        if expected_seq or database.exists():
            store = SqliteHistory.open(database, expected_seq=expected_seq, upgrade=False)
        events = SqliteEvents.open(
            disk.events(), expected_seq=head.last_event_seq if head else 0, writes=False
        )
        history_seq = 0 if store is None else store.checkpoint
        empty = JournalState(
            unrecorded.append,
            history_seq,
            record_event=unstored.append,
            events_seq=events.checkpoint,
        )
        found = recover(disk, empty)
        events.check_reach(found.end.last_seq)
        # A snapshot from before there was history has finished jobs in it: keep them in memory.
        state = found.state if store is not None else recover(disk).state
    except BaseException:
        for opened in (store, events):
            if opened is not None:
                opened.close()
        raise
    late = [one for one in unrecorded if type(one.effect) in KEPT]
    engine = ReadonlyJournalEngine(
        Capabilities(name="journal", durable=True, shared=True),
        state,
        ReadonlyLog(),
        _history(state, store, late),
        ReadonlyEvents(events, unstored),
        clock or SystemClock(),
        random_bytes,
        options or EngineOptions(),
        SqliteSamples(disk.samples, writes=False),
    )
    engine.read_models = SqliteReadModels(disk.read_models, engine, writes=False)
    return engine


def _history(
    state: JournalState, store: SqliteHistory | None, late: Sequence[AppliedEffect]
) -> HistoryStore:
    if store is not None:
        state.add_counts(store.tallies())
        return ReadonlyHistory(store, state, late)
    history = MemoryHistory()
    history.jobs = {(job.tenant, job.id): job for job in state.jobs()}
    for applied in late:
        history.record(applied)
    return history


class ReadonlyLog:
    """Refuses every effect: there is nothing to make durable."""

    @property
    def many_callers(self) -> bool:
        """Never: there are no flushes to share."""
        return False

    def add(self, effects: Sequence[Effect], first_seq: int, *, essential: bool) -> None:
        """Raise ``EngineClosed``."""
        del effects, first_seq, essential
        raise EngineClosed("this store was opened to be looked at: become its owner to change it")

    def stop(self, error: BaseException) -> None:
        """Do nothing."""

    def durable_future(self, callers: int = 1) -> None:
        """Return None: there is nothing to wait for."""

    async def close(self) -> None:
        """Do nothing."""


class ReadonlyHistory(HistoryFeed):
    """The history as it is on disk, combined with the later effects of the log."""

    def __init__(
        self,
        store: SqliteHistory,
        state: JournalState,
        late: Sequence[AppliedEffect],
    ) -> None:
        """Take the store, the recovered state, and the effects after the store's checkpoint."""
        super().__init__(store, durable_seq=self._kept_seq)
        self._state = state
        self._tail = MemoryHistory()
        self._late = bool(late)
        self._late_audit: list[AuditRecord] = []
        self._purged: set[tuple[str, str]] = set()
        for applied in late:
            self._tail.record(applied)
            if isinstance(applied.effect, Audited):
                self._late_audit.append(applied.effect.record)
            if isinstance(applied.effect, Purged):
                self._purged.add((applied.effect.tenant, applied.effect.id))

    async def _kept_seq(self) -> int:
        return self.store.checkpoint  # so nothing is ever fed

    def get(self, tenant: str, job_id: str) -> Job | None:
        """See ``HistoryStore.get``."""
        return None if (tenant, job_id) in self._purged else super().get(tenant, job_id)

    async def find(
        self, wanted: Filter, caller: Caller, after: Place | None, limit: int, order: Order
    ) -> list[Job]:
        """See ``HistoryStore.find``."""
        most = limit + len(self._purged)
        found = await super().find(wanted, caller, after, most, order)
        return [job for job in found if (job.tenant, job.id) not in self._purged][:limit]

    async def count_matching(self, wanted: Filter, caller: Caller, most: int) -> int:
        """See ``HistoryStore.count_matching``."""
        if not self._late:
            return await super().count_matching(wanted, caller, most)
        return len(await self._finished(wanted, caller, most))

    async def groups(self, wanted: Filter, caller: Caller, now_us: int) -> list[FailureGroup]:
        """See ``HistoryStore.groups``."""
        if not self._late:
            return await super().groups(wanted, caller, now_us)
        if wanted.states and State.DEAD not in wanted.states:
            return []
        dead = await self._finished(replace(wanted, states=(State.DEAD,)), caller)
        return group_dead_jobs(dead, now_us)

    async def _finished(self, wanted: Filter, caller: Caller, most: int = MAX_TIME_US) -> list[Job]:
        """Return about this many of the matching finished jobs, as the log leaves them."""
        found = [
            job
            for job in self._state.finished()
            if wanted.matches(job) and caller.can_access(job.tenant, job.scope)
        ]
        after: Place | None = None
        while len(found) < most:
            page = await self.find(wanted, caller, after, MAX_PAGE, Order.CREATED)
            found += [job for job in page if self._state.get(job.tenant, job.id) is None]
            if len(page) < MAX_PAGE:
                break
            after = place_of(page[-1])
        return found[:most]

    async def history(self, job: Job) -> tuple[list[AttemptRecord], list[Note]]:
        """See ``HistoryStore.history``."""
        attempts, notes = await super().history(job)
        later, remarks = await self._tail.history(job)
        if completing_attempt(job) is not None:
            attempts.pop()  # both have it
        return [*attempts, *later], [*notes, *remarks]

    async def audit(
        self, after: int, limit: int, wanted: AuditFilter = WHOLE_AUDIT, *, newest: bool = False
    ) -> Sequence[AuditRecord]:
        """See ``HistoryStore.audit``."""
        kept = await super().audit(after, limit, wanted, newest=newest)
        late = filter(wanted.matches, self._late_audit)
        if newest:
            before = after or MAX_NUMBER
            return [*[one for one in late if one.number < before][::-1], *kept][:limit]
        return [*kept, *(one for one in late if one.number > after)][:limit]

    async def forget(self, before_us: int) -> StateCounts:
        """Hide what the next owner will forget; change nothing."""
        self.store.hide(before_us)
        return {}
