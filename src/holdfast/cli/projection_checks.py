"""The checks of ``holdfast doctor`` that are about projections, and the auditor of their jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from holdfast.model.durations import format_seconds
from holdfast.model.plural import count_of
from holdfast.operations.operations import Operations
from holdfast.operations.projection_views import ProjectionView
from holdfast.operations.projections import ProjectionOperations
from holdfast.operations.views import Status
from holdfast.projections.registry import declared, reader
from holdfast.settings import Settings
from holdfast.worker.registry import Registry

from .commands.doctor import CheckResult, Verdict

_Check = Callable[[Operations, Settings, Status], Awaitable[list[CheckResult]]]
_MAX_NAMED = 3


def projection_checks(registry: Registry | None) -> tuple[_Check, ...]:
    """Return the checks of the projections that an application and the settings declare."""

    def make(operations: Operations, settings: Settings) -> ProjectionOperations:
        known = declared(registry, settings)
        return ProjectionOperations(operations.engine, known, reader(registry, settings))

    async def projections(
        operations: Operations, settings: Settings, _status: Status
    ) -> list[CheckResult]:
        """Whether readers see what is declared, complete and in time."""
        views = await make(operations, settings).listed()
        found = [result for view in views for result in check_projection(view)]
        if found:
            return found
        return [CheckResult("projections", "ok", f"{count_of(len(views), 'projection')} in order")]

    async def events(
        operations: Operations, settings: Settings, _status: Status
    ) -> list[CheckResult]:
        """Whether every recent event has its jobs, or their results."""
        found = await make(operations, settings).missing_jobs(settings.remember_seconds)
        if not found.missing:
            old = f"; {found.unknown:,} too old to tell" if found.unknown else ""
            text = f"{count_of(found.checked, 'recent event')}, none without its jobs{old}"
            return [CheckResult("events", "ok", text)]
        named = ", ".join(found.ids[:_MAX_NAMED])
        text = f"{count_of(found.missing)} of {found.checked:,} recent events are missing: {named}"
        advice = "rebuild these projections, and report it: an event and its jobs are one commit"
        return [CheckResult("events", "wrong", text, advice)]

    return projections, events


def check_projection(view: ProjectionView) -> list[CheckResult]:
    """Return what is wrong with a projection."""
    name, rebuild = view.name, view.rebuild
    again = f"`holdfast rebuild {name}`"
    found: list[CheckResult] = []

    def add(verdict: Verdict, text: str, advice: str) -> None:
        found.append(CheckResult("projections", verdict, f"{name} {text}", advice))

    if rebuild is not None and rebuild.error:
        text = f"was not rebuilt: {rebuild.id} stopped at {rebuild.error}"
        add("wrong", text, f"mend it, then `holdfast rebuild {name} --resume`, or --cancel")
    elif view.incomplete and rebuild is None:
        add("wrong", "is incomplete: events are missing in its table", f"{again} completes it")
    elif view.incomplete:
        add("warning", "is being rebuilt in place: its table is incomplete", "wait for it")
    if not view.slo_met and view.lag_slo_seconds is not None:
        lag = format_seconds(float(round(view.lag_seconds)))
        text = f"is {lag} behind with {count_of(view.lag_events, 'event')}: its limit is"
        advice = f"`holdfast run` must serve {view.queue}; see `holdfast projections show {name}`"
        add("warning", f"{text} {format_seconds(view.lag_slo_seconds)}", advice)
    if view.outdated and rebuild is None:
        text = f"is declared as version {view.declared_version}, its table is of {view.version}"
        add("warning", text, f"{again} makes the new one")
    if view.previous_until is not None and view.previous_until < datetime.now(UTC):
        text = f"still has generation {view.previous_generation}, which is past its time"
        add("warning", text, "a daemon that declares it drops it: start `holdfast run`")
    return found
