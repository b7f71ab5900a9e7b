"""Taking new jobs in: at once when they ask for nothing special, else after a look around."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from holdfast.engines.base import OnDuplicate, Receipt
from holdfast.engines.checks import check_reach
from holdfast.engines.intake import Intake
from holdfast.model.access import Caller
from holdfast.model.job import NAME_LIMIT, Job, NewJob, admit

from . import rows
from .asking import Ask, Verb, ask_all, ask_last
from .changing import NEXT_SEQ, Key, Name, alone_with, keys_of, line_up
from .conditions import Conditions

T = TypeVar("T")


class Request:
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

    @property
    def simple(self) -> bool:
        """Whether its jobs ask for nothing but to be run now."""
        return all(map(_is_simple, self.jobs))

    def receipts(self) -> list[Receipt]:
        """Return the answer, or raise it."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def _is_simple(new: NewJob) -> bool:
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


def enqueue(requests: Sequence[Request], on: Conditions) -> Verb[list[Job]]:
    """Decide on requests together, an answer each; return the jobs that are new."""
    if all(request.simple for request in requests):
        return (yield from _enqueue_simply(requests, on))
    return (yield from _enqueue_with_care(requests, on))


def _enqueue_simply(requests: Sequence[Request], on: Conditions) -> Verb[list[Job]]:
    """Take jobs that ask for nothing special, in one statement."""
    taken: list[Job] = []
    for request in requests:
        try:
            jobs = _admitted(request, on)
        except Exception as error:  # noqa: BLE001 - it is this request's own answer
            request.answer = error
            continue
        request.answer = [Receipt(job.id) for job in jobs]
        taken += jobs
    if taken:
        parameters = {
            "ids": [job.id for job in taken],
            "payloads": [job.payload for job in taken],
            "max_attempts": _common([job.max_attempts for job in taken]),
            "priorities": _common([job.priority for job in taken]),
            "tenants": _common([job.tenant for job in taken]),
            "scopes": _common([job.scope for job in taken]),
            "queues": _common([job.queue for job in taken]),
            "tasks": _common([job.task for job in taken]),
            "estimated_seconds": _any([job.estimated_seconds for job in taken]),
            "max_processing_seconds": _any([job.max_processing_seconds for job in taken]),
            "channel": on.channel,
            "now_us": on.now_us,
        }
        yield from ask_last(Ask("enqueue", parameters))
    return taken


def _common(values: list[T]) -> list[T]:
    """Return these, or only the first if all are alike."""
    return values[:1] if values.count(values[0]) == len(values) else values


def _any(values: list[float | None]) -> list[float | None]:
    """Return these, or nothing if there is none."""
    return values if any(value is not None for value in values) else []


def _admitted(request: Request, on: Conditions) -> list[Job]:
    caller, most = request.caller, on.options.max_payload_bytes
    jobs: list[Job] = []
    for new, job_id in zip(request.jobs, request.ids, strict=True):
        if not caller.unlimited:
            check_reach(new.tenant, new.scope, caller)
        jobs.append(admit(new, job_id, 0, NEXT_SEQ, most))
    return jobs


def _enqueue_with_care(requests: Sequence[Request], on: Conditions) -> Verb[list[Job]]:
    """Take jobs that name themselves, others, a key or a time."""
    news = [new for request in requests for new in request.jobs]
    named = _names((new.tenant, new.id) for new in news if new.id is not None)
    waited_for = _names((new.tenant, one) for new in news for one in _listed(new.depends_on))
    around = yield from _look_around(news, named, waited_for, on)
    fresh = (job_id for request in requests for job_id in request.ids)
    intake = Intake(around, around.find, around.now_us, fresh, on.options.max_payload_bytes)
    for request in requests:
        try:
            request.answer = intake.take(request.jobs, request.caller, request.on_duplicate)
        except Exception as error:  # noqa: BLE001 - it is this request's own answer
            request.answer = error
    taken = [_unplaced(effect.job) for effect in intake.effects]
    if not taken:
        return []
    known = {"now_us": on.now_us, "remember_us": on.remember_us}
    asks = [Ask("put_jobs", {**rows.columns(taken), "known": False})]
    if named:
        asks.append(Ask("refuse_known", {**rows.names(_given(taken, named)), **known}))
    if waited_for:
        asks.append(Ask("tie", rows.names(waited_for)))
    asks += line_up(keys_of(taken))
    asks.append(on.notify(sorted({job.queue for job in taken})))
    yield from ask_last(*asks)
    return taken


def _given(taken: Sequence[Job], named: Sequence[Name]) -> list[Name]:
    """Return the names of new jobs that were given to them."""
    new = {(job.tenant, job.id) for job in taken}
    return [name for name in named if name in new]


class _Around:
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
    jobs: Sequence[NewJob], named: Sequence[Name], waited_for: Sequence[Name], on: Conditions
) -> Verb[_Around]:
    asks = alone_with(list(dict.fromkeys(_keys(jobs))))
    if waited_for:
        # Whatever is waited for must not end between this look and the commit.
        asks += [Ask("lock_jobs", rows.names(waited_for)), Ask("lock_dead", rows.names(waited_for))]
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
    told = yield from ask_all(*asks, on.now(), on.get(names), Ask("uniques", columns))
    [[now_us]], found, firsts = told[-3:]
    return _Around(now_us, map(rows.job_of, found), map(rows.job_of, firsts))


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
