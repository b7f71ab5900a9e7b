"""Outages of dependencies: what may be claimed while one lasts, and when it ends.

A dependency is what the jobs of some queues need: ``dependency_of`` tells it from a queue's name.
While it is *out*, one job at a time is handed out as a probe, with growing pauses. The first
success makes it *recovering*: claims are limited by a rate that doubles while all goes well. A
failure halves it, and from there it grows slowly. It ends when the rate limits nothing any more.

Everything here decides from the record of an outage alone. So all processes that share a store
agree, and a restart changes nothing.
"""

from __future__ import annotations

import enum

import msgspec
from msgspec.structs import replace

from .errors import InvalidInput
from .failure import REASON_LIMIT, Failure
from .job import MICROSECONDS, Whole, check_name

DEFAULT_OUTAGE_MAX_SECONDS = 86_400.0
"""For how long the failures of an outage cost no attempt, if no setting says otherwise."""
ENDED_KEPT = 100
"""How many outages that have ended are remembered."""
FIRST_PAUSE_US = 2 * MICROSECONDS
MAX_PAUSE_US = 60 * MICROSECONDS
PATIENCE_US = 60 * MICROSECONDS
"""How long a probe may run before another one is handed out."""
MAX_RETRY_AFTER_US = 600 * MICROSECONDS
"""How far a Retry-After of a failed probe can move the next one."""
FIRST_RATE = 1.0
MIN_RATE = 0.1
MAX_RATE = 1_000.0
"""In claims per second: the first, the lowest, and the one at which nothing is limited any more."""
STEP_US = MICROSECONDS
"""The rate changes by steps that are at least this long."""
CALM_US = 5 * MICROSECONDS
"""How long a recovery goes on after its last failure, even if the rate limits nothing."""
_BURST_SECONDS = 0.25
_GROWTH, _SLOW_GROWTH = 2.0, 1.1
_USED_SHARE = 0.5
"""Claims use the rate if they take at least this share of it."""
_FAILURES_OF_A_RELAPSE, _STEPS_OF_A_RELAPSE = 3, 2
"""It is out again after this many steps in a row with so many failures and no success."""
_MESSAGE_LIMIT = 500

OUTAGE_REASONS = frozenset({"upstream_5xx", "timeout", "connection"})
"""The failures that tell that a dependency does not work. A rate limit (429) does not."""
ANSWER_REASONS = frozenset({"rate_limited", "upstream_4xx"})
"""Failures that prove that it answers."""


def dependency_of(queue: str) -> str:
    """Return the dependency of a queue: what follows the last ``@`` in its name, else its name."""
    return queue.rpartition("@")[2] or queue


def dependency_queue(queue: str, dependency: str) -> str:
    """Return the queue for the jobs of this queue that need this dependency."""
    return f"{queue}@{dependency}"


def check_dependency(name: str) -> str:
    """Return the name of a dependency, or raise ``InvalidInput``."""
    if "@" in check_name("dependency", name):
        raise InvalidInput("dependency", f"{name!r} must not contain '@'")
    return name


def base_queue(queue: str) -> str:
    """Return the queue whose workers serve this one too: ``mail`` for ``mail@payments-api``."""
    name, at, dependency = queue.rpartition("@")
    return name if at and name and dependency else queue


def is_outage_failure(failure: Failure | None) -> bool:
    """Whether this failure tells that a dependency does not work."""
    return failure is not None and failure.error_reason in OUTAGE_REASONS


class OutagePhase(enum.StrEnum):
    """Where an outage is."""

    OUT = "out"
    RECOVERING = "recovering"
    ENDED = "ended"


class RecoveryStep(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What happened since the rate of a recovery was last looked at."""

    since_us: Whole = 0
    claims: Whole = 0
    successes: Whole = 0
    failures: Whole = 0
    bad_steps: Whole = 0
    """How many steps before this one, in a row, had failures only."""


class Outage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An outage of one dependency."""

    dependency: str
    since_us: Whole
    by: str = ""
    """The person who started it; empty if workers noticed it."""
    why: str = ""
    error_reason: str = ""
    """Of the last failure that told of it."""
    message: str = ""
    phase: OutagePhase = OutagePhase.OUT
    phase_since_us: Whole = 0
    pause_us: Whole = FIRST_PAUSE_US
    """How long the next pause between two probes is."""
    next_probe_at_us: Whole = 0
    probe_at_us: Whole = 0
    """When the last probe was handed out; 0: there was none in this phase."""
    probes: Whole = 0
    has_health_check: bool = False
    """Whether workers probe it by a function, instead of by a job."""
    rate: float = FIRST_RATE
    """Claims per second while it recovers."""
    slow_above: float = 2 * MAX_RATE
    """The rate from which on it grows slowly."""
    spent_until_us: Whole = 0
    """Up to when claims have used the rate."""
    failed_at_us: Whole = 0
    """When the rate was lowered last."""
    step: RecoveryStep = RecoveryStep()
    ended_at_us: Whole = 0
    ended_by: str = ""
    """The person who ended it; empty if it ended by itself."""
    ended_why: str = ""

    @property
    def active(self) -> bool:
        """Whether it lasts."""
        return self.phase is not OutagePhase.ENDED


class DependencyReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a worker process has seen of a dependency since its last report."""

    dependency: str
    successes: Whole = 0
    """Jobs that the dependency answered."""
    claimed_at_us: Whole = 0
    """When the last one of these was claimed."""
    tripped: bool = False
    """Whether so many failed in a row that it seems to be out."""
    failure: Failure | None = None
    """The last failure of this kind."""
    has_health_check: bool = False
    """Whether this process can probe it by a function."""
    healthy: bool | None = None
    """The result of the function; None: it was not called."""


class OutageUpdate(msgspec.Struct, frozen=True, array_like=True):
    """The answer to reports: the outages that last, and whose function this process is to call."""

    outages: list[Outage]
    health_checks: list[str] = []


# --- decide ----------------------------------------------------------------------------------


def start(
    dependency: str, now_us: int, failure: Failure | None = None, by: str = "", why: str = ""
) -> Outage:
    """Return an outage that begins now."""
    return _with_failure(
        Outage(
            dependency,
            now_us,
            by,
            why,
            phase_since_us=now_us,
            next_probe_at_us=now_us + FIRST_PAUSE_US,
        ),
        failure,
    )


def end(outage: Outage, now_us: int, by: str = "", why: str = "") -> Outage:
    """Return it as one that has ended now."""
    return replace(
        outage,
        phase=OutagePhase.ENDED,
        phase_since_us=now_us,
        ended_at_us=now_us,
        ended_by=by,
        ended_why=why,
    )


def room(outage: Outage, now_us: int) -> int:
    """Return how many jobs of the dependency, in all its queues, may be claimed now."""
    if outage.phase is OutagePhase.OUT:
        return int(now_us >= _job_probe_at_us(outage))
    ahead_us = max(outage.spent_until_us - now_us, 0)
    return max(0, _burst(outage) - -(-ahead_us // _interval_us(outage)))


def opens_at_us(outage: Outage, now_us: int) -> int | None:
    """Return when the passing of time alone allows another claim; None: it is allowed now."""
    if outage.phase is OutagePhase.OUT:
        at_us = _job_probe_at_us(outage)
    else:
        at_us = outage.spent_until_us - (_burst(outage) - 1) * _interval_us(outage)
    return at_us if at_us > now_us else None


def claimed(outage: Outage, now_us: int) -> Outage:
    """Return it after a claim, or the start of a health check, at this time."""
    if outage.phase is OutagePhase.OUT:
        return replace(
            outage,
            probes=outage.probes + 1,
            probe_at_us=now_us,
            next_probe_at_us=now_us + PATIENCE_US,
        )
    return replace(
        outage,
        spent_until_us=max(outage.spent_until_us, now_us) + _interval_us(outage),
        step=replace(outage.step, claims=outage.step.claims + 1),
    )


def failed(outage: Outage, failure: Failure, claimed_at_us: int, now_us: int) -> Outage:
    """Return it after the failure of a job that was claimed then, or of a health check.

    Jobs that were under way before the last decision tell nothing new.
    """
    if outage.phase is OutagePhase.OUT:
        if not outage.probe_at_us or claimed_at_us < outage.probe_at_us:
            return outage
        asked_us = int((failure.retry_after_seconds or 0.0) * MICROSECONDS)
        pause_us = min(outage.pause_us * 2, MAX_PAUSE_US)
        wait_us = max(pause_us, min(asked_us, MAX_RETRY_AFTER_US))
        return replace(
            _with_failure(outage, failure), pause_us=pause_us, next_probe_at_us=now_us + wait_us
        )
    if claimed_at_us < max(outage.phase_since_us, outage.failed_at_us):
        return outage
    step = replace(outage.step, failures=outage.step.failures + 1)
    outage = _with_failure(replace(outage, step=step), failure)
    if now_us < outage.failed_at_us + STEP_US:
        return outage
    rate = max(MIN_RATE, outage.rate / 2)
    return replace(outage, rate=rate, slow_above=rate, failed_at_us=now_us)


def retry_at_us(outage: Outage, now_us: int) -> int:
    """Return when a job that failed because of the outage is due again.

    Later than the next probe: a job that always fails must not be each of them.
    """
    return now_us + min(4 * outage.pause_us, 2 * MAX_PAUSE_US)


def spares(outage: Outage, now_us: int, outage_max_seconds: float) -> bool:
    """Whether its failures still cost no attempt."""
    return now_us - outage.since_us < outage_max_seconds * MICROSECONDS


def observe(outage: Outage | None, report: DependencyReport, now_us: int) -> Outage | None:
    """Return the outage after this report; one that has ended is of that phase."""
    if outage is None:
        if not report.tripped:
            return None
        outage = start(report.dependency, now_us, report.failure)
    if report.has_health_check and not outage.has_health_check:
        outage = replace(outage, has_health_check=True)
    if report.healthy is False and outage.phase is OutagePhase.OUT:
        failure = report.failure or Failure.of("connection", "the health check failed")
        return failed(outage, failure, now_us, now_us)
    if outage.phase is OutagePhase.OUT:
        probed = outage.probe_at_us and report.claimed_at_us >= outage.probe_at_us
        return _recovering(outage, now_us) if probed or report.healthy else outage
    if report.successes:
        step = replace(outage.step, successes=outage.step.successes + report.successes)
        outage = replace(outage, step=step)
    return _stepped(outage, now_us)


def asks_for_health_check(outage: Outage, report: DependencyReport, now_us: int) -> bool:
    """Whether the process that sent this report is to call its function now."""
    return (
        report.has_health_check
        and outage.phase is OutagePhase.OUT
        and now_us >= outage.next_probe_at_us
        and report.healthy is None
    )


def _recovering(outage: Outage, now_us: int) -> Outage:
    return replace(
        outage,
        phase=OutagePhase.RECOVERING,
        phase_since_us=now_us,
        pause_us=FIRST_PAUSE_US,
        rate=FIRST_RATE,
        slow_above=2 * MAX_RATE,
        spent_until_us=now_us,
        failed_at_us=0,
        step=RecoveryStep(now_us),
    )


def _stepped(outage: Outage, now_us: int) -> Outage:
    """Change the rate of a recovery once a step is over."""
    step = outage.step
    passed_us = now_us - step.since_us
    if passed_us < STEP_US:
        return outage
    used = (
        room(outage, now_us) == 0
        or step.claims >= _USED_SHARE * outage.rate * passed_us / MICROSECONDS
    )
    calm = now_us - max(outage.phase_since_us, outage.failed_at_us) >= CALM_US
    bad_steps = 0
    rate = outage.rate
    if step.failures:
        if not step.successes and step.failures >= _FAILURES_OF_A_RELAPSE:
            bad_steps = step.bad_steps + 1
        if bad_steps >= _STEPS_OF_A_RELAPSE:
            return _out_again(outage, now_us)
    elif calm and not used:
        return end(outage, now_us)
    elif step.successes and used:
        rate *= _GROWTH if rate * _GROWTH <= outage.slow_above else _SLOW_GROWTH
        if rate > MAX_RATE:
            return end(outage, now_us)
    elif not calm and not step.claims:
        return outage  # nothing happened: nothing to write
    return replace(outage, rate=rate, step=RecoveryStep(now_us, bad_steps=bad_steps))


def _out_again(outage: Outage, now_us: int) -> Outage:
    return replace(
        outage,
        phase=OutagePhase.OUT,
        phase_since_us=now_us,
        pause_us=FIRST_PAUSE_US,
        next_probe_at_us=now_us + FIRST_PAUSE_US,
        probe_at_us=0,
    )


def _job_probe_at_us(outage: Outage) -> int:
    """Return when a job may be the next probe."""
    if outage.has_health_check:
        # None of the processes that have the function has called it for that long.
        return outage.next_probe_at_us + 2 * PATIENCE_US
    return outage.next_probe_at_us


def _interval_us(outage: Outage) -> int:
    return max(1, int(MICROSECONDS / outage.rate))


def _burst(outage: Outage) -> int:
    return max(1, int(outage.rate * _BURST_SECONDS))


def _with_failure(outage: Outage, failure: Failure | None) -> Outage:
    if failure is None:
        return outage
    return replace(
        outage,
        error_reason=failure.error_reason[:REASON_LIMIT],
        message=failure.message[:_MESSAGE_LIMIT],
    )
