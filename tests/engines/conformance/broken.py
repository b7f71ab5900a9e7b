"""Engines with one mistake each: what the suite and the machine are held against."""

import base64
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.engines.contract import AdminResult
from holdfast.engines.embedded.admin import Admin
from holdfast.engines.embedded.change_recorder import ChangeRecorder
from holdfast.engines.embedded.commands import Commands
from holdfast.engines.embedded.core import EmbeddedCore
from holdfast.engines.embedded.dependents import DependentEffects
from holdfast.engines.embedded.fleet import Fleet
from holdfast.engines.embedded.outage_book import OutageBook
from holdfast.engines.embedded.outages import OutageCommands
from holdfast.engines.embedded.record_book import RecordBook
from holdfast.engines.embedded.sampler import FlowCounter, MemorySamples
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.memory.state import MemoryState
from holdfast.model.access import SYSTEM
from holdfast.model.actions import AnyAction, ReplayJobs
from holdfast.model.audit import WHOLE_AUDIT, Attribution
from holdfast.model.cursor import write_cursor
from holdfast.model.effects import Claimed, Edited, Enqueued, FlagSet, PolicySet
from holdfast.model.explain import Blocker, BlockerKind
from holdfast.model.job import FORGETTABLE, Job, State
from holdfast.model.policy import DEFAULT_POLICY
from holdfast.model.samples import Tier
from holdfast.model.search import MAX_COUNT, Filter, Order, check_cap


class _LowestPending(MemoryState):
    def _first_of_its_key(self, job: Job) -> bool:
        return job.ties.key is None or not any(
            other.ties.key_seq < job.ties.key_seq and other.state in (State.PENDING, State.DEAD)
            for other in self._of_key(job)
        )

    def _offer(self, queue, due, in_flight, turns, spent_us, now_us):
        keyless = [replace(job, ties=replace(job.ties, key=None)) for job in in_flight]
        return super()._offer(queue, due, keyless, turns, spent_us, now_us)


class KeysBesideEachOther(MemoryEngine):
    """Hands out the lowest pending one of a key, whoever of it is in flight."""

    state_type = _LowestPending


class _AnyOrder(MemoryState):
    def flight_of_key(self, job: Job) -> list[Job]:
        return []


class NoPrefixRule(MemoryEngine):
    """Lets the jobs of a chain end in any order, and each on its own."""

    state_type = _AnyOrder


class _ChainsGoOn(MemoryState):
    def _followers(self, head, caller, most, now_us):
        later = [
            job
            for job in self._of_key(head)
            if job.ties.key_seq > head.ties.key_seq and job.state is State.PENDING
        ]
        return later[:most] if head.ties.key is not None else []


class ChainsCrossEverything(MemoryEngine):
    """Puts every pending job of a key into its chain."""

    state_type = _ChainsGoOn


class _NoHolds(MemoryState):
    def _first_of_its_key(self, job: Job) -> bool:
        living = [other for other in self._of_key(job) if other.state is not State.DEAD]
        return job.ties.key is None or all(
            other.state.finished
            or (other.state is not State.IN_FLIGHT and other.ties.key_seq >= job.ties.key_seq)
            for other in living
        )


class DeadOnesHoldNothing(MemoryEngine):
    """Lets a key go on behind a dead one."""

    state_type = _NoHolds


class _AnyTurn(MemoryState):
    def _offer(self, queue, due, in_flight, turns, spent_us, now_us):
        return super()._offer(queue, due, in_flight, {}, spent_us, now_us)


class NoTurns(MemoryEngine):
    """Forgets whose turn it was."""

    state_type = _AnyTurn


class _NothingSpent(MemoryState):
    def fold(self, effect, seq):
        job = super().fold(effect, seq)
        if isinstance(effect, Claimed):
            self._spent_until_us.clear()
        return job


class RateByCall(MemoryEngine):
    """Counts a rate anew in every call."""

    state_type = _NothingSpent


class _StickyPolicy(MemoryState):
    def fold(self, effect, seq):
        if isinstance(effect, PolicySet) and effect.policy is None:
            effect = replace(effect, policy=self.policies.get(effect.queue, DEFAULT_POLICY))
        return super().fold(effect, seq)


class PolicyStays(MemoryEngine):
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
                self._history.jobs[job.tenant, job.id] = replace(job, state=State.DEAD)
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


class VersionStays(MemoryEngine):
    """Does not raise the version with an edit."""

    state_type = _KeepsVersion


class _DropsPayloads(MemoryState):
    def _fold_job(self, effect, seq):
        job = super()._fold_job(effect, seq)
        if job is not None and job.state in FORGETTABLE:
            job = self._jobs[job.tenant, job.id] = replace(job, payload=b"")
        return job


class PayloadsGo(MemoryEngine):
    """Drops the payload of every finished job."""

    state_type = _DropsPayloads


class _NoBound(MemoryState):
    def _bound(self) -> None:
        pass


class HistoryGrows(MemoryEngine):
    """Keeps finished jobs, however large they are."""

    state_type = _NoBound


class _OneTime(MemoryState):
    def fold(self, effect, seq):
        if isinstance(effect, Enqueued):
            effect = replace(effect, job=replace(effect.job, created_at_us=effect.at_us))
        return super().fold(effect, seq)


class SortedById(MemoryEngine):
    """Gives all jobs of a batch the same time, so that their ids decide the order of lists."""

    state_type = _OneTime


class _AuditsFirst(Admin):
    async def apply(self, wanted, states, attribution, *others, **fields):
        await self._core.answer(lambda now: self.audit(attribution.audit, now))
        attribution = replace(attribution, audit=())
        return await super().apply(wanted, states, attribution, *others, **fields)


class AuditApart(MemoryEngine):
    """Writes the audit before the operation, not with it."""

    admin_type = _AuditsFirst


class _KeepsDependents(EmbeddedCore):
    def commit(self, effects, **fields):
        kept = [one for one in effects if getattr(one, "reason", "") != "dependency_cancelled"]
        return super().commit(kept, **fields)


class Orphans(MemoryEngine):
    """Forgets those that wait for what was cancelled."""

    core_type = _KeepsDependents


class _FreesEarly(Commands):
    def with_dependents(self, effects, now_us):
        waits_for_little = lambda tenant, job_id: [
            replace(job, ties=replace(job.ties, waiting_for=(job_id,)))
            for job in self._state.dependents(tenant, job_id)
        ]
        return DependentEffects(waits_for_little, now_us).after(effects)


class FirstDependencyFrees(MemoryEngine):
    """Lets a job go when the first of its dependencies is completed."""

    commands_type = _FreesEarly


class _WakesForNewWork(EmbeddedCore):
    def _wake_claims(self, effects, jobs):
        kinds = {(job.queue, job.task) for job in jobs if job and job.state is State.PENDING}
        self.waiters.wake(kinds)


class NobodyIsWoken(MemoryEngine):
    """Wakes waiting claims only for new work, not when a key or a place gets free."""

    core_type = _WakesForNewWork


class ForeignReach(MemoryEngine):
    """Looks beyond what a caller reaches."""

    async def find(self, *args, **fields):
        fields.pop("caller", None)
        return await super().find(*args, **fields)


class ExceptionsForgotten(MemoryEngine):
    """Finds what a filter excludes."""

    async def find(self, wanted=Filter(), **fields):  # noqa: B008
        return await super().find(replace(wanted, without=()), **fields)


class AnyOrder(MemoryEngine):
    """Lists by creation, whatever the order."""

    async def find(self, *args, order=Order.CREATED, **fields):
        order = Order.NEWEST if order.descending else Order.CREATED
        return await super().find(*args, order=order, **fields)


class CursorsOfAnything(MemoryEngine):
    """Takes the cursor of another list."""

    async def find(self, wanted=Filter(), *, cursor="", order=Order.CREATED, **fields):  # noqa: B008
        if cursor:
            raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
            _digest, *place = msgspec.msgpack.decode(raw)
            cursor = write_cursor(tuple(place), wanted, order)
        return await super().find(wanted, cursor=cursor, order=order, **fields)


class CountsOn(MemoryEngine):
    """Counts past the cap."""

    async def count(self, wanted=Filter(), *, cap=10_000, **fields):  # noqa: B008
        check_cap(cap)
        return await super().count(wanted, cap=MAX_COUNT, **fields)


class _KeepsEveryone(Fleet):
    def announce(self, process, ttl_seconds, answers, now_us):
        return super().announce(process, 3_600.0, answers, now_us)


class EveryoneIsLive(MemoryEngine):
    """Goes on listing processes that fell silent."""

    fleet_type = _KeepsEveryone


class _SharesNames(Fleet):
    def announce(self, process, ttl_seconds, answers, now_us):
        alone = replace(process, processes={process.id: None})
        found = super().announce(alone, ttl_seconds, answers, now_us)
        self._entries[process.id].process = process
        return found


class NamesTwice(MemoryEngine):
    """Lets two live processes have one name."""

    fleet_type = _SharesNames


class _KeepsCommands(Fleet):
    def command(self, command, process_ids, who, ttl_seconds, now_us):
        return super().command(command, process_ids, who, 3_600.0, now_us)


class LateCommands(MemoryEngine):
    """Hands out commands after their sender gave up."""

    fleet_type = _KeepsCommands


class CommandsUnaudited(MemoryEngine):
    """Sends commands without an audit entry."""

    async def command(self, command, process_ids, attribution, **fields):
        return await super().command(command, process_ids, replace(attribution, audit=()), **fields)


class _NothingIsOut(MemoryState):
    def claimable(self, queues, tasks, caller, limit, now_us, chain=1):
        outages, self.outages = self.outages, OutageBook()
        try:
            return super().claimable(queues, tasks, caller, limit, now_us, chain)
        finally:
            self.outages = outages


class ClaimsGoOn(MemoryEngine):
    """Hands out the jobs of a dependency that is out."""

    state_type = _NothingIsOut


class _ChargingCommands(Commands):
    def settle(self, outcomes, caller, now_us):
        book = self._state.outages
        active, book.active = book.active, {}
        try:
            return super().settle(outcomes, caller, now_us)
        finally:
            book.active = active


class OutagesAreCharged(MemoryEngine):
    """Charges the failures of an outage."""

    commands_type = _ChargingCommands


class _DeafOutages(OutageCommands):
    def report(self, reports, now_us):
        return super().report([one for one in reports if not one.successes], now_us)


class OutagesLast(MemoryEngine):
    """Does not hear of successes."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._outages = _DeafOutages(self._core)


class _NoFacts(Admin):
    def set_flag(self, name, attribution, now_us, *, on):
        self._commit_audited(FlagSet(now_us, name, on), attribution, attribution.audit)


class FactsMissing(MemoryEngine):
    """Says in the audit that a flag was set, and not to what."""

    admin_type = _NoFacts


class SearchesNothing(MemoryEngine):
    """Returns the whole audit, whatever is asked for."""

    async def audited(self, wanted=WHOLE_AUDIT, **fields):
        return await super().audited(WHOLE_AUDIT, **fields)


class ExplainsTheFirst(MemoryEngine):
    """Explains as if a claim returned one job: the others wait for their turn."""

    async def explain(self, ids, **fields):
        found = await super().explain(ids, **fields)
        return [
            one and (replace(one, blockers=(Blocker(BlockerKind.TURN),)) if one.ahead else one)
            for one in found
        ]


class ExplainsWithoutLimits(MemoryEngine):
    """Explains as if a queue had no limits."""

    async def explain(self, ids, **fields):
        found = await super().explain(ids, **fields)
        own = (BlockerKind.STATE, BlockerKind.KEY, BlockerKind.RUN_AT, BlockerKind.CONFIRMATION)
        return [
            one and replace(one, blockers=tuple(b for b in one.blockers if b.kind in own))
            for one in found
        ]


class _NeverStartsOver(FlowCounter):
    def take(self):
        return dict(self._flows)


class _CountsOn(EmbeddedCore):
    def __init__(self, *args):
        super().__init__(*args)
        self.flows = _NeverStartsOver()


class RatesAddUp(MemoryEngine):
    """Counts what happened once in the rates of every sample after it."""

    core_type = _CountsOn


class SamplesOfEveryone(MemoryEngine):
    """Takes a sample for everyone who asks."""

    async def take_sample(self, **fields):
        self._sampler._taken_us = None
        return await super().take_sample(**fields)


class _LastOnly(MemorySamples):
    async def read(self, query):
        found = await super().read(query)
        fine = await super().read(replace(query, tier=Tier.SAMPLE, step_us=1))
        return {
            queue: [replace(fine[queue][-1], at_us=point.at_us) for point in points]
            for queue, points in found.items()
        }


class PeaksDisappear(MemoryEngine):
    """Shows the last sample of a longer time for all of them."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self._sampler.store = _LastOnly()


class _TwoHours(MemorySamples):
    async def add(self, at_us, samples):
        await super().add(at_us, samples)
        first_us = at_us - Tier.SAMPLE.kept_us
        self._samples = [one for one in self._samples if one[0] >= first_us]


class MinutesForgotten(MemoryEngine):
    """Keeps nothing for longer than two hours."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self._sampler.store = _TwoHours()


class _Forgetful(RecordBook):
    def once(self, record, now_us):
        return []


class RecordsApart(MemoryEngine):
    """Commits changes without the records that go with them."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._core.records = _Forgetful(self._core.state.records)


class _EnqueuesAlone(ChangeRecorder):
    def record(self, effects, jobs, seq, now_us):
        if isinstance(effects[0], Enqueued):
            super().record(effects, jobs, seq, now_us)


class ChangesOfEnqueuesAlone(MemoryEngine):
    """Tells only of new jobs that something has changed."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self._core.changes = _EnqueuesAlone(self._core.random_bytes)
