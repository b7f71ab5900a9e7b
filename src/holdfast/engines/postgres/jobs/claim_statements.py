"""Claim statements for queues without limits: one statement, from remembered watermarks.

A watermark is the first job of one queue and priority. It is remembered while there is enough to
claim: jobs that were claimed leave dead rows behind, and walking past them again and again is
expensive, most of all while an old transaction keeps vacuum from removing them.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import (
    Row,
    SansIO,
    Statement,
    StatementBatch,
    execute,
)
from holdfast.model.access import Caller
from holdfast.model.job import DEFAULT_CAP_SECONDS, Job

KEEP_SECONDS = 1.0
"""How long watermarks are used: work that was put before them is claimed no later than that."""
MAX_KEEP_SECONDS = 10.0
"""… at most, if it takes long to read them."""
_MAX_KINDS = 1_000
MANY_WATERMARKS = 256
"""A claim looks behind no more watermarks than this at a time, or as many as it may take jobs."""
MANY_QUEUES = 1_024
"""A claim that serves more queues than this sends no names: it looks at all queues with work."""


class Watermark(NamedTuple):
    """The place of a job in the order of its queue and priority."""

    queue: str
    priority: int
    run_at_us: int
    seq: int


class QueueHeads(NamedTuple):
    """What was read before a claim: the time, the watermarks, and the queues that have limits.

    A limit is a queue, its line, how far its rate is spent, its policy, and the outage of its
    dependency; both may be None. ``fresh``: keys have to be lined up before all is seen;
    it is known of those up to ``last_place``.
    """

    now_us: int
    watermarks: list[Watermark]
    limits: list[Row]
    fresh: bool
    last_place: int

    @property
    def idle(self) -> bool:
        """Whether there is certainly nothing to claim."""
        return not self.limits and all(
            watermark.run_at_us > self.now_us for watermark in self.watermarks
        )


class ClaimRequest(NamedTuple):
    """The checked arguments of a claim."""

    queues: tuple[str, ...]
    tasks: tuple[str, ...] | None
    limit: int
    worker: str
    nonce: int
    lease_seconds: float
    caller: Caller
    chain: int = 1

    @property
    def kind(self) -> tuple[object, ...]:
        """What requests have in common that share watermarks."""
        return self.queues, self.tasks, self.caller

    @property
    def named(self) -> tuple[str, ...] | None:
        """The queues that statements name; None: there are too many, so they look at all."""
        return self.queues if len(self.queues) <= MANY_QUEUES else None

    def parameters(self, context: CallContext) -> dict[str, object]:
        """Return it as parameters of statements."""
        return {
            **rows.reach(self.caller),
            "tasks": None if self.tasks is None else list(self.tasks),
            "limit": self.limit,
            "worker": self.worker,
            "nonce": self.nonce,
            "lease_seconds": float(self.lease_seconds),
            "max_processing_seconds": context.max_processing_seconds or DEFAULT_CAP_SECONDS,
            "now_us": context.now_us,
        }


class WatermarkCache:
    """The watermarks that this process knows, for each kind of request."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: dict[tuple[object, ...], tuple[float, list[Watermark]]] = {}
        self._ends: dict[tuple[object, ...], list[Watermark]] = {}

    def of(self, request: ClaimRequest) -> list[Watermark] | None:
        """Return the first watermarks for this request; None if they have to be read."""
        until, watermarks = self._known.get(request.kind, (0.0, []))
        known = watermarks and self._monotonic() < until
        return first_of(watermarks, request.limit) if known else None

    def found(
        self, request: ClaimRequest, watermarks: Iterable[Watermark], took_seconds: float
    ) -> None:
        """Cache watermarks that were read, in order; a slow read is cached longer."""
        if max(len(self._known), len(self._ends)) > _MAX_KINDS:
            self._known.clear()
            self._ends.clear()
        keep_seconds = max(KEEP_SECONDS, min(20 * took_seconds, MAX_KEEP_SECONDS))
        self._known[request.kind] = self._monotonic() + keep_seconds, list(watermarks)

    def claimed(
        self, request: ClaimRequest, watermarks: Sequence[Watermark], jobs: Sequence[Job]
    ) -> None:
        """Move the watermarks behind these jobs, which were claimed from there."""
        if request.chain > 1:
            jobs = heads_of(jobs)
        last = {(job.queue, job.priority): job for job in jobs}  # they come in their order
        if jobs:
            self._ends[request.kind] = _behind(watermarks, last)
        until, known = self._known.get(request.kind, (0.0, []))
        if len(known) > len(watermarks):
            self._known[request.kind] = until, _moved(known, watermarks, last, request.limit, jobs)
        elif len(jobs) < request.limit:
            self._known.pop(request.kind, None)  # all taken; what comes next may come anywhere
        elif known:
            self._known[request.kind] = until, _behind(known, last)

    def guess(self, request: ClaimRequest) -> list[Watermark] | None:
        """Return, once, where the last claim ended: new work is most likely behind that.

        Only with one watermark: among several the order of new jobs would be unknown.
        """
        ends = self._ends.pop(request.kind, [])
        return ends if len(ends) == len(request.queues) == 1 else None

    def forget(self) -> None:
        """Have the watermarks read again: work may have come anywhere."""
        self._known.clear()


def _moved(
    known: list[Watermark],
    first: Sequence[Watermark],
    last: Mapping[tuple[str, int], Job],
    limit: int,
    jobs: Sequence[Job],
) -> list[Watermark]:
    """Return very many watermarks after a claim behind the first of them, without a look at each.

    None if another claim has moved them meanwhile: they are read again.
    """
    if known[: len(first)] != first:
        return []
    if len(jobs) < limit:
        del known[: len(first)]  # all taken behind these
        return known
    same = [one for one in first if (one.queue, one.priority) not in last]
    known[: len(first)] = same
    for one in _behind([one for one in first if (one.queue, one.priority) in last], last):
        insort(known, one, key=_place_of)
    return known


def in_order(watermarks: Iterable[Watermark]) -> list[Watermark]:
    """Return the watermarks in the order of their jobs."""
    return sorted(watermarks, key=_place_of)


def first_of(watermarks: Sequence[Watermark], limit: int) -> list[Watermark]:
    """Return those, of watermarks in order, among which the next jobs are.

    As many jobs as there are watermarks are due no later than what is behind the others.
    """
    return list(watermarks[: max(limit, MANY_WATERMARKS)])


def _place_of(watermark: Watermark) -> tuple[int, int, int]:
    return -watermark.priority, watermark.run_at_us, watermark.seq


def _behind(
    watermarks: Sequence[Watermark], last: Mapping[tuple[str, int], Job]
) -> list[Watermark]:
    return [
        watermark
        if (job := last.get((watermark.queue, watermark.priority))) is None
        else Watermark(watermark.queue, watermark.priority, *job.place)
        for watermark in watermarks
    ]


def read_watermarks(
    request: ClaimRequest, context: CallContext, fresh_after: int | None = None
) -> Statement:
    """Return the statement that reads the watermarks, and the limits of queues that have any.

    It looks for keys to line up beyond a place; None: for none.
    """
    parameters: dict[str, object] = {"now_us": context.now_us, "fresh_after": fresh_after}
    if request.named is None:
        return Statement("read_all_watermarks", parameters)
    return Statement("read_watermarks", {**parameters, "queues": list(request.named)})


def survey_of(found: Sequence[Row], request: ClaimRequest) -> QueueHeads:
    """Return what ``read_watermarks`` found for this request."""
    head = found[0]
    if request.named is None:
        found = [row for row in found if row[1] in request.queues]
    watermarks = [Watermark(*row[1:5]) for row in found if row[2] is not None]
    limits = [(row[1], *row[5:9]) for row in found if row[5] is not None]
    return QueueHeads(head[0], watermarks, limits, *head[9:])


def find_next_due(survey: QueueHeads, context: CallContext) -> Statement:
    """Return the statement that reads when the next job becomes due after that survey."""
    columns = watermark_columns(survey.watermarks)
    parameters = {
        "now_us": context.now_us,
        "after_us": survey.now_us,
        "queues": [queue for queue, line, *_limit in survey.limits if line == 2],
        "watermark_queues": columns["watermark_queues"],
        "watermark_priorities": columns["watermark_priorities"],
    }
    return Statement("find_next_due", parameters)


def claim_after(
    before: Sequence[Statement],
    request: ClaimRequest,
    watermarks: Sequence[Watermark],
    context: CallContext,
    *,
    guessed: bool = False,
) -> SansIO[tuple[list[list[Row]], list[Job]]]:
    """Execute these statements and claim, in one step; return their rows, and the jobs in order.

    Nothing is claimed from ``guessed`` watermarks if there are jobs before them.
    """
    if not watermarks:
        return (yield StatementBatch(before, last=True)) if before else [], []
    parameters = {
        **request.parameters(context),
        **watermark_columns(watermarks),
        "guessed": guessed,
    }
    claim = Statement("claim", parameters)
    if request.chain > 1:
        claim = Statement("claim_chains", {**parameters, "chain": request.chain})
    *others, taken = yield StatementBatch([*before, claim], last=True)
    return others, _in_order(map(rows.job_of, taken))


def find_claimed(request: ClaimRequest) -> SansIO[list[Job]]:
    """Return the jobs that this request claimed, if its reply was lost."""
    found = yield from execute("find_claimed", nonce=request.nonce, worker=request.worker)
    return _in_order(map(rows.job_of, found))


def _in_order(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs of one claim in their order; those of a chain stand behind its first."""
    claimed = list(jobs)
    first = {_key_of(job): _order(job) for job in heads_of(claimed)}
    return sorted(claimed, key=lambda job: (first[_key_of(job)], job.ties.key_seq))


def heads_of(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs without a key, and the first of each key."""
    first: dict[tuple[str, ...], Job] = {}
    for job in jobs:
        name = _key_of(job)
        if name not in first or job.ties.key_seq < first[name].ties.key_seq:
            first[name] = job
    return list(first.values())


def _key_of(job: Job) -> tuple[str, ...]:
    if job.ties.key is None:
        return job.tenant, job.id
    return job.tenant, job.queue, job.ties.key


def _order(job: Job) -> tuple[int, int, int]:
    return -job.priority, job.run_at_us, job.seq


def watermark_columns(watermarks: Sequence[Watermark]) -> dict[str, object]:
    """Return watermarks as columns."""
    return {
        "watermark_queues": [watermark.queue for watermark in watermarks],
        "watermark_priorities": [watermark.priority for watermark in watermarks],
        "watermark_run_at_us": [watermark.run_at_us for watermark in watermarks],
        "watermark_seqs": [watermark.seq for watermark in watermarks],
    }
