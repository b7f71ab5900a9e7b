"""Actions of people on jobs: for which states, with which effect, and which jobs they skip."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from . import lifecycle
from .audit import Attribution, check_text
from .effects import Effect, Noted
from .failure import FailureClass
from .job import (
    MAX_PAYLOAD_BYTES,
    UNFINISHED,
    Edit,
    Job,
    State,
    check_id,
    check_size,
)
from .payload_paths import MAX_ASSIGNMENTS, Assignment, NoSuchPath, assign, same_json

DETERMINISTIC = "deterministic"
"""Why a replay without a statement of what was fixed leaves a job alone."""
UNIQUE_TAKEN = "unique_taken"
"""Why a replay leaves a job alone whose work another unfinished job does."""


class Action(msgspec.Struct, frozen=True, array_like=True):
    """One kind of action on jobs. ``Engine.operate`` applies it to each job that a filter finds."""

    name: ClassVar[str]
    states: ClassVar[frozenset[State]]
    """The states of jobs that it can be applied to."""

    def check(self) -> None:
        """Raise ``InvalidInput`` if a field is invalid."""

    def skip_reason(self, job: Job, *, named: bool) -> str:  # noqa: ARG002 - most skip none
        """Return why it leaves a job alone, in a word, or an empty text; given the job only.

        ``named``: the filter has its id.
        """
        return ""

    def effect(self, job: Job, now_us: int, attribution: Attribution) -> Effect:
        """Return the effect on a job, or raise ``IllegalTransition``."""
        raise NotImplementedError


class ReplayJobs(Action, frozen=True, array_like=True, tag="replay"):
    """Replay dead letters, due now, with a fresh budget.

    Those with a deterministic failure are skipped unless ``fixed`` says what was fixed. ``run``
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

    def skip_reason(self, job: Job, *, named: bool) -> str:  # noqa: ARG002
        """See ``Action.skip_reason``."""
        failure = job.failure
        if not self.fixed and failure is not None:
            return DETERMINISTIC if failure.failure_class is FailureClass.DETERMINISTIC else ""
        return ""

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

    def skip_reason(self, job: Job, *, named: bool) -> str:  # noqa: ARG002
        """See ``Action.skip_reason``: those that were asked to stop before."""
        return "stop_requested" if job.stop_requested else ""

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

    def skip_reason(self, job: Job, *, named: bool) -> str:
        """See ``Action.skip_reason``: those that wait for other jobs only."""
        return "" if named or job.ties.hold else "waits_for_jobs"

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


class EditJobs(Action, frozen=True, array_like=True, tag="edit"):
    """Change the payloads of jobs that are not running."""

    name: ClassVar[str] = "edit"
    states: ClassVar[frozenset[State]] = lifecycle.EDITABLE
    assignments: tuple[Assignment, ...] = ()

    def check(self) -> None:
        """See ``Action.check``."""
        check_size("assignments", len(self.assignments), 1, MAX_ASSIGNMENTS)
        for one in self.assignments:
            one.check()

    def skip_reason(self, job: Job, *, named: bool) -> str:  # noqa: ARG002
        """See ``Action.skip_reason``: those that have no such path, or would stay as they are."""
        try:
            after = assign(job.payload, self.assignments)
        except NoSuchPath:
            return "no_such_path"
        if len(after) > max(MAX_PAYLOAD_BYTES, len(job.payload)):
            return "too_large"
        return "unchanged" if same_json(after, job.payload) else ""

    def effect(self, job: Job, now_us: int, attribution: Attribution) -> Effect:
        """See ``Action.effect``."""
        changes = Edit(payload=assign(job.payload, self.assignments))
        return lifecycle.edit(job, now_us, changes, attribution.by, attribution.why)


class RetargetJobs(Action, frozen=True, array_like=True, tag="retarget"):
    """Give jobs that are not running to another task."""

    name: ClassVar[str] = "retarget"
    states: ClassVar[frozenset[State]] = lifecycle.EDITABLE
    task: str = ""

    def check(self) -> None:
        """See ``Action.check``."""
        check_id(self.task, "task")

    def skip_reason(self, job: Job, *, named: bool) -> str:  # noqa: ARG002
        """See ``Action.skip_reason``: those of that task already."""
        return "unchanged" if job.task == self.task else ""

    def effect(self, job: Job, now_us: int, attribution: Attribution) -> Effect:
        """See ``Action.effect``."""
        changes = Edit(task=self.task)
        return lifecycle.edit(job, now_us, changes, attribution.by, attribution.why)


AnyAction: TypeAlias = (
    ReplayJobs
    | ArchiveJobs
    | RestoreJobs
    | CancelJobs
    | PurgeJobs
    | ConfirmJobs
    | NoteJobs
    | EditJobs
    | RetargetJobs
)
"""What a message may hold: ``Engine.operate`` takes any of these."""
