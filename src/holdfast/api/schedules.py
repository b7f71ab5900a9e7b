"""``/schedules`` and ``/flags``: what the application that ran last has, and switches."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.model.effects import ScheduleState
from holdfast.model.errors import UnknownSchedule
from holdfast.model.permissions import Permission
from holdfast.operations import schedule_views
from holdfast.operations.flag_views import FlagView, flag_views
from holdfast.operations.schedule_views import ScheduleView

from .call import Answer, ApiCall, Handle, Route
from .conditions import shown_unless_known

Change = Callable[[str, ScheduleState, int], ScheduleState]


class ScheduleActionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a schedule is changed."""

    why: str = ""


class FlagBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a flag is to be; null: its default."""

    on: bool | None
    why: str = ""


async def list_schedules(call: ApiCall) -> Answer:
    """Return the schedules of the application that ran last, with the next tick of each."""
    engine = call.operations.engine
    now_us, known = await engine.now_us(), await engine.schedules()
    return Answer(data=[ScheduleView.of(name, known[name], now_us) for name in sorted(known)])


async def show_schedule(call: ApiCall) -> Answer:
    """Return one schedule."""
    engine, name = call.operations.engine, call.path["schedule"]
    known = await engine.schedules()
    if name not in known:
        raise UnknownSchedule(name, known)
    return shown_unless_known(call, ScheduleView.of(name, known[name], await engine.now_us()))


def _changing(change: Change) -> Handle:
    async def handle(call: ApiCall) -> Answer:
        who, name = call.author(call.body(ScheduleActionBody).why), call.path["schedule"]
        now_us = await call.operations.engine.now_us()
        state = await call.operations.change_schedule(
            name, who, lambda before: change(name, before, now_us)
        )
        return Answer(data=ScheduleView.of(name, state, now_us))

    return handle


async def list_flags(call: ApiCall) -> Answer:
    """Return the flags that are set, and those that Holdfast itself follows."""
    return Answer(data=flag_views(await call.operations.engine.flags()))


async def set_flag(call: ApiCall) -> Answer:
    """Switch a flag on or off, or remove it."""
    asked, name = call.body(FlagBody), call.path["flag"]
    await call.operations.set_flag(name, call.author(asked.why), on=asked.on)
    views = flag_views(await call.operations.engine.flags())
    absent = FlagView(name, on=False, is_set=False, what="")
    return Answer(data=next((one for one in views if one.name == name), absent))


def _action(name: str, change: Change, summary: str) -> Route:
    return Route(
        operation_id=f"{name}Schedule",
        method="POST",
        path=f"/schedules/{{schedule}}/{name}",
        handle=_changing(change),
        permission=Permission.SCHEDULE_SET,
        summary=summary,
        body=ScheduleActionBody,
        example={"why": "the report is not needed"},
        answers=ScheduleView,
        everything=True,
    )


ROUTES = (
    Route(
        operation_id="listSchedules",
        method="GET",
        path="/schedules",
        handle=list_schedules,
        permission=Permission.JOB_READ,
        summary="List schedules",
        answers=list[ScheduleView],
        everything=True,
    ),
    Route(
        operation_id="getSchedule",
        method="GET",
        path="/schedules/{schedule}",
        handle=show_schedule,
        permission=Permission.JOB_READ,
        summary="Return a schedule",
        answers=ScheduleView,
        statuses=(200, 304),
        everything=True,
    ),
    _action("pause", lambda _name, state, _now: schedule_views.paused(state), "Skip every tick"),
    _action("resume", lambda _name, state, _now: schedule_views.resumed(state), "Skip no ticks"),
    _action("skip", schedule_views.without_next, "Skip the next tick"),
    Route(
        operation_id="listFlags",
        method="GET",
        path="/flags",
        handle=list_flags,
        permission=Permission.JOB_READ,
        summary="List flags",
        answers=list[FlagView],
        everything=True,
    ),
    Route(
        operation_id="setFlag",
        method="PUT",
        path="/flags/{flag}",
        handle=set_flag,
        permission=Permission.FLAG_SET,
        summary="Switch a flag",
        body=FlagBody,
        example={"on": False, "why": "we look first"},
        answers=FlagView,
        everything=True,
    ),
)
