"""The state machine: the only place that knows which moves there are.

The functions named after a move *decide*: they look at a job and the time and return an effect,
or raise ``IllegalTransition``. ``apply`` never decides: it turns an effect into the next job, so
that recovery, compaction and every engine agree on what happened.

    (new) ──enqueue──► pending ──claim──► in_flight ──complete──► completed
                       ▲  ▲ │               │ │ │
      blocked ─unblock─┘  │ │expire         │ │ └─cancel──► cancelled
                          │ ▼               │ │
              replay ─── dead ◄──die────────┘ └─retry, release, snooze, lose──► pending
                       archive ⇅ restore
                        archived
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from . import effects as fx
from .errors import IllegalTransition, InvariantViolation
from .failure import Failure
from .job import MAX_LEASE_SECONDS, MICROSECONDS, Job, State
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
    (_IN_FLIGHT, Move.RETRY): frozenset({_PENDING, _DEAD}),
    (_IN_FLIGHT, Move.LOSE): frozenset({_PENDING, _DEAD}),
    (_IN_FLIGHT, Move.RELEASE): frozenset({_PENDING}),
    (_IN_FLIGHT, Move.SNOOZE): frozenset({_PENDING}),
    (_IN_FLIGHT, Move.DIE): frozenset({_DEAD}),
    (_DEAD, Move.REPLAY): frozenset({_PENDING}),
    (_DEAD, Move.ARCHIVE): frozenset({_ARCHIVED}),
    (_ARCHIVED, Move.RESTORE): frozenset({_DEAD}),
}
"""Every legal move and where it may lead. What is not here raises ``IllegalTransition``."""


_COMPLETE = OutcomeKind.COMPLETED
_FORGETTABLE = frozenset({_COMPLETED, _CANCELLED})


def runs_alone(job: Job) -> bool:
    """Whether the job was lost so often that nothing else may run beside it."""
    return job.losses >= LOSSES_BEFORE_ALONE


def exhausted(job: Job) -> bool:
    """Whether the attempts since the last replay are used up."""
    return job.attempt - job.attempts_before_replay >= job.max_attempts


# --- decide ----------------------------------------------------------------------------------


class LeaseTerms:
    """What a claim or an extension asks for, worked out once for all its jobs."""

    __slots__ = ("lease_seconds", "max_processing_seconds", "now_us", "until_us")

    def __init__(self, now_us: int, lease_seconds: float, max_processing_seconds: float) -> None:
        """Take the lease that is asked for and the cap for jobs that name none."""
        self.now_us = now_us
        self.lease_seconds = lease_seconds
        self.max_processing_seconds = max_processing_seconds
        self.until_us = self.capped(now_us, lease_seconds, max_processing_seconds)
        """When the lease of a job ends that is claimed now and asks for nothing of its own."""

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
            job.max_processing_seconds or terms.max_processing_seconds,
        )
    return fx.Claimed(terms.now_us, job.tenant, job.id, token, worker, until_us)


def extend(job: Job, terms: LeaseTerms) -> fx.Extended:
    """Renew the lease from now; never past the cap on processing, and never to end sooner."""
    if job.state is not _IN_FLIGHT:
        raise IllegalTransition(job.id, job.state, "extend its lease")
    cap_seconds = job.max_processing_seconds or terms.max_processing_seconds
    until_us = terms.capped(job.claimed_at_us, terms.lease_seconds, cap_seconds)
    return fx.Extended(terms.now_us, job.tenant, job.id, max(until_us, job.lease_until_us))


def settle(job: Job, outcome: Outcome, now_us: int) -> fx.Effect:
    """Record how the attempt ended."""
    kind = outcome.kind
    if job.state is not _IN_FLIGHT:
        raise IllegalTransition(job.id, job.state, _SETTLES[kind])
    tenant, job_id = job.tenant, job.id
    if kind is _COMPLETE:
        return fx.Completed(now_us, tenant, job_id, outcome.result)
    if kind is OutcomeKind.CANCELLED:
        return fx.Cancelled(now_us, tenant, job_id)
    if kind is OutcomeKind.RELEASE:
        return fx.Released(now_us, tenant, job_id)
    run_at_us = now_us + int(outcome.delay_seconds * MICROSECONDS)
    if kind is OutcomeKind.SNOOZE:
        return fx.Snoozed(now_us, tenant, job_id, run_at_us)
    if outcome.failure is None:
        raise InvariantViolation(f"outcome {kind} of job {job_id!r} carries no failure")
    if kind is OutcomeKind.LOST:
        return _lose(job, now_us, outcome.failure)
    if kind is OutcomeKind.DEAD or exhausted(job):
        return fx.Died(now_us, tenant, job_id, outcome.failure, job.losses)
    return fx.Retried(now_us, tenant, job_id, run_at_us, outcome.failure)


def lose(job: Job, now_us: int, error_reason: str, message: str) -> fx.Lost | fx.Died:
    """End the lease of an attempt that went silent, or took too long."""
    _check(job, Move.LOSE)
    return _lose(job, now_us, Failure.of(error_reason, message))


def _lose(job: Job, now_us: int, failure: Failure) -> fx.Lost | fx.Died:
    if runs_alone(job) or exhausted(job):
        return fx.Died(now_us, job.tenant, job.id, failure, job.losses + 1)
    return fx.Lost(now_us, job.tenant, job.id, failure)


def expire(job: Job, now_us: int) -> fx.Died:
    """Bury a job that nobody claimed in time."""
    _check(job, Move.EXPIRE)
    failure = Failure.of("expired", "nobody claimed it before expires_at")
    return fx.Died(now_us, job.tenant, job.id, failure, job.losses)


def cancel(job: Job, now_us: int) -> fx.Cancelled:
    """Give up a job."""
    _check(job, Move.CANCEL)
    return fx.Cancelled(now_us, job.tenant, job.id)


def unblock(job: Job, now_us: int) -> fx.Unblocked:
    """Let a job go whose last dependency is completed."""
    _check(job, Move.UNBLOCK)
    return fx.Unblocked(now_us, job.tenant, job.id)


def replay(job: Job, now_us: int) -> fx.Replayed:
    """Bring a dead job back with a fresh budget."""
    _check(job, Move.REPLAY)
    return fx.Replayed(now_us, job.tenant, job.id)


def archive(job: Job, now_us: int) -> fx.Archived:
    """Lay a dead job aside."""
    _check(job, Move.ARCHIVE)
    return fx.Archived(now_us, job.tenant, job.id)


def restore(job: Job, now_us: int) -> fx.Restored:
    """Take an archived job back among the dead."""
    _check(job, Move.RESTORE)
    return fx.Restored(now_us, job.tenant, job.id)


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


# --- apply -----------------------------------------------------------------------------------


def apply(job: Job | None, effect: fx.Effect, seq: int) -> Job:
    """Return the job after this effect, which has this sequence number.

    Raise ``IllegalTransition`` when the effect cannot have happened to this job: then the
    effect does not belong to this history.
    """
    if isinstance(effect, fx.Enqueued):
        # The id of a completed or cancelled job may come back: it had been forgotten by then.
        if job is not None and job.state not in _FORGETTABLE:
            raise IllegalTransition(job.id, job.state, Move.ENQUEUE)
        if effect.job.state not in MOVES[None, Move.ENQUEUE] or effect.job.token:
            raise IllegalTransition(effect.job.id, effect.job.state, Move.ENQUEUE)
        return effect.job
    move, legal, change = _EFFECTS[type(effect)]
    if job is None:
        raise IllegalTransition(effect.id, "unknown", move)
    if job.state not in legal:
        raise IllegalTransition(job.id, job.state, move)
    return change(job, effect, seq)


def _claimed(job: Job, effect: fx.Claimed, _seq: int) -> Job:
    if effect.token <= job.token:
        raise InvariantViolation(
            f"token {effect.token} of job {job.id!r} is not above the last one, {job.token}"
        )
    return replace(
        job,
        state=_IN_FLIGHT,
        attempt=job.attempt + 1,
        token=effect.token,
        worker=effect.worker,
        claimed_at_us=effect.at_us,
        lease_until_us=effect.lease_until_us,
    )


def _extended(job: Job, effect: fx.Extended, _seq: int) -> Job:
    return replace(job, lease_until_us=effect.lease_until_us)


def _completed(job: Job, effect: fx.Completed, _seq: int) -> Job:
    return replace(
        job,
        state=_COMPLETED,
        payload=b"",
        failure=None,
        finished_at_us=effect.at_us,
        result=effect.result,
    )


def _cancelled(job: Job, effect: fx.Cancelled, _seq: int) -> Job:
    return replace(job, state=_CANCELLED, payload=b"", finished_at_us=effect.at_us)


def _retried(job: Job, effect: fx.Retried, seq: int) -> Job:
    return _pending(job, effect.run_at_us, seq, failure=effect.failure)


def _released(job: Job, _effect: fx.Released, _seq: int) -> Job:
    return _pending(job, job.run_at_us, job.seq, handed_back=1)


def _snoozed(job: Job, effect: fx.Snoozed, seq: int) -> Job:
    return _pending(job, effect.run_at_us, seq, handed_back=1)


def _lost(job: Job, effect: fx.Lost, seq: int) -> Job:
    again = _pending(job, effect.at_us, seq, failure=effect.failure)
    return replace(again, losses=job.losses + 1)


def _pending(
    job: Job, run_at_us: int, seq: int, *, failure: Failure | None = None, handed_back: int = 0
) -> Job:
    return replace(
        job,
        state=_PENDING,
        attempt=job.attempt - handed_back,
        run_at_us=run_at_us,
        seq=seq,
        failure=failure or job.failure,
        worker="",
        lease_until_us=0,
    )


def _died(job: Job, effect: fx.Died, _seq: int) -> Job:
    return replace(
        job, state=_DEAD, failure=effect.failure, losses=effect.losses, finished_at_us=effect.at_us
    )


def _unblocked(job: Job, effect: fx.Unblocked, seq: int) -> Job:
    return _pending(job, max(job.run_at_us, effect.at_us), seq)


def _replayed(job: Job, effect: fx.Replayed, seq: int) -> Job:
    again = _pending(job, effect.at_us, seq)
    return replace(
        again,
        attempts_before_replay=job.attempt,
        losses=0,
        finished_at_us=0,
        expires_at_us=None,
    )


def _archived(job: Job, _effect: fx.Archived, _seq: int) -> Job:
    return replace(job, state=_ARCHIVED)


def _restored(job: Job, _effect: fx.Restored, _seq: int) -> Job:
    return replace(job, state=_DEAD)


_HELD = frozenset({_IN_FLIGHT})
_EFFECTS: Mapping[type[fx.Effect], tuple[str, frozenset[State], Callable[..., Job]]] = {
    fx.Claimed: (Move.CLAIM, frozenset({_PENDING}), _claimed),
    fx.Extended: ("extend its lease", _HELD, _extended),
    fx.Completed: (Move.COMPLETE, _HELD, _completed),
    fx.Cancelled: (Move.CANCEL, frozenset({_BLOCKED, _PENDING, _IN_FLIGHT}), _cancelled),
    fx.Retried: (Move.RETRY, _HELD, _retried),
    fx.Released: (Move.RELEASE, _HELD, _released),
    fx.Snoozed: (Move.SNOOZE, _HELD, _snoozed),
    fx.Lost: (Move.LOSE, _HELD, _lost),
    fx.Died: (Move.DIE, frozenset({_BLOCKED, _PENDING, _IN_FLIGHT}), _died),
    fx.Unblocked: (Move.UNBLOCK, frozenset({_BLOCKED}), _unblocked),
    fx.Replayed: (Move.REPLAY, frozenset({_DEAD}), _replayed),
    fx.Archived: (Move.ARCHIVE, frozenset({_DEAD}), _archived),
    fx.Restored: (Move.RESTORE, frozenset({_ARCHIVED}), _restored),
}
"""For each effect its name, the states in which it can have happened, and what it changes."""
