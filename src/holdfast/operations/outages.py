"""Outages for people: since when, how much waits, and when the next probe comes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from holdfast.engines.contract import Counts
from holdfast.model.durations import format_seconds
from holdfast.model.job import MICROSECONDS
from holdfast.model.outage import Outage, OutagePhase, dependency_of

from .views import date_of


class OutageView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An outage, with what waits for its end."""

    dependency: str
    phase: str
    since: datetime
    waiting: int = 0
    """How many jobs of its queues are pending."""
    queues: list[str] = []
    """The queues that have jobs and need the dependency."""
    error_reason: str = ""
    message: str = ""
    probes: int = 0
    next_probe_at: datetime | None = None
    next_probe_seconds: float | None = None
    rate_per_second: float | None = None
    """How many claims a second it allows while it recovers."""
    by: str = ""
    """The person who started it; workers did without one."""
    why: str = ""
    ended_at: datetime | None = None
    ended_by: str = ""
    ended_why: str = ""

    @property
    def line(self) -> str:
        """One line: "payments-api: out since 14:02, 1,204 waiting, next probe in 20s"."""
        parts = [f"{self.phase} since {self.since:%Y-%m-%d %H:%M} UTC"]
        if self.ended_at is not None:
            lasted = format_seconds(round((self.ended_at - self.since).total_seconds()))
            return f"{self.dependency}: out from {self.since:%Y-%m-%d %H:%M} UTC for {lasted}"
        parts.append(f"{self.waiting:,} waiting")
        if self.rate_per_second is not None:
            parts.append(f"{self.rate_per_second:g} claims a second")
        elif self.next_probe_seconds:
            parts.append(f"next probe in {format_seconds(self.next_probe_seconds)}")
        elif self.next_probe_seconds is not None:
            parts.append("next probe with the next job")
        if self.error_reason:
            parts.append(f"last failure {self.error_reason}")
        return f"{self.dependency}: {', '.join(parts)}"


def outage_views(
    outages: Iterable[Outage], counts: Mapping[str, Counts], now_us: int
) -> list[OutageView]:
    """Return outages for people, given the counts of the queues."""
    queues_of: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(counts):
        queues_of[dependency_of(name)].append(name)
    return [_view(one, queues_of[one.dependency], counts, now_us) for one in outages]


def _view(
    outage: Outage, queues: list[str], counts: Mapping[str, Counts], now_us: int
) -> OutageView:
    out, recovering = outage.phase is OutagePhase.OUT, outage.phase is OutagePhase.RECOVERING
    until_us = max(0, outage.next_probe_at_us - now_us)
    return OutageView(
        dependency=outage.dependency,
        phase=outage.phase.value,
        since=date_of(outage.since_us),
        waiting=sum(counts[name].pending for name in queues) if outage.active else 0,
        queues=queues if outage.active else [],
        error_reason=outage.error_reason,
        message=outage.message,
        probes=outage.probes,
        next_probe_at=date_of(outage.next_probe_at_us) if out else None,
        next_probe_seconds=float(round(until_us / MICROSECONDS)) if out else None,
        rate_per_second=round(outage.rate, 1) if recovering else None,
        by=outage.by,
        why=outage.why,
        ended_at=date_of(outage.ended_at_us) if outage.ended_at_us else None,
        ended_by=outage.ended_by,
        ended_why=outage.ended_why,
    )
