"""A hypothesis state machine: compares any engine with the memory engine, step by step.

Subclass ``EngineMachine`` and implement ``open_engine``. If the engine survives crashes, override
``crash_after_calls`` and ``reopen`` too: then any step may end with a crash, and the state after it
must be the oracle's before or after that step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec.structs import replace

from holdfast.engines.contract import MAX_CLAIM, Claim, Engine, OnDuplicate
from holdfast.engines.embedded.engine import EmbeddedEngine
from holdfast.model.access import Caller
from holdfast.model.actions import (
    AnyAction,
    ArchiveJobs,
    CancelJobs,
    ConfirmJobs,
    NoteJobs,
    PurgeJobs,
    ReplayJobs,
    RestoreJobs,
)
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.effects import ScheduleState
from holdfast.model.event import NewEvent
from holdfast.model.event_search import EventFilter
from holdfast.model.explain import BlockerKind, Explanation
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import Edit, Job, NewJob, State
from holdfast.model.outage import DependencyReport
from holdfast.model.outcome import Outcome, OutcomeKind, release
from holdfast.model.policy import QueuePolicy, Rate
from holdfast.model.record import Record
from holdfast.model.search import MAX_PAGE, Filter, Order
from holdfast.model.subscription import Subscription

from .comparison import CALLERS, IDS, OPTIONS, TENANTS, EngineComparison, event_pages, pages

__all__ = ["OPTIONS", "EngineMachine"]

FAILURES = [Failure.of("timeout", "took 3 s"), Failure.of("mapping_error", "no column 'isbn'")]
QUEUES = ["default", "slow"]
OPERATION = Attribution("ann", "because", (AuditEntry("operate", "job", "some", "ann"),))
ACTIONS: tuple[AnyAction, ...] = (
    *(ArchiveJobs(), RestoreJobs(), CancelJobs(), PurgeJobs(), ConfirmJobs()),
    NoteJobs("look here"),
)
callers = st.sampled_from([*[Caller()] * 6, *CALLERS])


class NameRef(NamedTuple):
    """The id and tenant of a job, which may not exist."""

    id: str
    tenant: str


new_jobs = st.builds(
    NewJob,
    task=st.sampled_from(["mail", "report"]),
    payload=st.sampled_from([b"{}", b'{"n":1}']),
    id=st.sampled_from(IDS),
    tenant=st.sampled_from(["default", *TENANTS]),
    scope=st.sampled_from(["", "library:42", "library:42/book:7", "library:43"]),
    queue=st.sampled_from(["default", *QUEUES]),
    priority=st.sampled_from([0, 0, 5]),
    max_attempts=st.integers(1, 4),
    delay_seconds=st.sampled_from([None, None, None, 5.0]),
    expires_seconds=st.sampled_from([None, None, None, 20.0]),
    unique=st.sampled_from([None, None, None, None, "u1", "u2"]),
    max_processing_seconds=st.sampled_from([None, None, 15.0]),
    key=st.sampled_from([None, None, None, "k1", "k1", "k2"]),
    depends_on=st.sampled_from([()] * 9 + [(IDS[0],)]),
    hold=st.sampled_from([False] * 7 + [True]),
)

filters = st.builds(
    Filter,
    tenant=st.sampled_from([None, None, None, *TENANTS]),
    queues=st.sampled_from([(), (), (), ("slow",)]),
    keys=st.sampled_from([(), (), (), ("k1",)]),
    classes=st.sampled_from([(), (), (), (FailureClass.TRANSIENT,), (FailureClass.DETERMINISTIC,)]),
)

searches = st.builds(
    Filter,
    scope=st.sampled_from([None, None, None, "library:42"]),
    states=st.lists(st.sampled_from(State), max_size=3).map(tuple),
    attempts_from=st.sampled_from([None, None, None, 2]),
    tasks=st.sampled_from([(), ("mail",)]),
    error_reasons=st.sampled_from([(), (), ("timeout", "expired")]),
    fingerprint=st.sampled_from([None, None, "took <number> s"]),
    text=st.sampled_from([None, None, "TOOK", "expires_at"]),
    replay_run=st.sampled_from([None, None, "run1"]),
)

RATE = Rate(1, 10.0)
plain_policies = [
    None,
    QueuePolicy(fair=True),
    QueuePolicy(fair=True, max_per_tenant=2),
    QueuePolicy(rate=RATE),
    QueuePolicy(max_in_flight=1),
    QueuePolicy(max_per_tenant=1),
    QueuePolicy(max_per_key=1, ordered=False),
    QueuePolicy(ordered=False),
    QueuePolicy(paused=True),
]
policies = st.sampled_from(plain_policies) | st.builds(
    QueuePolicy,
    max_in_flight=st.sampled_from([None, 2, 3]),
    max_per_tenant=st.sampled_from([None, None, 2]),
    max_per_key=st.sampled_from([None, None, 2]),
    rate=st.sampled_from([None, None, RATE, Rate(3, 10.0)]),
    fair=st.booleans(),
    ordered=st.booleans(),
)

events = st.builds(
    NewEvent,
    event_type=st.sampled_from(["book.renamed", "book.lent"]),
    entity_type=st.just("book"),
    entity_id=st.sampled_from(["1", "2"]),
    actor_id=st.sampled_from(["ann", "bob"]),
    id=st.sampled_from([f"01900000-0000-7000-8000-{n:012x}" for n in range(6)]),
    payload=st.sampled_from([b"{}", b"{}", b"{}", b'{"n":1}']),
    tenant=st.sampled_from(TENANTS),
    scope=st.sampled_from(["", "", "library:42", "library:43"]),
)

subscriptions = st.builds(
    Subscription,
    name=st.sampled_from(["chronicle", "search"]),
    queue=st.sampled_from(QUEUES),
    task=st.sampled_from(["mail", "report"]),
    event_types=st.sampled_from([(), (), ("book.lent",)]),
    max_attempts=st.integers(1, 3),
)

event_filters = st.builds(
    EventFilter,
    tenant=st.sampled_from([None, *TENANTS]),
    entity_id=st.sampled_from([None, None, "1"]),
    actor_id=st.sampled_from([None, None, "bob"]),
    event_types=st.sampled_from([(), (), ("book.lent",)]),
    scope=st.sampled_from([None, None, "library:42"]),
)

edits = st.builds(
    Edit,
    payload=st.sampled_from([None, b'{"n":2}']),
    priority=st.sampled_from([None, None, 5, -5]),
    max_attempts=st.sampled_from([None, None, 2]),
)


class EngineMachine(EngineComparison):
    """Makes the same calls on both engines; compares every answer and every job."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Job, Job]] = []
        self.known: list[Job] = []

    @initialize(jobs=st.lists(new_jobs, min_size=2, max_size=8), policy=policies)
    def begin(self, jobs: list[NewJob], policy: QueuePolicy | None) -> None:
        """Open the engine and enqueue some jobs."""
        self.subject = self.run(self.open_engine(self.clock, OPTIONS))
        self.both(lambda engine: engine.set_policy("default", policy, OPERATION))
        self.both(lambda engine: engine.enqueue(jobs, on_duplicate="skip"))

    # --- commands ----------------------------------------------------------------------------

    @rule(jobs=st.lists(new_jobs, max_size=4), skip=st.booleans(), caller=callers)
    def enqueue(self, jobs: list[NewJob], skip: bool, caller: Caller) -> None:  # noqa: FBT001
        """Enqueue a batch."""
        on_duplicate: OnDuplicate = "skip" if skip else "refuse"
        self.both(lambda engine: engine.enqueue(jobs, caller=caller, on_duplicate=on_duplicate))

    @precondition(lambda self: any(not job.state.finished for job in self.known))
    @rule(jobs=st.lists(new_jobs, min_size=1, max_size=3), data=st.data())
    def enqueue_dependents(self, jobs: list[NewJob], data: st.DataObject) -> None:
        """Enqueue jobs that depend on others, of the same batch or earlier ones."""
        tied: list[NewJob] = []
        for job in jobs:
            there: list[Job | NewJob] = [*self.known, *tied]
            taken = {one.id for one in there if one.tenant == job.tenant}
            needed = [one.id for one in self.known if not one.state.finished and one.id in taken]
            needed += [one.id for one in tied if one.id in taken and one.id]
            fresh = [one for one in IDS if one not in taken]
            if fresh and needed:
                depends_on = data.draw(st.lists(st.sampled_from(needed), min_size=1, max_size=3))
                job_id = data.draw(st.sampled_from(fresh))
                tied.append(replace(job, id=job_id, depends_on=tuple(depends_on), hold=False))
        self.both(lambda engine: engine.enqueue(tied, on_duplicate="skip"))

    @rule(
        queues=st.sampled_from([["default"], QUEUES]),
        tasks=st.sampled_from([None, None, ["mail"]]),
        limit=st.integers(1, 4),
        chain=st.sampled_from([1, 1, 2, 4]),
        caller=callers,
    )
    def claim(
        self, queues: list[str], tasks: list[str] | None, limit: int, chain: int, caller: Caller
    ) -> None:
        """Claim some jobs."""
        self.claim_both(queues, tasks, limit, caller, chain)

    def claim_both(
        self,
        queues: list[str],
        tasks: list[str] | None,
        limit: int,
        caller: Caller,
        chain: int = 1,
    ) -> list[tuple[Job, Job]] | None:
        """Claim some jobs; return each as a pair, one of each engine; None after a crash."""

        def call(engine: Engine) -> Awaitable[Claim]:
            return engine.claim(
                queues=queues,
                tasks=tasks,
                limit=limit,
                worker="w",
                lease_seconds=10,
                chain=chain,
                caller=caller,
            )

        answers = self.both(call)
        if answers is None:
            return None
        taken = list(zip(*(one.jobs for one in answers), strict=True))
        self.held.extend(taken)
        del self.held[:-8]
        return taken

    @rule(queue=st.sampled_from(QUEUES))
    def explain(self, queue: str) -> None:
        """Ask about every job; a claim of all returns exactly those that nothing keeps back."""
        unblocked: set[tuple[str, str]] = set()
        for tenant in sorted({job.tenant for job in self.known}):
            ids = [job.id for job in self.known if job.tenant == tenant]
            answers = self.both(partial(_explain, ids, tenant))
            if answers is None:
                return
            for one in answers[0]:
                kinds = () if one is None else [blocker.kind for blocker in one.blockers]
                assert BlockerKind.TURN not in kinds, "something else keeps it back"
            unblocked |= {
                (tenant, one.job.id)
                for one in answers[0]
                if one is not None and not one.blockers and one.job.queue == queue
            }
        claimed = self.claim_both([queue], None, MAX_CLAIM, Caller())
        if claimed is None:
            return
        assert {(job.tenant, job.id) for job, _other in claimed} == unblocked
        released = [[release(job) for job in pair] for pair in claimed]
        self.both(lambda engine: engine.settle([pair[self.side(engine)] for pair in released]))

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """Settle some jobs with current and stale tokens."""
        if self.held:
            pairs = data.draw(st.lists(st.sampled_from(self.held), max_size=3))
            outcomes = []
            for pair in pairs:
                kind = data.draw(st.sampled_from(OutcomeKind))
                failure = data.draw(st.sampled_from(FAILURES))
                found = [Outcome(kind, job.id, job.token, job.tenant, 3.0, failure) for job in pair]
                if self.may_settle(found[0]):
                    outcomes.append(found)
            self.both(lambda engine: engine.settle([pair[self.side(engine)] for pair in outcomes]))

    def may_settle(self, _outcome: Outcome) -> bool:
        """Whether the engine must answer like the oracle if this outcome is settled now."""
        return True

    @rule(data=st.data(), seconds=st.sampled_from([5.0, 40.0]))
    def extend(self, data: st.DataObject, seconds: float) -> None:
        """Extend some leases with current and stale tokens."""
        if self.held:
            pairs = data.draw(st.lists(st.sampled_from(self.held), max_size=3))
            self.both(
                lambda engine: engine.extend(
                    [pair[self.side(engine)] for pair in pairs], lease_seconds=seconds
                )
            )

    @rule(limit=st.integers(1, 3), data=st.data(), caller=callers)
    def reclaim(self, limit: int, data: st.DataObject, caller: Caller) -> None:
        """Reclaim expired leases, and perhaps one by force."""
        forced = data.draw(st.lists(st.sampled_from(self.held), max_size=1)) if self.held else []
        self.both(
            lambda engine: engine.reclaim(
                limit=limit, forced=[pair[self.side(engine)] for pair in forced], caller=caller
            )
        )

    @rule(data=st.data())
    def take_over(self, data: st.DataObject) -> None:
        """End a lease by force and claim again: the old holder is a zombie now."""
        if self.held:
            pair = data.draw(st.sampled_from(self.held))
            self.both(lambda engine: engine.reclaim(forced=[pair[self.side(engine)]]))
            self.claim_both(QUEUES, None, 4, Caller())

    @rule(limit=st.integers(1, 4))
    def work_through(self, limit: int) -> None:
        """Claim some jobs and complete them."""
        self.claim_and_settle(OutcomeKind.COMPLETED, FAILURES[0], limit)

    @rule(failure=st.sampled_from(FAILURES), limit=st.integers(1, 4))
    def add_dead_letters(self, failure: Failure, limit: int) -> None:
        """Claim some jobs and settle them as dead."""
        self.claim_and_settle(OutcomeKind.DEAD, failure, limit)

    def claim_and_settle(self, kind: OutcomeKind, failure: Failure, limit: int) -> None:
        """Claim some jobs and settle them with this outcome."""
        outcomes = [
            [Outcome(kind, job.id, job.token, job.tenant, 0.0, failure) for job in pair]
            for pair in self.claim_both(QUEUES, None, limit, Caller(), chain=4) or ()
        ]
        self.both(lambda engine: engine.settle([pair[self.side(engine)] for pair in outcomes]))

    # --- admin -------------------------------------------------------------------------------

    def some_filter(self, data: st.DataObject, *states: State) -> Filter:
        """Return a filter for some jobs, mostly of these states."""
        by_state = [job.id for job in self.known if job.state in states]
        named = st.lists(st.sampled_from(by_state * 4 + IDS), min_size=1, max_size=2)
        return data.draw(filters | filters | named.map(lambda ids: Filter(ids=tuple(ids))))

    @precondition(lambda self: any(job.state is State.DEAD for job in self.known))
    @rule(
        data=st.data(),
        limit=st.integers(1, 3),
        fixed=st.sampled_from(["", "", "the mapping"]),
        run=st.sampled_from(["", "run1"]),
        caller=callers,
    )
    def replay(self, data: st.DataObject, limit: int, fixed: str, run: str, caller: Caller) -> None:
        """Replay some dead jobs."""
        wanted = self.some_filter(data, State.DEAD)
        self.both(
            lambda engine: engine.operate(
                ReplayJobs(fixed=fixed, run=run), wanted, OPERATION, limit=limit, caller=caller
            )
        )

    @precondition(lambda self: self.known)
    @rule(data=st.data(), limit=st.integers(1, 3), caller=callers)
    def operate(self, data: st.DataObject, limit: int, caller: Caller) -> None:
        """Operate on some jobs."""
        there = {job.state for job in self.known}
        fitting = [one for one in ACTIONS if there & one.states]
        action = data.draw(st.sampled_from(fitting or ACTIONS))
        wanted = self.some_filter(data, *action.states)
        most = MAX_PAGE if isinstance(action, NoteJobs) else limit
        self.both(
            lambda engine: engine.operate(action, wanted, OPERATION, limit=most, caller=caller)
        )

    @precondition(lambda self: self.known)
    @rule(
        data=st.data(),
        changes=edits,
        later_seconds=st.sampled_from([None, None, 0, 5]),
        version=st.sampled_from([None, 1, 2]),
        caller=callers,
    )
    def edit(
        self,
        data: st.DataObject,
        changes: Edit,
        later_seconds: int | None,
        version: int | None,
        caller: Caller,
    ) -> None:
        """Edit a job."""
        job = data.draw(st.sampled_from([NameRef(one.id, one.tenant) for one in self.known]))
        if later_seconds is not None:
            run_at_us = self.clock.now_us() + later_seconds * 1_000_000
            changes = Edit(payload=changes.payload, run_at_us=run_at_us)
        self.both(
            lambda engine: engine.edit(job, changes, OPERATION, version=version, caller=caller)
        )

    @rule(data=st.data(), queue=st.sampled_from(QUEUES), policy=policies, caller=callers)
    def govern(
        self, data: st.DataObject, queue: str, policy: QueuePolicy | None, caller: Caller
    ) -> None:
        """Set a policy, or an outage, or a flag, a schedule, an audit entry and a record."""
        what = data.draw(st.sampled_from(["policy", "policy", "policy", "outage", "other"]))
        if what == "outage":
            self._outage(data, queue)
            return
        if what != "other":
            self.both(lambda engine: engine.set_policy(queue, policy, OPERATION))
            return
        on = data.draw(st.sampled_from([None, True, False]))
        schedule = None if on is None else ScheduleState("@daily", "UTC", "mail", queue, on)
        self.both(lambda engine: engine.set_flag("auto_replay", OPERATION, on=on, caller=caller))
        self.both(lambda engine: engine.set_schedule("daily", schedule, OPERATION, caller=caller))
        self.both(lambda engine: engine.audit(OPERATION.audit, caller=caller))
        self._record(data, caller)

    def _record(self, data: st.DataObject, caller: Caller) -> None:
        """Store a record or remove it, most often from what is there."""
        name = data.draw(st.sampled_from(["k1", "k2"]))
        there = self.both(lambda engine: engine.records("key", [name]))
        if there is None:
            return
        kept = there[0][0] if there[0] else None
        wrong = Record("key", name, '{"n":2}')
        before = data.draw(st.sampled_from([kept, kept, kept, None, wrong]))
        value = data.draw(st.sampled_from([None, "{}", '{"n":1}']))
        expires_at_us = data.draw(st.sampled_from([0, self.clock.now_us() + 20_000_000]))
        after = None if value is None else Record("key", name, value, expires_at_us)
        self.both(
            lambda engine: engine.set_record(
                "key", name, after, OPERATION, expected=before, caller=caller
            )
        )

    def _outage(self, data: st.DataObject, queue: str) -> None:
        """Start or end an outage, or report what a worker has seen."""
        how = data.draw(st.sampled_from(["start", "end", "trip", "success", "healthy", "nothing"]))
        if how in ("start", "end"):
            self.both(lambda engine: engine.set_outage(queue, OPERATION, on=how == "start"))
            return
        report = DependencyReport(
            queue,
            successes=int(how == "success"),
            claimed_at_us=self.clock.now_us() if how == "success" else 0,
            tripped=how == "trip",
            has_health_check=how == "healthy",
            healthy=data.draw(st.sampled_from([None, True, False])) if how == "healthy" else None,
        )
        self.both(lambda engine: engine.report_outage([report]))

    # --- events ------------------------------------------------------------------------------

    @rule(news=st.lists(events, max_size=3), caller=callers)
    def append(self, news: list[NewEvent], caller: Caller) -> None:
        """Append some events; their ids may be known, with the same or another content."""
        self.both(lambda engine: engine.append(news, caller=caller))

    @rule(subscription=subscriptions, gone=st.sampled_from([False, False, False, True]))
    def subscribe(self, subscription: Subscription, gone: bool) -> None:  # noqa: FBT001
        """Set a subscription, or remove it."""
        name, new = subscription.name, None if gone else subscription
        self.both(lambda engine: engine.set_subscription(name, new, OPERATION))

    @rule(wanted=event_filters, limit=st.integers(1, 3), newest=st.booleans(), caller=callers)
    def look_at_events(
        self,
        wanted: EventFilter,
        limit: int,
        newest: bool,  # noqa: FBT001
        caller: Caller,
    ) -> None:
        """Look for some events, page by page, and count them."""
        self.both(lambda engine: event_pages(engine, wanted, limit, newest=newest, caller=caller))

    # --- queries, time and crashes -----------------------------------------------------------

    @rule(
        wanted=filters | searches,
        limit=st.integers(1, 3),
        order=st.sampled_from(list(Order)),
        caller=callers,
    )
    def look(self, wanted: Filter, limit: int, order: Order, caller: Caller) -> None:
        """Look for some, page by page, count them, and put them in groups."""
        self.both(lambda engine: pages(engine, wanted, limit, order, caller=caller))
        self.both(lambda engine: engine.count(wanted, cap=limit, caller=caller))
        self.both(lambda engine: engine.groups(wanted, caller=caller))

    @rule(seconds=st.sampled_from([1.0, 6.0, 16.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        """Advance the clock."""
        self.clock.advance(seconds)

    @rule(calls=st.integers(1, 4), cut_seed=st.none() | st.integers(0, 2**16))
    def crash_soon(self, calls: int, cut_seed: int | None) -> None:
        """Crash in one of the next steps."""
        self.calls_to_crash, self.cut_seed = calls, cut_seed

    @rule(cut_seed=st.none() | st.integers(0, 2**16))
    def crash_now(self, cut_seed: int | None) -> None:
        """Kill the process, or cut the power, between two steps."""
        self.crash(cut_seed)

    @invariant()
    def same(self) -> None:
        """Both engines have the same visible state."""
        if hasattr(self, "subject"):
            assert self.snapshot(self.subject) == self.snapshot(self.oracle)
            if isinstance(self.subject, EmbeddedEngine):
                assert self.subject.survey().queues == self.oracle.survey().queues
            problems = self.run(self.subject.validate())
            assert problems == [], problems
            self.known = self.run(pages(self.oracle, Filter(), 100, caller=Caller()))


def _explain(
    ids: Sequence[str], tenant: str, engine: Engine
) -> Awaitable[list[Explanation | None]]:
    return engine.explain(ids, tenant=tenant)
