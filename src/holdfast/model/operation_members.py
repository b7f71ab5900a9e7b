"""Which members a step of an operation acts on, which it skips, and where it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from .job import Job
from .operation import Chunk, Operation, Phase, taken_by
from .search import MAX_PAGE, Place, place_of

_CANARY_PAGES = 10
"""Among how many pages of members canaries are looked for."""
_MORE = 50
"""How many more jobs than needed are read, since some are skipped."""


class Selection:
    """The next members of an operation, picked from pages of the jobs that its filter finds.

    ``skip_reason`` tells why a job is left alone; ``earlier`` are operations that may have it.
    """

    def __init__(
        self,
        operation: Operation,
        count: int,
        skip_reason: Callable[[Job], str],
        earlier: list[Operation],
        paused_queues: Collection[str],
    ) -> None:
        self.jobs: list[Job] = []
        self.after: Place | None = operation.after
        """The last job that was looked at."""
        self.exhausted = False
        self.page_size = min(MAX_PAGE, count + _MORE)
        self._operation = operation
        self._count = count
        self._skip_reason = skip_reason
        self._earlier = earlier
        self._paused = paused_queues
        self._canary = operation.phase is Phase.CANARY
        self._keys: set[tuple[str, str, str]] = set()
        self._skipped: list[tuple[Place, str]] = []
        self._pages = 0

    def take(self, page: Sequence[Job]) -> bool:
        """Take the jobs after ``after``, as many as were asked for; return whether to go on."""
        operation = self._operation
        for job in page:
            if operation.until is not None and place_of(job) > operation.until:
                self.exhausted = True
                return False
            if len(self.jobs) == self._count:
                return False
            self.after = place_of(job)
            if (job.tenant, job.id) in operation.canaries:
                continue
            reason = taken_by(job, self._earlier) or self._skip_reason(job)
            if reason:
                self._skipped.append((self.after, reason))
            elif not self._canary or self._fit_for_canary(job):
                self.jobs.append(job)
        self._pages += 1
        if len(page) < self.page_size:
            self.exhausted = True
            return False
        self.page_size = MAX_PAGE
        looked_enough = self._canary and self._pages == _CANARY_PAGES
        return len(self.jobs) < self._count and not looked_enough

    def chunk(self, acted: Sequence[Job], skipped: Counter[str], *, whole: bool) -> Chunk:
        """Return what came of it: these were acted on, and others of the picked ones skipped.

        Without ``whole`` only the first of the picked ones were dealt with.
        """
        last = self.after if whole else place_of(acted[-1])
        counted = Counter(
            reason for place, reason in self._skipped if last is not None and place <= last
        )
        counted.update(skipped if whole else {})
        names = tuple((job.tenant, job.id) for job in acted)
        return Chunk(names, counted, last, exhausted=self.exhausted and whole)

    def _fit_for_canary(self, job: Job) -> bool:
        """Whether its queue runs, and no member of its key comes before it."""
        if job.queue in self._paused:
            return False
        if job.ties.key is None:
            return True
        key = job.tenant, job.queue, job.ties.key
        first = key not in self._keys
        self._keys.add(key)
        return first
