"""Decides what became of a call whose reply was lost, from the present state of the store.

The connection broke after the call was sent, so it is sent again. If the second call is refused,
the first one may be the reason: these rules decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.model.access import Caller
from holdfast.model.errors import DuplicateId, LeaseLost
from holdfast.model.job import MICROSECONDS, Job, NewJob, State
from holdfast.model.outcome import Outcome, OutcomeKind

from .contract import Admission, OnDuplicate, Receipt

Known = Mapping[tuple[str, str], Job]
"""Jobs as the store has them now, by tenant and id."""

_AFTER_A_FAILURE = frozenset({State.PENDING, State.DEAD})


class SentEnqueue(msgspec.Struct, frozen=True):
    """An enqueue as it was first sent: every job has its id, and its payload as JSON."""

    jobs: list[NewJob]
    fresh: frozenset[str]
    """Ids that were made for this call."""
    caller: Caller
    on_duplicate: OnDuplicate
    sent_at_us: int

    def names(self) -> list[tuple[str, str]]:
        """Return the tenant and id of each job."""
        return [name_of(job) for job in self.jobs]

    def has(self, new: NewJob, known: Known) -> bool:
        """Whether the store has this job, as far as can be known from this call."""
        job = known.get(name_of(new))
        if job is None or job.id in self.fresh:
            return job is not None
        if job.created_at_us < self.sent_at_us or (job.task, job.queue) != (new.task, new.queue):
            return False
        # A finished job may have lost its payload.
        return not job.payload or job.payload == new.payload

    def was_taken(self, refused: DuplicateId, known: Known) -> bool:
        """Whether the first call was recorded: every duplicate is a job of this call."""
        ours = {new.id for new in self.jobs if self.has(new, known)}
        return ours.issuperset(refused.ids)

    def restored(self, receipts: Sequence[Receipt], known: Known) -> list[Receipt]:
        """Return the receipts of the first call, given those of the second."""
        seen: set[tuple[str, str]] = set()
        restored: list[Receipt] = []
        for new, receipt in zip(self.jobs, receipts, strict=True):
            name = name_of(new)
            ours = receipt.id == new.id and name not in seen and self.has(new, known)
            restored.append(Receipt(receipt.id, Admission.CREATED) if ours else receipt)
            if receipt.id == new.id:
                seen.add(name)
        return restored


def name_of(job: NewJob) -> tuple[str, str]:
    """Return the tenant and id of a job that has one."""
    return job.tenant, job.id or ""


def accepted(
    outcomes: Sequence[Outcome],
    answers: Sequence[LeaseLost | None],
    known: Known,
    sent_at_us: int,
) -> list[LeaseLost | None]:
    """Return the answers of the first settle, given those of the second."""
    spent: set[int] = set()
    restored: list[LeaseLost | None] = []
    for outcome, answer in zip(outcomes, answers, strict=True):
        job = known.get((outcome.tenant, outcome.id))
        ours = job is not None and outcome.token not in spent
        restored.append(None if ours and _ended_by(job, outcome, sent_at_us) else answer)
        spent.add(outcome.token)
    return restored


def _ended_by(job: Job | None, outcome: Outcome, sent_at_us: int) -> bool:
    """Whether the job is as this outcome left it, not as an expired lease would leave it."""
    if job is None or job.token != outcome.token:
        return False
    kind = outcome.kind
    if kind is OutcomeKind.COMPLETED:
        return job.state is State.COMPLETED
    if kind is OutcomeKind.CANCELLED:
        return job.state is State.CANCELLED
    if kind is OutcomeKind.RELEASE:
        return job.state is State.PENDING and job.run_at_us <= job.claimed_at_us
    if kind is OutcomeKind.SNOOZE:
        back_at_us = sent_at_us + int(outcome.delay_seconds * MICROSECONDS)
        return job.state is State.PENDING and job.run_at_us >= back_at_us
    if kind is OutcomeKind.DEAD:
        return job.state is State.DEAD and job.failure == outcome.failure
    return job.state in _AFTER_A_FAILURE and job.failure == outcome.failure
