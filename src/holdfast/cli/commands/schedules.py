"""``holdfast schedules``: list, run, skip, pause and resume schedules."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import json_option, stream_options, who_options
from holdfast.cli.output import document, echo, lines, moment, note, table
from holdfast.model.errors import Unavailable
from holdfast.model.job import MICROSECONDS, check_id

if TYPE_CHECKING:
    from holdfast.model.effects import ScheduleState
    from holdfast.operations.attribution import Author


@click.group("schedules", cls=CommandGroup)
def schedules_group() -> None:
    """List schedules, run one now, skip, pause and resume them."""


@schedules_group.command("list")
@stream_options
@click.pass_obj
def list_schedules(context: CommandContext, *, as_json: bool, ndjson: bool) -> None:
    """List the schedules of the application that ran last, and the next tick of each."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine
    from holdfast.operations.schedule_views import ScheduleView  # noqa: PLC0415

    known = store_access.read_store(
        context.settings(), lambda operations: operations.engine.schedules()
    )
    now_us = _now_us()
    found = [ScheduleView.of(name, state, now_us) for name, state in sorted(known.items())]
    if as_json:
        document(found)
    elif ndjson:
        lines(found)
    elif not found:
        note("no schedules: they appear once an application with some has run")
    else:
        table(
            ("NAME", "WHEN", "ZONE", "TASK", "QUEUE", "NEXT"),
            [
                (
                    one.name,
                    one.expression,
                    one.time_zone,
                    one.task,
                    one.queue,
                    "paused" if one.paused else moment(one.next_at),
                )
                for one in found
            ],
        )


@schedules_group.command("run")
@click.argument("name")
@click.option("--app", metavar="MODULE:APP", help="The application, if no daemon runs.")
@who_options
@json_option
@click.pass_obj
def run_schedule(
    context: CommandContext, name: str, *, app: str | None, who: Callable[[], Author], as_json: bool
) -> None:
    """Enqueue the job of a schedule now."""
    from holdfast.cli import store_access  # noqa: PLC0415
    from holdfast.daemon.rpc import OPERATIONS  # noqa: PLC0415
    from holdfast.daemon.rpc.bodies import RunScheduleBody  # noqa: PLC0415
    from holdfast.engines.contract import Admission, Receipt  # noqa: PLC0415

    check_id(name, "name")
    registry = context.registry(app)
    asked, settings = who(), context.settings()
    store_access.require_persistent(settings)
    body = msgspec.json.encode(RunScheduleBody(name, asked))

    def ask_owner() -> list[Receipt] | None:
        found = store_access.request_owner(
            settings, "POST", f"{OPERATIONS}run_schedule", body, Receipt
        )
        return None if found is None else [found]

    def alone() -> Receipt:
        if registry is None:
            raise Unavailable(
                f"no daemon runs the application with {name!r}: start one, or give --app"
            )
        from holdfast.operations.operations import Operations  # noqa: PLC0415

        now_us = int(time.time() * MICROSECONDS)
        return store_access.with_store(
            settings,
            lambda operations: Operations(operations.engine, registry).run_schedule(
                name, asked, now_us
            ),
        )

    receipt = store_access.through_owner(ask_owner, alone)
    if as_json:
        document(receipt)
    elif receipt.admission is Admission.CREATED:
        echo(f"{receipt.id} enqueued")
    else:
        echo(f"nothing enqueued: {receipt.id} is unfinished")


@schedules_group.command("skip")
@click.argument("name")
@who_options
@json_option
@click.pass_obj
def skip(context: CommandContext, name: str, *, who: Callable[[], Author], as_json: bool) -> None:
    """Skip the next tick of a schedule; called again, also the one after it."""

    from holdfast.operations.schedule_views import without_next  # noqa: PLC0415

    _change(context, name, who, lambda state: without_next(name, state, _now_us()), as_json=as_json)


@schedules_group.command("pause")
@click.argument("name")
@who_options
@json_option
@click.pass_obj
def pause(context: CommandContext, name: str, *, who: Callable[[], Author], as_json: bool) -> None:
    """Skip every tick of a schedule until it is resumed."""
    from holdfast.operations import schedule_views  # noqa: PLC0415

    _change(context, name, who, schedule_views.paused, as_json=as_json)


@schedules_group.command("resume")
@click.argument("name")
@who_options
@json_option
@click.pass_obj
def resume(context: CommandContext, name: str, *, who: Callable[[], Author], as_json: bool) -> None:
    """Resume a schedule: end its pause, and skip no ticks."""
    from holdfast.operations.schedule_views import resumed  # noqa: PLC0415

    _change(context, name, who, resumed, as_json=as_json)


def _change(
    context: CommandContext,
    name: str,
    who: Callable[[], Author],
    change: Callable[[ScheduleState], ScheduleState],
    *,
    as_json: bool,
) -> None:
    from holdfast.cli import store_access  # noqa: PLC0415
    from holdfast.operations.schedule_views import ScheduleView  # noqa: PLC0415

    check_id(name, "name")
    asked = who()
    state = store_access.write_store(
        context.settings(),
        lambda operations: operations.change_schedule(name, asked, change),
    )
    view = ScheduleView.of(name, state, _now_us())
    if as_json:
        document(view)
    else:
        next_tick = moment(view.next_at) or "never"
        echo(f"{name} {'is paused' if view.paused else f'next: {next_tick}'}")


def _now_us() -> int:
    return int(time.time() * MICROSECONDS)
