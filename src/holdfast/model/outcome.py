"""The outcome of an attempt, as its worker reports it."""

from __future__ import annotations

import enum

import msgspec

from .access import DEFAULT_TENANT
from .errors import InvalidInput, TooLarge
from .failure import Failure, check_failure
from .job import MAX_RESULT_BYTES, MAX_TIME_US, MICROSECONDS, Job


class OutcomeKind(enum.StrEnum):
    """The seven ways in which an attempt can end."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    RETRY = "retry"
    RELEASE = "release"
    SNOOZE = "snooze"
    DEAD = "dead"
    LOST = "lost"


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An outcome, good for the lease of this token only. Make one with the functions below."""

    kind: OutcomeKind
    id: str
    token: int
    tenant: str = DEFAULT_TENANT
    delay_seconds: float = 0.0
    failure: Failure | None = None
    result: bytes | None = None

    def check(self) -> None:
        """Raise ``InvalidInput`` if a field is invalid."""
        if type(self.kind) is not OutcomeKind:
            raise InvalidInput("kind", f"{self.kind!r} is not an OutcomeKind")
        if type(self.id) is not str or type(self.tenant) is not str or type(self.token) is not int:
            raise InvalidInput("token", "an outcome names a tenant, an id and a whole token")
        if self.kind is _COMPLETED and self.result is None:
            return
        if (
            type(self.delay_seconds) not in (int, float)
            or not 0 <= self.delay_seconds <= MAX_TIME_US / MICROSECONDS / 2
        ):
            raise InvalidInput("delay_seconds", f"{self.delay_seconds!r} is not a delay in seconds")
        if self.failure is None and self.kind in _FAILED:
            raise InvalidInput("failure", f"{self.kind.value} needs the failure that led to it")
        if self.failure is not None:
            check_failure(self.failure)
        if self.result is not None:
            _check_result(self.result)


def _check_result(result: bytes) -> None:
    if type(result) is not bytes:
        raise InvalidInput("result", f"a {type(result).__name__} is not JSON in bytes")
    if len(result) > MAX_RESULT_BYTES:
        raise TooLarge("result", len(result), MAX_RESULT_BYTES, "store it and return a reference")
    try:
        msgspec.json.decode(result)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidInput("result", f"not JSON ({error})") from None


NOT_KEPT = "$holdfast.result_not_kept"
"""The field of the object that stands for a result which could not be kept. No task may return it
first in an object of its own."""
_NOT_KEPT_START = b'{"$holdfast.result_not_kept":'
_WHY_LIMIT = 1_000
_COMPLETED = OutcomeKind.COMPLETED
_FAILED = frozenset({OutcomeKind.RETRY, OutcomeKind.DEAD, OutcomeKind.LOST})


def completed(job: Job, result: bytes | None = None) -> Outcome:
    """It worked. ``result`` is JSON, kept for a while."""
    return Outcome(OutcomeKind.COMPLETED, job.id, job.token, job.tenant, result=result)


def not_kept(why: str) -> bytes:
    """Return what is stored instead of a result that cannot be kept: JSON that says why."""
    text = why.encode("utf-8", "backslashreplace").decode()[:_WHY_LIMIT]
    return msgspec.json.encode({NOT_KEPT: text})


def why_not_kept(result: bytes) -> str | None:
    """Return why the result of a completed job was not kept; None if it was."""
    if not result.startswith(_NOT_KEPT_START):
        return None
    return msgspec.json.decode(result, type=dict[str, str])[NOT_KEPT]


def cancelled(job: Job) -> Outcome:
    """It stopped because it was asked to."""
    return Outcome(OutcomeKind.CANCELLED, job.id, job.token, job.tenant)


def retry(job: Job, failure: Failure, delay_seconds: float = 0.0) -> Outcome:
    """It failed and may work later; once its attempts are used up it is dead instead."""
    return Outcome(OutcomeKind.RETRY, job.id, job.token, job.tenant, delay_seconds, failure)


def release(job: Job) -> Outcome:
    """Release it as if it had not been claimed: same place, no attempt charged."""
    return Outcome(OutcomeKind.RELEASE, job.id, job.token, job.tenant)


def snooze(job: Job, delay_seconds: float) -> Outcome:
    """Release it for later; no attempt is charged."""
    return Outcome(OutcomeKind.SNOOZE, job.id, job.token, job.tenant, delay_seconds)


def dead(job: Job, failure: Failure) -> Outcome:
    """It failed for good."""
    return Outcome(OutcomeKind.DEAD, job.id, job.token, job.tenant, failure=failure)


def lost(job: Job, message: str) -> Outcome:
    """The process that ran it is gone: a loss, as if its lease had run out, but known at once."""
    failure = Failure.of("worker_lost", message)
    return Outcome(OutcomeKind.LOST, job.id, job.token, job.tenant, failure=failure)
