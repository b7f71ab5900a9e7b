"""The state machine: the only place that knows the legal moves.

The functions named after a move *decide*: they take a job and the time and return an effect, or
raise ``IllegalTransition``. ``folding.apply`` turns an effect into the next job.

    (new) ──enqueue──► pending ──claim──► in_flight ──complete──► completed
                       ▲  ▲ │               │ │ │
      blocked ─unblock─┘  │ │expire         │ │ └─cancel──► cancelled
                          │ ▼               │ │
              replay ─── dead ◄──die────────┘ └─retry, release, snooze, lose──► pending
                       archive ⇅ restore
                        archived

A job in flight that was asked to stop is cancelled where it would have become pending.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from msgspec.structs import replace

from . import effects as fx
from .errors import IllegalTransition, InvalidInput, InvariantViolation
from .failure import Failure
from .job import (
    DEFAULT_CAP_SECONDS,
    MAX_LEASE_SECONDS,
    MICROSECONDS,
    Edit,
    Job,
    Replays,
    State,
    encode_payload,
)
from .outcome import Outcome, OutcomeKind

LOSSES_BEFORE_ALONE = 2
"""A job lost this often runs alone from then on; lost once more, it is dead."""


class Move(enum.StrEnum):
    """Everything that can happen to a job."""

    ENQUEUE = "enqueue"
    UNBLOCK = "unblock"
    CLAIM = "claim"
    EXPIRE = "expire"
    COMPLETE = "complete"
    CANCEL = "cancel"
    RETRY = "retry"
    RELEASE = "release"
    SNOOZE = "snooze"
    DIE = "die"
    LOSE = "lose"
    REPLAY = "replay"
    ARCHIVE = "archive"
    RESTORE = "restore"


_BLOCKED, _PENDING, _IN_FLIGHT = State.BLOCKED, State.PENDING, State.IN_FLIGHT
_COMPLETED, _CANCELLED, _DEAD, _ARCHIVED = (
    State.COMPLETED,
    State.CANCELLED,
    State.DEAD,
    State.ARCHIVED,
)

MOVES: Mapping[tuple[State | None, Move], frozenset[State]] = {
    (None, Move.ENQUEUE): frozenset({_PENDING, _BLOCKED}),
    (_BLOCKED, Move.UNBLOCK): frozenset({_PENDING}),
    (_BLOCKED, Move.EXPIRE): frozenset({_DEAD}),
    (_BLOCKED, Move.CANCEL): frozenset({_CANCELLED}),
    (_PENDING, Move.CLAIM): frozenset({_IN_FLIGHT}),
    (_PENDING, Move.EXPIRE): frozenset({_DEAD}),
    (_PENDING, Move.CANCEL): frozenset({_CANCELLED}),
    (_IN_FLIGHT, Move.COMPLETE): frozenset({_COMPLETED}),
    (_IN_FLIGHT, Move.CANCEL): frozenset({_CANCELLED}),
    # A retry or a loss past the budget is a death.
    (_IN_FLIGHT, Move.RETRY): frozenset({_PENDING, _DEAD, _CANCELLED}),
    (_IN_FLIGHT, Move.LOSE): frozenset({_PENDING, _DEAD, _CANCELLED}),
    (_IN_FLIGHT, Move.RELEASE): frozenset({_PENDING, _CANCELLED}),
    (_IN_FLIGHT, Move.SNOOZE): frozenset({_PENDING, _CANCELLED}),
    (_IN_FLIGHT, Move.DIE): frozenset({_DEAD}),
    (_DEAD, Move.REPLAY): frozenset({_PENDING, _BLOCKED}),
    (_DEAD, Move.ARCHIVE): frozenset({_ARCHIVED}),
    (_ARCHIVED, Move.RESTORE): frozenset({_DEAD}),
}
"""Every legal move and where it may lead. What is not here raises ``IllegalTransition``."""


_COMPLETE = OutcomeKind.COMPLETED
_STOPPABLE = frozenset(
    {OutcomeKind.RETRY, OutcomeKind.RELEASE, OutcomeKind.SNOOZE, OutcomeKind.LOST}
)
EDITABLE = frozenset({_BLOCKED, _PENDING, _DEAD})


def runs_alone(job: Job) -> bool:
    """Whether the job was lost so often that it must run alone."""
    return job.losses >= LOSSES_BEFORE_ALONE


def attempts_used(job: Job) -> int:
    """How many attempts of its budget a job has used: those since its last replay."""
    return job.attempt - job.attempts_before_replay


def exhausted(job: Job) -> bool:
    """Whether the attempts since the last replay are used up."""
    return attempts_used(job) >= job.max_attempts


# --- decide ----------------------------------------------------------------------------------


class LeaseTerms:
    """The lease that a claim or an extension asks for, computed once for all its jobs."""

    __slots__ = ("lease_seconds", "max_processing_seconds", "now_us", "until_us")

    def __init__(
        self, now_us: int, lease_seconds: float, max_processing_seconds: float | None
    ) -> None:
        """Take the requested lease and the cap for jobs without their own; None: none is set."""
        self.now_us = now_us
        self.lease_seconds = lease_seconds
        self.max_processing_seconds = max_processing_seconds
        self.until_us = self.capped(
            now_us, lease_seconds, max_processing_seconds or DEFAULT_CAP_SECONDS
        )
        """When the lease of a job claimed now ends, if it has no limits of its own."""

    def capped(self, since_us: int, lease_seconds: float, cap_seconds: float) -> int:
        """Return when a lease ends: never past the cap on processing."""
        until_us = self.now_us + int(min(lease_seconds, MAX_LEASE_SECONDS) * MICROSECONDS)
        return min(until_us, since_us + int(cap_seconds * MICROSECONDS))


def claim(job: Job, token: int, worker: str, terms: LeaseTerms) -> fx.Claimed:
    """Give the job to a worker. The job's own estimate, if any, is its first lease."""
    if job.state is not _PENDING:
        raise IllegalTransition(job.id, job.state, Move.CLAIM)
    until_us = terms.until_us
    if job.estimated_seconds is not None or job.max_processing_seconds is not None:
        until_us = terms.capped(
            terms.now_us,
            job.estimated_seconds or terms.lease_seconds,
            job.max_processing_seconds or terms.max_processing_seconds or DEFAULT_CAP_SECONDS,
        )
    return fx.Claimed(terms.now_us, job.tenant, job.id, token, worker, until_us)


def extend(job: Job, terms: LeaseTerms, holder_cap_seconds: float | None = None) -> fx.Extended:
    """Renew the lease from now; never past the cap on processing, and never to end sooner.

    The cap is the job's own, else that of the terms, else its holder's.
    """
    if job.state is not _IN_FLIGHT:
        raise IllegalTransition(job.id, job.state, "extend its lease")
    cap_seconds = (
        job.max_processing_seconds
        or terms.max_processing_seconds
        or holder_cap_seconds
        or DEFAULT_CAP_SECONDS
    )
    until_us = terms.capped(job.claimed_at_us, terms.lease_seconds, cap_seconds)
    return fx.Extended(terms.now_us, job.tenant, job.id, max(until_us, job.lease_until_us))


def settle(
    job: Job, outcome: Outcome, now_us: int, outage_retry_at_us: int | None = None
) -> fx.Effect:
    """Record how the attempt ended.

    With ``outage_retry_at_us`` its failure is one of an outage: it costs no attempt, whatever is
    left of them, and the job is due again then.
    """
    kind = outcome.kind
    if job.state is not _IN_FLIGHT:
        raise IllegalTransition(job.id, job.state, _SETTLES[kind])
    tenant, job_id = job.tenant, job.id
    if kind is _COMPLETE:
        return fx.Completed(now_us, tenant, job_id, outcome.result)
    if kind is OutcomeKind.CANCELLED or (job.stop_requested and kind in _STOPPABLE):
        return fx.Cancelled(now_us, tenant, job_id, job.cancel_reason)
    if kind is OutcomeKind.RELEASE:
        return fx.Released(now_us, tenant, job_id)
    run_at_us = now_us + int(outcome.delay_seconds * MICROSECONDS)
    if kind is OutcomeKind.SNOOZE:
        return fx.Snoozed(now_us, tenant, job_id, run_at_us)
    if outcome.failure is None:
        raise InvariantViolation(f"outcome {kind} of job {job_id!r} carries no failure")
    if kind is OutcomeKind.LOST:
        return _lose(job, now_us, outcome.failure)
    if outage_retry_at_us is not None:
        if job.stop_requested:
            return fx.Cancelled(now_us, tenant, job_id, job.cancel_reason)
        return fx.Snoozed(now_us, tenant, job_id, outage_retry_at_us, outcome.failure)
    if kind is OutcomeKind.DEAD or exhausted(job):
        return fx.Died(now_us, tenant, job_id, outcome.failure, job.losses)
    return fx.Retried(now_us, tenant, job_id, run_at_us, outcome.failure)


def lose(
    job: Job, now_us: int, error_reason: str, message: str
) -> fx.Lost | fx.Died | fx.Cancelled:
    """End the lease of an attempt that stopped renewing, or took too long."""
    _check(job, Move.LOSE)
    if job.stop_requested:
        return fx.Cancelled(now_us, job.tenant, job.id, job.cancel_reason)
    return _lose(job, now_us, Failure.of(error_reason, message))


def why_overdue(job: Job, max_processing_seconds: float | None) -> tuple[str, str]:
    """Return the error_reason and the message for an expired lease."""
    cap_seconds = job.max_processing_seconds or max_processing_seconds or DEFAULT_CAP_SECONDS
    # Not "or later": if no cap is set, a worker may have renewed it past the default.
    if job.lease_until_us == job.claimed_at_us + int(cap_seconds * MICROSECONDS):
        return "stuck", f"{job.worker} held it for max_processing_seconds ({cap_seconds:g})"
    return "worker_lost", f"{job.worker} did not renew its lease"


def _lose(job: Job, now_us: int, failure: Failure) -> fx.Lost | fx.Died:
    if runs_alone(job) or exhausted(job):
        return fx.Died(now_us, job.tenant, job.id, failure, job.losses + 1)
    return fx.Lost(now_us, job.tenant, job.id, failure)


def expire(job: Job, now_us: int) -> fx.Died:
    """End a job that was not claimed in time: it is dead."""
    _check(job, Move.EXPIRE)
    failure = Failure.of("expired", "it was not claimed before expires_at")
    return fx.Died(now_us, job.tenant, job.id, failure, job.losses)


def cancel(
    job: Job, now_us: int, reason: str = "", by: str = ""
) -> fx.Cancelled | fx.StopRequested:
    """Cancel a job; one in flight is asked to stop."""
    if job.state is _IN_FLIGHT and by and not job.stop_requested:
        return fx.StopRequested(now_us, job.tenant, job.id, by, reason)
    if (job.state, Move.CANCEL) not in MOVES or job.state is _IN_FLIGHT:
        raise IllegalTransition(job.id, job.state, Move.CANCEL)
    return fx.Cancelled(now_us, job.tenant, job.id, reason, by)


def free(job: Job, dependency: str, now_us: int) -> fx.Freed:
    """Remove one dependency of a blocked job."""
    _check(job, Move.UNBLOCK)
    return fx.Freed(now_us, job.tenant, job.id, dependency)


def confirm(job: Job, now_us: int, by: str, why: str) -> fx.Confirmed:
    """Confirm a job that waits for a person."""
    if job.state is not _BLOCKED or not job.ties.hold:
        raise IllegalTransition(job.id, job.state, "be confirmed")
    return fx.Confirmed(now_us, job.tenant, job.id, by, why)


def unblock(job: Job, now_us: int) -> fx.Unblocked:
    """Make a job pending that waits for nothing any more."""
    _check(job, Move.UNBLOCK)
    return fx.Unblocked(now_us, job.tenant, job.id)


def replay(
    job: Job, now_us: int, by: str, why: str, *, run: str = "", waiting_for: tuple[str, ...] = ()
) -> fx.Replayed:
    """Replay a dead job with a fresh budget; it waits for its open dependencies."""
    _check(job, Move.REPLAY)
    ties = job.ties
    if waiting_for != ties.waiting_for:
        ties = replace(ties, waiting_for=waiting_for)
    again = replace(
        job,
        state=_BLOCKED if ties.waiting_for or ties.hold else _PENDING,
        run_at_us=now_us,
        worker="",
        claimed_at_us=0,
        lease_until_us=0,
        attempts_before_replay=job.attempt,
        losses=0,
        finished_at_us=0,
        expires_at_us=None,
        stop_requested=False,
        cancel_reason="",
        ties=ties,
        # Its history has the traceback: memory need not.
        failure=None if job.failure is None else replace(job.failure, traceback=""),
        replays=Replays(1 if job.replays is None else job.replays.count + 1, now_us, by, why, run),
    )
    return fx.Replayed(now_us, again, by, why)


def archive(job: Job, now_us: int, by: str, why: str) -> fx.Archived:
    """Archive a dead job."""
    _check(job, Move.ARCHIVE)
    return fx.Archived(now_us, replace(job, state=_ARCHIVED), by, why)


def restore(job: Job, now_us: int, by: str, why: str) -> fx.Restored:
    """Make an archived job dead again."""
    _check(job, Move.RESTORE)
    return fx.Restored(now_us, replace(job, state=_DEAD), by, why)


def edit(job: Job, now_us: int, changes: Edit, by: str, why: str) -> fx.Edited:
    """Change a job that is not running; its version goes up."""
    if job.state not in EDITABLE:
        raise IllegalTransition(job.id, job.state, "be edited")
    if changes.max_attempts is not None:
        # A job that is not dead runs once more: that must be within its budget too.
        least = attempts_used(job) + (job.state is not _DEAD)
        if changes.max_attempts < least:
            problem = f"job {job.id!r} has used {attempts_used(job)} attempts: give {least} or more"
            raise InvalidInput("max_attempts", problem)
    payload = job.payload if changes.payload is None else encode_payload(changes.payload)
    run_at_us = job.run_at_us if changes.run_at_us is None else max(changes.run_at_us, now_us)
    after = replace(
        job,
        payload=payload,
        priority=job.priority if changes.priority is None else changes.priority,
        max_attempts=job.max_attempts if changes.max_attempts is None else changes.max_attempts,
        run_at_us=run_at_us,
        task=job.task if changes.task is None else changes.task,
        version=job.version + 1,
    )
    before = None if payload == job.payload else job.payload
    return fx.Edited(now_us, after, by, why, before)


def purge(job: Job, now_us: int) -> fx.Purged:
    """Delete a finished job."""
    if not job.state.finished:
        raise IllegalTransition(job.id, job.state, "be purged")
    return fx.Purged(now_us, job.tenant, job.id, job.queue, job.state, job.ties.key)


_SETTLES: Mapping[OutcomeKind, Move] = {
    OutcomeKind.COMPLETED: Move.COMPLETE,
    OutcomeKind.CANCELLED: Move.CANCEL,
    OutcomeKind.RETRY: Move.RETRY,
    OutcomeKind.RELEASE: Move.RELEASE,
    OutcomeKind.SNOOZE: Move.SNOOZE,
    OutcomeKind.DEAD: Move.DIE,
    OutcomeKind.LOST: Move.LOSE,
}


def _check(job: Job, move: Move) -> None:
    if (job.state, move) not in MOVES:
        raise IllegalTransition(job.id, job.state, move)
