"""Decides the verbs for operators: actions on jobs, edits, policies, schedules, the audit.

Dead letters are not in memory. So actions run one at a time, each reads what it is about to
change, and nothing else changes a finished job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from holdfast.engines.contract import AdminResult
from holdfast.model import lifecycle
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.actions import DETERMINISTIC, UNIQUE_TAKEN, AnyAction, PurgeJobs, ReplayJobs
from holdfast.model.audit import Attribution, AuditEntry, AuditHead
from holdfast.model.audit_changes import (
    facts_of,
    flag_facts,
    policy_facts,
    schedule_facts,
    with_facts,
)
from holdfast.model.effects import (
    Confirmed,
    Effect,
    FlagSet,
    GroupSet,
    PolicySet,
    ScheduleSet,
    ScheduleState,
    Setting,
)
from holdfast.model.errors import (
    ChangedMeanwhile,
    IllegalTransition,
    JobNotFound,
    StaleVersion,
    TooLarge,
    UnknownGroup,
)
from holdfast.model.failure import FailureClass
from holdfast.model.failure_groups import life_of
from holdfast.model.group_life import GroupChange, change_life, is_over, with_before_and_after
from holdfast.model.job import Edit, Job, JobRef, State
from holdfast.model.operation import Operation
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy
from holdfast.model.record import Record
from holdfast.model.search import (
    EVERYTHING,
    MAX_PAGE,
    FailureGroup,
    Filter,
    Place,
    place_of,
    without_class,
)

from .core import EmbeddedCore
from .dependents import DependentEffects
from .queries import Queries

Decide = Callable[[Job, int], Effect]
"""Returns the effect on a job, at this time."""

SkipReason = Callable[[Job], str]
"""Returns why an action leaves out a job whose state allows it, or an empty text."""


class Admin:
    """Each method acts on jobs, or on settings; its arguments are checked already."""

    def __init__(self, core: EmbeddedCore, queries: Queries) -> None:
        self._core = core
        self._state = core.state
        self._queries = queries

    # --- settings ----------------------------------------------------------------------------

    def set_policy(
        self,
        queue: str,
        policy: QueuePolicy | None,
        expected: QueuePolicy | None,
        attribution: Attribution,
        now_us: int,
    ) -> None:
        """Give a queue a policy; None is the default one."""
        current = self._state.policies.get(queue, DEFAULT_POLICY)
        if expected is not None and current != expected:
            raise ChangedMeanwhile("queue", queue)
        audit = with_facts(attribution.audit, policy_facts(current, policy))
        self._commit_audited(PolicySet(now_us, queue, policy), attribution, audit)

    def set_flag(
        self, name: str, attribution: Attribution, now_us: int, *, on: bool | None
    ) -> None:
        """Switch a flag; None removes it."""
        audit = with_facts(attribution.audit, flag_facts(self._state.flags.get(name), on))
        self._commit_audited(FlagSet(now_us, name, on), attribution, audit)

    def set_schedule(
        self,
        name: str,
        schedule: ScheduleState | None,
        expected: ScheduleState | None,
        attribution: Attribution,
        now_us: int,
    ) -> None:
        """Set a schedule; None removes it."""
        current = self._state.schedules.get(name)
        if expected is not None and current != expected:
            raise ChangedMeanwhile("schedule", name)
        audit = with_facts(attribution.audit, schedule_facts(current, schedule))
        self._commit_audited(ScheduleSet(now_us, name, schedule), attribution, audit)

    async def set_group(
        self, group_id: str, change: GroupChange, attribution: Attribution
    ) -> FailureGroup | None:
        """Change what is stored about a group; None if it is forgotten."""
        async with self._core.admin_lock:
            groups = {one.id: one for one in await self._queries.groups(EVERYTHING, SYSTEM)}
            group = groups.get(group_id)
            if group is None:
                raise UnknownGroup(group_id)

            def decide(now_us: int) -> None:
                # Some may have died of it since it was read.
                before = self._state.group_lives.get(group_id)
                life = before or life_of(group)
                after = change_life(life, change, attribution.by, attribution.why, now_us)
                effects: list[Effect] = [GroupSet(now_us, group_id, after)]
                effects += [
                    GroupSet(now_us, name, None)
                    for name, other in self._state.group_lives.items()
                    if name not in groups and is_over(other, now_us)
                ]
                entries = with_before_and_after(attribution.audit, before, after)
                self._core.commit([*effects, *self._core.attributed(attribution, entries, now_us)])

            await self._core.answer(decide)
            found = await self._queries.groups(EVERYTHING, SYSTEM)
        return next((one for one in found if one.id == group_id), None)

    def set_record(
        self,
        kind: str,
        name: str,
        after: Record | None,
        expected: Record | None,
        attribution: Attribution,
        now_us: int,
    ) -> None:
        """Store a record if it is as expected until then."""
        effects = self._core.records.set(kind, name, after, expected, now_us)
        self._core.commit(
            [*effects, *self._core.attributed(attribution, attribution.audit, now_us)]
        )

    def _commit_audited(
        self, effect: Setting, attribution: Attribution, audit: Sequence[AuditEntry]
    ) -> None:
        self._core.commit([effect, *self._core.attributed(attribution, audit, effect.at_us)])

    def audit(
        self, entries: Sequence[AuditEntry], now_us: int, once: Record | None = None
    ) -> AuditHead:
        """Add entries to the audit; return where it ends now."""
        with_them = self._core.records.once(once, now_us)
        self._core.commit([*self._core.audited(entries, now_us), *with_them])
        return self._state.audit_head

    # --- jobs --------------------------------------------------------------------------------

    async def operate(
        self,
        action: AnyAction,
        wanted: Filter,
        attribution: Attribution,
        limit: int,
        caller: Caller,
    ) -> AdminResult:
        """Apply an action to the jobs that a filter finds."""
        kept = 0
        decide, skip_reason = self.change_of(action, attribution, named=bool(wanted.ids))
        if isinstance(action, ReplayJobs) and not action.fixed and not wanted.ids:
            wanted, kept = await self._without_deterministic(wanted, caller)
        done = await self.apply(
            wanted, action.states, attribution, limit, caller, decide, skip_reason, kept=kept
        )
        if isinstance(action, PurgeJobs):
            await self._core.history.flush()  # until then history still finds them
        return done

    def change_of(
        self, action: AnyAction, attribution: Attribution, *, named: bool
    ) -> tuple[Decide, SkipReason]:
        """Return what an action does to a job here, and which ones it leaves alone."""
        if not isinstance(action, ReplayJobs):
            return (
                lambda job, now: action.effect(job, now, attribution),
                lambda job: action.skip_reason(job, named=named),
            )
        replay = action
        firsts: dict[tuple[str, str, str], str] = {}

        def skip_reason(job: Job) -> str:
            reason = replay.skip_reason(job, named=named)
            if reason or job.unique is None:
                return reason
            unique = job.tenant, job.queue, job.unique
            first = firsts.setdefault(unique, job.id) == job.id
            return "" if first and self._state.unfinished(*unique) is None else UNIQUE_TAKEN

        def decide(job: Job, now_us: int) -> Effect:
            left = tuple(one for one in job.ties.waiting_for if self._still_open(job, one))
            return replay.effect(job, now_us, attribution, left)

        return decide, skip_reason

    async def edit(
        self,
        job: JobRef,
        changes: Edit,
        attribution: Attribution,
        version: int | None,
        caller: Caller,
    ) -> Job:
        """Change a job that is pending, blocked or dead; return it as it is now."""

        def decide(found: Job, now_us: int) -> Effect:
            if version is not None and found.version != version:
                raise StaleVersion(found.id, version, found.version)
            return lifecycle.edit(found, now_us, changes, attribution.by, attribution.why)

        wanted = Filter(ids=(job.id,), tenant=job.tenant)
        done = await self.apply(wanted, lifecycle.EDITABLE, attribution, 1, caller, decide)
        return done.jobs[0]

    async def apply(
        self,
        wanted: Filter,
        states: frozenset[State],
        attribution: Attribution,
        limit: int,
        caller: Caller,
        decide: Decide,
        skip_reason: SkipReason = lambda _job: "",
        *,
        kept: int = 0,
    ) -> AdminResult:
        """Find jobs in these states and commit what ``decide`` returns for each.

        ``kept`` is how many the filter already leaves out.
        """
        skips = lambda job: job.state in states and bool(skip_reason(job))
        async with self._core.admin_lock:
            found, skipped = await self._select(wanted, limit, caller, skips)
            return await self._core.answer(
                lambda now: self._apply_to(
                    found[:limit],
                    AdminResult([], kept + skipped, len(found) > limit),
                    attribution,
                    decide,
                    skips,
                    now,
                    named=bool(wanted.ids),
                )
            )

    async def _select(
        self, wanted: Filter, limit: int, caller: Caller, skips: Callable[[Job], bool]
    ) -> tuple[list[Job], int]:
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
            page = await self._queries.matching(wanted, after, size, caller)
            missing -= {job.id for job in page}
            others = [job for job in page if not skips(job)]
            found += others
            kept += len(page) - len(others)
            if len(page) < size:
                break
            after, size = place_of(page[-1]), MAX_PAGE
        if missing:
            raise JobNotFound(min(missing))
        return found, kept

    def _apply_to(
        self,
        found: Sequence[Job],
        so_far: AdminResult,
        attribution: Attribution,
        decide: Decide,
        skips: Callable[[Job], bool],
        now_us: int,
        *,
        named: bool,
    ) -> AdminResult:
        picked: list[tuple[Job, Effect]] = []
        kept = so_far.kept
        for job in found:
            current = self.current(job)
            if current is None:
                continue
            if skips(current):
                kept += 1
                continue
            try:
                picked.append((current, decide(current, now_us)))
            except IllegalTransition:
                if named:
                    raise
        once = self._core.records.once(attribution.once, now_us) if picked else []
        jobs = self.commit_action(
            picked, attribution.audit, now_us, and_then=lambda _count: once, kept=kept
        )
        return AdminResult(jobs, kept, so_far.more or len(jobs) < len(picked))

    def current(self, job: Job) -> Job | None:
        """Return a job that was found as it is now."""
        now = self._state.get(job.tenant, job.id)
        if now is None:
            # Only admin actions change finished jobs; other jobs may have finished since.
            return job if job.state.finished else self._core.find(job.tenant, job.id)
        return now

    def commit_action(
        self,
        picked: Sequence[tuple[Job, Effect]],
        audit: Sequence[AuditEntry],
        now_us: int,
        and_then: Callable[[int], Sequence[Effect]] = lambda _count: (),
        *,
        kept: int = 0,
    ) -> list[Job]:
        """Commit as many as one commit holds, with what follows from them and the audit.

        ``and_then`` returns further effects for this many of them. Return the jobs as they are.
        """
        count = len(picked)
        while True:
            first = [effect for _job, effect in picked[:count]]
            unblocked = [
                lifecycle.unblock(job, now_us)
                for job, effect in picked[:count]
                if isinstance(effect, Confirmed) and not job.ties.waiting_for
            ]
            following = DependentEffects(self._state.dependents, now_us).after(first)
            facts = facts_of(picked[:count], kept) if audit else {}
            entries = self._core.audited(with_facts(audit, facts), now_us)
            try:
                after = self._core.commit([*following, *unblocked, *entries, *and_then(count)])
            except TooLarge:
                if count <= 1:
                    raise
                count //= 2
                continue
            was = [job for job, _effect in picked[:count]]
            # Those that waited for a confirmation alone are pending now.
            current = [self._state.get(job.tenant, job.id) for job in was]
            return [now or then or job for now, then, job in zip(current, after, was, strict=False)]

    async def without_deterministic_members(
        self, operation: Operation, wanted: Filter
    ) -> Operation:
        """Return a replay without deterministic failures; those that ``wanted`` has are counted."""
        action = operation.action
        if not isinstance(action, ReplayJobs) or action.fixed or wanted.ids:
            return operation
        members = without_class(operation.wanted, FailureClass.DETERMINISTIC)
        _wanted, kept = await self._without_deterministic(wanted, operation.caller)
        skipped = {DETERMINISTIC: kept} if kept else {}
        return replace(operation, wanted=members, skipped=skipped)

    def _still_open(self, job: Job, dependency: str) -> bool:
        needed = self._core.find(job.tenant, dependency)
        if needed is None or needed.created_at_us > job.created_at_us:
            return False  # gone, or another job with the same id
        return not needed.state.finished or needed.state is State.DEAD

    async def _without_deterministic(self, wanted: Filter, caller: Caller) -> tuple[Filter, int]:
        """Return a filter without deterministic failures, and how many of those there are."""
        if wanted.classes and FailureClass.DETERMINISTIC not in wanted.classes:
            return wanted, 0
        deterministic = replace(wanted, classes=(FailureClass.DETERMINISTIC,), states=(State.DEAD,))
        kept = sum(group.count for group in await self._queries.groups(deterministic, caller))
        return without_class(wanted, FailureClass.DETERMINISTIC), kept
