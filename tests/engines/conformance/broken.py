"""Engines with one mistake each: what the suite and the machine are held against."""

from typing import Any

from msgspec.structs import replace

from holdfast.engines.contract import AdminResult
from holdfast.engines.embedded.dependents import DependentEffects
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.memory.state import MemoryState
from holdfast.model.access import SYSTEM
from holdfast.model.actions import AnyAction, ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.effects import Claimed, Edited, PolicySet
from holdfast.model.job import Job, State
from holdfast.model.policy import DEFAULT_POLICY
from holdfast.model.search import Filter


class _Careless(MemoryEngine):
    """A memory engine over a state of another kind."""

    state_type: type[MemoryState] = MemoryState

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._state = self._plain_state = self.state_type(self._plain_past)


class _LowestPending(MemoryState):
    def _first_of_its_key(self, job: Job) -> bool:
        return job.ties.key is None or not any(
            other.ties.key_seq < job.ties.key_seq and other.state in (State.PENDING, State.DEAD)
            for other in self._of_key(job)
        )

    def _offer(self, queue, due, flying, turns, spent_us, now_us):
        keyless = [replace(job, ties=replace(job.ties, key=None)) for job in flying]
        return super()._offer(queue, due, keyless, turns, spent_us, now_us)


class KeysBesideEachOther(_Careless):
    """Hands out the lowest pending one of a key, whoever of it is in flight."""

    state_type = _LowestPending


class _NoHolds(MemoryState):
    def _first_of_its_key(self, job: Job) -> bool:
        living = [other for other in self._of_key(job) if other.state is not State.DEAD]
        return job.ties.key is None or all(
            other.state.finished
            or (other.state is not State.IN_FLIGHT and other.ties.key_seq >= job.ties.key_seq)
            for other in living
        )


class DeadOnesHoldNothing(_Careless):
    """Lets a key go on behind a dead one."""

    state_type = _NoHolds


class _AnyTurn(MemoryState):
    def _offer(self, queue, due, flying, turns, spent_us, now_us):
        return super()._offer(queue, due, flying, {}, spent_us, now_us)


class NoTurns(_Careless):
    """Forgets whose turn it was."""

    state_type = _AnyTurn


class _NothingSpent(MemoryState):
    def fold(self, effect, seq):
        job = super().fold(effect, seq)
        if isinstance(effect, Claimed):
            self._spent_until_us.clear()
        return job


class RateByCall(_Careless):
    """Counts a rate anew in every call."""

    state_type = _NothingSpent


class _StickyPolicy(MemoryState):
    def fold(self, effect, seq):
        if isinstance(effect, PolicySet) and effect.policy is None:
            effect = replace(effect, policy=self.policies.get(effect.queue, DEFAULT_POLICY))
        return super().fold(effect, seq)


class PolicyStays(_Careless):
    """Does not take a policy back."""

    state_type = _StickyPolicy


class UnguardedReplay(MemoryEngine):
    """Brings back whatever is named, without a look at its state."""

    async def operate(
        self, action: AnyAction, wanted: Filter, attribution: Attribution, **fields: Any
    ) -> AdminResult:
        if not isinstance(action, ReplayJobs):
            return await super().operate(action, wanted, attribution, **fields)
        named = await self.find(replace(wanted, states=()), caller=fields.get("caller", SYSTEM))
        for job in named.jobs if wanted.ids else []:
            if job.state is not State.DEAD:
                self._plain_past.jobs[job.tenant, job.id] = replace(job, state=State.DEAD)
        return await super().operate(action, wanted, attribution, **fields)


class UnguardedEdit(MemoryEngine):
    """Changes a job whatever its version."""

    async def edit(self, job, changes, attribution, *, version=None, **fields):
        return await super().edit(job, changes, attribution, **fields)


class _KeepsVersion(MemoryState):
    def fold(self, effect, seq):
        if isinstance(effect, Edited):
            effect = replace(effect, job=replace(effect.job, version=effect.job.version - 1))
        return super().fold(effect, seq)


class VersionStays(_Careless):
    """Does not raise the version with an edit."""

    state_type = _KeepsVersion


class AuditApart(MemoryEngine):
    """Writes the audit before the operation, not with it."""

    async def _operate(self, wanted, states, attribution, *others):
        if isinstance(attribution, Attribution):
            attribution.check()
            await self.audit(attribution.audit)
            attribution = replace(attribution, audit=())
        return await super()._operate(wanted, states, attribution, *others)


class Orphans(MemoryEngine):
    """Forgets those that wait for what was cancelled."""

    def _commit(self, effects, **fields):
        kept = [one for one in effects if getattr(one, "reason", "") != "dependency_cancelled"]
        return super()._commit(kept, **fields)


class FirstDependencyFrees(MemoryEngine):
    """Lets a job go when the first of its dependencies is completed."""

    def _with_following(self, effects, now_us):
        waits_for_little = lambda tenant, job_id: [
            replace(job, ties=replace(job.ties, waiting_for=(job_id,)))
            for job in self._state.dependents(tenant, job_id)
        ]
        return DependentEffects(waits_for_little, now_us).after(effects)


class NobodyIsWoken(MemoryEngine):
    """Wakes waiting claims only for new work, not when a key or a place gets free."""

    def _announce(self, effects, jobs):
        kinds = {(job.queue, job.task) for job in jobs if job and job.state is State.PENDING}
        self._waiters.wake(kinds)


class ForeignReach(MemoryEngine):
    """Looks beyond what a caller reaches."""

    async def find(self, *args, **fields):
        fields.pop("caller", None)
        return await super().find(*args, **fields)
