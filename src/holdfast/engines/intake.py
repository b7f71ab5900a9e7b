"""Deciding on new jobs: one request, or all that came in one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from holdfast.model.access import Caller
from holdfast.model.effects import Effect, Enqueued
from holdfast.model.errors import AccessDenied, DuplicateId, DurabilityLost, EngineClosed
from holdfast.model.job import Job, NewJob, admit, check_id

from .base import Admission, OnDuplicate, Receipt


class KnownJobs(Protocol):
    """What new jobs are held against."""

    seq: int

    def get(self, tenant: str, job_id: str) -> Job | None:
        """Return the job, finished ones included while they are kept."""

    def unfinished(self, tenant: str, queue: str, unique: str) -> Job | None:
        """Return the unfinished job that has this unique key."""


class Request:
    """One call of enqueue that waits to be decided together with others."""

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


class Gathering:
    """Requests of one turn of the event loop, decided together and answered when durable."""

    def __init__(
        self,
        decide: Callable[[Sequence[Request]], None],
        landing: Callable[[int], asyncio.Future[None] | None],
    ) -> None:
        self._decide = decide
        self._landing = landing
        self._requests: list[Request] = []

    @property
    def waiting(self) -> bool:
        """Whether requests are here already: one that comes after them must not be before them."""
        return bool(self._requests)

    def add(
        self, jobs: Sequence[NewJob], caller: Caller, on_duplicate: OnDuplicate
    ) -> asyncio.Future[list[Receipt]]:
        """Leave a request here; its future has the answer."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Receipt]] = loop.create_future()
        if not self._requests:
            loop.call_soon(self.decide)
        self._requests.append(Request(jobs, caller, on_duplicate, future))
        return future

    def decide(self) -> None:
        """Decide on all that is here: those who gave up meanwhile have asked for nothing."""
        requests = [request for request in self._requests if not request.future.done()]
        self._requests = []
        if not requests:
            return
        try:
            self._decide(requests)
            landing = self._landing(len(requests))
        except BaseException as error:
            _finish(requests, error)
            if not isinstance(error, Exception):
                raise  # an interrupt is not theirs alone
            return
        if landing is None:
            _finish(requests)
        else:
            landing.add_done_callback(lambda landed: _finish(requests, landed.exception()))


def _finish(requests: list[Request], failure: BaseException | None = None) -> None:
    for request in requests:
        answer = request.answer
        if failure is not None:
            # One of its own each: a shared one would hoard tracebacks.
            kind = EngineClosed if isinstance(failure, EngineClosed) else DurabilityLost
            answer = kind(str(failure))
            answer.__cause__ = failure.__cause__ or failure
        if request.future.done():
            continue  # nobody waits for it any more
        if isinstance(answer, list):
            request.future.set_result(answer)
        else:
            request.future.set_exception(answer)


class Intake:
    """New jobs for one commit. Later requests see what earlier ones take."""

    def __init__(
        self, known: KnownJobs, now_us: int, fresh_ids: Iterator[str], max_payload_bytes: int
    ) -> None:
        self.effects: list[Effect] = []
        self._known = known
        self._now_us = now_us
        self._fresh_ids = fresh_ids
        self._max_payload_bytes = max_payload_bytes
        self._ids: set[tuple[str, str]] = set()
        self._unique: dict[tuple[str, str, str], Job] = {}

    def take(
        self, jobs: Sequence[NewJob], caller: Caller, on_duplicate: OnDuplicate
    ) -> list[Receipt]:
        """Decide one request: take all of it, or raise and take nothing."""
        effects: list[Effect] = []
        receipts: list[Receipt] = []
        duplicates: list[str] = []
        ids: set[tuple[str, str]] = set()
        unique: dict[tuple[str, str, str], Job] = {}
        seq = self._known.seq + len(self.effects)
        now_us, everything = self._now_us, caller.unlimited
        for new in jobs:
            if not everything:
                _check_reach(new.tenant, new.scope, caller)
            job_id = next(self._fresh_ids) if new.id is None else check_id(new.id)
            job = admit(new, job_id, now_us, seq + 1, self._max_payload_bytes)
            if job.unique is not None:
                key = job.tenant, job.queue, job.unique
                first = unique.get(key) or self._first_of(key, caller)
                if first is not None:
                    receipts.append(Receipt(first.id, Admission.EXISTING))
                    continue
            if new.id is not None:
                name = job.tenant, job_id
                if name in ids or name in self._ids or self._known.get(*name):
                    duplicates.append(job_id)
                    receipts.append(Receipt(job_id, Admission.SKIPPED))
                    continue
                ids.add(name)
            if job.unique is not None:
                unique[job.tenant, job.queue, job.unique] = job
            seq += 1
            effects.append(Enqueued(now_us, job))
            receipts.append(Receipt(job_id))
        if duplicates and on_duplicate == "refuse":
            raise DuplicateId(duplicates)
        if ids:
            self._ids |= ids
        if unique:
            self._unique |= unique
        self.effects += effects
        return receipts

    def _first_of(self, key: tuple[str, str, str], caller: Caller) -> Job | None:
        first = self._unique.get(key) or self._known.unfinished(*key)
        if first is not None and not caller.reaches(first.tenant, first.scope):
            raise AccessDenied("unique", key[2])
        return first


def _check_reach(tenant: str, scope: str, caller: Caller) -> None:
    if caller.tenant is not None and tenant != caller.tenant:
        raise AccessDenied("tenant", tenant)
    if not caller.reaches(tenant, scope):
        raise AccessDenied("scope", scope)
