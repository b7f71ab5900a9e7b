"""Enqueue: requests in batches, and what to do when the reply to one is lost."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engines.contract import Admission
from holdfast.engines.postgres.admin.records import with_once
from holdfast.engines.postgres.errors import CommitUnknown
from holdfast.engines.postgres.resources import EngineResources
from holdfast.model.errors import HoldfastError, Unavailable
from holdfast.model.job import MICROSECONDS
from holdfast.model.record import Record

from . import enqueue_statements
from .batcher import RequestBatcher
from .enqueue_statements import EnqueueRequest
from .lost_replies import outcome_unknown, resolve_enqueue

_CLOCK_SKEW_US = 60 * MICROSECONDS
"""How far this machine's clock may be ahead of the server's."""


class Enqueuer:
    """Sends enqueue requests: simple ones, and all others, in batches of their own."""

    def __init__(self, resources: EngineResources) -> None:
        self._resources = resources
        self._simple = RequestBatcher(self.enqueue)
        self._full = RequestBatcher(self.enqueue)

    def batcher(self, request: EnqueueRequest) -> RequestBatcher:
        """Return the batcher for a request; its ``add`` returns when the request is answered."""
        return self._simple if request.simple else self._full

    async def enqueue(self, requests: Sequence[EnqueueRequest], once: Record | None = None) -> None:
        """Answer requests that came together; ``once`` is committed with what they create."""
        resources = self._resources
        jobs = sum(len(request.jobs) for request in requests)
        context = resources.enqueue_context(jobs)
        sent_us = resources.clock.now_us() - _CLOCK_SKEW_US
        try:
            due = await resources.database.perform(
                lambda: with_once(
                    enqueue_statements.enqueue(requests, context),
                    once,
                    context,
                    lambda _due: _created(requests) > 0,
                ),
                idempotent=once is not None,
            )
        except CommitUnknown as error:
            await self._resolve(requests, sent_us, may_still_commit=error.may_still_commit)
            due = set()
        finally:
            if context.created_us is not None:
                resources.return_times(context.created_us, jobs, _created(requests))
        resources.watermarks.forget()
        queues = () if due else {new.queue for request in requests for new in request.kinds}
        resources.waiters.wake(due, queues)

    async def _resolve(
        self, requests: Sequence[EnqueueRequest], sent_us: int, *, may_still_commit: bool
    ) -> None:
        """Find out the outcome of requests whose reply was lost; enqueue what was not recorded."""
        database, context = self._resources.database, self._resources.context()
        for number, request in enumerate(requests):
            if isinstance(request.answer, Exception):
                continue  # refused before anything was sent for it
            try:
                request.answer = await resolve_enqueue(
                    request, sent_us, database, context, may_still_commit=may_still_commit
                )
            except Unavailable as error:
                for other in requests[number:]:  # one timeout is enough for all of them
                    other.answer = outcome_unknown("enqueue")
                    other.answer.__cause__ = error
                return
            except HoldfastError as error:
                request.answer = error


def _created(requests: Sequence[EnqueueRequest]) -> int:
    """Return how many jobs these requests have created."""
    answers = [request.answer for request in requests if not isinstance(request.answer, Exception)]
    return sum(one.admission is Admission.CREATED for answer in answers for one in answer)
