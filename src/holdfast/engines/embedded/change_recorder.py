"""Which topics have changed, for those who watch: one number each, kept only while watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.model import effects as fx
from holdfast.model.change_feed import AUDIT, MAX_TOPICS, OPERATIONS, QUEUE, ChangeMarks, TopicMark
from holdfast.model.job import MICROSECONDS, Job

WATCHED_US = 60 * MICROSECONDS
"""How long after a look changes are still recorded."""
_OF_THE_STORE = {fx.OperationSet: OPERATIONS, fx.Audited: AUDIT}


class ChangeRecorder:
    """Keeps the number of the last commit in each topic."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._last: dict[tuple[str, str], int] = {}
        self._watched_until_us = 0
        self._feed = ""

    @property
    def watched(self) -> bool:
        """Whether commits are to be recorded."""
        return bool(self._feed)

    def record(
        self, effects: Sequence[fx.Effect], jobs: Sequence[Job | None], seq: int, now_us: int
    ) -> None:
        """Take a commit."""
        if now_us > self._watched_until_us or len(self._last) > MAX_TOPICS:
            self._feed = ""  # who looks again starts anew
            self._last.clear()
            return
        for effect, job in zip(effects, jobs, strict=True):
            if job is not None:
                self._last[job.tenant, QUEUE + job.queue] = seq
            elif isinstance(effect, fx.Replayed | fx.Archived | fx.Restored | fx.Edited):
                self._last[effect.job.tenant, QUEUE + effect.job.queue] = seq
            elif isinstance(effect, fx.Purged):
                self._last[effect.tenant, QUEUE + effect.queue] = seq
            elif (topic := _OF_THE_STORE.get(type(effect))) is not None:
                self._last["", topic] = seq

    def marks(self, now_us: int) -> ChangeMarks:
        """Return the topics that have changed since the feed began; from now on it is watched."""
        if not self._feed or now_us > self._watched_until_us:
            self._feed = self._random_bytes(8).hex()
            self._last.clear()
        self._watched_until_us = now_us + WATCHED_US
        marks = [TopicMark(*name, str(seq)) for name, seq in sorted(self._last.items())]
        return ChangeMarks(self._feed, marks)
