"""Chains: jobs of one key that are in flight together, in the order of the key.

A later one may end only when the earlier ones have ended, and it does not stay in flight when an
earlier one returns to its queue or dies: otherwise it would run before that one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from .effects import Cancelled, Completed, Effect
from .job import Job
from .outcome import Outcome, OutcomeKind, release

_HANDED_BACK = frozenset({OutcomeKind.RELEASE, OutcomeKind.LOST})
"""Outcomes that say nothing about what a job did: they are accepted at any place of a chain."""

KeyName = tuple[str, str, str | None]


def may_follow(job: Job, before: Job, now_us: int) -> bool:
    """Whether a job may be claimed together with the one before it of its key.

    A job with a failure is claimed alone: it may fail again, and would give back all behind it.
    """
    return (
        before.failure is None
        and job.failure is None
        and job.task == before.task
        and job.run_at_us <= now_us
        and (job.expires_at_us is None or job.expires_at_us > now_us)
    )


class ChainSettle:
    """Decides which outcomes of one call may end their jobs, and what ends with them."""

    def __init__(
        self,
        flight_of: Callable[[Job], Sequence[Job]],
        held: Iterable[tuple[Job, Outcome]],
    ) -> None:
        """``flight_of`` returns the jobs of a job's key that are in flight, in order.

        It returns none where a key has no order. ``held`` are the jobs whose leases are valid.
        """
        self._flight_of = flight_of
        self._left: dict[KeyName, dict[int, Job] | None] = {}
        self._handed_back = {
            job.token
            for job, outcome in held
            if job.ties.key is not None and outcome.kind in _HANDED_BACK
        }

    def accepts(self, job: Job, outcome: Outcome) -> bool:
        """Whether this outcome may end the job, after the outcomes that were accepted before."""
        left = self._chain(job)
        if left is None:
            return True
        if job.token not in left:
            return False
        return outcome.kind in _HANDED_BACK or next(iter(left)) == job.token

    def ended(self, job: Job, effect: Effect) -> list[Job]:
        """Remove a job that ended; return the later ones whose leases end with it."""
        left = self._chain(job)
        if left is None:
            return []
        left.pop(job.token, None)
        if not left or isinstance(effect, Completed | Cancelled):
            return []
        behind = [one for one in _behind(job, left.values()) if one.token not in self._handed_back]
        for one in behind:
            del left[one.token]
        return behind

    def _chain(self, job: Job) -> dict[int, Job] | None:
        """Return what is left in flight of a job's key, in order; None where it has no order."""
        name = job.tenant, job.queue, job.ties.key
        if name not in self._left:
            flight = self._flight_of(job)
            self._left[name] = {one.token: one for one in flight} if flight else None
        return self._left[name]


def with_tails(
    ended: Iterable[Job], flight_of: Callable[[Job], Sequence[Job]]
) -> Iterator[tuple[Job, Job]]:
    """Yield each job whose lease ends, with itself, and before it those behind it in its chain.

    Each comes once, with the job because of which it ends: the last of a chain first, so that
    there is no moment at which a later one is in flight and an earlier one is not.
    """
    seen: set[int] = set()
    for job in ended:
        behind = [] if job.ties.key is None or job.stop_requested else _behind(job, flight_of(job))
        for one in [*reversed(behind), job]:
            if one.token not in seen:
                seen.add(one.token)
                yield one, job


def ended_with(job: Job, outcome: Outcome) -> Outcome:
    """Return the outcome of a job whose lease ends because an earlier one had this outcome."""
    if outcome.kind is OutcomeKind.LOST and outcome.failure is not None:
        return Outcome(outcome.kind, job.id, job.token, job.tenant, failure=outcome.failure)
    return release(job)


def behind(job: Job, reason: str, message: str) -> tuple[str, str]:
    """Return why a job is lost that was in flight behind this one, which is lost for this."""
    return reason, f"it was claimed behind job {job.id!r} of its key: {message}"


def _behind(job: Job, flight: Iterable[Job]) -> list[Job]:
    return [one for one in flight if one.ties.key_seq > job.ties.key_seq]
