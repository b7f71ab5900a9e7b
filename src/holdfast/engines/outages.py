"""What every engine does about outages: answers reports, spares failed jobs, logs changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.model import outage as rules
from holdfast.model.access import Caller
from holdfast.model.audit import Attribution
from holdfast.model.errors import AccessDenied, InvalidInput
from holdfast.model.failure import check_failure
from holdfast.model.job import MICROSECONDS, Job, check_id, check_size
from holdfast.model.outage import (
    DependencyReport,
    Outage,
    OutagePhase,
    OutageUpdate,
    dependency_of,
    is_outage_failure,
)
from holdfast.model.outcome import Outcome, OutcomeKind

from .argument_checks import check_all, check_attribution
from .contract import MAX_CLAIM
from .structured_log import StructuredLog

log = StructuredLog("holdfast.outages")

_CHARGED = frozenset({OutcomeKind.RETRY, OutcomeKind.DEAD})


class OutageChange(NamedTuple):
    """An outage before and after; None: there was none."""

    before: Outage | None
    after: Outage


def check_reports(reports: Sequence[DependencyReport]) -> list[DependencyReport]:
    """Return these reports, or raise ``InvalidInput``."""
    found = check_all("reports", reports, DependencyReport)
    check_size("reports", len(found), 0, MAX_CLAIM)
    for report in found:
        check_id(report.dependency, "dependency")
        check_size("successes", report.successes, 0)
        check_size("claimed_at_us", report.claimed_at_us, 0)
        if report.failure is not None:
            check_failure(report.failure)
    return found


def check_set_outage(dependency: str, attribution: Attribution, caller: Caller, *, on: bool) -> str:
    """Return the dependency, or raise ``InvalidInput`` or ``AccessDenied``."""
    check_id(dependency, "dependency")
    check_attribution(attribution)
    if type(on) is not bool:
        raise InvalidInput("on", f"{on!r} is not true or false")
    if not caller.unlimited:
        raise AccessDenied("outage", dependency)
    return dependency


def answer_reports(
    active: Mapping[str, Outage], reports: Iterable[DependencyReport], now_us: int
) -> tuple[list[OutageChange], OutageUpdate]:
    """Return the outages that these reports, and the time, change; and the answer to them."""
    by_dependency = {report.dependency: report for report in reports}
    after = dict(active)
    health_checks: list[str] = []
    for dependency in sorted({*active, *by_dependency}):
        report = by_dependency.get(dependency, DependencyReport(dependency))
        outage = rules.observe(active.get(dependency), report, now_us)
        if outage is None:
            continue
        if rules.asks_for_health_check(outage, report, now_us):
            health_checks.append(dependency)
            outage = rules.claimed(outage, now_us)
        after[dependency] = outage
    changes = [
        OutageChange(active.get(name), outage)
        for name, outage in after.items()
        if active.get(name) != outage
    ]
    lasting = [after[name] for name in sorted(after) if after[name].active]
    return changes, OutageUpdate(lasting, health_checks)


def set_by_hand(
    outage: Outage | None, dependency: str, attribution: Attribution, now_us: int, *, on: bool
) -> Outage:
    """Return the outage that a person starts or ends."""
    by, why = attribution.by, attribution.why
    if on and outage is not None:
        raise InvalidInput("dependency", f"{dependency!r} is out already")
    if on:
        return rules.start(dependency, now_us, by=by, why=why)
    if outage is None:
        raise InvalidInput("dependency", f"{dependency!r} is not out: holdfast outages list")
    return rules.end(outage, now_us, by, why)


def outage_retry_at_us(
    outages: Mapping[str, Outage], job: Job, outcome: Outcome, now_us: int, max_seconds: float
) -> int | None:
    """Return when this job is due again if its failure is one of an outage that spares it."""
    if outcome.kind not in _CHARGED or not is_outage_failure(outcome.failure):
        return None
    outage = outages.get(dependency_of(job.queue))
    if outage is None or not rules.spares(outage, now_us, max_seconds):
        return None
    return rules.retry_at_us(outage, now_us)


def changes_between(
    before: Mapping[str, Outage], after: Mapping[str, Outage]
) -> list[OutageChange]:
    """Return what has changed of outages that lasted before and after."""
    return [
        OutageChange(outage, after[name])
        for name, outage in before.items()
        if name in after and after[name] is not outage
    ]


def log_changes(changes: Iterable[OutageChange], now_us: int) -> None:
    """Log what these changes, which are committed, mean."""
    for before, after in changes:
        if before is None:
            log.emit(
                "outage.started",
                dependency=after.dependency,
                user=after.by or None,
                error_reason=after.error_reason or None,
            )
        elif not after.active:
            log.emit(
                "outage.ended",
                dependency=after.dependency,
                user=after.ended_by or None,
                seconds=round((after.ended_at_us - after.since_us) / MICROSECONDS, 1),
                probes=after.probes,
            )
        elif before.phase is OutagePhase.OUT and after.phase is OutagePhase.RECOVERING:
            log.emit(
                "outage.recovering",
                dependency=after.dependency,
                seconds=round((after.phase_since_us - after.since_us) / MICROSECONDS, 1),
                probes=after.probes,
            )
        elif after.phase is OutagePhase.OUT and _has_failed_again(before, after):
            log.emit(
                "outage.probe_failed",
                dependency=after.dependency,
                error_reason=after.error_reason or None,
                seconds=round((after.next_probe_at_us - now_us) / MICROSECONDS, 1),
                probes=after.probes,
            )


def _has_failed_again(before: Outage, after: Outage) -> bool:
    moved = after.next_probe_at_us != before.next_probe_at_us
    return moved and after.probes == before.probes
