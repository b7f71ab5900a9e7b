"""Reasons why a job does not run, in sentences, each with the command that would change it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

import msgspec

from holdfast.model.access import DEFAULT_TENANT
from holdfast.model.durations import format_seconds
from holdfast.model.explain import Blocker, BlockerKind
from holdfast.model.failure import FailureClass
from holdfast.model.job import MICROSECONDS, Job, State
from holdfast.model.lifecycle import attempts_used
from holdfast.model.outage import dependency_of
from holdfast.model.plural import count_of
from holdfast.model.policy import QueuePolicy

from .views import ReasonView, date_of

_WHY = '--reason "…"'
_LIMITS: Mapping[BlockerKind, tuple[str, str]] = {
    BlockerKind.MAX_IN_FLIGHT: ("", "--max-in-flight"),
    BlockerKind.MAX_PER_TENANT: (" of one tenant", "--max-per-tenant"),
    BlockerKind.MAX_PER_KEY: (" of one key", "--max-per-key"),
}


class Pause(msgspec.Struct, frozen=True):
    """Who paused a queue, when and why, as the audit tells it."""

    by: str
    at_us: int
    why: str


class ReasonContext(msgspec.Struct, frozen=True):
    """What the sentences about one job need besides its blockers."""

    job: Job
    now_us: int
    policy: QueuePolicy
    pause: Pause | None = None

    @property
    def tenant_option(self) -> str:
        """The option that names the job's tenant, where it is needed."""
        tenant = self.job.tenant
        return "" if tenant == DEFAULT_TENANT else f" --tenant {shlex.quote(tenant)}"

    def on_job(self, command: str, job_id: str | None = None, more: str = _WHY) -> str:
        """Return a command on this job, or on another of its tenant."""
        quoted = shlex.quote(self.job.id if job_id is None else job_id)
        return f"holdfast {command} {quoted}{self.tenant_option} {more}".rstrip()

    def on_queue(self, command: str, more: str = "") -> str:
        """Return a command on its queue."""
        return " ".join(
            filter(None, ("holdfast", command, shlex.quote(self.job.queue), more, _WHY))
        )

    def moment(self, at_us: int) -> str:
        """Return a time, and how far away it is."""
        away = format_seconds(float(round(abs(at_us - self.now_us) / MICROSECONDS)))
        near = f"in {away}" if at_us > self.now_us else f"{away} ago"
        return f"{date_of(at_us):%Y-%m-%d %H:%M:%S} UTC ({near})"


def reason_of(blocker: Blocker, context: ReasonContext) -> ReasonView:
    """Return a blocker as a sentence."""
    text, command = _SENTENCES[blocker.kind](blocker, context)
    until = None if blocker.until_us is None else date_of(blocker.until_us)
    return ReasonView(blocker.kind.value, text, command, blocker.job, until)


def end_of(context: ReasonContext) -> tuple[str, str]:
    """Return what happened to a job that is in flight or finished, and the command to go on."""
    job = context.job
    since = context.moment(job.finished_at_us)
    if job.state is State.IN_FLIGHT:
        text = f"It runs: attempt {attempts_used(job)} since {context.moment(job.claimed_at_us)}"
        return f"{text}, on {job.worker}.", context.on_job("jobs show", more="")
    if job.state is State.COMPLETED:
        return f"It completed at {since}.", context.on_job("jobs show", more="")
    if job.state is State.CANCELLED:
        why = f": {job.cancel_reason}" if job.cancel_reason else ""
        return f"It was cancelled at {since}{why}.", ""
    if job.state is State.ARCHIVED:
        text = f"It was archived at {since}, and runs no more."
        return text, context.on_job("dead restore")
    failure = job.failure
    if failure is None:
        return f"It is dead since {since}.", context.on_job("replay")
    text = (
        f"It is dead since {since}, after {count_of(attempts_used(job), 'attempt')}: "
        f"{failure.error_reason} ({failure.failure_class.value}): {failure.message}"
    )
    fixed = failure.failure_class is FailureClass.DETERMINISTIC
    more = f'--fixed "…" {_WHY}' if fixed else _WHY
    return text, context.on_job("replay", more=more)


Sentence = Callable[[Blocker, ReasonContext], tuple[str, str]]


def _state(_blocker: Blocker, context: ReasonContext) -> tuple[str, str]:
    return end_of(context)


def _dependency(blocker: Blocker, context: ReasonContext) -> tuple[str, str]:
    text = f"It depends on job {blocker.job!r}, which is {_state_name(blocker.state)}."
    return text, _on_other(blocker, context)


def _confirmation(_blocker: Blocker, context: ReasonContext) -> tuple[str, str]:
    return "It waits for the confirmation of a person.", context.on_job("jobs confirm")


def _key(blocker: Blocker, context: ReasonContext) -> tuple[str, str]:
    text = (
        f"Job {blocker.job!r}, which is {_state_name(blocker.state)}, goes first in key "
        f"{context.job.ties.key!r}."
    )
    return text, _on_other(blocker, context)


def _run_at(blocker: Blocker, context: ReasonContext) -> tuple[str, str]:
    until = context.moment(blocker.until_us or 0)
    failure = context.job.failure
    text = f"Its time is {until}."
    if failure is not None and attempts_used(context.job):
        text = f"It failed ({failure.error_reason}) and is retried at {until}."
    return text, context.on_job("jobs edit", more=f"--run-at now {_WHY}")


def _expired(blocker: Blocker, context: ReasonContext) -> tuple[str, str]:
    at = context.moment(blocker.until_us or 0)
    return f"It expired at {at}: it becomes a dead letter and does not run.", ""


def _paused(_blocker: Blocker, context: ReasonContext) -> tuple[str, str]:
    text = f"Queue {context.job.queue!r} is paused"
    if context.pause is not None:
        pause = context.pause
        text += f", by {pause.by} at {context.moment(pause.at_us)}: {pause.why}"
    return text.rstrip(".") + ".", context.on_queue("queues resume")


def _outage(blocker: Blocker, context: ReasonContext) -> tuple[str, str]:
    name = dependency_of(context.job.queue)
    text = f"{name!r} is out: its jobs are handed out as probes"
    if blocker.until_us is not None:
        text += f", the next one at {context.moment(blocker.until_us)}"
    return (
        f"{text}{_ahead(blocker, context)}.",
        f"holdfast outages end {shlex.quote(name)} --reason …",
    )


def _limit(blocker: Blocker, context: ReasonContext) -> tuple[str, str]:
    whose, option = _LIMITS[blocker.kind]
    text = (
        f"Queue {context.job.queue!r} runs at most {count_of(blocker.most, 'job')}{whose} at once: "
        f"{count_of(blocker.in_flight, 'job')} in flight{_ahead(blocker, context)}."
    )
    return text, context.on_queue("queues set", f"{option} N")


def _rate(blocker: Blocker, context: ReasonContext) -> tuple[str, str]:
    rate = context.policy.rate
    per = "" if rate is None else f" per {format_seconds(rate.per_seconds)}"
    text = (
        f"Queue {context.job.queue!r} starts at most {count_of(blocker.most, 'job')}{per}; there "
        f"is room for it at {context.moment(blocker.until_us or 0)}{_ahead(blocker, context)}."
    )
    return text, context.on_queue("queues set", "--rate N/m")


def _turn(blocker: Blocker, context: ReasonContext) -> tuple[str, str]:
    text = f"It is behind {count_of(blocker.ahead, 'due job')} of queue {context.job.queue!r}."
    return text, context.on_job("jobs edit", more=f"--priority N {_WHY}")


def _ahead(blocker: Blocker, context: ReasonContext) -> str:
    if not blocker.ahead:
        return ""
    turns = ", as tenants take turns" if context.policy.fair else ""
    return f", and {count_of(blocker.ahead, 'due job')} before it{turns}"


def _on_other(blocker: Blocker, context: ReasonContext) -> str:
    if blocker.state is State.DEAD:
        return context.on_job("replay", blocker.job)
    if blocker.state is None:
        return context.on_job("jobs cancel")
    return context.on_job("jobs explain", blocker.job, more="")


def _state_name(state: State | None) -> str:
    return "gone" if state is None else state.value.replace("_", " ")


_SENTENCES: Mapping[BlockerKind, Sentence] = {
    BlockerKind.STATE: _state,
    BlockerKind.DEPENDENCY: _dependency,
    BlockerKind.CONFIRMATION: _confirmation,
    BlockerKind.KEY: _key,
    BlockerKind.RUN_AT: _run_at,
    BlockerKind.EXPIRED: _expired,
    BlockerKind.PAUSED: _paused,
    BlockerKind.OUTAGE: _outage,
    BlockerKind.MAX_IN_FLIGHT: _limit,
    BlockerKind.MAX_PER_TENANT: _limit,
    BlockerKind.MAX_PER_KEY: _limit,
    BlockerKind.RATE: _rate,
    BlockerKind.TURN: _turn,
}
