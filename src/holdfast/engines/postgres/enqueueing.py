"""Taking new jobs in: at once when they ask for nothing special, else after a look around."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from holdfast.engines.base import OnDuplicate, Receipt
from holdfast.engines.checks import check_reach
from holdfast.engines.intake import Intake
from holdfast.model.access import Caller
from holdfast.model.job import NAME_LIMIT, Job, Kind, NewJob, State, accept

from . import rows
from .asking import Ask, Verb, ask_all, ask_last
from .changing import NEXT_SEQ, Key, Name, alone_with, keys_of, line_up
from .conditions import Conditions

Due = tuple[str, str]
"""The queue and the task of a job that may be claimed."""


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
        self.simple = all(map(_is_simple, jobs))
        """Whether its jobs ask for nothing but to be run now."""

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


def enqueue(requests: Sequence[Request], on: Conditions) -> Verb[set[Due]]:
    """Decide on requests together, an answer each; return what is due for a claim now."""
    if all(request.simple for request in requests):
        return (yield from _enqueue_simply(requests, on))
    return (yield from _enqueue_with_care(requests, on))


def _enqueue_simply(requests: Sequence[Request], on: Conditions) -> Verb[set[Due]]:
    """Take jobs that ask for nothing special, in one statement."""
    taken = _Taken()
    for request in requests:
        try:
            taken.add(request, on)
        except Exception as error:  # noqa: BLE001 - it is this request's own answer
            request.answer = error
        else:
            request.answer = [Receipt(job_id) for job_id in request.ids]
    if taken.ids:
        yield from ask_last(taken.ask(on))
    return {(kind[1], kind[2]) for kind in set(taken.kinds)}


class _Taken:
    """Jobs that ask for nothing special, by column."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.kinds: list[Kind] = []
        self._payloads: list[bytes] = []
        self._jobs: list[NewJob] = []

    def add(self, request: Request, on: Conditions) -> None:
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

    def ask(self, on: Conditions) -> Ask:
        """Return the statement that puts them there: one for jobs that are alike, or for any."""
        names = ("tenant", "queue", "task", "priority", "max_attempts")
        columns: dict[str, list[object]] = {
            "scope": [new.scope for new in self._jobs],
            "estimated_seconds": [new.estimated_seconds for new in self._jobs],
            "max_processing_seconds": [new.max_processing_seconds for new in self._jobs],
        }
        conditions = {"ids": self.ids, "payloads": self._payloads}
        conditions |= {"channel": on.channel, "now_us": on.now_us}
        if _are_alike(self.kinds) and all(map(_are_alike, columns.values())):
            alike = {name: column[0] for name, column in columns.items()}
            return Ask("enqueue", alike | dict(zip(names, self.kinds[0], strict=True)) | conditions)
        columns |= dict(zip(names, map(list, zip(*self.kinds, strict=True)), strict=True))
        return Ask("enqueue_unlike", columns | conditions)


def _are_alike(values: Sequence[object]) -> bool:
    return values.count(values[0]) == len(values)


def _enqueue_with_care(requests: Sequence[Request], on: Conditions) -> Verb[set[Due]]:
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
        return set()
    known = {"now_us": on.now_us, "remember_us": on.remember_us}
    asks = [Ask("put_jobs", {**rows.columns(taken), "known": False})]
    if named:
        asks.append(Ask("refuse_known", {**rows.names(_given(taken, named)), **known}))
    if waited_for:
        asks.append(Ask("tie", rows.names(waited_for)))
    asks += line_up(keys_of(taken))
    asks.append(on.notify(sorted({job.queue for job in taken})))
    yield from ask_last(*asks)
    return {(job.queue, job.task) for job in taken if job.state is State.PENDING}


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
