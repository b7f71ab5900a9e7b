"""Schedules, as people see and change them."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from holdfast.model.effects import ScheduleState
from holdfast.model.errors import InvalidInput
from holdfast.worker.schedules import Schedule

from .views import date_of


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule as a person sees it."""

    name: str
    expression: str
    time_zone: str
    task: str
    queue: str
    paused: bool
    skip_until: datetime | None
    next_at: datetime | None

    @classmethod
    def of(cls, name: str, state: ScheduleState, now_us: int) -> ScheduleView:
        """Return a schedule as it is at this moment."""
        next_us = _next_us(name, state, now_us)
        return cls(
            name,
            state.expression,
            state.time_zone,
            state.task,
            state.queue,
            state.paused,
            date_of(state.skip_until_us) if state.skip_until_us > now_us else None,
            None if next_us is None else date_of(next_us),
        )


def paused(state: ScheduleState) -> ScheduleState:
    """Return a schedule that skips every tick until it is resumed."""
    return replace(state, paused=True)


def resumed(state: ScheduleState) -> ScheduleState:
    """Return a schedule that is not paused, and skips no ticks."""
    return replace(state, paused=False, skip_until_us=0)


def without_next(name: str, state: ScheduleState, now_us: int) -> ScheduleState:
    """Return a schedule that skips its next tick; raise ``InvalidInput`` if it has none."""
    tick_us = _next_us(name, state, now_us)
    if tick_us is None:
        raise InvalidInput("schedule", f"{name!r} has no more ticks to skip")
    return replace(state, skip_until_us=tick_us)


def _next_us(name: str, state: ScheduleState, now_us: int) -> int | None:
    """Return the next tick that is not skipped."""
    schedule = Schedule(
        name=name,
        expression=state.expression,
        task=state.task,
        time_zone=state.time_zone,
        queue=state.queue,
    )
    return schedule.next_us(max(now_us, state.skip_until_us))
