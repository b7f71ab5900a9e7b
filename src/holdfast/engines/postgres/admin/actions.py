"""Admin actions on jobs: found by a filter, locked, read again, changed in one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from holdfast.engines.contract import AdminResult
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, Statement, execute_all
from holdfast.engines.postgres.jobs.settle_statements import after_changes, write_effects
from holdfast.engines.postgres.jobs.unit_of_work import Name, UnitOfWork, lock_keys_of
from holdfast.model import lifecycle
from holdfast.model.access import Caller
from holdfast.model.actions import UNIQUE_TAKEN, AnyAction, ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.effects import Confirmed, Effect
from holdfast.model.errors import IllegalTransition, JobNotFound
from holdfast.model.failure import FailureClass
from holdfast.model.job import Job, State
from holdfast.model.search import MAX_PAGE, Filter, Place, place_of, without_class

from .audit import add_audit
from .groups import groups
from .queries import find, get

Decide = Callable[[Job, int], Effect]
"""Returns the effect on a job at this time."""

SkipReason = Callable[[Job], str]
"""Returns why to leave a job alone although it is in a suitable state, or an empty text."""


class JobChange:
    """The change that is made to each job, and which jobs are left alone."""

    def __init__(
        self,
        states: frozenset[State],
        decide: Decide,
        skip_reason: SkipReason = lambda _job: "",
    ) -> None:
        self.states = states
        self.decide = decide
        self.skip_reason = skip_reason

    def skips(self, job: Job) -> bool:
        """Whether to leave this job alone."""
        return job.state in self.states and bool(self.skip_reason(job))

    def prepare(self, _jobs: Sequence[Job], _context: CallContext) -> SansIO[None]:
        """Read what ``skips`` and ``decide`` have to know about these jobs."""
        yield from ()


class ActionOnJobs(JobChange):
    """An action that depends on the job alone."""

    def __init__(self, action: AnyAction, attribution: Attribution, *, named: bool) -> None:
        super().__init__(
            action.states,
            lambda job, now_us: action.effect(job, now_us, attribution),
            lambda job: action.skip_reason(job, named=named),
        )


class ReplayOnJobs(JobChange):
    """A replay of dead letters: depends on their unique keys and dependencies."""

    def __init__(self, action: ReplayJobs, attribution: Attribution, *, named: bool) -> None:
        super().__init__(action.states, self._replay, self._skip_reason)
        self._action = action
        self._attribution = attribution
        self._named = named
        self._firsts: dict[tuple[str, str, str], str] = {}
        self._unfinished: set[tuple[str, str, str | None]] = set()
        self._needed: dict[Name, Job] = {}

    def prepare(self, jobs: Sequence[Job], context: CallContext) -> SansIO[None]:
        """Read the unfinished jobs of their unique keys, and their dependencies."""
        unique = [(job.tenant, job.queue, job.unique) for job in jobs if job.unique is not None]
        needed = [(job.tenant, one) for job in jobs for one in job.ties.waiting_for]
        unfinished, known = yield from execute_all(
            rows.find_unique(unique), context.get(rows.names(dict.fromkeys(needed)))
        )
        self._unfinished |= {
            (job.tenant, job.queue, job.unique) for job in map(rows.job_of, unfinished)
        }
        self._needed |= {(job.tenant, job.id): job for job in map(rows.job_of, known)}

    def _skip_reason(self, job: Job) -> str:
        reason = self._action.skip_reason(job, named=self._named)
        if reason or job.unique is None:
            return reason
        unique = job.tenant, job.queue, job.unique
        first = self._firsts.setdefault(unique, job.id) == job.id
        return "" if first and unique not in self._unfinished else UNIQUE_TAKEN

    def _replay(self, job: Job, now_us: int) -> Effect:
        left = tuple(one for one in job.ties.waiting_for if self._still_open(job, one))
        return self._action.effect(job, now_us, self._attribution, left)

    def _still_open(self, job: Job, dependency: str) -> bool:
        needed = self._needed.get((job.tenant, dependency))
        if needed is None or needed.created_at_us > job.created_at_us:
            return False  # it is gone, or another job has its id
        return not needed.state.finished or needed.state is State.DEAD


def operate(
    wanted: Filter,
    change: JobChange,
    attribution: Attribution,
    limit: int,
    caller: Caller,
    context: CallContext,
) -> SansIO[tuple[AdminResult, UnitOfWork]]:
    """Apply a change to the jobs that a filter finds; ``wanted`` has the states of the change."""
    found, kept = yield from _select(wanted, change, limit, caller, context)
    more = len(found) > limit
    found = found[:limit]
    [[[now_us]]] = yield from execute_all(context.now())
    current = yield from lock(found, caller, context)
    picked: list[tuple[Job, Effect]] = []
    for job in found:
        now = current.get((job.tenant, job.id))
        if now is None:
            continue
        if change.skips(now):
            kept += 1
            continue
        try:
            picked.append((now, change.decide(now, now_us)))
        except IllegalTransition:
            if wanted.ids:
                raise
    unblocked: list[tuple[Job, Effect]] = [
        (job, lifecycle.unblock(job, now_us))
        for job, effect in picked
        if isinstance(effect, Confirmed) and not job.ties.waiting_for
    ]
    changes = yield from write_effects([*picked, *unblocked], now_us, context)
    yield from add_audit(attribution.audit, now_us)
    yield from after_changes(changes, context)
    jobs = [changes.job((job.tenant, job.id)) or job for job, _effect in picked]
    return AdminResult(jobs, kept, more), changes


def without_deterministic(
    wanted: Filter, caller: Caller, context: CallContext
) -> SansIO[tuple[Filter, int]]:
    """Return a filter without deterministic failures, and how many of those there are."""
    if wanted.classes and FailureClass.DETERMINISTIC not in wanted.classes:
        return wanted, 0
    deterministic = replace(wanted, classes=(FailureClass.DETERMINISTIC,), states=(State.DEAD,))
    found = yield from groups(deterministic, caller, context)
    kept = sum(group.count for group in found)
    return without_class(wanted, FailureClass.DETERMINISTIC), kept


def change_of(action: AnyAction, attribution: Attribution, *, named: bool) -> JobChange:
    """Return what an action does to jobs."""
    if isinstance(action, ReplayJobs):
        return ReplayOnJobs(action, attribution, named=named)
    return ActionOnJobs(action, attribution, named=named)


def _select(
    wanted: Filter, change: JobChange, limit: int, caller: Caller, context: CallContext
) -> SansIO[tuple[list[Job], int]]:
    """Return the oldest matching jobs, one more than ``limit`` if there are more.

    Also return how many were skipped.
    """
    found: list[Job] = []
    kept = 0
    missing = set(wanted.ids)
    after: Place | None = None
    if wanted.ids:
        wanted = replace(wanted, states=())  # one in another state is refused later
    size = min(limit + 1, MAX_PAGE)
    while missing or len(found) <= limit:
        page = yield from find(wanted, after, size, caller, context)
        yield from change.prepare(page, context)
        missing -= {job.id for job in page}
        others = [job for job in page if not change.skips(job)]
        found += others
        kept += len(page) - len(others)
        if len(page) < size:
            break
        after, size = place_of(page[-1]), MAX_PAGE
    if missing:
        raise JobNotFound(min(missing))
    return found, kept


def lock(found: Sequence[Job], caller: Caller, context: CallContext) -> SansIO[dict[Name, Job]]:
    """Lock these jobs in whichever table they are, their keys first; return them as they are."""
    names = [(job.tenant, job.id) for job in found]
    columns = rows.names(names)
    yield from lock_keys_of(names)
    yield from execute_all(Statement("lock_jobs", columns), Statement("lock_dead", columns))
    return (yield from get(names, caller, context))
