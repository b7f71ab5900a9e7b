"""One run of a job, as the task itself may see it."""

from __future__ import annotations

import contextvars
import logging
import math
from collections.abc import Callable

from holdfast.engines.clock import monotonic
from holdfast.model.errors import InvalidInput
from holdfast.model.job import Job

from .registry import TaskSpec

logger = logging.getLogger("holdfast.task")


class Attempt:
    """One run of a job under its lease."""

    __slots__ = (
        "_clock",
        "_on_progress",
        "claim_sent",
        "job",
        "lease_ends",
        "progress_note",
        "progress_share",
        "started",
        "task",
        "timeout_seconds",
    )

    def __init__(
        self,
        job: Job,
        task: TaskSpec,
        timeout_seconds: float | None,
        claim_sent: float = 0.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Begin now. ``claim_sent`` is what the clock said when its claim went out."""
        self.job = job
        self.task = task
        self.timeout_seconds = timeout_seconds
        self.claim_sent = claim_sent
        self.lease_ends = math.inf
        self.started = clock()
        self._clock = clock
        self.progress_share: float | None = None
        self.progress_note = ""
        self._on_progress: Callable[[float | None, str], None] | None = None

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def number(self) -> int:
        """Which run this is: 1 for the first."""
        return self.job.attempt

    @property
    def token(self) -> int:
        """The lease's token: pass it on to whatever must refuse a late writer."""
        return self.job.token

    @property
    def deadline_seconds(self) -> float | None:
        """How many seconds are left before the time-out; None when there is none."""
        if self.timeout_seconds is None:
            return None
        return self.started + self.timeout_seconds - self._clock()

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry job, attempt, queue and task."""
        fields = {
            "job": self.job.id,
            "attempt": self.job.attempt,
            "queue": self.job.queue,
            "task": self.job.task,
            "tenant": self.job.tenant,
        }
        return logging.LoggerAdapter(logger, fields)

    def progress(self, share: float | None = None, note: str = "") -> None:
        """Say how far it is, from 0 to 1, and what it is doing. It is shown, not kept."""
        if share is not None and not 0 <= share <= 1:
            raise InvalidInput("share", f"{share!r} is not between 0 and 1")
        self.progress_share, self.progress_note = share, note
        if self._on_progress is not None:
            self._on_progress(share, note)

    def report_progress_to(self, listener: Callable[[float | None, str], None]) -> None:
        """Hand what the task says of its progress on: a child process does."""
        self._on_progress = listener


_CURRENT: contextvars.ContextVar[Attempt | None] = contextvars.ContextVar(
    "holdfast_attempt", default=None
)


def current() -> Attempt:
    """Return the attempt that this code runs in; raise ``LookupError`` outside of one."""
    attempt = _CURRENT.get()
    if attempt is None:
        raise LookupError("no attempt is under way here: holdfast.current() is for tasks")
    return attempt


def enter(attempt: Attempt) -> contextvars.Token[Attempt | None]:
    """Make this the current attempt."""
    return _CURRENT.set(attempt)


def leave(token: contextvars.Token[Attempt | None]) -> None:
    """Make what was current before so again."""
    _CURRENT.reset(token)
