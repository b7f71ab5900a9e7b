"""One run of a job, as its task sees it."""

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
    """One run of a job under its lease; ``holdfast.current()`` returns it inside a task."""

    job: Job
    """The job as it was claimed: its queue, priority, tenant, scope, key, payload and more."""
    jobs: tuple[Job, ...]
    """The jobs of this call: of a batch task all its items, in order; otherwise the one job."""
    task: TaskSpec
    """The task as it was declared."""
    timeout_seconds: float | None
    """How long the attempt may take; None without a time-out."""
    progress_share: float | None
    """The share that was reported last."""
    progress_note: str
    """The note that was reported last."""
    started: float
    """When it started, by the worker's monotonic clock."""
    claim_sent: float
    """When its claim was sent, by the same clock."""
    lease_ends: float
    """When its lease ends if no heartbeat renews it, by the same clock."""

    __slots__ = (
        "_clock",
        "_on_progress",
        "claim_sent",
        "job",
        "jobs",
        "lease_ends",
        "progress_note",
        "progress_share",
        "started",
        "task",
        "timeout_seconds",
        "waits",
    )

    def __init__(
        self,
        job: Job,
        task: TaskSpec,
        timeout_seconds: float | None,
        claim_sent: float = 0.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Start now."""
        self.job = job
        self.jobs = (job,)
        self.task = task
        self.timeout_seconds = timeout_seconds
        self.waits = False
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
        """The number of this run; the first is 1."""
        return self.job.attempt

    @property
    def token(self) -> int:
        """The lease's token, a fencing token: pass it to systems that must refuse late writers."""
        return self.job.token

    @property
    def deadline_seconds(self) -> float | None:
        """Seconds until the timeout; None without a timeout."""
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
        """Report progress: ``share`` from 0 to 1, and a ``note``. It is shown, not stored."""
        if share is not None and not 0 <= share <= 1:
            raise InvalidInput("share", f"{share!r} is not between 0 and 1")
        self.progress_share, self.progress_note = share, note
        if self._on_progress is not None:
            self._on_progress(share, note)

    def report_progress_to(self, listener: Callable[[float | None, str], None]) -> None:
        """Call ``listener`` on every progress report."""
        self._on_progress = listener


CURRENT: contextvars.ContextVar[Attempt | None] = contextvars.ContextVar(
    "holdfast_attempt", default=None
)
"""The attempt that runs this code."""


def current() -> Attempt:
    """Return the attempt that runs this code; raise ``LookupError`` outside of one."""
    attempt = CURRENT.get()
    if attempt is None:
        raise LookupError("no attempt runs here: holdfast.current() is for tasks")
    return attempt


def enter(attempt: Attempt) -> contextvars.Token[Attempt | None]:
    """Make this the current attempt."""
    return CURRENT.set(attempt)


def leave(token: contextvars.Token[Attempt | None]) -> None:
    """Restore the attempt that was current before."""
    CURRENT.reset(token)
