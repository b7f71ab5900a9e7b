"""Enqueue: simple jobs in one statement, others after a look at the jobs that they refer to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from holdfast.engines.argument_checks import check_access
from holdfast.engines.contract import OnDuplicate, Receipt
from holdfast.engines.embedded.admission import JobAdmission
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import (
    SansIO,
    Statement,
    StatementBatch,
    execute_all,
    execute_and_commit,
)
from holdfast.model.access import Caller
from holdfast.model.job import Job, Kind, NewJob, State, accept, check_payload, is_name
from holdfast.model.uniform_batch import UniformBatch

from .line_up import lock_order, mark_fresh
from .unit_of_work import NEXT_SEQ, Key, Name, keys_of, lock_keys, promote_key_heads

_FIRST_PART, _LARGEST_PART = 64, 400
"""How many jobs of a uniform batch go into one statement. Parts double in size: the server is idle
until it has the first, needs at least twice as long for a job as it takes to encode the next, and
a statement costs it as much as ten jobs."""
_SEQ_BLOCK = 65_536
"""How many sequence numbers one value of ``holdfast.places`` reserves."""
_KIND_FIELDS = ("tenant", "queue", "task", "priority", "max_attempts")
_OTHER_FIELDS = ("scope", "estimated_seconds", "max_processing_seconds")
Due = tuple[str, str]
"""The queue and the task of a job that may be claimed."""


class EnqueueRequest:
    """One call of enqueue, and its answer."""

    def __init__(
        self,
        jobs: Sequence[NewJob],
        caller: Caller,
        on_duplicate: OnDuplicate,
        ids: Sequence[str],
    ) -> None:
        """Take as many fresh ids as there are jobs."""
        self.jobs = jobs
        self.caller = caller
        self.on_duplicate = on_duplicate
        self.ids = ids
        self.answer: list[Receipt] | Exception = []
        self.kinds = [jobs.like] if type(jobs) is UniformBatch else jobs
        """The jobs, or the one that all are like: known before they are built."""
        self.simple = all(map(is_simple, self.kinds))
        """Whether all its jobs are simple, see ``is_simple``."""

    def build(self) -> None:
        """Build all jobs, or raise what is wrong with one: for requests that wait anyway."""
        if type(self.jobs) is UniformBatch:
            self.jobs.payloads.make_all()

    def receipts(self) -> list[Receipt]:
        """Return the answer, or raise it."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def is_simple(new: NewJob) -> bool:
    """Whether a job has no id, key, dependency or time of its own: it just runs now."""
    return (
        new.id is None
        and new.unique is None
        and new.key is None
        and new.depends_on == ()
        and new.hold is False
        and new.run_at_us is None
        and new.delay_seconds is None
        and new.expires_at_us is None
        and new.expires_seconds is None
    )


def enqueue(requests: Sequence[EnqueueRequest], context: CallContext) -> SansIO[set[Due]]:
    """Answer requests, all or none of them simple; return what is due now."""
    if requests[0].simple:
        return (yield from _enqueue_simple(requests, context))
    return (yield from _enqueue_full(requests, context))


def _enqueue_simple(requests: Sequence[EnqueueRequest], context: CallContext) -> SansIO[set[Due]]:
    """Enqueue simple jobs in one statement, or in parts if that is faster."""
    if len(requests) == 1:
        jobs = requests[0].jobs
        if type(jobs) is UniformBatch and jobs:
            return (yield from _enqueue_uniform(requests[0], jobs, context))
        if len(jobs) == 1:
            return (yield from _enqueue_one(requests[0], jobs[0], context))
    columns = _SimpleColumns()
    for request in requests:
        try:
            columns.add(request, context)
        except Exception as error:  # noqa: BLE001 - it is this request's own answer
            request.answer = error
        else:
            request.answer = [Receipt(job_id) for job_id in request.ids]
    if columns.ids:
        yield from execute_and_commit(columns.statement(context))
    return {(kind[1], kind[2]) for kind in set(columns.kinds)}


def _enqueue_uniform(
    request: EnqueueRequest, jobs: UniformBatch, context: CallContext
) -> SansIO[set[Due]]:
    """Enqueue many in one transaction; the server runs a part while the next is encoded."""
    like = jobs.like
    check_access(like.tenant, like.scope, request.caller)
    _payload, kind = accept(like, context.options.max_payload_bytes)
    yield StatementBatch(_parts(request, jobs, _common_columns(like, kind), context), last=True)
    return {(like.queue, like.task)}


def _enqueue_one(request: EnqueueRequest, new: NewJob, context: CallContext) -> SansIO[set[Due]]:
    check_access(new.tenant, new.scope, request.caller)
    payload, kind = accept(new, context.options.max_payload_bytes)
    [job_id] = request.ids
    parameters = {
        **_common_columns(new, kind),
        "id": job_id,
        "payload": payload,
        "channel": context.channel,
        "now_us": context.now_us,
        "created_us": context.created_us,
    }
    yield StatementBatch([Statement("enqueue_one", parameters)], last=True)
    request.answer = [Receipt(job_id)]
    return {(new.queue, new.task)}


def _parts(
    request: EnqueueRequest, jobs: UniformBatch, common: Mapping[str, object], context: CallContext
) -> Iterator[Statement]:
    most = context.options.max_payload_bytes
    first, size = 0, _FIRST_PART
    while first < len(jobs):
        part = slice(first, first + size)
        payloads = jobs.payloads[part]
        for payload in payloads:
            check_payload(payload, most)
        each = _job_columns(request.ids[part], payloads, context, first)
        yield Statement("enqueue", {**common, **each})
        first, size = first + size, min(2 * size, _LARGEST_PART)
    request.answer = [Receipt(job_id) for job_id in request.ids]


class _SimpleColumns:
    """Simple jobs, by column."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.kinds: list[Kind] = []
        self._payloads: list[bytes] = []
        self._jobs: list[NewJob] = []

    def add(self, request: EnqueueRequest, context: CallContext) -> None:
        """Add all jobs of a request, or raise what is wrong with one."""
        caller, most = request.caller, context.options.max_payload_bytes
        if not caller.unlimited:
            for new in request.jobs:
                check_access(new.tenant, new.scope, caller)
        accepted = [accept(new, most) for new in request.jobs]
        self.ids += request.ids
        self._jobs += request.jobs
        self._payloads += [payload for payload, _kind in accepted]
        self.kinds += [kind for _payload, kind in accepted]

    def statement(self, context: CallContext) -> Statement:
        """Return the statement that inserts them: for jobs of one kind, or for any."""
        each = _job_columns(self.ids, self._payloads, context)
        if self._are_uniform():
            return Statement("enqueue", _common_columns(self._jobs[0], self.kinds[0]) | each)
        kinds = dict(zip(_KIND_FIELDS, map(list, zip(*self.kinds, strict=True)), strict=True))
        return Statement("enqueue_mixed", {**kinds, **self._other_columns(), **each})

    def _are_uniform(self) -> bool:
        count = len(self.ids)
        columns: list[Sequence[object]] = [self.kinds, *self._other_columns().values()]
        return count <= _SEQ_BLOCK and all(column.count(column[0]) == count for column in columns)

    def _other_columns(self) -> dict[str, list[object]]:
        return {name: [getattr(new, name) for new in self._jobs] for name in _OTHER_FIELDS}


def _common_columns(like: NewJob, kind: Kind) -> dict[str, object]:
    """Return the parameters that all jobs of a kind share."""
    tenant, queue, task, priority, max_attempts = kind
    return {
        "tenant": tenant,
        "queue": queue,
        "task": task,
        "priority": priority,
        "max_attempts": max_attempts,
        "scope": like.scope,
        "estimated_seconds": like.estimated_seconds,
        "max_processing_seconds": like.max_processing_seconds,
    }


def _job_columns(
    ids: Sequence[str], payloads: list[bytes], context: CallContext, before: int = 0
) -> dict[str, object]:
    """Return the parameters that differ by job, and those of the call; some jobs came before."""
    created_us = None if context.created_us is None else context.created_us + before
    return {
        "ids": ids,
        "payloads": payloads,
        "channel": context.channel,
        "now_us": context.now_us,
        "created_us": created_us,
    }


def _enqueue_full(requests: Sequence[EnqueueRequest], context: CallContext) -> SansIO[set[Due]]:
    """Enqueue jobs that have an id, a key, dependencies or a time of their own."""
    news = [new for request in requests for new in request.jobs]
    named = _names((new.tenant, new.id) for new in news if new.id is not None)
    needed = _names((new.tenant, one) for new in news for one in _listed(new.depends_on))
    existing = yield from _existing_jobs(news, named, needed, context)
    fresh = (job_id for request in requests for job_id in request.ids)
    admission = JobAdmission(
        existing,
        existing.find,
        existing.now_us,
        fresh,
        context.options.max_payload_bytes,
        existing.now_us if context.created_us is None else context.created_us,
    )
    for request in requests:
        try:
            request.answer = admission.take(request.jobs, request.caller, request.on_duplicate)
        except Exception as error:  # noqa: BLE001 - it is this request's own answer
            request.answer = error
    jobs = [_unplaced(effect.job) for effect in admission.effects]
    if not jobs:
        return set()
    statements = [Statement("put_jobs", {**rows.columns(jobs), "known": False})]
    if named:
        new = {(job.tenant, job.id) for job in jobs}
        given = rows.names(name for name in named if name in new)
        times = {"now_us": context.now_us, "remember_us": context.remember_us}
        statements.append(Statement("refuse_known", {**given, **times}))
    if needed:
        waited = ((job.tenant, one) for job in jobs for one in job.ties.waiting_for)
        statements.append(Statement("mark_tied", rows.names(dict.fromkeys([*needed, *waited]))))
    line_up = mark_fresh if context.joined else promote_key_heads
    statements += line_up(keys_of(jobs))
    statements.append(context.notify(sorted({job.queue for job in jobs})))
    yield from execute_and_commit(*statements)
    return {(job.queue, job.task) for job in jobs if job.state is State.PENDING}


class _ExistingJobs:
    """The jobs that new jobs refer to: by id, by dependency or by unique key."""

    seq = NEXT_SEQ

    def __init__(self, now_us: int, jobs: Iterable[Job], unique: Iterable[Job]) -> None:
        self.now_us = now_us
        self._jobs = {(job.tenant, job.id): job for job in jobs}
        self._unique = {(job.tenant, job.queue, job.unique): job for job in unique}

    def find(self, tenant: str, job_id: str, _caller: Caller) -> Job | None:
        return self._jobs.get((tenant, job_id))

    def unfinished(self, tenant: str, queue: str, unique: str) -> Job | None:
        return self._unique.get((tenant, queue, unique))


def _existing_jobs(
    jobs: Sequence[NewJob], named: Sequence[Name], needed: Sequence[Name], context: CallContext
) -> SansIO[_ExistingJobs]:
    keys = list(dict.fromkeys(_keys(jobs)))
    statements = lock_order(keys) if context.joined else lock_keys(keys)
    if needed:
        # A dependency must not end between this look and the commit.
        statements += [
            Statement("lock_jobs", rows.names(needed)),
            Statement("lock_dead", rows.names(needed)),
        ]
    unique = [
        (new.tenant, new.queue, new.unique)
        for new in jobs
        if new.unique is not None and _all_names(new.tenant, new.queue, new.unique)
    ]
    names = rows.names(dict.fromkeys([*named, *needed]))
    results = yield from execute_all(
        *statements, context.now(), context.get(names), rows.find_unique(unique)
    )
    [[now_us]], found, firsts = results[-3:]
    unique_jobs = list(map(rows.job_of, firsts))
    if needed and unique_jobs:
        # A new job may depend on one of these in place of a job that is not created.
        names = rows.names((job.tenant, job.id) for job in unique_jobs)
        [locked] = yield from execute_all(Statement("lock_jobs", names))
        unique_jobs = list(map(rows.job_of, locked))
    return _ExistingJobs(now_us, map(rows.job_of, found), unique_jobs)


def _keys(jobs: Sequence[NewJob]) -> Iterator[Key]:
    for new in jobs:
        if new.key is not None and _all_names(new.tenant, new.queue, new.key):
            yield new.tenant, new.queue, new.key


def _names(names: Iterable[tuple[object, object]]) -> list[Name]:
    """Return those that are valid names of jobs, each once; others are refused later."""
    found = [name for name in names if _all_names(*name)]
    return list(dict.fromkeys((str(tenant), str(job_id)) for tenant, job_id in found))


def _all_names(*values: object) -> bool:
    return all(map(is_name, values))


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, tuple | list) else ()


def _unplaced(job: Job) -> Job:
    ties = job.ties if job.ties.key is None else replace(job.ties, key_seq=NEXT_SEQ)
    return replace(job, seq=NEXT_SEQ, ties=ties)
