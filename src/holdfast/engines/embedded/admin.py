"""The verbs with which people look after work: replay, archive, cancel, edit, policies and more.

Dead letters are not in memory. So operations come one after another, each looks up what it is
about to change, and nothing else changes a finished job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from holdfast.engines.argument_checks import (
    check_action,
    check_all,
    check_attribution,
    check_edit,
    check_limit,
    check_policy,
    check_schedule,
    check_switch,
    for_states,
)
from holdfast.engines.contract import AdminResult
from holdfast.model import lifecycle
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.actions import AnyAction, PurgeJobs, ReplayJobs
from holdfast.model.audit import Attribution, AuditEntry, AuditHead
from holdfast.model.effects import (
    Confirmed,
    Effect,
    FlagSet,
    PolicySet,
    ScheduleSet,
    ScheduleState,
)
from holdfast.model.errors import (
    AccessDenied,
    ChangedMeanwhile,
    IllegalTransition,
    JobNotFound,
    StaleVersion,
    TooLarge,
)
from holdfast.model.failure import FailureClass
from holdfast.model.job import Edit, Job, JobRef, State, check_id
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy
from holdfast.model.search import MAX_PAGE, Filter, Place, place_of

from .dependents import DependentEffects
from .queries import Queries

Decide = Callable[[Job, int], Effect]
"""Says what becomes of a job, at this time."""

Spares = Callable[[Job], bool]
"""Whether a job, in a state in which something could be done, is left alone."""


class Admin(Queries):
    """Every verb that operates on work, and on what governs it."""

    async def operate(
        self,
        action: AnyAction,
        wanted: Filter,
        attribution: Attribution,
        *,
        limit: int = 1_000,
        caller: Caller = SYSTEM,
    ) -> AdminResult:
        """See ``Engine.operate``."""
        check_action(action)
        if not isinstance(action, ReplayJobs):
            decide = lambda job, now: action.effect(job, now, attribution)
            spares = lambda job: action.spares(job, named=bool(wanted.ids))
            done = await self._operate(
                wanted, action.states, attribution, limit, caller, decide, spares
            )
            if isinstance(action, PurgeJobs):
                await self._past.flush()  # only the past had them: now nobody finds them any more
            return done
        return await self._replay(action, wanted, attribution, limit, caller)

    async def _replay(
        self,
        action: ReplayJobs,
        wanted: Filter,
        attribution: Attribution,
        limit: int,
        caller: Caller,
    ) -> AdminResult:
        check_attribution(attribution)
        asked = for_states(wanted, action.states)
        firsts: dict[tuple[str, str, str], str] = {}

        def spares(job: Job) -> bool:
            if action.spares(job, named=bool(asked.ids)):
                return True
            if job.unique is None:
                return False
            unique = job.tenant, job.queue, job.unique
            if firsts.setdefault(unique, job.id) != job.id:
                return True  # that one does its work
            return self._state.unfinished(*unique) is not None

        def decide(job: Job, now_us: int) -> Effect:
            left = tuple(one for one in job.ties.waiting_for if self._still_open(job, one))
            return action.effect(job, now_us, attribution, left)

        kept = 0
        if not action.fixed and not asked.ids:
            asked, kept = await self._without_deterministic(asked, caller)
        done = await self._operate(asked, action.states, attribution, limit, caller, decide, spares)
        return replace(done, kept=done.kept + kept)

    async def edit(
        self,
        job: JobRef,
        changes: Edit,
        attribution: Attribution,
        *,
        version: int | None = None,
        caller: Caller = SYSTEM,
    ) -> Job:
        """See ``Engine.edit``."""
        check_edit(changes, self._options.max_payload_bytes)

        def decide(found: Job, now_us: int) -> Effect:
            if version is not None and found.version != version:
                raise StaleVersion(found.id, version, found.version)
            return lifecycle.edit(found, now_us, changes, attribution.by, attribution.why)

        wanted = Filter(ids=(check_id(job.id),), tenant=check_id(job.tenant, "tenant"))
        done = await self._operate(wanted, lifecycle.EDITABLE, attribution, 1, caller, decide)
        return done.jobs[0]

    # --- what governs work -------------------------------------------------------------------

    async def policies(self) -> Mapping[str, QueuePolicy]:
        """See ``Engine.policies``."""
        return await self._answer(lambda _now: dict(self._state.policies))

    async def set_policy(
        self,
        queue: str,
        policy: QueuePolicy | None,
        attribution: Attribution,
        *,
        expected: QueuePolicy | None = None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_policy``."""
        check_id(queue, "queue")
        check_policy(policy)
        check_policy(expected)
        if policy == DEFAULT_POLICY:
            policy = None

        def make(now_us: int) -> PolicySet:
            holds = self._state.policies.get(queue, DEFAULT_POLICY)
            if expected is not None and holds != expected:
                raise ChangedMeanwhile("queue", queue)
            return PolicySet(now_us, queue, policy)

        await self._set("queue", queue, make, attribution, caller)
        self._waiters.wake((), [queue])

    async def flags(self) -> Mapping[str, bool]:
        """See ``Engine.flags``."""
        return await self._answer(lambda _now: dict(self._state.flags))

    async def set_flag(
        self, name: str, attribution: Attribution, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """See ``Engine.set_flag``."""
        check_id(name, "name")
        check_switch(on)
        await self._set("flag", name, lambda now: FlagSet(now, name, on), attribution, caller)

    async def schedules(self) -> Mapping[str, ScheduleState]:
        """See ``Engine.schedules``."""
        return await self._answer(lambda _now: dict(self._state.schedules))

    async def set_schedule(
        self,
        name: str,
        schedule: ScheduleState | None,
        attribution: Attribution,
        *,
        expected: ScheduleState | None = None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_schedule``."""
        check_id(name, "name")
        check_schedule(schedule)
        check_schedule(expected)

        def make(now_us: int) -> ScheduleSet:
            if expected is not None and self._state.schedules.get(name) != expected:
                raise ChangedMeanwhile("schedule", name)
            return ScheduleSet(now_us, name, schedule)

        await self._set("schedule", name, make, attribution, caller)

    async def audit(self, entries: Sequence[AuditEntry], *, caller: Caller = SYSTEM) -> AuditHead:
        """See ``Engine.audit``."""
        if not caller.unlimited:
            raise AccessDenied("audit", "entries")
        checked = check_all("entries", entries, AuditEntry)
        for entry in checked:
            entry.check()

        def add(now_us: int) -> AuditHead:
            self._commit(self._audited(checked, now_us))
            return self._state.audit_head

        return await self._answer(add)

    async def _set(
        self,
        what: str,
        name: str,
        make: Callable[[int], Effect],
        attribution: Attribution,
        caller: Caller,
    ) -> None:
        check_attribution(attribution)
        if not caller.unlimited:
            raise AccessDenied(what, name)  # it governs every tenant's work
        await self._answer(
            lambda now: self._commit([make(now), *self._audited(attribution.audit, now)])
        )

    # --- operate on jobs ---------------------------------------------------------------------

    async def _operate(
        self,
        wanted: Filter,
        states: frozenset[State],
        attribution: Attribution,
        limit: int,
        caller: Caller,
        decide: Decide,
        spares: Spares = lambda _job: False,
    ) -> AdminResult:
        """Find jobs in these states, and do this to them, in one commit."""
        check_attribution(attribution)
        check_limit(limit)
        wanted = for_states(wanted, states)
        spared = lambda job: job.state in states and spares(job)
        async with self._operating:
            found, kept = await self._select(wanted, limit, caller, spared)
            return await self._answer(
                lambda now: self._do(
                    found[:limit],
                    AdminResult([], kept, len(found) > limit),
                    attribution,
                    decide,
                    spared,
                    now,
                    named=bool(wanted.ids),
                )
            )

    async def _select(
        self, wanted: Filter, limit: int, caller: Caller, spared: Spares
    ) -> tuple[list[Job], int]:
        """Return the oldest matching jobs, one more than asked for if there are more.

        Also how many were passed over on the way because they are spared.
        """
        found: list[Job] = []
        kept = 0
        missing = set(wanted.ids)
        after: Place | None = None
        if wanted.ids:
            wanted = replace(wanted, states=())  # one in another state is told apart later
        size = min(limit + 1, MAX_PAGE)
        while missing or len(found) <= limit:
            page = await self._matching(wanted, after, size, caller)
            missing -= {job.id for job in page}
            others = [job for job in page if not spared(job)]
            found += others
            kept += len(page) - len(others)
            if len(page) < size:
                break
            after, size = place_of(page[-1]), MAX_PAGE
        if missing:
            raise JobNotFound(min(missing))
        return found, kept

    def _do(
        self,
        found: Sequence[Job],
        so_far: AdminResult,
        attribution: Attribution,
        decide: Decide,
        spared: Spares,
        now_us: int,
        *,
        named: bool,
    ) -> AdminResult:
        picked: list[tuple[Job, Effect]] = []
        kept = so_far.kept
        for job in found:
            current = self._state.get(job.tenant, job.id)
            if current is None:
                # Only operations change what is finished; others may be finished since.
                current = job if job.state.finished else self._find(job.tenant, job.id)
            if current is None:
                continue
            if spared(current):
                kept += 1
                continue
            try:
                picked.append((current, decide(current, now_us)))
            except IllegalTransition:
                if named:
                    raise
        jobs = self._commit_operation(picked, attribution, now_us)
        return AdminResult(jobs, kept, so_far.more or len(jobs) < len(picked))

    def _commit_operation(
        self, picked: Sequence[tuple[Job, Effect]], attribution: Attribution, now_us: int
    ) -> list[Job]:
        """Commit as many as one commit holds, with what follows and the audit."""
        count = len(picked)
        while True:
            first = [effect for _job, effect in picked[:count]]
            unblocked = [
                lifecycle.unblock(job, now_us)
                for job, effect in picked[:count]
                if isinstance(effect, Confirmed) and not job.ties.waiting_for
            ]
            following = DependentEffects(self._state.dependents, now_us).after(first)
            audit = self._audited(attribution.audit, now_us)
            try:
                after = self._commit([*following, *unblocked, *audit])
            except TooLarge:
                if count <= 1:
                    raise
                count //= 2
                continue
            was = [job for job, _effect in picked[:count]]
            # Those that waited for a person alone are pending by now.
            current = [self._state.get(job.tenant, job.id) for job in was]
            return [now or then or job for now, then, job in zip(current, after, was, strict=False)]

    def _still_open(self, job: Job, dependency: str) -> bool:
        needed = self._find(job.tenant, dependency)
        if needed is None or needed.created_at_us > job.created_at_us:
            return False  # gone, or another job that has got its id
        return not needed.state.finished or needed.state is State.DEAD

    async def _without_deterministic(self, wanted: Filter, caller: Caller) -> tuple[Filter, int]:
        """Return a filter without deterministic failures, and how many of those there are."""
        asked = set(wanted.classes or FailureClass)
        if FailureClass.DETERMINISTIC not in asked:
            return wanted, 0
        deterministic = replace(wanted, classes=(FailureClass.DETERMINISTIC,), states=(State.DEAD,))
        kept = sum(group.count for group in await self.groups(deterministic, caller=caller))
        others = tuple(sorted(asked - {FailureClass.DETERMINISTIC}))
        if not others:
            return replace(wanted, created_to_us=0), kept  # nothing was made before that
        return replace(wanted, classes=others), kept
