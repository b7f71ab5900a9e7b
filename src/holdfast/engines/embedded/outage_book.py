"""The outages of an embedded engine: kept with its state, and changed by its effects."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from holdfast.model import outage as rules
from holdfast.model.effects import Claimed, JobEffect, Snoozed
from holdfast.model.job import Job
from holdfast.model.outage import ENDED_KEPT, Outage, dependency_of


class OutageBook:
    """The outages that last, by dependency, and the last ones that have ended."""

    def __init__(self) -> None:
        self.active: dict[str, Outage] = {}
        self.ended: deque[Outage] = deque(maxlen=ENDED_KEPT)

    def all(self, *, ended: bool = True) -> list[Outage]:
        """Return those that last, by dependency; before them, with ``ended``, the others."""
        active = [self.active[name] for name in sorted(self.active)]
        return [*self.ended, *active] if ended else active

    def load(self, known: Iterable[Outage]) -> None:
        """Take the outages of a snapshot or a dump."""
        for outage in known:
            self.set(outage)

    def of(self, queue: str) -> Outage | None:
        """Return the outage of this queue's dependency."""
        return self.active.get(dependency_of(queue))

    def set(self, outage: Outage) -> None:
        """Take an outage as it is now."""
        if outage.active:
            self.active[outage.dependency] = outage
        else:
            self.active.pop(outage.dependency, None)
            self.ended.append(outage)

    def follow(self, job: Job | None, effect: JobEffect) -> None:
        """Take a claim, or a failure that cost no attempt, of a job that was like this before."""
        if not self.active or job is None or (outage := self.of(job.queue)) is None:
            return
        if isinstance(effect, Claimed):
            outage = rules.claimed(outage, effect.at_us)
        elif isinstance(effect, Snoozed) and effect.failure is not None:
            outage = rules.failed(outage, effect.failure, job.claimed_at_us, effect.at_us)
        self.active[outage.dependency] = outage
