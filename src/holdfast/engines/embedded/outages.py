"""Decides the verbs about outages."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.engines.outages import OutageChange, answer_reports, log_changes, set_by_hand
from holdfast.model.audit import Attribution
from holdfast.model.effects import Effect, OutageSet
from holdfast.model.outage import DependencyReport, Outage, OutageUpdate

from .core import EmbeddedCore


class OutageCommands:
    """Each method decides and commits; the caller waits until durable."""

    def __init__(self, core: EmbeddedCore) -> None:
        self._core = core

    def report(self, reports: Sequence[DependencyReport], now_us: int) -> OutageUpdate:
        """Take the reports of a worker process."""
        changes, update = answer_reports(self._core.state.outages.active, reports, now_us)
        self._commit(changes, now_us)
        return update

    def set(self, dependency: str, attribution: Attribution, now_us: int, *, on: bool) -> Outage:
        """Start or end an outage by hand."""
        before = self._core.state.outages.active.get(dependency)
        after = set_by_hand(before, dependency, attribution, now_us, on=on)
        self._commit([OutageChange(before, after)], now_us, attribution)
        return after

    def _commit(
        self, changes: Sequence[OutageChange], now_us: int, attribution: Attribution | None = None
    ) -> None:
        if not changes:
            return
        core = self._core
        effects: list[Effect] = [OutageSet(now_us, change.after) for change in changes]
        if attribution is not None:
            effects += core.attributed(attribution, attribution.audit, now_us)
        core.commit(effects)
        core.waiters.wake_all()
        log_changes(changes, now_us)
