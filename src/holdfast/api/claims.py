"""Workers in other languages: claim jobs, keep them, and say what became of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from holdfast.engines.contract import DEFAULT_LEASE_SECONDS, Claim
from holdfast.engines.protocol.messages import LeaseRef
from holdfast.http.asgi import PeerGone
from holdfast.model.errors import LeaseLost
from holdfast.model.failure import REASONS, Failure, FailureClass, bounded
from holdfast.model.outcome import Outcome, OutcomeKind, release
from holdfast.model.permissions import Permission
from holdfast.model.retry import RetryPolicy
from holdfast.operations.views import JobView, date_of

from .call import Answer, ApiCall, Route, invalid
from .job_bodies import Shown, shown
from .problems import RequestRefused

MAX_WAIT_SECONDS = 30.0
_SLICE_SECONDS = 1.0
"""How often a claim that waits looks whether the server is about to end."""
_KINDS = {
    "completed": OutcomeKind.COMPLETED,
    "cancelled": OutcomeKind.CANCELLED,
    "snoozed": OutcomeKind.SNOOZE,
    "released": OutcomeKind.RELEASE,
}


class HeldLease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job that was claimed, by the token that the claim gave."""

    id: str
    token: str
    tenant: str | None = None
    """As the claim gave it; None: that of the key."""

    def lease(self, call: ApiCall) -> LeaseRef:
        """Return it as engines take it."""
        return LeaseRef(self.tenant or call.tenant, self.id, _token(self.token))


class AttemptFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why an attempt failed; the class decides whether it is retried."""

    error_reason: str = "unexpected"
    message: str = ""
    failure_class: FailureClass | None = None
    """None: that of the reason, if it is one that Holdfast knows; else ``unknown``."""
    traceback: str = ""

    def failure(self) -> Failure:
        """Return it as it is stored."""
        kind = self.failure_class or REASONS.get(self.error_reason, FailureClass.UNKNOWN)
        return bounded(Failure(self.error_reason, kind, self.message, self.traceback))


class AttemptOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of an attempt."""

    id: str
    token: str
    status: Literal["completed", "failed", "dead", "cancelled", "snoozed", "released"]
    tenant: str | None = None
    result: object = None
    """Any JSON, of one that completed."""
    failure: AttemptFailure | None = None
    """Of one that failed, or is dead."""
    delay_seconds: float | None = None
    """When it may run again, of one that failed or was snoozed; None: by the usual waits."""
    attempt: int = 1
    """As the claim gave it: the usual wait grows with it."""

    def outcome(self, call: ApiCall) -> Outcome:
        """Return it as engines take it; raise ``InvalidInput`` for what does not fit."""
        kind, delay = _KINDS.get(self.status), self.delay_seconds or 0.0
        failure = None
        if kind is None:
            failure = (self.failure or AttemptFailure()).failure()
            again = RetryPolicy(max_attempts=1_000_000).delay_seconds(
                failure, max(1, min(self.attempt, 1_000)), random.uniform
            )
            kind = OutcomeKind.DEAD if self.status == "dead" or again is None else OutcomeKind.RETRY
            if self.delay_seconds is None:
                delay = again or 0.0
        made = Outcome(
            kind,
            self.id,
            _token(self.token),
            self.tenant or call.tenant,
            delay,
            failure,
            None if self.result is None else msgspec.json.encode(self.result),
        )
        made.check()
        return made


class ClaimBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs a worker can take."""

    queues: list[str]
    worker: str
    tasks: list[str] | None = None
    """None: of any task."""
    limit: int = 1
    lease_seconds: float = DEFAULT_LEASE_SECONDS
    wait_seconds: float = 0.0
    """How long to wait for a job: up to 30."""
    settle: list[AttemptOutcome] = []
    """Outcomes to record first, in the same call; a claim with some does not wait."""


class ExtendBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Leases to renew."""

    held: list[HeldLease]
    lease_seconds: float = DEFAULT_LEASE_SECONDS


class SettleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Outcomes to record."""

    outcomes: list[AttemptOutcome]


class ReleaseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to give back as if they had not been claimed."""

    held: list[HeldLease]


class LeaseAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one lease."""

    id: str
    token: str
    accepted: bool
    """False: the lease is not held any more, and nothing was recorded."""
    lease_until: datetime | None = None
    stop_requested: bool = False
    """Somebody asked to cancel the job: stop, and settle it as cancelled."""


class ClaimedJobs(msgspec.Struct, frozen=True):
    """The jobs that were claimed, and what became of the outcomes."""

    jobs: list[Shown]
    settled: list[LeaseAnswer]


async def claim_jobs(call: ApiCall) -> Answer:
    """Claim jobs for a worker, and record outcomes in the same call."""
    body = call.body(ClaimBody)
    if not 0 <= body.wait_seconds <= MAX_WAIT_SECONDS:
        raise invalid("wait_seconds", f"give 0 to {MAX_WAIT_SECONDS:g}")
    outcomes = [one.outcome(call) for one in body.settle]
    claim = await _claim(call, body, outcomes)
    settled = _answers(outcomes, claim.settled) if outcomes else []
    jobs = [shown(JobView.of(job), payload=True) for job in claim.jobs]
    return Answer(data=ClaimedJobs(jobs, settled))


async def extend_claims(call: ApiCall) -> Answer:
    """Renew leases."""
    body = call.body(ExtendBody)
    held = [one.lease(call) for one in body.held]
    found = await call.operations.engine.extend(held, lease_seconds=body.lease_seconds)
    return _all_or_some(
        [
            LeaseAnswer(lease.id, str(lease.token), accepted=False)
            if isinstance(one, LeaseLost)
            else LeaseAnswer(
                lease.id,
                str(lease.token),
                accepted=True,
                lease_until=date_of(one.lease_until_us),
                stop_requested=one.stop_requested,
            )
            for lease, one in zip(held, found, strict=True)
        ]
    )


async def settle_claims(call: ApiCall) -> Answer:
    """Record outcomes: each is good for the lease of its token only."""
    outcomes = [one.outcome(call) for one in call.body(SettleBody).outcomes]
    return _all_or_some(_answers(outcomes, await call.operations.engine.settle(outcomes)))


async def release_claims(call: ApiCall) -> Answer:
    """Give jobs back; no attempt is charged."""
    held = [one.lease(call) for one in call.body(ReleaseBody).held]
    outcomes = [Outcome(OutcomeKind.RELEASE, one.id, one.token, one.tenant) for one in held]
    return _all_or_some(_answers(outcomes, await call.operations.engine.settle(outcomes)))


async def _claim(call: ApiCall, body: ClaimBody, outcomes: Sequence[Outcome]) -> Claim:
    """Claim, and wait until there is something, the time is over, or the server is to end."""
    loop = asyncio.get_running_loop()
    until = loop.time() + body.wait_seconds
    leaving = asyncio.ensure_future(call.stream.gone())
    try:
        while True:
            left = 0.0 if call.draining() or outcomes else max(0.0, until - loop.time())
            found = await _claim_once(call, body, outcomes, min(left, _SLICE_SECONDS), leaving)
            if found.jobs or outcomes or left == 0.0:
                return found
    finally:
        leaving.cancel()


async def _claim_once(
    call: ApiCall,
    body: ClaimBody,
    outcomes: Sequence[Outcome],
    wait_seconds: float,
    leaving: asyncio.Future[None],
) -> Claim:
    """Claim; if the worker goes meanwhile, give back what was claimed."""
    engine = call.operations.engine
    claim = asyncio.ensure_future(
        engine.claim(
            queues=body.queues,
            worker=body.worker,
            tasks=body.tasks,
            limit=body.limit,
            lease_seconds=body.lease_seconds,
            wait_seconds=wait_seconds,
            settle=outcomes,
        )
    )
    if outcomes:
        return await claim  # what is to be recorded is recorded
    leave = lambda _left: claim.cancel()
    leaving.add_done_callback(leave)
    try:
        found = await claim
    except asyncio.CancelledError:
        if leaving.done():
            raise PeerGone("the worker has gone") from None
        claim.cancel()
        raise
    finally:
        leaving.remove_done_callback(leave)
    if leaving.done():
        await engine.settle([release(job) for job in found.jobs])
        raise PeerGone("the worker has gone")
    return found


def _answers(outcomes: Sequence[Outcome], answers: Sequence[LeaseLost | None]) -> list[LeaseAnswer]:
    return [
        LeaseAnswer(outcome.id, str(outcome.token), accepted=answer is None)
        for outcome, answer in zip(outcomes, answers, strict=True)
    ]


def _all_or_some(answers: list[LeaseAnswer]) -> Answer:
    """Return the answers; if every lease was lost, that is the problem."""
    if answers and not any(one.accepted for one in answers):
        names = ", ".join(one.id for one in answers[:5])
        text = f"the lease is not held any more: {names}; stop the work, it may run elsewhere"
        raise RequestRefused("lease-lost", text)
    return Answer(data=answers)


def _token(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise invalid("token", f"{text[:40]!r} is not a token that a claim gave")
    return int(text)


_HELD = {"id": "mail-1", "token": "1"}
ROUTES: Sequence[Route] = (
    Route(
        operation_id="claimJobs",
        method="POST",
        path="/claims",
        handle=claim_jobs,
        permission=Permission.JOB_CLAIM,
        summary="Claim jobs for a worker",
        body=ClaimBody,
        example={"queues": ["mail"], "worker": "robot-1", "wait_seconds": 0.1},
        answers=ClaimedJobs,
        takes_key=False,
    ),
    Route(
        operation_id="extendClaims",
        method="POST",
        path="/claims/extend",
        handle=extend_claims,
        permission=Permission.JOB_CLAIM,
        summary="Renew the leases of jobs",
        body=ExtendBody,
        example={"held": [_HELD], "lease_seconds": 60},
        answers=list[LeaseAnswer],
        takes_key=False,
    ),
    Route(
        operation_id="settleClaims",
        method="POST",
        path="/claims/settle",
        handle=settle_claims,
        permission=Permission.JOB_CLAIM,
        summary="Record the outcomes of jobs",
        body=SettleBody,
        example={"outcomes": [{**_HELD, "status": "completed", "result": {"sent": 1}}]},
        answers=list[LeaseAnswer],
        takes_key=False,
    ),
    Route(
        operation_id="releaseClaims",
        method="POST",
        path="/claims/release",
        handle=release_claims,
        permission=Permission.JOB_CLAIM,
        summary="Give jobs back",
        body=ReleaseBody,
        example={"held": [_HELD]},
        answers=list[LeaseAnswer],
        takes_key=False,
    ),
)
