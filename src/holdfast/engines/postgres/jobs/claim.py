"""Handing out work: the common lines of queues without limits, in one statement.

A lane is the line of one queue and one priority. Where each begins is remembered while there is
enough to hand out: what was claimed before leaves dead rows behind, and nobody should walk past
them time and again, least of all while an old transaction keeps them from being swept up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.engines.postgres import rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import (
    Row,
    SansIO,
    Statement,
    StatementBatch,
    execute_all,
)
from holdfast.model.access import Caller
from holdfast.model.job import Job

LOOK_AGAIN_SECONDS = 1.0
"""How long it may take until a claim sees work that was put before what it claimed last."""


LONGEST_REST_SECONDS = 10.0
"""… if a look takes long, whatever it was that it waited for."""


class Watermark(NamedTuple):
    """The jobs of one queue and priority, from this place on."""

    queue: str
    priority: int
    run_at_us: int
    seq: int


class ClaimSurvey(NamedTuple):
    """What was seen before a claim: the time, where the lanes begin, and which queues limit."""

    now_us: int
    lanes: list[Watermark]
    limits: list[Row]

    @property
    def idle(self) -> bool:
        """Whether there is nothing to claim, as far as can be seen without trying."""
        return not self.limits and all(lane.run_at_us > self.now_us for lane in self.lanes)


class ClaimRequest(NamedTuple):
    """What a claim asks for."""

    queues: tuple[str, ...]
    tasks: tuple[str, ...] | None
    limit: int
    worker: str
    nonce: int
    lease_seconds: float
    caller: Caller

    @property
    def kind(self) -> tuple[object, ...]:
        """What claims that walk the same lanes have in common."""
        return self.queues, self.tasks, self.caller

    def parameters(self, on: CallContext) -> dict[str, object]:
        """Return it as statements take it."""
        return {
            **rows.reach(self.caller),
            "tasks": None if self.tasks is None else list(self.tasks),
            "limit": self.limit,
            "worker": self.worker,
            "nonce": self.nonce,
            "lease_seconds": float(self.lease_seconds),
            "max_processing_seconds": on.max_processing_seconds,
            "now_us": on.now_us,
        }


class WatermarkCache:
    """Where the lanes begin, as far as this process knows, for each kind of claim."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: dict[tuple[object, ...], tuple[float, list[Watermark]]] = {}
        self._ends: dict[tuple[object, ...], list[Watermark]] = {}

    def of(self, wish: ClaimRequest) -> list[Watermark] | None:
        """Return the lanes for this wish; None when they have to be looked for."""
        until, lanes = self._known.get(wish.kind, (0.0, []))
        return lanes if lanes and self._monotonic() < until else None

    def found(self, wish: ClaimRequest, lanes: Iterable[Watermark], took_seconds: float) -> None:
        """Remember lanes that were looked for; the longer that took, the longer."""
        if max(len(self._known), len(self._ends)) > 1_000:
            self._known.clear()
            self._ends.clear()
        rest_seconds = min(20 * took_seconds, LONGEST_REST_SECONDS)
        until = self._monotonic() + max(LOOK_AGAIN_SECONDS, rest_seconds)
        self._known[wish.kind] = until, list(lanes)

    def claimed(self, wish: ClaimRequest, lanes: Sequence[Watermark], jobs: Sequence[Job]) -> None:
        """Go on from there: everything before it is taken. It was claimed from these lanes."""
        last = {(job.queue, job.priority): job for job in jobs}  # they come in their order
        if jobs:
            self._ends[wish.kind] = _after(lanes, last)
        if len(jobs) < wish.limit:
            self._known.pop(wish.kind, None)  # there may be more by now, in any lane
        elif wish.kind in self._known:
            until, known = self._known[wish.kind]
            self._known[wish.kind] = until, _after(known, last)

    def guess(self, wish: ClaimRequest) -> list[Watermark] | None:
        """Return where the only lane ended: what has come since is most likely there. To try once.

        With several lanes nobody could say what comes first.
        """
        ends = self._ends.pop(wish.kind, [])
        return ends if len(ends) == len(wish.queues) == 1 else None

    def forget(self) -> None:
        """Look again: work may have been put anywhere."""
        self._known.clear()


def _after(lanes: Sequence[Watermark], last: Mapping[tuple[str, int], Job]) -> list[Watermark]:
    """Return the lanes from behind these jobs on."""
    return [
        lane if job is None else Watermark(lane.queue, lane.priority, *job.place)
        for lane in lanes
        for job in [last.get((lane.queue, lane.priority))]
    ]


def look(wish: ClaimRequest, on: CallContext) -> Statement:
    """Ask for the lanes, and for the limits of queues that have any."""
    return Statement("read_watermarks", {"queues": list(wish.queues), "now_us": on.now_us})


def looked_at(told: Sequence[Row]) -> ClaimSurvey:
    """Return what was asked for."""
    lanes = [Watermark(*row[1:5]) for row in told if row[2] is not None]
    limits = [(row[1], *row[5:]) for row in told if row[7] is not None]
    return ClaimSurvey(told[0][0], lanes, limits)


def next_due(wish: ClaimRequest, looked: ClaimSurvey, on: CallContext) -> Statement:
    """Ask when the next job becomes due by itself, after that look."""
    columns = lane_columns(looked.lanes)
    parameters = {
        "now_us": on.now_us,
        "after_us": looked.now_us,
        "queues": list(wish.queues),
        "lane_queues": columns["lane_queues"],
        "lane_priorities": columns["lane_priorities"],
    }
    return Statement("find_next_due", parameters)


def claim(
    wish: ClaimRequest, lanes: Sequence[Watermark], on: CallContext, *, guessed: bool
) -> Statement:
    """Ask for the first due jobs of these lanes."""
    return Statement("claim", {**wish.parameters(on), **lane_columns(lanes), "guessed": guessed})


def claim_alone(
    wish: ClaimRequest,
    lanes: Sequence[Watermark],
    before: Sequence[Statement],
    on: CallContext,
    *,
    guessed: bool = False,
) -> SansIO[tuple[list[list[Row]], list[Job]]]:
    """Claim in one step with what goes before; return the rows of that, and the jobs in order.

    Lanes that are ``guessed`` are good for nothing if there is anything before them.
    """
    if not lanes:
        return (yield StatementBatch(before, last=True)) if before else [], []
    *others, taken = yield StatementBatch(
        [*before, claim(wish, lanes, on, guessed=guessed)], last=True
    )
    return others, in_order(map(rows.job_of, taken))


def claimed_under(wish: ClaimRequest) -> SansIO[list[Job]]:
    """Return what a claim of this number took, whose answer was lost."""
    [told] = yield from execute_all(
        Statement("find_claimed", {"nonce": wish.nonce, "worker": wish.worker})
    )
    return in_order(map(rows.job_of, told))


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """Return jobs in the order in which they are handed out."""
    return sorted(jobs, key=lambda job: (-job.priority, job.run_at_us, job.seq))


def lane_columns(lanes: Sequence[Watermark]) -> dict[str, object]:
    """Return lanes as columns."""
    return {
        "lane_queues": [lane.queue for lane in lanes],
        "lane_priorities": [lane.priority for lane in lanes],
        "lane_run_at_us": [lane.run_at_us for lane in lanes],
        "lane_seqs": [lane.seq for lane in lanes],
    }
