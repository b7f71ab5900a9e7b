"""A forwarding engine that records every answer to a worker."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.engines.contract import DEFAULT_LEASE_SECONDS, Claim, Engine, HeldJob, Renewal
from holdfast.engines.forwarding import ForwardingEngine
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.errors import HoldfastError, LeaseLost
from holdfast.model.outcome import Outcome

from .process import Process


class RecordingEngine(ForwardingEngine):
    """Forwards the calls of a worker; writes the answers to the ledger and the trace."""

    def __init__(self, engine: Engine, process: Process) -> None:
        super().__init__(engine)
        self._process = process

    async def claim(
        self,
        *,
        queues: Collection[str],
        worker: str,
        tasks: Collection[str] | None = None,
        limit: int = 1,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        wait_seconds: float = 0.0,
        settle: Sequence[Outcome] = (),
        chain: int = 1,
        caller: Caller = SYSTEM,
    ) -> Claim:
        """See ``Engine.claim``."""
        ledger, runs = self._process.world.ledger, self._process.world.runs
        try:
            claim = await super().claim(
                queues=queues,
                worker=worker,
                tasks=tasks,
                limit=limit,
                lease_seconds=lease_seconds,
                wait_seconds=wait_seconds,
                settle=settle,
                chain=chain,
                caller=caller,
            )
        except HoldfastError as error:
            self._note("claim", type(error).__name__)
            raise
        ledger.settled(settle, claim.settled)
        ledger.observed(claim.jobs)
        for job in claim.jobs:
            runs.claimed((job.tenant, job.id), job.token, self._process)
        if claim.jobs or settle:
            held = ",".join(f"{job.id}:{job.token}" for job in claim.jobs)
            self._note("claim", f"{held} settled {_outcomes_text(settle, claim.settled)}")
        return claim

    async def settle(
        self, outcomes: Sequence[Outcome], *, caller: Caller = SYSTEM
    ) -> list[LeaseLost | None]:
        """See ``Engine.settle``."""
        try:
            answers = await super().settle(outcomes, caller=caller)
        except HoldfastError as error:
            self._note("settle", type(error).__name__)
            raise
        self._process.world.ledger.settled(outcomes, answers)
        self._note("settle", _outcomes_text(outcomes, answers))
        return answers

    async def extend(
        self, held: Sequence[HeldJob], *, lease_seconds: float, caller: Caller = SYSTEM
    ) -> list[Renewal | LeaseLost]:
        """See ``Engine.extend``."""
        try:
            answers = await super().extend(held, lease_seconds=lease_seconds, caller=caller)
        except HoldfastError as error:
            self._note("extend", type(error).__name__)
            raise
        renewals_text = ",".join(
            f"{lease.id}:{'lost' if isinstance(answer, LeaseLost) else answer.lease_until_us}"
            for lease, answer in zip(held, answers, strict=True)
        )
        self._note("extend", renewals_text)
        return answers

    def _note(self, verb: str, what: str) -> None:
        self._process.world.trace.note(f"verb.{verb}", self._process.name, what)


def _outcomes_text(outcomes: Sequence[Outcome], answers: Sequence[LeaseLost | None]) -> str:
    return ",".join(
        f"{outcome.id}:{outcome.kind.value}{'' if answer is None else ':refused'}"
        for outcome, answer in zip(outcomes, answers, strict=True)
    )
