"""What each client and worker was told: whatever happens, none of it may turn out untrue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.engines.contract import Admission, Receipt
from holdfast.model.audit import AuditHead
from holdfast.model.errors import LeaseLost
from holdfast.model.job import Job, NewJob
from holdfast.model.outcome import Outcome, OutcomeKind

from .invariants import InvariantChecker
from .observed_runs import Name
from .trace import Trace


class Ledger:
    """Kept outside of the simulated system: no crash touches it."""

    def __init__(self, trace: Trace, watch: InvariantChecker) -> None:
        self.created: dict[Name, NewJob] = {}
        """Jobs that somebody was told are taken."""
        self.told_seq = 0
        """The last change that any answer rests on."""
        self._trace = trace
        self._watch = watch
        self._refused: dict[Name, str] = {}
        self._settled: dict[tuple[Name, int], OutcomeKind] = {}
        self._audit_heads: list[AuditHead] = []

    # --- what is told ------------------------------------------------------------------------

    def enqueued(self, jobs: Sequence[NewJob], receipts: Sequence[Receipt]) -> None:
        """Somebody was told that these were taken."""
        for new, receipt in zip(jobs, receipts, strict=True):
            name = new.tenant, receipt.id
            if receipt.admission is Admission.CREATED:
                self.created[name] = new
            if not self._watch.exists(name):
                self._trace.broken(f"{receipt.id} is {receipt.admission}, and was never there")

    def refused(self, jobs: Sequence[NewJob], why: str) -> None:
        """Somebody was told that none of these, whose ids nobody else uses, was taken."""
        for new in jobs:
            if new.id is not None:
                self._refused[new.tenant, new.id] = why

    def settled(self, outcomes: Sequence[Outcome], answers: Sequence[LeaseLost | None]) -> None:
        """A worker was told which of its outcomes are recorded."""
        for outcome, answer in zip(outcomes, answers, strict=True):
            if answer is None:
                self._settled[(outcome.tenant, outcome.id), outcome.token] = outcome.kind

    def shown(self, jobs: Iterable[Job | None]) -> None:
        """Somebody was shown these jobs."""
        for job in jobs:
            if job is None:
                continue
            seq = self._watch.seq_of(job)
            if seq is None:
                self._trace.broken(f"{job.id} was shown as it never was: {job}")
            else:
                self.told_seq = max(self.told_seq, seq)

    def audited(self, head: AuditHead) -> None:
        """Somebody was told where the audit ends."""
        self._audit_heads.append(head)

    # --- whether it is still so --------------------------------------------------------------

    def check(self) -> None:
        """Hold everything that was told against what there is now."""
        watch = self._watch
        for name in self.created:
            if not watch.exists(name):
                self._trace.broken(f"{name[1]} was acknowledged and is lost")
        for name, why in self._refused.items():
            if watch.exists(name):
                self._trace.broken(f"{name[1]} was refused ({why}) and is there")
        for (name, token), kind in self._settled.items():
            if watch.holds(*name, token):
                self._trace.broken(f"{name[1]} was settled ({kind}) and is in flight again")
            if kind is OutcomeKind.COMPLETED and (name, token) not in watch.completed:
                self._trace.broken(f"{name[1]} was completed, and that is lost")
        for head in self._audit_heads:
            if head.count >= len(watch.audit_heads) or watch.audit_heads[head.count] != head:
                self._trace.broken(f"record {head.count} of the audit is lost")
