"""Actions of people on jobs: for which states, with which effect, and which jobs they spare."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from . import lifecycle
from .audit import Attribution, check_text
from .effects import Effect, Noted
from .failure import FailureClass
from .job import UNFINISHED, Job, State, check_id


class Action(msgspec.Struct, frozen=True, array_like=True):
    """One kind of action on jobs. ``Engine.operate`` applies it to each job that a filter finds."""

    name: ClassVar[str]
    states: ClassVar[frozenset[State]]
    """The states of jobs that it can be applied to."""

    def check(self) -> None:
        """Raise ``InvalidInput`` if a field is invalid."""

    def skips(self, job: Job, *, named: bool) -> bool:  # noqa: ARG002 - most spare none
        """Whether it leaves a job alone, given the job only. ``named``: the filter has its id."""
        return False

    def effect(self, job: Job, now_us: int, attribution: Attribution) -> Effect:
        """Return the effect on a job, or raise ``IllegalTransition``."""
        raise NotImplementedError


class ReplayJobs(Action, frozen=True, array_like=True, tag="replay"):
    """Replay dead letters, due now, with a fresh budget.

    Those with a deterministic failure are spared unless ``fixed`` says what was fixed. ``run``
    marks them as taken by a replay run.
    """

    name: ClassVar[str] = "replay"
    states: ClassVar[frozenset[State]] = frozenset({State.DEAD})
    run: str = ""
    fixed: str = ""

    def check(self) -> None:
        """See ``Action.check``."""
        if self.run:
            check_id(self.run, "run")
        if self.fixed:
            check_text("fixed", self.fixed)

    def skips(self, job: Job, *, named: bool) -> bool:  # noqa: ARG002
        """See ``Action.spares``."""
        failure = job.failure
        return not self.fixed and (
            failure is not None and failure.failure_class is FailureClass.DETERMINISTIC
        )

    def effect(
        self,
        job: Job,
        now_us: int,
        attribution: Attribution,
        waiting_for: tuple[str, ...] = (),
    ) -> Effect:
        """See ``Action.effect``. ``waiting_for``: the dependencies that are still open."""
        why = f"{attribution.why} (fixed: {self.fixed})" if self.fixed else attribution.why
        return lifecycle.replay(
            job, now_us, attribution.by, why, run=self.run, waiting_for=waiting_for
        )


class ArchiveJobs(Action, frozen=True, array_like=True, tag="archive"):
    """Archive dead letters: their dependents are cancelled, others of their key continue."""

    name: ClassVar[str] = "archive"
    states: ClassVar[frozenset[State]] = frozenset({State.DEAD})

    def effect(self, job: Job, now_us: int, attribution: Attribution) -> Effect:
        """See ``Action.effect``."""
        return lifecycle.archive(job, now_us, attribution.by, attribution.why)


class RestoreJobs(Action, frozen=True, array_like=True, tag="restore"):
    """Turn archived jobs back into dead letters."""

    name: ClassVar[str] = "restore"
    states: ClassVar[frozenset[State]] = frozenset({State.ARCHIVED})

    def effect(self, job: Job, now_us: int, attribution: Attribution) -> Effect:
        """See ``Action.effect``."""
        return lifecycle.restore(job, now_us, attribution.by, attribution.why)


class CancelJobs(Action, frozen=True, array_like=True, tag="cancel"):
    """Cancel unfinished jobs and their dependents; those in flight are asked to stop."""

    name: ClassVar[str] = "cancel"
    states: ClassVar[frozenset[State]] = UNFINISHED

    def skips(self, job: Job, *, named: bool) -> bool:  # noqa: ARG002
        """See ``Action.spares``: those that were asked to stop before."""
        return job.stop_requested

    def effect(self, job: Job, now_us: int, attribution: Attribution) -> Effect:
        """See ``Action.effect``."""
        return lifecycle.cancel(job, now_us, attribution.why, attribution.by)


class PurgeJobs(Action, frozen=True, array_like=True, tag="purge"):
    """Delete finished jobs and their history for good."""

    name: ClassVar[str] = "purge"
    states: ClassVar[frozenset[State]] = frozenset(State) - UNFINISHED

    def effect(self, job: Job, now_us: int, attribution: Attribution) -> Effect:  # noqa: ARG002
        """See ``Action.effect``."""
        return lifecycle.purge(job, now_us)


class ConfirmJobs(Action, frozen=True, array_like=True, tag="confirm"):
    """Confirm jobs that wait for a person."""

    name: ClassVar[str] = "confirm"
    states: ClassVar[frozenset[State]] = frozenset({State.BLOCKED})

    def skips(self, job: Job, *, named: bool) -> bool:
        """See ``Action.spares``: those that wait for other jobs only."""
        return not named and not job.ties.hold

    def effect(self, job: Job, now_us: int, attribution: Attribution) -> Effect:
        """See ``Action.effect``."""
        return lifecycle.confirm(job, now_us, attribution.by, attribution.why)


class NoteJobs(Action, frozen=True, array_like=True, tag="note"):
    """Write a note about jobs into their history."""

    name: ClassVar[str] = "note"
    states: ClassVar[frozenset[State]] = frozenset(State)
    text: str = ""

    def check(self) -> None:
        """See ``Action.check``."""
        check_text("text", self.text)

    def effect(self, job: Job, now_us: int, attribution: Attribution) -> Effect:
        """See ``Action.effect``."""
        return Noted(now_us, job.tenant, job.id, attribution.by, self.text)


AnyAction: TypeAlias = (
    ReplayJobs | ArchiveJobs | RestoreJobs | CancelJobs | PurgeJobs | ConfirmJobs | NoteJobs
)
"""What a message may hold: ``Engine.operate`` takes any of these."""
