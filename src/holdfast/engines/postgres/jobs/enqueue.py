"""Taking new jobs in: at once when they ask for nothing special, else after a look around."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from holdfast.engines.argument_checks import check_reach
from holdfast.engines.contract import OnDuplicate, Receipt
from holdfast.engines.embedded.admission import JobAdmission
from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import (
    SansIO,
    Statement,
    StatementBatch,
    execute_all,
    execute_last,
)
from holdfast.model.access import Caller
from holdfast.model.job import NAME_LIMIT, Job, Kind, NewJob, State, accept, check_payload
from holdfast.model.uniform_batch import UniformBatch

from .unit_of_work import NEXT_SEQ, Key, Name, alone_with, keys_of, line_up

_FIRST_PART, _LARGEST_PART = 64, 400
"""How many jobs that are alike go into one statement. The server waits for the first few, and each
part is twice as large as the last: it takes at least twice as long for a job as it takes to encode
the next, and a statement by itself costs it as much as ten jobs."""
_ROOM = 65_536
"""How many jobs one place in line has room for."""
_KIND = ("tenant", "queue", "task", "priority", "max_attempts")
_BESIDE = ("scope", "estimated_seconds", "max_processing_seconds")
Due = tuple[str, str]
"""The queue and the task of a job that may be claimed."""


class EnqueueRequest:
    """One call of enqueue: what is asked, and what is answered."""

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
        """A job of each kind that is asked for: what can be known before they are made."""
        self.simple = all(map(is_simple, self.kinds))
        """Whether its jobs ask for nothing but to be run now."""

    def make(self) -> None:
        """Have all jobs made, or raise what is wrong with one: for who has to wait anyway."""
        if type(self.jobs) is UniformBatch:
            self.jobs.payloads.make_all()

    def receipts(self) -> list[Receipt]:
        """Return the answer, or raise it."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def is_simple(new: NewJob) -> bool:
    """Whether a job asks for nothing but to be run now."""
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


def enqueue(requests: Sequence[EnqueueRequest], on: CallContext) -> SansIO[set[Due]]:
    """Decide on requests, all or none of them simple, an answer each; return what is due now."""
    if requests[0].simple:
        return (yield from _enqueue_simply(requests, on))
    return (yield from _enqueue_with_care(requests, on))


def _enqueue_simply(requests: Sequence[EnqueueRequest], on: CallContext) -> SansIO[set[Due]]:
    """Take jobs that ask for nothing special, in one statement, or in parts if that is quicker."""
    if len(requests) == 1:
        jobs = requests[0].jobs
        if type(jobs) is UniformBatch and jobs:
            return (yield from _enqueue_alike(requests[0], jobs, on))
        if len(jobs) == 1:
            return (yield from _enqueue_one(requests[0], jobs[0], on))
    taken = _PlainColumns()
    for request in requests:
        try:
            taken.add(request, on)
        except Exception as error:  # noqa: BLE001 - it is this request's own answer
            request.answer = error
        else:
            request.answer = [Receipt(job_id) for job_id in request.ids]
    if taken.ids:
        yield from execute_last(taken.ask(on))
    return {(kind[1], kind[2]) for kind in set(taken.kinds)}


def _enqueue_alike(
    request: EnqueueRequest, jobs: UniformBatch, on: CallContext
) -> SansIO[set[Due]]:
    """Take many in one transaction; the server has the first while the next are encoded."""
    like = jobs.like
    check_reach(like.tenant, like.scope, request.caller)
    _payload, kind = accept(like, on.options.max_payload_bytes)
    yield StatementBatch(_parts(request, jobs, _in_common(like, kind), on), last=True)
    return {(like.queue, like.task)}


def _enqueue_one(request: EnqueueRequest, new: NewJob, on: CallContext) -> SansIO[set[Due]]:
    check_reach(new.tenant, new.scope, request.caller)
    payload, kind = accept(new, on.options.max_payload_bytes)
    [job_id] = request.ids
    itself = {"id": job_id, "payload": payload, "channel": on.channel, "now_us": on.now_us}
    yield StatementBatch([Statement("enqueue_one", _in_common(new, kind) | itself)], last=True)
    request.answer = [Receipt(job_id)]
    return {(new.queue, new.task)}


def _parts(
    request: EnqueueRequest, jobs: UniformBatch, common: Mapping[str, object], on: CallContext
) -> Iterator[Statement]:
    most = on.options.max_payload_bytes
    first, size = 0, _FIRST_PART
    while first < len(jobs):
        part = slice(first, first + size)
        payloads = jobs.payloads[part]
        for payload in payloads:
            check_payload(payload, most)
        yield Statement("enqueue", {**common, **_each(request.ids[part], payloads, on)})
        first, size = first + size, min(2 * size, _LARGEST_PART)
    request.answer = [Receipt(job_id) for job_id in request.ids]


class _PlainColumns:
    """Jobs that ask for nothing special, by column."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.kinds: list[Kind] = []
        self._payloads: list[bytes] = []
        self._jobs: list[NewJob] = []

    def add(self, request: EnqueueRequest, on: CallContext) -> None:
        """Take all jobs of a request, or raise what is wrong with one."""
        caller, most = request.caller, on.options.max_payload_bytes
        if not caller.unlimited:
            for new in request.jobs:
                check_reach(new.tenant, new.scope, caller)
        accepted = [accept(new, most) for new in request.jobs]
        self.ids += request.ids
        self._jobs += request.jobs
        self._payloads += [payload for payload, _kind in accepted]
        self.kinds += [kind for _payload, kind in accepted]

    def ask(self, on: CallContext) -> Statement:
        """Return the statement that puts them there: one for jobs that are alike, or for any."""
        each = _each(self.ids, self._payloads, on)
        if self._are_alike():
            return Statement("enqueue", _in_common(self._jobs[0], self.kinds[0]) | each)
        kinds = dict(zip(_KIND, map(list, zip(*self.kinds, strict=True)), strict=True))
        return Statement("enqueue_mixed", {**kinds, **self._beside(), **each})

    def _are_alike(self) -> bool:
        count = len(self.ids)
        columns: list[Sequence[object]] = [self.kinds, *self._beside().values()]
        return count <= _ROOM and all(column.count(column[0]) == count for column in columns)

    def _beside(self) -> dict[str, list[object]]:
        return {name: [getattr(new, name) for new in self._jobs] for name in _BESIDE}


def _in_common(like: NewJob, kind: Kind) -> dict[str, object]:
    """Return what jobs that are alike have in common, as the statement takes it."""
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


def _each(ids: Sequence[str], payloads: list[bytes], on: CallContext) -> dict[str, object]:
    """Return what each job has for itself, and what holds for any."""
    return {"ids": ids, "payloads": payloads, "channel": on.channel, "now_us": on.now_us}


def _enqueue_with_care(requests: Sequence[EnqueueRequest], on: CallContext) -> SansIO[set[Due]]:
    """Take jobs that name themselves, others, a key or a time."""
    news = [new for request in requests for new in request.jobs]
    named = _names((new.tenant, new.id) for new in news if new.id is not None)
    waited_for = _names((new.tenant, one) for new in news for one in _listed(new.depends_on))
    around = yield from _look_around(news, named, waited_for, on)
    fresh = (job_id for request in requests for job_id in request.ids)
    intake = JobAdmission(around, around.find, around.now_us, fresh, on.options.max_payload_bytes)
    for request in requests:
        try:
            request.answer = intake.take(request.jobs, request.caller, request.on_duplicate)
        except Exception as error:  # noqa: BLE001 - it is this request's own answer
            request.answer = error
    taken = [_unplaced(effect.job) for effect in intake.effects]
    if not taken:
        return set()
    known = {"now_us": on.now_us, "remember_us": on.remember_us}
    asks = [Statement("put_jobs", {**rows.columns(taken), "known": False})]
    if named:
        asks.append(Statement("refuse_known", {**rows.names(_given(taken, named)), **known}))
    if waited_for:
        asks.append(Statement("mark_tied", rows.names(waited_for)))
    asks += line_up(keys_of(taken))
    asks.append(on.notify(sorted({job.queue for job in taken})))
    yield from execute_last(*asks)
    return {(job.queue, job.task) for job in taken if job.state is State.PENDING}


def _given(taken: Sequence[Job], named: Sequence[Name]) -> list[Name]:
    """Return the names of new jobs that were given to them."""
    new = {(job.tenant, job.id) for job in taken}
    return [name for name in named if name in new]


class _ExistingJobs:
    """What new jobs are held against: what there is of the names that they mention."""

    seq = NEXT_SEQ

    def __init__(self, now_us: int, jobs: Iterable[Job], unique: Iterable[Job]) -> None:
        self.now_us = now_us
        self._jobs = {(job.tenant, job.id): job for job in jobs}
        self._unique = {(job.tenant, job.queue, job.unique): job for job in unique}

    def find(self, tenant: str, job_id: str, _caller: Caller) -> Job | None:
        return self._jobs.get((tenant, job_id))

    def unfinished(self, tenant: str, queue: str, unique: str) -> Job | None:
        return self._unique.get((tenant, queue, unique))


def _look_around(
    jobs: Sequence[NewJob], named: Sequence[Name], waited_for: Sequence[Name], on: CallContext
) -> SansIO[_ExistingJobs]:
    asks = alone_with(list(dict.fromkeys(_keys(jobs))))
    if waited_for:
        # Whatever is waited for must not end between this look and the commit.
        asks += [
            Statement("lock_jobs", rows.names(waited_for)),
            Statement("lock_dead", rows.names(waited_for)),
        ]
    unique = [
        (new.tenant, new.queue, new.unique)
        for new in jobs
        if new.unique is not None and _all_names(new.tenant, new.queue, new.unique)
    ]
    columns: dict[str, object] = {
        "tenants": [one[0] for one in unique],
        "queues": [one[1] for one in unique],
        "uniques": [one[2] for one in unique],
    }
    names = rows.names(dict.fromkeys([*named, *waited_for]))
    told = yield from execute_all(*asks, on.now(), on.get(names), Statement("find_unique", columns))
    [[now_us]], found, firsts = told[-3:]
    return _ExistingJobs(now_us, map(rows.job_of, found), map(rows.job_of, firsts))


def _keys(jobs: Sequence[NewJob]) -> Iterator[Key]:
    for new in jobs:
        if new.key is not None and _all_names(new.tenant, new.queue, new.key):
            yield new.tenant, new.queue, new.key


def _names(names: Iterable[tuple[object, object]]) -> list[Name]:
    """Return those that could be the names of jobs, each once; others are refused later."""
    found = [name for name in names if _all_names(*name)]
    return list(dict.fromkeys((str(tenant), str(job_id)) for tenant, job_id in found))


def _all_names(*values: object) -> bool:
    return all(
        type(value) is str and 0 < len(value) <= NAME_LIMIT and value.isprintable()
        for value in values
    )


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, tuple | list) else ()


def _unplaced(job: Job) -> Job:
    ties = job.ties if job.ties.key is None else replace(job.ties, key_seq=NEXT_SEQ)
    return replace(job, seq=NEXT_SEQ, ties=ties)
