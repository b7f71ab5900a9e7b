"""What the end of a job means for the jobs that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.model import lifecycle
from holdfast.model.effects import Archived, Cancelled, Completed, Effect, Purged, job_key
from holdfast.model.job import Job

DEPENDENCY_CANCELLED = "dependency_cancelled"


class DependentEffects:
    """Adds to the effects of one commit what follows from them.

    A completed job frees the jobs that wait for it; one that is cancelled, archived or purged
    cancels them, and those that wait for them. A dead one does nothing: they stay held.
    """

    def __init__(self, dependents: Callable[[str, str], Iterable[Job]], now_us: int) -> None:
        self.effects: list[Effect] = []
        self._dependents = dependents
        self._now_us = now_us
        self._left: dict[tuple[str, str], set[str]] = {}
        self.cancelled: set[tuple[str, str]] = set()

    def after(self, effects: Iterable[Effect]) -> list[Effect]:
        """Return these effects, then what follows from them."""
        first = list(effects)
        # A job that is cancelled itself is not cancelled again because of another.
        self.cancelled |= {job_key(one) for one in first if isinstance(one, Cancelled)}
        for effect in first:
            if isinstance(effect, Completed):
                self._free(effect.tenant, effect.id)
            elif isinstance(effect, Cancelled | Purged):
                self._cancel_dependents(effect.tenant, effect.id)
            elif isinstance(effect, Archived):
                self._cancel_dependents(effect.job.tenant, effect.job.id)
        return [*first, *self.effects]

    def _free(self, tenant: str, job_id: str) -> None:
        for job in self._dependents(tenant, job_id):
            if (tenant, job.id) in self.cancelled:
                continue
            left = self._left.setdefault((tenant, job.id), set(job.ties.waiting_for))
            left.discard(job_id)
            if left or job.ties.hold:
                self.effects.append(lifecycle.free(job, job_id, self._now_us))
            else:
                self.effects.append(lifecycle.unblock(job, self._now_us))

    def _cancel_dependents(self, tenant: str, job_id: str) -> None:
        waiting = [job_id]
        while waiting:
            for job in self._dependents(tenant, waiting.pop()):
                if (tenant, job.id) not in self.cancelled:
                    self.cancelled.add((tenant, job.id))
                    self.effects.append(lifecycle.cancel(job, self._now_us, DEPENDENCY_CANCELLED))
                    waiting.append(job.id)
