"""Turns what a task returned or raised into the outcome of its attempt."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from holdfast.engines.clock import utc_now
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import TooLarge
from holdfast.model.failure import Classifier, Failure, FailureClass, bounded
from holdfast.model.job import BAD_PAYLOAD, MAX_RESULT_BYTES, MAX_TIME_US, MICROSECONDS, Job
from holdfast.model.json_values import NOT_FINITE, has_non_finite
from holdfast.model.outcome import (
    NOT_KEPT,
    Outcome,
    cancelled,
    completed,
    dead,
    not_kept,
    retry,
    snooze,
    why_not_kept,
)
from holdfast.model.retry import RetryPolicy
from holdfast.model.signals import BatchError, Cancel, Dead, Retry, Signal, Snooze
from holdfast.model.value_types import encode_hook

from .registry import TaskSpec

log = StructuredLog("holdfast.worker")

_ENCODE = msgspec.json.Encoder(enc_hook=encode_hook).encode
_NO_LIMIT = 1_000_000
"""Only the engine counts attempts: it makes a job dead when they are used up."""
_MAX_DELAY_SECONDS = MAX_TIME_US / MICROSECONDS / 2


class Verdicts:
    """Decides outcomes by the application's classifier and the retry policies of its tasks."""

    def __init__(
        self,
        classifier: Classifier,
        default_policy: RetryPolicy,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._classifier = classifier
        self.default_policy = default_policy
        self._uniform = uniform

    def of_value(self, job: Job, task: TaskSpec, value: object) -> Outcome:
        """Return the outcome of an attempt that returned this value."""
        if value is None:
            return completed(job)
        if isinstance(value, Signal):
            return self.of_error(job, task, value)
        try:
            return completed(job, encode_result(value))
        except (*BAD_PAYLOAD, TooLarge) as error:
            # The work is done: do not run it again for its result. Whoever waits for it is told.
            log.emit(
                "task.result_dropped",
                task=job.task,
                job=job.id,
                queue=job.queue,
                tenant=job.tenant,
                bytes=error.size if isinstance(error, TooLarge) else None,
                foreign=error,
            )
            return completed(job, not_kept(str(error) or type(error).__name__))

    def of_error(self, job: Job, task: TaskSpec | None, error: BaseException) -> Outcome:
        """Return the outcome of an attempt that raised this; it can always be recorded."""
        policy = self._policy(task)
        try:
            outcome = self._of_error(job, error, policy)
            outcome.check()
        except BaseException as broken:  # noqa: BLE001 - an application's own signal, rule or text
            log.emit(
                "task.verdict_failed",
                task=job.task,
                job=job.id,
                queue=job.queue,
                tenant=job.tenant,
                foreign=broken,
            )
            return self._retry(job, Failure.of("unexpected", type(error).__name__), policy)
        return outcome

    def of_values(self, jobs: Sequence[Job], task: TaskSpec, value: object) -> list[Outcome]:
        """Return the outcome of each item of a batch task that returned this value.

        Raise ``TypeError`` unless it is None, or one result or exception for each item.
        """
        if value is None:
            return [completed(job) for job in jobs]
        if not isinstance(value, list | tuple) or len(value) != len(jobs):
            got = f"{len(value)} results" if isinstance(value, list | tuple) else f"{value!r:.100}"
            raise TypeError(
                f"{task.name} returned {got} for {len(jobs)} items: return None, or a list with a "
                "result or an exception for each item"
            )
        return [
            self.of_error(job, task, found)
            if isinstance(found, BaseException)
            else self.of_value(job, task, found)
            for job, found in zip(jobs, value, strict=True)
        ]

    def of_batch_error(
        self, jobs: Sequence[Job], task: TaskSpec, error: BaseException
    ) -> list[Outcome | None]:
        """Return the outcome of each item of a batch that raised this; None: it is unknown."""
        if isinstance(error, BatchError):
            named = {index: one for index, one in error.errors.items() if index in range(len(jobs))}
            if named:
                return [
                    self.of_error(job, task, named[index]) if index in named else None
                    for index, job in enumerate(jobs)
                ]
        first = self.of_error(jobs[0], task, error)
        failure = first.failure
        if len(jobs) == 1:
            return [first]
        if failure is None or isinstance(error, Retry):
            return [self.of_error(job, task, error) for job in jobs]
        if failure.failure_class is not FailureClass.TRANSIENT:
            return [None] * len(jobs)
        policy = self._policy(task)
        return [first, *(self._retry(job, failure, policy) for job in jobs[1:])]

    def _policy(self, task: TaskSpec | None) -> RetryPolicy:
        if task is None or task.retry is None:
            return self.default_policy
        return task.retry.policy(self.default_policy)

    def _of_error(self, job: Job, error: BaseException, policy: RetryPolicy) -> Outcome:
        if isinstance(error, Snooze):
            return snooze(job, min(error.after_seconds, _MAX_DELAY_SECONDS))
        if isinstance(error, Cancel):
            return cancelled(job)
        failure = self._classifier.classify(error, utc_now())
        if isinstance(error, Dead):
            reason = error.error_reason or "business_error"
            found = Failure(reason, FailureClass.DETERMINISTIC, str(error), failure.traceback)
            return dead(job, bounded(found))
        if isinstance(error, Retry):
            return self._requested_retry(job, error, policy, failure)
        return self._retry(job, failure, policy)

    def _requested_retry(
        self, job: Job, signal: Retry, policy: RetryPolicy, failure: Failure
    ) -> Outcome:
        requested = Failure("retry", FailureClass.TRANSIENT, str(signal), failure.traceback)
        budget = signal.max_attempts
        if budget is not None and job.attempt - job.attempts_before_replay >= budget:
            return dead(job, bounded(requested))
        return self._retry(job, bounded(requested), signal.policy(policy))

    def _retry(self, job: Job, failure: Failure, policy: RetryPolicy) -> Outcome:
        endless = msgspec.structs.replace(policy, max_attempts=_NO_LIMIT)
        run = max(1, job.attempt - job.attempts_before_replay)
        delay_seconds = endless.delay_seconds(failure, run, self._uniform)
        if delay_seconds is None:
            return dead(job, failure)
        return retry(job, failure, min(delay_seconds, _MAX_DELAY_SECONDS))


def encode_result(value: object) -> bytes:
    """Return a task's result as JSON; raise ``TooLarge``, or why it cannot be written as JSON."""
    encoded = _ENCODE(value)
    if len(encoded) > MAX_RESULT_BYTES:
        raise TooLarge(
            "result", len(encoded), MAX_RESULT_BYTES, "store it elsewhere and return a reference"
        )
    if why_not_kept(encoded) is not None:
        raise ValueError(f"an object must not begin with the field {NOT_KEPT}")
    if b"null" in encoded and has_non_finite(value):
        raise ValueError(NOT_FINITE)  # the encoder writes them as null
    # Encoders over-allocate and shrink in place: copy, so that the slack is not kept.
    return bytes(memoryview(encoded))
