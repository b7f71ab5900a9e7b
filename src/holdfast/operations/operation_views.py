"""What people see of stored operations: the plan before, and the report during and after."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.model.durations import format_seconds
from holdfast.model.job import MICROSECONDS
from holdfast.model.operation import Operation, Phase
from holdfast.model.policy import Rate
from holdfast.model.search import Filter

from .attribution import filter_fields
from .views import JobView, date_of


class ReasonCount(msgspec.Struct, frozen=True):
    """How many dead letters have one error_reason."""

    error_reason: str
    failure_class: str
    count: int


class OperationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation would do at this moment."""

    action: str
    as_of: datetime
    """The moment for which it holds: what comes later is not a member."""
    would: int
    """How many jobs it would act on."""
    matched: int
    """How many jobs the filter finds in a state that the action is for."""
    exact: bool = True
    """Whether all were counted; otherwise there are at least so many."""
    kept: int = 0
    skipped: Mapping[str, int] = {}
    """How many it would leave alone, by reason."""
    looked_at: int = 0
    """For how many of the first members these reasons, other than the class, were looked up."""
    reasons: list[ReasonCount] = []
    """The dead letters among them by error_reason, the most frequent first."""
    held_behind: int = 0
    """How many jobs wait behind them for their keys, and would be freed."""
    limit: int | None = None
    expected_seconds: float | None = None
    """How long it takes at its rate."""
    jobs: list[JobView] = []
    """Some of those that it would act on."""
    ids: list[str] = []
    """The first of them."""


class OperationView(msgspec.Struct, frozen=True, kw_only=True):
    """A stored operation: what was asked for, how far it is, and what came of it."""

    id: str
    state: str
    """``canary``, ``running``, ``verifying``, ``paused``, ``completed`` or ``aborted``."""
    action: str
    by: str
    why: str
    filter: Mapping[str, object]
    as_of: datetime
    started_at: datetime
    ended_at: datetime | None = None
    limit: int | None = None
    rate: str | None = None
    canary: int = 0
    abort_above: float | None = None
    fixed: str = ""
    matched: int | None = None
    """How many jobs the plan counted; None if it did not count all."""
    acted: int = 0
    kept: int = 0
    skipped: Mapping[str, int] = {}
    done: int = 0
    """How many replayed jobs completed …"""
    failed_again: int = 0
    cancelled: int = 0
    waiting: int = 0
    """… and how many have not ended yet."""
    gone: int = 0
    """How many no longer matched when it came to them."""
    new_since: int | None = None
    """How many dead letters of the same kind came after its moment; None: not counted."""
    note: str = ""
    version: int = 1

    @classmethod
    def of(cls, operation: Operation, new_since: int | None = None) -> OperationView:
        """Return the operation for people."""
        outcomes, kept = operation.outcomes, sum(operation.skipped.values())
        return cls(
            id=operation.id,
            state=operation.state,
            action=operation.action.name,
            by=operation.by,
            why=operation.why,
            filter=filter_fields(asked_for(operation)),
            as_of=date_of(operation.as_of_us),
            started_at=date_of(operation.started_at_us),
            ended_at=date_of(operation.ended_at_us) if operation.ended_at_us else None,
            limit=operation.limit,
            rate=rate_text(operation.rate),
            canary=operation.canary,
            abort_above=operation.abort_ratio,
            fixed=getattr(operation.action, "fixed", ""),
            matched=operation.matched,
            acted=operation.acted,
            kept=kept,
            skipped=operation.skipped,
            done=outcomes.completed,
            failed_again=outcomes.failed,
            cancelled=outcomes.cancelled,
            waiting=operation.outstanding,
            gone=_gone(operation, kept),
            new_since=new_since,
            note=operation.note,
            version=operation.version,
        )

    @property
    def total(self) -> int | None:
        """How many jobs it is to act on, if that is known."""
        if self.matched is None:
            return self.limit
        members = max(self.acted, self.matched - self.kept)
        return members if self.limit is None else min(self.limit, members)


def asked_for(operation: Operation) -> Filter:
    """Return the filter of an operation without its moment."""
    bound_us, wanted = operation.as_of_us + 1, operation.wanted
    if wanted.finished_to_us == bound_us:
        return msgspec.structs.replace(wanted, finished_to_us=None)
    if wanted.created_to_us == bound_us:
        return msgspec.structs.replace(wanted, created_to_us=None)
    return wanted


def rate_text(rate: Rate | None) -> str | None:
    """Return a rate as people write it."""
    return None if rate is None else f"{rate.count}/{format_seconds(rate.per_seconds)}"


def seconds_at(rate: Rate | None, count: int) -> float | None:
    """Return how long so many jobs take at this rate."""
    return None if rate is None else round(count * rate.interval_us / MICROSECONDS, 3)


def _gone(operation: Operation, kept: int) -> int:
    if operation.phase not in (Phase.VERIFYING, Phase.COMPLETED) or operation.matched is None:
        return 0
    members = operation.matched - kept
    if operation.limit is not None:
        members = min(members, operation.limit)
    return max(0, members - operation.acted)
