"""Counts rebuilds and logs how they begin and end; knows which generation readers see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.engines.queue_stats import StoreStats
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.job import MICROSECONDS
from holdfast.model.projection import ProjectionState, Rebuild, RebuildPhase, queue_of

from .counters import Metrics

log = StructuredLog("holdfast.projections")

_OUTCOMES = (RebuildPhase.DONE, RebuildPhase.FAILED, RebuildPhase.CANCELLED)


class ProjectionLog:
    """Compares each projection with how it was before a change that was made here."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.states: dict[str, ProjectionState] = {}
        """What was last seen of each projection."""

    def listed(self, states: Mapping[str, ProjectionState]) -> None:
        """Remember what is stored."""
        self.states = dict(states)

    def changed(self, before: ProjectionState | None, after: ProjectionState, now_us: int) -> None:
        """Log and count what a change means for its rebuild."""
        self.states[after.name] = after
        old = None if before is None else before.rebuild
        new = _same(after, old) if old is not None else after.rebuild
        if new is None or (old is not None and old.phase is new.phase):
            return
        if old is None:
            log.emit(
                "projection.rebuild_started",
                projection=after.name,
                rebuild=new.id,
                mode=new.mode.value,
                user=new.by,
                why=new.why,
            )
        elif new.phase in _OUTCOMES:
            seconds = max(0, (new.ended_at_us or now_us) - new.started_at_us) / MICROSECONDS
            self._metrics.rebuilt(after.name, new.phase.value, seconds)
            log.emit(
                "projection.rebuild_ended",
                projection=after.name,
                rebuild=new.id,
                outcome=new.phase.value,
                seconds=round(seconds, 3),
                count=new.filled,
                why=new.error or None,
            )


def _same(state: ProjectionState, rebuild: Rebuild) -> Rebuild | None:
    known = (state.rebuild, *state.past)
    return next((one for one in known if one is not None and one.id == rebuild.id), None)


def lags(
    states: Mapping[str, ProjectionState], survey: StoreStats
) -> Iterator[tuple[str, int, float]]:
    """Yield how far each projection is behind: in events, and in seconds."""
    for name, state in sorted(states.items()):
        queue = queue_of(name, state.live)
        stats = survey.queues.get(queue)
        if stats is None:
            yield name, 0, 0.0
            continue
        counts = stats.counts
        waiting = counts.pending + counts.blocked + counts.in_flight - stats.held
        yield name, max(0, waiting), survey.oldest_age_seconds(queue)
