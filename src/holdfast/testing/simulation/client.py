"""A client of the store: a process that enqueues, queries and operates on jobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

from msgspec.structs import replace

from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.contract import OnDuplicate
from holdfast.model.actions import (
    AnyAction,
    ArchiveJobs,
    CancelJobs,
    ConfirmJobs,
    EditJobs,
    NoteJobs,
    PurgeJobs,
    ReplayJobs,
    RestoreJobs,
    RetargetJobs,
)
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import (
    AccessDenied,
    ChangedMeanwhile,
    HoldfastError,
    InvalidInput,
    StorageFull,
)
from holdfast.model.event import NewEvent
from holdfast.model.event_search import EventFilter
from holdfast.model.fleet import WorkerCommand, WorkerProcess
from holdfast.model.group_life import GroupChange, GroupVerb
from holdfast.model.job import Edit, Job, NewJob, State
from holdfast.model.operation import NewOperation, OperationChange
from holdfast.model.outage import DependencyReport
from holdfast.model.payload_paths import Assignment
from holdfast.model.policy import QueuePolicy, Rate
from holdfast.model.projection import Rebuild, RebuildMode
from holdfast.model.record import Record
from holdfast.model.search import Filter, Order
from holdfast.model.subscription import Subscription

from . import projected
from .application import FAILURES, QUEUES, TASKS
from .owner import PATH
from .process import Process

T = TypeVar("T")

TENANTS = ("default", "default", "default", "acme")
_REFUSALS = (InvalidInput, AccessDenied, StorageFull)
"""Errors which mean that nothing was enqueued."""


class Client:
    """One process with a client engine that makes random calls."""

    def __init__(self, process: Process, name: str, first_number: int) -> None:
        world = process.world
        self._process = process
        self._name = name
        self._world = world
        self._rng = world.random(f"{process.name}/calls")
        self._number = first_number
        self._appended: list[NewEvent] = []
        self.engine = ClientEngine(
            PATH,
            patience_seconds=self._rng.choice([0.5, 2.0, 5.0]),
            clock=process.clock,
            random_bytes=world.random(f"{process.name}/ids").randbytes,
        )
        self._actions: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (40, self._enqueue_some),
            (8, self._enqueue_chain),
            (6, self._enqueue_again),
            (8, self._get_jobs),
            (3, self._query),
            (4, self._cancel),
            (6, self._replay),
            (4, self._archive),
            (4, self._restore),
            (2, self._purge),
            (3, self._confirm),
            (3, self._edit),
            (2, self._note),
            (4, self._set_policy),
            (2, self._set_flag_and_schedule),
            (1, self._set_record),
            (2, self._outages),
            (2, self._audit),
            (1, self._force_reclaim),
            (5, self._start_operation),
            (6, self._advance_operation),
            (2, self._change_operation),
            (2, self._retarget),
            (2, self._command_workers),
            (2, self._announce),
            (8, self._append),
            (3, self._append_again),
            (2, self._subscribe),
            (2, self._look_at_events),
            (2, self._rebuild),
        ]

    async def main(self) -> None:
        """Make one call after another while faults are active; then exit."""
        pause_seconds = self._world.scenario.pause_seconds
        weights = [weight for weight, _action in self._actions]
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / pause_seconds))
            if not self._world.faults_active:
                break
            action = self._rng.choices(self._actions, weights)[0][1]
            patience_seconds = self._rng.choice([None, None, None, None, 0.002, 0.3])
            try:
                async with asyncio.timeout(patience_seconds):
                    await action()
            except TimeoutError:
                self._world.trace.note("client.gave_up", self._process.name)
            except HoldfastError:
                pass  # the trace has it
        await self.engine.close()
        self._process.exit()

    async def call(self, verb: str, call: Awaitable[T], show: Callable[[T], object] = str) -> T:
        """Make a call and record its result in the trace."""
        trace, name = self._world.trace, self._process.name
        try:
            answer = await call
        except HoldfastError as error:
            trace.note(f"verb.{verb}", name, type(error).__name__)
            if error.code == "invariant_violation":
                trace.broken(f"{verb} found a bug: {error}")
            raise
        trace.note(f"verb.{verb}", name, str(show(answer)))
        return answer

    # --- enqueue -----------------------------------------------------------------------------

    async def _enqueue_some(self) -> None:
        named = self._rng.random() < 0.8
        jobs = [self._job(named=named) for _ in range(self._rng.choice([1, 1, 1, 2, 5]))]
        await self.enqueue(jobs)

    async def _enqueue_chain(self) -> None:
        """Enqueue a job and a dependent of it, which may also depend on earlier jobs."""
        tenant = self._rng.choice(TENANTS)
        known = [name[1] for name in self._world.ledger.created if name[0] == tenant]
        first = self._job(named=True, tenant=tenant)
        needs = self._rng.sample(known, min(len(known), self._rng.randint(0, 2)))
        second = self._job(named=True, tenant=tenant)
        second = replace(second, depends_on=(first.id or "", *needs))
        await self.enqueue([first, second])

    async def _enqueue_again(self) -> None:
        """Enqueue a job that was enqueued before, under the same id."""
        known = list(self._world.ledger.created.values())
        if known:
            job = self._rng.choice(known)
            await self.enqueue([job], on_duplicate=self._rng.choice(["refuse", "skip"]), ours=False)

    async def enqueue(
        self, jobs: Sequence[NewJob], *, on_duplicate: OnDuplicate = "refuse", ours: bool = True
    ) -> None:
        """Enqueue, and record the receipts in the ledger."""
        ledger = self._world.ledger
        try:
            receipts = await self.call(
                "enqueue",
                self.engine.enqueue(jobs, on_duplicate=on_duplicate),
                lambda got: ",".join(f"{one.id}:{one.admission}" for one in got),
            )
        except _REFUSALS as error:
            if ours:
                ledger.refused(jobs, type(error).__name__)
            raise
        ledger.enqueued(jobs, receipts)

    # --- events ------------------------------------------------------------------------------

    async def _append(self) -> None:
        news = [
            NewEvent(
                event_type=self._rng.choice(["book.renamed", "book.lent"]),
                entity_type="book",
                entity_id=str(self._rng.randint(1, 4)),
                actor_id=self._name,
                tenant=self._rng.choice(TENANTS),
                payload={"n": self._rng.randint(1, 9)},
                id=str(UUID(int=self._rng.getrandbits(128))),
            )
            for _ in range(self._rng.choice([1, 1, 2, 5]))
        ]
        self._appended += news
        await self.append(news)

    async def _append_again(self) -> None:
        """Append an event that was appended before, or another one under its id."""
        if self._appended:
            new = self._rng.choice(self._appended)
            if self._rng.random() < 0.2:
                new = replace(new, actor_id="somebody")
            await self.append([new])

    async def append(self, news: Sequence[NewEvent]) -> None:
        """Append, and record the receipts in the ledger."""
        receipts = await self.call(
            "append",
            self.engine.append(news),
            lambda got: ",".join(f"{one.id}:{one.position}:{one.created}" for one in got),
        )
        self._world.ledger.appended(news, receipts)

    async def _subscribe(self) -> None:
        task = self._rng.choice(list(TASKS))
        types = self._rng.choice([(), (), ("book.lent",)])
        name = self._rng.choice(["chronicle", "search"])
        new = Subscription(name, TASKS[task], task, types)
        gone = self._rng.random() < 0.2
        call = self.engine.set_subscription(
            name, None if gone else new, self._operation("subscription")
        )
        await self.call("set_subscription", call)

    async def _look_at_events(self) -> None:
        engine = self.engine
        wanted = EventFilter(tenant=self._rng.choice(TENANTS), entity_id="1")
        page = await self.call(
            "find_events", engine.find_events(wanted, limit=5), lambda got: len(got.events)
        )
        await self.call("count_events", engine.count_events(wanted))
        ids = [event.id for event in page.events]
        found = await self.call(
            "get_events", engine.get_events(ids, tenant=wanted.tenant or ""), len
        )
        if found != page.events:
            self._world.trace.broken(f"of the events {ids} others were returned: {found}")
        await self.call("subscriptions", engine.subscriptions(), len)

    async def _rebuild(self) -> None:
        """Start a rebuild of the projection, which its owner carries out."""
        engine = self.engine
        states = await self.call("projections", engine.projections(), len)
        state = states.get(projected.NAME)
        if state is None or state.rebuild is not None:
            return
        self._number += 1
        aside = state.newest < projected.MAX_GENERATION and self._rng.random() < 0.5
        rebuild = Rebuild(
            id=f"{self._name}-rb{self._number}",
            mode=RebuildMode.GENERATION if aside else RebuildMode.TRUNCATE,
            generation=state.newest + 1 if aside else state.live,
            by=self._name,
            started_at_us=await engine.now_us(),
        )
        after = replace(state, rebuild=rebuild, newest=max(state.newest, rebuild.generation))
        call = engine.set_projection(after, self._operation("rebuild.start"), expected=state)
        await self.call("set_projection", call, lambda _none: f"{rebuild.id} {rebuild.mode.value}")

    def _job(self, *, named: bool, tenant: str | None = None) -> NewJob:
        rng = self._rng
        self._number += 1
        task = rng.choice(list(TASKS))
        ms = rng.choice([0, 5, 50, 200, 800])
        if task == "long":
            ms = rng.choice([500, 2_000, 5_000])
        return NewJob(
            task=task,
            queue=TASKS[task],
            tenant=tenant or rng.choice(TENANTS),
            id=f"{self._name}-{self._number}" if named else None,
            payload={"ms": ms, "fates": self._fates()},
            priority=rng.choice([0, 0, 0, 5, -1]),
            max_attempts=rng.choice([1, 3, 3, 5]),
            delay_seconds=rng.choice([None, None, None, 0.5, 2.0]),
            expires_seconds=rng.choice([None] * 8 + [1.0, 10.0]),
            unique=rng.choice([None] * 6 + ["nightly", "hourly"]),
            estimated_seconds=rng.choice([None] * 6 + [5.0]),
            key=rng.choice([None, None, None, "book:7", "book:8"]),
            hold=rng.random() < 0.04,
        )

    def _fates(self) -> list[str]:
        kind = self._rng.random()
        if kind < 0.6:
            return []
        if kind < 0.7:
            return ["result"]
        if kind < 0.78:
            return [self._rng.choice(["endless", "stubborn"])]
        return self._rng.choices(list(FAILURES), k=self._rng.choice([1, 1, 2, 3]))

    # --- queries -----------------------------------------------------------------------------

    async def _get_jobs(self) -> None:
        tenant, ids = self._some_ids(3)
        found = await self.call("get", self.engine.get(ids, tenant=tenant), _states)
        self._world.ledger.observed(found)

    async def _query(self) -> None:
        rng, engine = self._rng, self.engine
        page = await self.call(
            "find",
            engine.find(
                Filter(queues=(rng.choice(QUEUES),)), limit=20, order=rng.choice(list(Order))
            ),
            lambda page: _states(page.jobs),
        )
        self._world.ledger.observed(page.jobs)
        await self.call("counts", engine.counts(), lambda counts: sorted(counts.items()))
        await self.call("queues", engine.queues(), list)
        groups = await self.call("groups", engine.groups(), len)
        if groups:
            change = GroupChange(GroupVerb.NOTE, "seen")
            act = engine.set_group(rng.choice(groups).id, change, self._operation("group.note"))
            await self.call("set_group", act, lambda group: group and group.id)
        await self.call("count", engine.count(Filter(states=(State.DEAD,)), cap=5), str)
        tenant, ids = self._some_ids(2)
        await self.call("explain", engine.explain(ids, tenant=tenant), len)
        await self.call("history", engine.history(ids, tenant=tenant), len)
        problems = await self.call("validate", engine.validate(), len)
        if problems:
            self._world.trace.broken(f"validate found {problems}")
        await self.call("policies", engine.policies(), sorted)
        await self.call("flags", engine.flags(), sorted)
        await self.call("changes", engine.changes(), lambda got: len(got.marks))
        await self.call("schedules", engine.schedules(), sorted)
        await self.call("audited", engine.audited(limit=5), len)
        await self._sample()
        held = [job for job in page.jobs if job.state is State.IN_FLIGHT]
        await self.call("leases", engine.leases(held), len)

    # --- admin -------------------------------------------------------------------------------

    async def _cancel(self) -> None:
        wanted = self._filter(State.PENDING, State.IN_FLIGHT, State.BLOCKED)
        await self._operate(CancelJobs(), wanted)

    async def _replay(self) -> None:
        fixed = self._rng.choice(["", "the mapping"])
        await self._operate(ReplayJobs(fixed=fixed), Filter(states=(State.DEAD,)), 3)

    async def _start_operation(self) -> None:
        rng = self._rng
        self._number += 1
        replay = ReplayJobs(fixed=rng.choice(["", "the mapping"]))
        change = EditJobs((Assignment("payload.ms", b"1"),))
        choices: list[AnyAction] = [replay, replay, replay, ArchiveJobs(), change]
        action = rng.choice(choices)
        paced = isinstance(action, ReplayJobs)
        new = NewOperation(
            id=f"{self._name}-op{self._number}",
            action=action,
            wanted=Filter(states=(State.DEAD,)),
            limit=rng.choice([None, 1, 5]),
            rate=rng.choice([None, None, Rate(2, 1.0), Rate(20, 1.0)]),
            canary=rng.choice([0, 0, 2]) if paced else 0,
            abort_ratio=rng.choice([None, 1.0]) if paced else None,
        )
        call = self.engine.start_operation(new, self._operation("operation.start"))
        await self.call("start_operation", call, lambda one: f"{one.id} {one.acted}")

    async def _advance_operation(self) -> None:
        """Take steps of an operation: any process may."""
        call = self.engine.operations(running=True)
        found = await self.call("operations", call, len)
        await self.call("now", self.engine.now_us())
        if found:
            operation = self._rng.choice(found)
            for _step in range(self._rng.randint(1, 3)):
                step = self.engine.advance_operation(operation.id)
                await self.call("advance_operation", step, lambda one: one.acted)
            await self.call("operation", self.engine.operation(operation.id), lambda one: one.state)

    async def _change_operation(self) -> None:
        found = await self.call("operations", self.engine.operations(running=True), len)
        if found:
            rng = self._rng
            asked = rng.choice(
                [
                    OperationChange(paused=True),
                    OperationChange(paused=False),
                    OperationChange(abort=True),
                    OperationChange(rate=Rate(5, 1.0)),
                ]
            )
            call = self.engine.change_operation(
                rng.choice(found).id, asked, self._operation("operation.change")
            )
            await self.call("change_operation", call, lambda one: f"{one.id} {one.state}")

    async def _retarget(self) -> None:
        await self._operate(RetargetJobs("mail"), Filter(tasks=("work",)), 1)
        change = EditJobs((Assignment("payload.ms", b"2"),))
        await self._operate(change, self._filter(State.PENDING, State.DEAD))

    async def _archive(self) -> None:
        await self._operate(ArchiveJobs(), Filter(states=(State.DEAD,)), 1)

    async def _restore(self) -> None:
        await self._operate(RestoreJobs(), Filter(states=(State.ARCHIVED,)), 1)

    async def _purge(self) -> None:
        """Purge jobs by their ids, all of which must be purgeable, or some that a filter finds."""
        wanted = self._filter(State.COMPLETED, State.CANCELLED, State.DEAD)
        if self._rng.random() < 0.5:
            wanted = Filter(states=wanted.states)
        await self._operate(PurgeJobs(), wanted, 3)

    async def _confirm(self) -> None:
        await self._operate(ConfirmJobs(), Filter(states=(State.BLOCKED,)))

    async def _edit(self) -> None:
        tenant, ids = self._some_ids(1)
        for job in await self.call("get", self.engine.get(ids, tenant=tenant), _states):
            if job is not None:
                changes = Edit(priority=self._rng.randint(-2, 2), payload={"ms": 1})
                call = self.engine.edit(job, changes, self._operation("edit"), version=job.version)
                edited = await self.call("edit", call, lambda got: f"{got.id} {got.version}")
                self._world.ledger.observed([edited])

    async def _note(self) -> None:
        await self._operate(NoteJobs("seen"), self._filter(State.DEAD, State.COMPLETED))

    async def _set_policy(self) -> None:
        rng = self._rng
        policy = rng.choice(
            [
                None,
                None,
                QueuePolicy(paused=True),
                QueuePolicy(max_in_flight=1),
                QueuePolicy(max_per_tenant=1, fair=True),
                QueuePolicy(rate=Rate(5, 1.0)),
                QueuePolicy(ordered=False, max_per_key=1),
            ]
        )
        queue = rng.choice(QUEUES)
        call = self.engine.set_policy(queue, policy, self._operation("policy"))
        await self.call("set_policy", call, lambda _no_op: f"{queue} {policy}")

    async def _set_flag_and_schedule(self) -> None:
        on = self._rng.choice([True, False, None])
        await self.call("set_flag", self.engine.set_flag("f", self._operation("flag"), on=on))
        state = ScheduleState("* * * * *", "UTC", "work", "default", paused=bool(on))
        call = self.engine.set_schedule("s", state, self._operation("schedule"))
        await self.call("set_schedule", call)

    async def _set_record(self) -> None:
        """Change a record from what is there, or from what another client left."""
        found = await self.call("records", self.engine.records("key", ["k"]), len)
        before = found[0] if found else None
        after = Record("key", "k", f'{{"n":{self._rng.randrange(9)}}}')
        change = self.engine.set_record(
            "key", "k", after, self._operation("record"), expected=before
        )
        with contextlib.suppress(ChangedMeanwhile):
            await self.call("set_record", change)

    async def _outages(self) -> None:
        """Report an outage, start one by hand, or end one."""
        rng, engine = self._rng, self.engine
        active = await self.call("outages", engine.outages(), len)
        dependency = rng.choice(QUEUES)
        report = DependencyReport(dependency, tripped=rng.random() < 0.5)
        await self.call(
            "report_outage", engine.report_outage([report]), lambda got: len(got.outages)
        )
        on = dependency not in [one.dependency for one in active]
        call = engine.set_outage(dependency, self._operation("outage"), on=on)
        await self.call("set_outage", call, lambda outage: f"{dependency} {outage.phase.value}")

    async def _audit(self) -> None:
        entry = AuditEntry("look", "job", "some", self._name)
        head = await self.call("audit", self.engine.audit([entry]), lambda head: head.count)
        self._world.ledger.audited(head)

    async def _force_reclaim(self) -> None:
        """End leases of jobs in flight, as an operator may."""
        page = await self.engine.find(Filter(states=(State.IN_FLIGHT,)), limit=2)
        if page.jobs:
            call = self.engine.reclaim(forced=page.jobs)
            await self.call("reclaim", call, lambda got: f"{len(got.lost)} {len(got.expired)}")

    async def _sample(self) -> None:
        """Take a sample, if it is time, and look at all of them: no rate is negative."""
        now_us = self._process.clock.now_us()
        await self.call("take_sample", self.engine.take_sample(every_seconds=2.0), lambda _due: "")
        found = await self.call("samples", self.engine.samples(from_us=1, to_us=now_us + 1), len)
        for point in (point for points in found.values() for point in points):
            if min(point.enqueued_per_second, point.completed_per_second) < 0:
                self._world.trace.broken(f"a rate is negative: {point}")

    async def _command_workers(self) -> None:
        """Send every live process a command; look for the answers later."""
        engine = self.engine
        found = await self.call("workers", engine.workers(gone=self._rng.random() < 0.5), len)
        if found:
            command = WorkerCommand("resize", slots=self._rng.randint(1, 4))
            call = engine.command(
                command,
                [entry.process.id for entry in found],
                self._operation("worker.resize"),
                ttl_seconds=5.0,
            )
            command_id = await self.call("command", call, lambda _id: command.slots)
            await asyncio.sleep(self._rng.choice([0.0, 0.5, 2.0]))
            await self.call("answers", engine.answers(command_id), len)

    async def _announce(self) -> None:
        """Enter this client as a process that runs no jobs, and leave again."""
        process = WorkerProcess(
            id=f"{self._name}-life",
            name=self._name,
            host="simulated",
            pid=1,
            version="0",
            started_at_us=0,
            slots={},
            processes={f"{self._name}-worker": None},
        )
        await self.call("announce", self.engine.announce(process, ttl_seconds=4.0), len)
        if self._rng.random() < 0.5:
            await self.call("depart", self.engine.depart(process.id))

    async def _operate(self, action: AnyAction, wanted: Filter, limit: int = 1_000) -> None:
        call = self.engine.operate(action, wanted, self._operation(action.name), limit=limit)
        done = await self.call(
            action.name, call, lambda done: f"{_states(done.jobs)} kept {done.kept}"
        )
        if not isinstance(action, PurgeJobs):
            self._world.ledger.observed(done.jobs)

    def _operation(self, action: str) -> Attribution:
        entry = AuditEntry(action, "job", "some", self._name, reason="because")
        return Attribution(self._name, "because", (entry,))

    def _filter(self, *states: State) -> Filter:
        tenant, ids = self._some_ids(self._rng.randint(1, 3))
        return Filter(ids=tuple(ids), tenant=tenant, states=(self._rng.choice(states),))

    def _some_ids(self, count: int) -> tuple[str, list[str]]:
        """Return a tenant and ids of its jobs, most of which exist or existed."""
        tenant = self._rng.choice(TENANTS)
        known = [name[1] for name in self._world.ledger.created if name[0] == tenant]
        return tenant, self._rng.choices([*known, "nobody-knows"], k=count)


def _states(jobs: Sequence[Job | None]) -> str:
    return ",".join("-" if job is None else f"{job.id}:{job.state.value}" for job in jobs)
