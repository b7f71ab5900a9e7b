"""Applies effects to jobs: recovery, compaction and every engine use this.

``apply`` never decides. That is for ``lifecycle``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from . import effects as fx
from .errors import IllegalTransition, InvariantViolation
from .failure import Failure
from .job import FORGETTABLE, Job, State
from .lifecycle import EDITABLE, MOVES, Move

_BLOCKED, _PENDING, _IN_FLIGHT = State.BLOCKED, State.PENDING, State.IN_FLIGHT
_COMPLETED, _CANCELLED, _DEAD, _ARCHIVED = (
    State.COMPLETED,
    State.CANCELLED,
    State.DEAD,
    State.ARCHIVED,
)


def apply(job: Job | None, effect: fx.JobEffect, seq: int) -> Job | None:
    """Return the job after this effect, which has this sequence number; None if it is gone.

    ``job`` is None if it is unknown; it may be None for a finished one, which the caller need not
    have. Raise ``IllegalTransition`` if the effect cannot have happened to this job.
    """
    if isinstance(effect, fx.Enqueued):
        # The id of a completed or cancelled job may return after its retention.
        if job is not None and job.state not in FORGETTABLE:
            raise IllegalTransition(job.id, job.state, Move.ENQUEUE)
        if effect.job.state not in MOVES[None, Move.ENQUEUE] or effect.job.token:
            raise IllegalTransition(effect.job.id, effect.job.state, Move.ENQUEUE)
        return effect.job
    move, legal, change = _EFFECTS[type(effect)]
    if job is None:
        if legal.isdisjoint(_FINISHED):
            raise IllegalTransition(fx.job_key(effect)[1], "unknown", move)
    elif job.state not in legal:
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
        failure=None,
        finished_at_us=effect.at_us,
        result=effect.result,
    )


def _cancelled(job: Job, effect: fx.Cancelled, _seq: int) -> Job:
    return replace(
        job,
        state=_CANCELLED,
        finished_at_us=effect.at_us,
        cancel_reason=effect.reason,
    )


def _retried(job: Job, effect: fx.Retried, seq: int) -> Job:
    return _pending(job, effect.run_at_us, seq, failure=effect.failure)


def _released(job: Job, _effect: fx.Released, _seq: int) -> Job:
    return _pending(job, job.run_at_us, job.seq, refunded=1)


def _snoozed(job: Job, effect: fx.Snoozed, seq: int) -> Job:
    return _pending(job, effect.run_at_us, seq, failure=effect.failure, refunded=1)


def _lost(job: Job, effect: fx.Lost, seq: int) -> Job:
    again = _pending(job, effect.at_us, seq, failure=effect.failure)
    return replace(again, losses=job.losses + 1)


def _pending(
    job: Job, run_at_us: int, seq: int, *, failure: Failure | None = None, refunded: int = 0
) -> Job:
    return replace(
        job,
        state=_PENDING,
        attempt=job.attempt - refunded,
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
    again = _pending(job, max(job.run_at_us, effect.at_us), seq)
    return replace(again, ties=replace(job.ties, waiting_for=(), hold=False))


def _freed(job: Job, effect: fx.Freed, _seq: int) -> Job:
    left = tuple(needed for needed in job.ties.waiting_for if needed != effect.dependency)
    return replace(job, ties=replace(job.ties, waiting_for=left))


def _confirmed(job: Job, _effect: fx.Confirmed, _seq: int) -> Job:
    return replace(job, ties=replace(job.ties, hold=False))


def _stop_requested(job: Job, effect: fx.StopRequested, _seq: int) -> Job:
    return replace(job, stop_requested=True, cancel_reason=effect.why)


def _replayed(_job: Job | None, effect: fx.Replayed, seq: int) -> Job:
    return replace(effect.job, seq=seq)


def _replaced(_job: Job | None, effect: fx.Archived | fx.Restored, _seq: int) -> Job:
    return effect.job


def _edited(job: Job | None, effect: fx.Edited, seq: int) -> Job:
    after = effect.job
    if job is not None and (job.run_at_us, job.priority) != (after.run_at_us, after.priority):
        return replace(after, seq=seq)  # at the tail of its new priority or time
    return after


def _noted(job: Job | None, _effect: fx.Noted, _seq: int) -> Job | None:
    return job


def _purged(_job: Job | None, _effect: fx.Purged, _seq: int) -> None:
    return None


_HELD = frozenset({_IN_FLIGHT})
_WAITING = frozenset({_BLOCKED, _PENDING})
_FINISHED = frozenset({_COMPLETED, _CANCELLED, _DEAD, _ARCHIVED})
_EFFECTS: Mapping[type[fx.JobEffect], tuple[str, frozenset[State], Callable[..., Job | None]]] = {
    fx.Claimed: (Move.CLAIM, frozenset({_PENDING}), _claimed),
    fx.Extended: ("extend its lease", _HELD, _extended),
    fx.Completed: (Move.COMPLETE, _HELD, _completed),
    fx.Cancelled: (Move.CANCEL, _WAITING | _HELD, _cancelled),
    fx.Retried: (Move.RETRY, _HELD, _retried),
    fx.Released: (Move.RELEASE, _HELD, _released),
    fx.Snoozed: (Move.SNOOZE, _HELD, _snoozed),
    fx.Lost: (Move.LOSE, _HELD, _lost),
    fx.Died: (Move.DIE, _WAITING | _HELD, _died),
    fx.Unblocked: (Move.UNBLOCK, frozenset({_BLOCKED}), _unblocked),
    fx.Freed: ("drop a dependency", frozenset({_BLOCKED}), _freed),
    fx.Confirmed: ("be confirmed", frozenset({_BLOCKED}), _confirmed),
    fx.StopRequested: ("be asked to stop", _HELD, _stop_requested),
    fx.Replayed: (Move.REPLAY, frozenset({_DEAD}), _replayed),
    fx.Archived: (Move.ARCHIVE, frozenset({_DEAD}), _replaced),
    fx.Restored: (Move.RESTORE, frozenset({_ARCHIVED}), _replaced),
    fx.Edited: ("be edited", EDITABLE, _edited),
    fx.Noted: ("be noted", frozenset(State), _noted),
    fx.Purged: ("be purged", _FINISHED, _purged),
}
"""For each effect its name, the states in which it can have happened, and what it changes."""
