"""What became of a call whose answer was lost: what the store has now tells.

The connection broke after the call was sent. It is sent again; where the second answer is a
refusal, the refusal may be of our own doing. These rules tell which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.model.access import Caller
from holdfast.model.errors import DuplicateId, LeaseLost
from holdfast.model.job import Job, NewJob, State
from holdfast.model.outcome import Outcome, OutcomeKind

from .base import Admission, OnDuplicate, Receipt

Known = Mapping[tuple[str, str], Job]
"""Jobs as the store has them now, by tenant and id."""

_PAYLOAD_GONE = frozenset({State.COMPLETED, State.CANCELLED})
_LEADS_TO = {
    OutcomeKind.COMPLETED: State.COMPLETED,
    OutcomeKind.CANCELLED: State.CANCELLED,
    OutcomeKind.DEAD: State.DEAD,
}


class Order(msgspec.Struct, frozen=True):
    """An enqueue as it was first sent: every job has its id, and its payload as JSON."""

    jobs: list[NewJob]
    fresh: frozenset[str]
    """Ids that were made for this order: nobody else has them."""
    caller: Caller
    on_duplicate: OnDuplicate
    sent_at_us: int

    def names(self) -> list[tuple[str, str]]:
        """Return the tenant and id of each job."""
        return [name_of(job) for job in self.jobs]

    def has(self, new: NewJob, known: Known) -> bool:
        """Whether the store has this job, and has it from us, as far as anybody can tell."""
        job = known.get(name_of(new))
        if job is None or job.id in self.fresh:
            return job is not None
        if (job.task, job.queue) != (new.task, new.queue):
            return False
        if job.state in _PAYLOAD_GONE:
            # Nothing is left to compare: an old one of this id must not pass for the new one.
            return job.created_at_us >= self.sent_at_us
        return job.payload == new.payload

    def leftovers(self, refused: DuplicateId, known: Known) -> list[NewJob]:
        """Return which jobs are not in the store, if the first try was taken; else raise.

        Taken means: what is called a duplicate is ours, and nothing is missing but jobs for whose
        ``unique`` key there was one already.
        """
        names = self.names()
        missing = [job for job in self.jobs if not self.has(job, known)]
        strangers = {job.id for job in missing}.intersection(refused.ids)
        if len(set(names)) < len(names) or strangers or any(not job.unique for job in missing):
            raise refused
        return missing

    def restored(self, receipts: Sequence[Receipt], known: Known) -> list[Receipt]:
        """Return the receipts of a second try as those of the first: our own is no duplicate."""
        seen: set[tuple[str, str]] = set()
        restored: list[Receipt] = []
        for new, receipt in zip(self.jobs, receipts, strict=True):
            name = name_of(new)
            if receipt.id == new.id and name not in seen and self.has(new, known):
                restored.append(Receipt(receipt.id, Admission.CREATED))
            else:
                restored.append(receipt)
            seen.add(name)
        return restored


def name_of(job: NewJob) -> tuple[str, str]:
    """Return the tenant and id of a job that has one."""
    return job.tenant, job.id or ""


def accepted(
    outcomes: Sequence[Outcome], answers: Sequence[LeaseLost | None], known: Known
) -> list[LeaseLost | None]:
    """Return the answers of a second try as those of the first: our own settle is no refusal."""
    spent: set[int] = set()
    restored: list[LeaseLost | None] = []
    for outcome, answer in zip(outcomes, answers, strict=True):
        job = known.get((outcome.tenant, outcome.id))
        if job is not None and outcome.token not in spent and _ended_by(job, outcome):
            restored.append(None)
        else:
            restored.append(answer)
        spent.add(outcome.token)
    return restored


def _ended_by(job: Job, outcome: Outcome) -> bool:
    """Whether the job is as this outcome would have left it."""
    if job.token != outcome.token:
        return False
    if outcome.kind in _LEADS_TO and job.state is not _LEADS_TO[outcome.kind]:
        return False
    if outcome.kind not in _LEADS_TO and job.state not in (State.PENDING, State.DEAD):
        return False
    return outcome.failure is None or job.failure == outcome.failure
