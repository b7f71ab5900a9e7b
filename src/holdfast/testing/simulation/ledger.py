"""Every answer that clients and workers received. Each must stay true, through every crash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.engines.contract import Admission, Receipt
from holdfast.model.audit import AuditHead
from holdfast.model.errors import LeaseLost
from holdfast.model.event import EventReceipt, NewEvent
from holdfast.model.job import Job, NewJob
from holdfast.model.outcome import Outcome, OutcomeKind

from .invariants import InvariantChecker
from .observed_runs import JobKey
from .trace import Trace


class Ledger:
    """Answers recorded outside of the simulated system, where no crash can reach them."""

    def __init__(self, trace: Trace, invariants: InvariantChecker) -> None:
        self.created: dict[JobKey, NewJob] = {}
        """Jobs whose enqueue was acknowledged."""
        self.acknowledged_seq = 0
        """The newest change that any answer has shown."""
        self._trace = trace
        self._invariants = invariants
        self._refused: dict[JobKey, str] = {}
        self._settled: dict[tuple[JobKey, int], OutcomeKind] = {}
        self._audit_heads: list[AuditHead] = []
        self._appended: set[tuple[str, str]] = set()

    # --- record ------------------------------------------------------------------------------

    def enqueued(self, jobs: Sequence[NewJob], receipts: Sequence[Receipt]) -> None:
        """Record the receipts of an enqueue."""
        for new, receipt in zip(jobs, receipts, strict=True):
            name = new.tenant, receipt.id
            if receipt.admission is Admission.CREATED:
                self.created[name] = new
            if not self._invariants.exists(name):
                self._trace.broken(f"{receipt.id} is {receipt.admission}, but never existed")

    def refused(self, jobs: Sequence[NewJob], why: str) -> None:
        """Record that these jobs, whose ids no other client uses, were refused."""
        for new in jobs:
            if new.id is not None:
                self._refused[new.tenant, new.id] = why

    def settled(self, outcomes: Sequence[Outcome], answers: Sequence[LeaseLost | None]) -> None:
        """Record which outcomes of a worker were accepted."""
        for outcome, answer in zip(outcomes, answers, strict=True):
            if answer is None:
                self._settled[(outcome.tenant, outcome.id), outcome.token] = outcome.kind

    def observed(self, jobs: Iterable[Job | None]) -> None:
        """Record the jobs of an answer; each must match a committed version."""
        for job in jobs:
            if job is None:
                continue
            seq = self._invariants.seq_of(job)
            if seq is None:
                self._trace.broken(f"{job.id} was returned in a state that it never had: {job}")
            else:
                self.acknowledged_seq = max(self.acknowledged_seq, seq)

    def appended(self, news: Sequence[NewEvent], receipts: Sequence[EventReceipt]) -> None:
        """Record the receipts of an append."""
        self._appended |= {
            (new.tenant, receipt.id) for new, receipt in zip(news, receipts, strict=True)
        }

    def audited(self, head: AuditHead) -> None:
        """Record a returned head of the audit."""
        self._audit_heads.append(head)

    # --- check -------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare every recorded answer with the current state."""
        invariants = self._invariants
        for name in self.created:
            if not invariants.exists(name):
                self._trace.broken(f"{name[1]} was acknowledged and is lost")
        for name, why in self._refused.items():
            if invariants.exists(name):
                self._trace.broken(f"{name[1]} was refused ({why}) but exists")
        for (name, token), kind in self._settled.items():
            if invariants.holds(*name, token):
                self._trace.broken(f"{name[1]} was settled ({kind}) and is in flight again")
            if kind is OutcomeKind.COMPLETED and (name, token) not in invariants.completed:
                self._trace.broken(f"{name[1]} was completed, and the completion is lost")
        for name in self._appended:
            if name not in invariants.events:
                self._trace.broken(f"event {name[1]} was acknowledged and is lost")
        for head in self._audit_heads:
            if (
                head.count >= len(invariants.audit_heads)
                or invariants.audit_heads[head.count] != head
            ):
                self._trace.broken(f"record {head.count} of the audit is lost")
