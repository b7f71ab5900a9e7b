"""Outages: their rows, and what the verbs do with them.

A transaction that changes an outage holds the lock of its dependency. A settle takes it before the
rows of jobs, as a claim does.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engines.outages import (
    OutageChange,
    answer_reports,
    changes_between,
    outage_retry_at_us,
    set_by_hand,
)
from holdfast.model import lifecycle
from holdfast.model import outage as rules
from holdfast.model.audit import Attribution
from holdfast.model.effects import Effect, Snoozed
from holdfast.model.job import Job
from holdfast.model.outage import (
    ENDED_KEPT,
    DependencyReport,
    Outage,
    OutageUpdate,
    dependency_of,
)
from holdfast.model.outcome import Outcome

from . import rows
from .admin.audit import add_audit
from .call_context import CallContext
from .connection.sansio import SansIO, Statement, execute, execute_all


def outage_lock(dependency: str) -> str:
    """Return the name of the lock of a dependency."""
    return f"outage/{dependency}"


def outage_columns(outage: Outage) -> dict[str, object]:
    """Return an outage as columns."""
    return {
        "dependency": outage.dependency,
        "ended_at_us": None if outage.active else outage.ended_at_us,
        "outage": rows.pack(outage),
    }


def read_outages(*, ended: bool = False) -> SansIO[list[Outage]]:
    """Return the outages that last; before them, with ``ended``, those that do not."""
    found = yield from execute("list_outages", ended=ended)
    return [rows.OUTAGE.decode(outage) for (outage,) in found]


def put_outages(outages: Sequence[Outage]) -> SansIO[None]:
    """Write outages whose locks are held."""
    if not outages:
        return
    columns = [outage_columns(outage) for outage in outages]
    yield from execute(
        "put_outages",
        dependencies=[column["dependency"] for column in columns],
        ended_at_us=[column["ended_at_us"] for column in columns],
        outages=[column["outage"] for column in columns],
    )
    if not all(outage.active for outage in outages):
        yield from execute("forget_outages", kept=ENDED_KEPT)


def report(
    reports: Sequence[DependencyReport], context: CallContext
) -> SansIO[tuple[list[OutageChange], OutageUpdate]]:
    """Take reports of a worker process; see ``Engine.report_outage``."""
    active = yield from _active()
    tripped = [report.dependency for report in reports if report.tripped]
    if not active and not tripped:
        return [], OutageUpdate([])
    yield from _lock([*active, *tripped])
    active = yield from _active()
    [[[now_us]]] = yield from execute_all(context.now())
    changes, update = answer_reports(active, reports, now_us)
    yield from put_outages([change.after for change in changes])
    return changes, update


def set_outage(
    dependency: str, attribution: Attribution, context: CallContext, *, on: bool
) -> SansIO[OutageChange]:
    """Start or end an outage by hand, with its audit."""
    yield from _lock([dependency])
    before = (yield from _active()).get(dependency)
    [[[now_us]]] = yield from execute_all(context.now())
    after = set_by_hand(before, dependency, attribution, now_us, on=on)
    yield from put_outages([after])
    yield from add_audit(attribution.audit, now_us)
    return OutageChange(before, after)


class OutageFailures:
    """Settles outcomes: failures of an outage cost no attempt, and are counted for it."""

    def __init__(self, max_seconds: float) -> None:
        self._max_seconds = max_seconds
        self._before: dict[str, Outage] = {}
        self._after: dict[str, Outage] = {}

    def lock(self) -> SansIO[None]:
        """Read the outages that last, and lock them, if there are any."""
        if active := (yield from _active()):
            yield from _lock(list(active))
            self._before = yield from _active()
            self._after = dict(self._before)

    def settle(self, job: Job, outcome: Outcome, now_us: int) -> Effect:
        """Return the effect of an outcome; see ``lifecycle.settle``."""
        retry_at_us = outage_retry_at_us(self._after, job, outcome, now_us, self._max_seconds)
        effect = lifecycle.settle(job, outcome, now_us, retry_at_us)
        if isinstance(effect, Snoozed) and effect.failure is not None:
            name = dependency_of(job.queue)
            self._after[name] = rules.failed(
                self._after[name], effect.failure, job.claimed_at_us, now_us
            )
        return effect

    def write(self) -> SansIO[None]:
        """Write the outages that have changed."""
        yield from put_outages([change.after for change in self.changes()])

    def changes(self) -> list[OutageChange]:
        """Return the outages that have changed."""
        return changes_between(self._before, self._after)


def _active() -> SansIO[dict[str, Outage]]:
    return {outage.dependency: outage for outage in (yield from read_outages())}


def _lock(dependencies: Sequence[str]) -> SansIO[None]:
    names = sorted({outage_lock(dependency) for dependency in dependencies})
    yield from execute_all(Statement("lock_keys", {"names": names}))
