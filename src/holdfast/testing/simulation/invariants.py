"""Checks every change that an owner commits against the safety rules.

The checker keeps its own model of every job, built from the committed changes. After a crash the
last changes may be missing: the model then goes back to the end of the recovered log, and must
equal the recovered state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from holdfast.model import effects as fx
from holdfast.model import lifecycle
from holdfast.model.actions import ReplayJobs
from holdfast.model.audit import AuditHead, follows, head_of
from holdfast.model.chain import ChainSettle
from holdfast.model.effects import Effect
from holdfast.model.errors import LeaseLost
from holdfast.model.event import Event
from holdfast.model.job import MICROSECONDS, Job, State
from holdfast.model.operation import Operation, Outcomes, decode, ended_member
from holdfast.model.outcome import Outcome
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy
from holdfast.model.projection import ProjectionState
from holdfast.model.search import replay_run
from holdfast.model.subscription import Subscription, job_id

from .observed_runs import JobKey
from .trace import Trace

_LEASED = (fx.Extended, fx.Completed, fx.Retried, fx.Released, fx.Snoozed, fx.Lost)
Key = TypeVar("Key")
Value = TypeVar("Value")


class Version(NamedTuple):
    """A job after one change; None after it was purged."""

    seq: int
    job: Job | None


class InvariantChecker:
    """The model of all committed changes, and the rules for them."""

    def __init__(self, trace: Trace, remember_seconds: float) -> None:
        self.jobs: dict[JobKey, Job] = {}
        self.policies: dict[str, QueuePolicy] = {}
        self.completed: set[tuple[JobKey, int]] = set()
        """The committed completions, each with its token."""
        self.audit_heads: list[AuditHead] = [AuditHead()]
        self.seq = 0
        self.last_at_us = 0
        self._trace = trace
        self._remember_us = int(remember_seconds * MICROSECONDS)
        self._versions: dict[JobKey, list[Version]] = {}
        self._unordered: set[int] = set()
        self._undo: list[tuple[int, Callable[[], object]]] = []
        self._tokens: dict[JobKey, int] = {}
        self._members: dict[str, set[JobKey]] = {}
        """The jobs that each operation has replayed."""
        self._outcomes: dict[str, Outcomes] = {}
        self.events: dict[tuple[str, str], Event] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.projections: dict[str, ProjectionState] = {}
        self.event_jobs: set[JobKey] = set()
        """The jobs that events must have had, finished and forgotten ones included."""

    # --- committed changes -------------------------------------------------------------------

    def committed(self, effects: Sequence[Effect], jobs: Sequence[Job | None], owner: str) -> None:
        """Apply committed effects; ``jobs`` has each job after its effect, if it is in memory."""
        first_seq = self.seq + 1
        for effect, job in zip(effects, jobs, strict=True):
            self.seq += 1
            self.last_at_us = max(self.last_at_us, effect.at_us)
            what = fx.LOG_NAMES[type(effect)]
            if isinstance(effect, fx.PolicySet):
                self._trace.note(f"log.{what}", owner, effect.queue)
                self._set_policy(effect)
            elif isinstance(effect, fx.Audited):
                self._trace.note(f"log.{what}", owner, str(effect.record.number))
                self._audited(effect)
            elif isinstance(effect, fx.OutageSet):
                outage = effect.outage
                self._trace.note(f"log.{what}", owner, f"{outage.dependency} {outage.phase.value}")
            elif isinstance(effect, fx.FlagSet | fx.ScheduleSet | fx.RecordSet):
                self._trace.note(f"log.{what}", owner, effect.name)
            elif isinstance(effect, fx.ProjectionSet):
                self._trace.note(f"log.{what}", owner, _projection_text(effect))
                self._set_projection(effect)
            elif isinstance(effect, fx.EventAppended):
                self._trace.note(f"log.{what}", owner, f"{effect.event.id} at {self.seq}")
                self._appended(effect.event)
            elif isinstance(effect, fx.SubscriptionSet):
                self._trace.note(f"log.{what}", owner, effect.name)
                self._subscribed(effect)
            elif isinstance(effect, fx.GroupSet):
                self._trace.note(f"log.{what}", owner, effect.id)
            elif isinstance(effect, fx.OperationSet):
                operation = decode(effect.record)
                detail = f"{operation.id} {operation.state} {operation.acted}"
                self._trace.note(f"log.{what}", owner, detail)
                self.check_operation(operation)
            else:
                name = fx.job_key(effect)
                self._trace.note(f"log.{what}", owner, f"{name[1]} at {self.seq}")
                if isinstance(effect, fx.Retried | fx.Lost | fx.Died):
                    self._trace.counts[f"reason.{effect.failure.error_reason}"] += 1
                old = self._check(name, effect)
                new = _after(old, effect, job)
                self._count_member(effect, old, new)
                self._change(name, old, new)
        self._check_events(first_seq, effects)

    def acceptable(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Return for each outcome whether its token holds the job, and its chain lets it end."""
        held: dict[int, tuple[Job, Outcome]] = {}
        for outcome in outcomes:
            if self.holds(outcome.tenant, outcome.id, outcome.token):
                held.setdefault(outcome.token, (self.jobs[outcome.tenant, outcome.id], outcome))
        chains = ChainSettle(self._flight_of, held.values())
        found: list[bool] = []
        for outcome in outcomes:
            job, first = held.pop(outcome.token, (None, None))
            if job is None or first is None or not chains.accepts(job, outcome):
                found.append(False)
                continue
            found.append(True)
            chains.ended(job, lifecycle.settle(job, outcome, self.last_at_us))
        return found

    def _flight_of(self, job: Job) -> list[Job]:
        """Return the jobs in flight of its key, in order; none if it has no order."""
        policy = self.policies.get(job.queue, DEFAULT_POLICY)
        if job.ties.key is None or not policy.ordered or job.token in self._unordered:
            return []
        flight = [
            one
            for one in self.jobs.values()
            if one.state is State.IN_FLIGHT
            and (one.tenant, one.queue, one.ties.key) == (job.tenant, job.queue, job.ties.key)
            and one.token not in self._unordered
        ]
        return sorted(flight, key=lambda one: one.ties.key_seq)

    def settled(
        self,
        outcomes: Sequence[Outcome],
        acceptable: Sequence[bool],
        answers: Sequence[LeaseLost | None],
    ) -> None:
        """Check that exactly the acceptable outcomes were accepted."""
        for outcome, expected, answer in zip(outcomes, acceptable, answers, strict=True):
            if expected and answer is not None:
                self._broken(f"{outcome.id} refused the outcome of its holder ({outcome.token})")
            elif not expected and answer is None:
                self._broken(f"{outcome.id} accepted the stale token {outcome.token}")
            elif not expected:
                self._trace.counts["refused.stale_token"] += 1

    def holds(self, tenant: str, job_id: str, token: int) -> bool:
        """Whether this token holds the job now."""
        job = self.jobs.get((tenant, job_id))
        return job is not None and job.state is State.IN_FLIGHT and job.token == token

    def recovered(self, last_seq: int, acknowledged_seq: int) -> None:
        """Go back to the end of a recovered log, which must have every acknowledged change."""
        if last_seq < acknowledged_seq:
            self._broken(f"the log ends at {last_seq}, but {acknowledged_seq} was acknowledged")
        if last_seq > self.seq:
            self._broken(f"the log ends at {last_seq}, but nothing was committed after {self.seq}")
        while self._undo and self._undo[-1][0] > last_seq:
            self._undo.pop()[1]()
        self.seq = last_seq

    def seq_of(self, job: Job) -> int | None:
        """Return the change that made the job exactly so; None if it never was."""
        for version in reversed(self._versions.get((job.tenant, job.id), [])):
            if version.job == job:
                return version.seq
        return None

    def exists(self, name: JobKey) -> bool:
        """Whether the job exists, or existed before it was forgotten or purged."""
        return name in self._versions

    # --- rules -------------------------------------------------------------------------------

    def _check(self, name: JobKey, effect: fx.JobEffect) -> Job | None:
        """Check a change to a job; return the job before it."""
        old = self.jobs.get(name)
        if isinstance(effect, fx.Enqueued):
            if old is not None and not self._forgettable(old, effect.at_us):
                self._broken(f"{name[1]} was enqueued while it is {old.state}")
            return None
        if old is None:
            self._broken(f"{name[1]} was changed but does not exist")
        elif isinstance(effect, _LEASED) and old.state is not State.IN_FLIGHT:
            self._broken(f"{name[1]} is {old.state}, but got {type(effect).__name__}")
        elif isinstance(effect, fx.Claimed):
            self._check_claim(old, effect)
        elif isinstance(effect, fx.Completed):
            self._check_end(old)
            completion = name, old.token
            if completion in self.completed:
                self._broken(f"{name[1]} was completed twice")
            self.completed.add(completion)
            self._undo.append((self.seq, lambda: self.completed.discard(completion)))
        return old

    def _check_claim(self, job: Job, claim: fx.Claimed) -> None:
        name = job.tenant, job.id
        if job.state is not State.PENDING or job.run_at_us > claim.at_us:
            self._broken(f"{job.id} is {job.state}, due at {job.run_at_us}, and was claimed")
        if claim.token <= self._tokens.get(name, 0):
            self._broken(f"{job.id} got token {claim.token} after {self._tokens[name]}")
        self._tokens[name] = claim.token  # kept after a crash: the token was issued
        if job.attempt - job.attempts_before_replay >= job.max_attempts:
            self._broken(f"{job.id} has used up its {job.max_attempts} attempts and was claimed")
        unmet = [one for one in job.ties.depends_on if not self._dependency_met(job, one)]
        if unmet:
            self._broken(f"{job.id} was claimed before {unmet} were completed")
        policy = self.policies.get(job.queue, DEFAULT_POLICY)
        if policy.paused:
            self._broken(f"{job.id} was claimed in {job.queue}, which is paused")
        if not policy.ordered:
            self._unordered.add(claim.token)
        before = self._chain_before(job, claim)
        if policy.ordered and not self._first_of_key(job, before):
            self._broken(f"{job.id} was claimed out of the order of its key {job.ties.key}")
        if before and (job.failure is not None or job.task != before[-1].task):
            self._broken(f"{job.id} was claimed behind {before[-1].id}, and must not be")
        if job.queue not in self.policies and not before:
            self._check_order(job, claim.at_us)

    def _chain_before(self, job: Job, claim: fx.Claimed) -> list[Job]:
        """Return the jobs of its key that the same claim took before it."""
        if job.ties.key is None:
            return []
        return [
            other
            for other in self.jobs.values()
            if other.state is State.IN_FLIGHT
            and (other.tenant, other.queue, other.ties.key) == (job.tenant, job.queue, job.ties.key)
            and (other.worker, other.claimed_at_us) == (claim.worker, claim.at_us)
            and other.ties.key_seq < job.ties.key_seq
        ]

    def _check_end(self, job: Job) -> None:
        """No job of the same chain that comes before it may still be in flight."""
        for other in self._flight_of(job):
            if other.ties.key_seq < job.ties.key_seq:
                self._broken(f"{job.id} was completed before {other.id} of its key")

    def _check_order(self, job: Job, now_us: int) -> None:
        """No due job of the same queue and tenant may come before it."""
        mine = -job.priority, job.run_at_us, job.seq
        for other in self.jobs.values():
            if (
                other.state is State.PENDING
                and (other.queue, other.tenant) == (job.queue, job.tenant)
                and other.run_at_us <= now_us
                and (other.expires_at_us is None or other.expires_at_us > now_us)
                and (-other.priority, other.run_at_us, other.seq) < mine
                and self._first_of_key(other)
            ):
                self._broken(f"{job.id} was claimed before {other.id}, which came first")

    def _first_of_key(self, job: Job, chain: Sequence[Job] = ()) -> bool:
        """Whether no other job of its key is before it or in flight, but those of its chain."""
        if job.ties.key is None:
            return True
        key = job.tenant, job.queue, job.ties.key
        for other in self.jobs.values():
            if (
                other.id != job.id
                and other not in chain
                and (other.tenant, other.queue, other.ties.key) == key
            ):
                waits = not other.state.finished or other.state is State.DEAD
                before = waits and other.ties.key_seq < job.ties.key_seq
                if before or other.state is State.IN_FLIGHT:
                    return False
        return True

    def _dependency_met(self, job: Job, dependency: str) -> bool:
        """Whether the job no longer has to wait for this dependency."""
        needed = self.jobs.get((job.tenant, dependency))
        if needed is None or needed.created_at_us > job.created_at_us:
            return True  # purged, or forgotten and the id used again
        if job.replays is not None and needed.state in (State.CANCELLED, State.ARCHIVED):
            return True  # an explicit replay ignores cancelled and archived dependencies
        return needed.state is State.COMPLETED

    def _forgettable(self, job: Job, now_us: int) -> bool:
        return (
            job.state in (State.COMPLETED, State.CANCELLED)
            and job.finished_at_us < now_us - self._remember_us
        )

    def _count_member(self, effect: fx.JobEffect, old: Job | None, new: Job | None) -> None:
        """Check that an operation replays a job once, and count how its members end."""
        if isinstance(effect, fx.Replayed) and (run := replay_run(effect.job)):
            name, members = fx.job_key(effect), self._members.setdefault(run, set())
            if name in members:
                self._broken(f"{name[1]} was replayed twice by operation {run}")
            members.add(name)
            self._undo.append((self.seq, lambda: members.discard(name)))
        end = ended_member(old, new)
        if end is not None:
            run, state = end
            before = self._outcomes.get(run)
            self._undo.append((self.seq, lambda: _set(self._outcomes, run, before)))
            self._outcomes[run] = (before or Outcomes()).plus(state)

    def check_operation(self, operation: Operation) -> None:
        """Check that an operation knows what it has done, and what came of it."""
        if not isinstance(operation.action, ReplayJobs):
            return
        acted = len(self._members.get(operation.id, ()))
        if operation.acted != acted:
            self._broken(f"{operation.id} counts {operation.acted} replays, and did {acted}")
        outcomes = self._outcomes.get(operation.id, Outcomes())
        if operation.outcomes != outcomes:
            self._broken(f"{operation.id} counts {operation.outcomes}, and had {outcomes}")

    # --- apply -------------------------------------------------------------------------------

    def _change(self, name: JobKey, old: Job | None, new: Job | None) -> None:
        versions = self._versions.setdefault(name, [])
        versions.append(Version(self.seq, new))
        before = self.jobs.get(name)

        def undo() -> None:
            versions.pop()
            if not versions:
                del self._versions[name]
            _set(self.jobs, name, before)

        self._undo.append((self.seq, undo))
        _set(self.jobs, name, new)
        if isinstance(old, Job) and new is not None and new.token < old.token:
            self._broken(f"{name[1]} went back from token {old.token} to {new.token}")

    def _set_policy(self, effect: fx.PolicySet) -> None:
        before = self.policies.get(effect.queue)
        self._undo.append((self.seq, lambda: _set(self.policies, effect.queue, before)))
        _set(self.policies, effect.queue, effect.policy)

    def _audited(self, effect: fx.Audited) -> None:
        if not follows(self.audit_heads[-1], effect.record):
            self._broken(f"record {effect.record.number} of the audit does not follow")
        self.audit_heads.append(head_of(effect.record))
        self._undo.append((self.seq, self.audit_heads.pop))

    def _appended(self, event: Event) -> None:
        name = event.tenant, event.id
        if name in self.events:
            self._broken(f"event {event.id} was appended twice")
        if event.position != self.seq:
            self._broken(f"event {event.id} is at {self.seq} and says {event.position}")
        self.events[name] = event
        self._undo.append((self.seq, lambda: self.events.pop(name)))

    def _subscribed(self, effect: fx.SubscriptionSet) -> None:
        before = self.subscriptions.get(effect.name)
        self._undo.append((self.seq, lambda: _set(self.subscriptions, effect.name, before)))
        _set(self.subscriptions, effect.name, effect.subscription)

    def _set_projection(self, effect: fx.ProjectionSet) -> None:
        before = self.projections.get(effect.name)
        self._undo.append((self.seq, lambda: _set(self.projections, effect.name, before)))
        _set(self.projections, effect.name, effect.state)

    def _check_events(self, first_seq: int, effects: Sequence[Effect]) -> None:
        """Each event of a commit has its jobs in it, and no job of an event comes twice."""
        wanted: set[JobKey] = set()
        for effect in effects:
            if isinstance(effect, fx.EventAppended):
                event = effect.event
                wanted |= {
                    (event.tenant, job_id(one.name, event.id))
                    for one in self.subscriptions.values()
                    if one.wants(event.event_type)
                }
        made = [fx.job_key(effect) for effect in effects if isinstance(effect, fx.Enqueued)]
        for name in made:
            if name in self.event_jobs:
                self._broken(f"{name[1]} was made twice")
        if not wanted:
            return
        if missing := wanted.difference(made):
            self._broken(f"events were committed without their jobs {sorted(missing)}")
        self.event_jobs |= wanted
        self._undo.append((first_seq, lambda: self.event_jobs.difference_update(wanted)))

    def _broken(self, promise: str) -> None:
        self._trace.broken(promise)


def _projection_text(effect: fx.ProjectionSet) -> str:
    rebuild = None if effect.state is None else effect.state.rebuild
    return effect.name if rebuild is None else f"{effect.name} {rebuild.id} {rebuild.phase.value}"


def _after(old: Job | None, effect: fx.JobEffect, job: Job | None) -> Job | None:
    if isinstance(effect, fx.Purged):
        return None
    if job is None and isinstance(effect, fx.WHOLE):
        return effect.job
    return old if job is None else job


def _set(where: dict[Key, Value], key: Key, value: Value | None) -> None:
    if value is None:
        where.pop(key, None)
    else:
        where[key] = value
