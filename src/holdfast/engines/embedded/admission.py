"""Admission of new jobs: one request, or all requests that arrive close together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from holdfast.engines.argument_checks import check_access
from holdfast.engines.contract import Admission, OnDuplicate, Receipt
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.effects import Enqueued
from holdfast.model.errors import (
    AccessDenied,
    DuplicateId,
    DurabilityLost,
    EngineClosed,
    InvalidInput,
    UnknownDependency,
)
from holdfast.model.job import Job, NewJob, State, admit, check_id

Name = tuple[str, str]
"""A job's tenant and id."""

Find = Callable[[str, str, Caller], Job | None]
"""Finds a job, finished ones included while they are kept."""

QUIET_TURNS = 2
"""A batch is complete after so many turns of the event loop without a new request. One is too few:
what is read from a connection in one turn becomes a request in the next."""
MAX_REQUESTS = 64
MAX_WAIT_SECONDS = 0.001
"""A batch of this size or age is decided even if more requests keep arriving."""


class KnownJobs(Protocol):
    """What new jobs are checked against."""

    seq: int

    def unfinished(self, tenant: str, queue: str, unique: str) -> Job | None:
        """Return the unfinished job that has this unique key."""


class PendingEnqueue:
    """One enqueue call that waits to be decided together with others."""

    __slots__ = ("answer", "caller", "future", "jobs", "on_duplicate")

    def __init__(
        self,
        jobs: Sequence[NewJob],
        caller: Caller,
        on_duplicate: OnDuplicate,
        future: asyncio.Future[list[Receipt]],
    ) -> None:
        self.jobs = jobs
        self.caller = caller
        self.on_duplicate = on_duplicate
        self.future = future
        self.answer: list[Receipt] | Exception = []


class EnqueueBatcher:
    """Batches requests that arrive close together: decided at once, answered when durable.

    It uses no timer: it yields so that queued requests join the batch.
    """

    def __init__(
        self,
        decide: Callable[[Sequence[PendingEnqueue]], None],
        durable_future: Callable[[int], asyncio.Future[None] | None],
    ) -> None:
        self._decide = decide
        self._durable_future = durable_future
        self._requests: list[PendingEnqueue] = []
        self._seen = 0
        self._quiet_turns = 0
        self._until = 0.0

    @property
    def waiting(self) -> bool:
        """Whether requests wait: a later one must not overtake them."""
        return bool(self._requests)

    def add(
        self, jobs: Sequence[NewJob], caller: Caller, on_duplicate: OnDuplicate
    ) -> asyncio.Future[list[Receipt]]:
        """Add a request; return the future of its answer."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Receipt]] = loop.create_future()
        if not self._requests:
            self._seen = self._quiet_turns = 0
            self._until = loop.time() + MAX_WAIT_SECONDS
            loop.call_soon(self._turn, loop)
        self._requests.append(PendingEnqueue(jobs, caller, on_duplicate, future))
        return future

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Decide, unless the last turns brought new requests."""
        here = len(self._requests)
        self._quiet_turns = 0 if here > self._seen else self._quiet_turns + 1
        self._seen = here
        if self._quiet_turns < QUIET_TURNS and here < MAX_REQUESTS and loop.time() < self._until:
            loop.call_soon(self._turn, loop)
        else:
            self.decide()

    def decide(self) -> None:
        """Decide all waiting requests, except those cancelled meanwhile."""
        requests = [request for request in self._requests if not request.future.done()]
        self._requests = []
        if not requests:
            return
        try:
            self._decide(requests)
            durable = self._durable_future(len(requests))
        except BaseException as error:
            _finish(requests, error)
            if not isinstance(error, Exception):
                raise  # an interrupt concerns the whole process
            return
        if durable is None:
            _finish(requests)
        elif durable.done():
            _finish(requests, durable.exception())
        else:
            durable.add_done_callback(lambda done: _finish(requests, done.exception()))


def _finish(requests: list[PendingEnqueue], failure: BaseException | None = None) -> None:
    for request in requests:
        answer = request.answer
        if failure is not None:
            # One exception each: a shared one would collect tracebacks.
            kind = EngineClosed if isinstance(failure, EngineClosed) else DurabilityLost
            answer = kind(str(failure))
            answer.__cause__ = failure.__cause__ or failure
        if request.future.done():
            continue  # its caller was cancelled
        if isinstance(answer, list):
            request.future.set_result(answer)
        else:
            request.future.set_exception(answer)


class JobAdmission:
    """The new jobs of one commit. Later requests see what earlier ones take."""

    def __init__(
        self,
        known: KnownJobs,
        find: Find,
        now_us: int,
        fresh_ids: Iterator[str],
        max_payload_bytes: int,
        created_from_us: int,
    ) -> None:
        """Take what the decisions rest on.

        The first job is created at ``created_from_us``, each further one a microsecond later, so
        that lists have them in this order.
        """
        self.effects: list[Enqueued] = []
        self._known = known
        self._find = find
        self._now_us = now_us
        self._fresh_ids = fresh_ids
        self._max_payload_bytes = max_payload_bytes
        self._created_from_us = created_from_us
        self._ids: set[Name] = set()
        self._unique: dict[tuple[str, str, str], Job] = {}

    def take(
        self, jobs: Sequence[NewJob], caller: Caller, on_duplicate: OnDuplicate
    ) -> list[Receipt]:
        """Decide one request: take all of it, or raise and take nothing."""
        effects: list[Enqueued] = []
        receipts: list[Receipt] = []
        duplicates: list[str] = []
        ids: set[Name] = set()
        depends = False
        unique: dict[tuple[str, str, str], Job] = {}
        existing: dict[Name, Job] = {}
        seq = self._known.seq + len(self.effects)
        now_us, everything = self._now_us, caller.unlimited
        for new in jobs:
            if not everything:
                check_access(new.tenant, new.scope, caller)
            job_id = next(self._fresh_ids) if new.id is None else check_id(new.id)
            created_at_us = self._created_from_us + len(self.effects) + len(effects)
            job = admit(new, job_id, now_us, seq + 1, self._max_payload_bytes, created_at_us)
            if job.unique is not None:
                key = job.tenant, job.queue, job.unique
                first = unique.get(key) or self._first_of(key, caller)
                if first is not None:
                    existing[job.tenant, job_id] = first
                    receipts.append(Receipt(first.id, Admission.EXISTING))
                    continue
            if new.id is not None:
                name = job.tenant, job_id
                if name in ids or name in self._ids or self._find(*name, SYSTEM):
                    duplicates.append(job_id)
                    receipts.append(Receipt(job_id, Admission.SKIPPED))
                    continue
                ids.add(name)
            if job.unique is not None:
                unique[job.tenant, job.queue, job.unique] = job
            seq += 1
            depends = depends or bool(job.ties.depends_on)
            effects.append(Enqueued(now_us, job))
            receipts.append(Receipt(job_id))
        if duplicates and on_duplicate == "refuse":
            raise DuplicateId(duplicates)
        if depends:
            effects = self._resolve_dependencies(_on_existing(effects, existing), existing, caller)
        if ids:
            self._ids |= ids
        if unique:
            self._unique |= unique
        self.effects += effects
        return receipts

    def _resolve_dependencies(
        self, enqueued: Sequence[Enqueued], existing: Mapping[Name, Job], caller: Caller
    ) -> list[Enqueued]:
        """Return these with what each still has to wait for; raise if one would wait forever."""
        firsts = {(job.tenant, job.id): job for job in existing.values()}
        ours = {(one.job.tenant, one.job.id): one.job for one in enqueued}
        taken = {(one.job.tenant, one.job.id): one.job for one in self.effects}
        _check_circles(ours)
        resolved: list[Enqueued] = []
        for one in enqueued:
            job = one.job
            left: list[str] = []
            for needed in job.ties.waiting_for:
                name = job.tenant, needed
                found = taken.get(name) or ours.get(name) or firsts.get(name)
                found = found or self._find(*name, SYSTEM)
                if _must_wait(job, needed, found, caller):
                    left.append(needed)
            if len(left) == len(job.ties.waiting_for):
                resolved.append(one)
                continue
            ties = replace(job.ties, waiting_for=tuple(left))
            state = State.BLOCKED if left or ties.hold else State.PENDING
            resolved.append(Enqueued(one.at_us, replace(job, ties=ties, state=state)))
        return resolved

    def _first_of(self, key: tuple[str, str, str], caller: Caller) -> Job | None:
        first = self._unique.get(key) or self._known.unfinished(*key)
        if first is not None and not caller.can_access(first.tenant, first.scope):
            raise AccessDenied("unique", key[2])
        return first


def _on_existing(enqueued: list[Enqueued], existing: Mapping[Name, Job]) -> list[Enqueued]:
    """Let jobs that depend on one with a unique key depend on the job that has the key already."""
    if not existing:
        return enqueued
    changed: list[Enqueued] = []
    for one in enqueued:
        job = one.job
        named = [existing.get((job.tenant, needed)) for needed in job.ties.depends_on]
        if any(named):
            pairs = zip(job.ties.depends_on, named, strict=True)
            needs = tuple(dict.fromkeys(first.id if first else needed for needed, first in pairs))
            ties = replace(job.ties, depends_on=needs, waiting_for=needs)
            one = Enqueued(one.at_us, replace(job, ties=ties))  # noqa: PLW2901
        changed.append(one)
    return changed


def _must_wait(job: Job, dependency: str, found: Job | None, caller: Caller) -> bool:
    if found is None or not caller.can_access(found.tenant, found.scope):
        raise UnknownDependency(job.id, dependency)
    if found.state in (State.CANCELLED, State.ARCHIVED):
        raise InvalidInput(
            "depends_on", f"job {dependency!r} is {found.state}: {job.id!r} would never run"
        )
    return found.state is not State.COMPLETED


def _check_circles(jobs: Mapping[Name, Job]) -> None:
    """Raise if jobs of one request wait for each other in a circle; name its members."""
    done: set[Name] = set()
    for start in jobs:
        path: list[Name] = []
        on_path: set[Name] = set()
        waiting: list[tuple[Name, bool]] = [(start, False)]
        while waiting:
            name, leaving = waiting.pop()
            if leaving:
                on_path.discard(path.pop())
                done.add(name)
                continue
            if name in on_path:
                circle = [one[1] for one in path[path.index(name) :]]
                raise InvalidInput(
                    "depends_on",
                    f"{' → '.join([*circle, name[1]])} wait for each other in a circle",
                )
            if name in done or name not in jobs:
                continue
            path.append(name)
            on_path.add(name)
            waiting.append((name, True))
            waiting.extend(((name[0], one), False) for one in jobs[name].ties.waiting_for)
