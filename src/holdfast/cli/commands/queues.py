"""``holdfast queues``: counts and limits of queues."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import json_option, stream_options, who_options
from holdfast.cli.output import document, echo, lines, note, table
from holdfast.cli.sparkline import short_age, short_number
from holdfast.model.durations import seconds_of
from holdfast.model.errors import InvalidInput
from holdfast.model.outage import Outage, dependency_of
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy, rate_of

if TYPE_CHECKING:
    from holdfast.operations.attribution import Author
    from holdfast.operations.operations import Operations
    from holdfast.operations.samples import PointView
    from holdfast.operations.views import QueueStatus


@click.group("queues", cls=CommandGroup)
def queues_group() -> None:
    """List queues, pause them, and set their limits."""


@queues_group.command("list")
@stream_options
@click.pass_obj
def list_queues(context: CommandContext, *, as_json: bool, ndjson: bool) -> None:
    """List every queue with its counts, its age, its rates and its limits.

    Age and rates are of the last sample; a daemon takes one every ten seconds.
    """
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine
    from holdfast.operations.policy_views import PolicyView  # noqa: PLC0415

    queues, policies, out = store_access.read_store(context.settings(), _queues_and_policies)
    known = {item.queue: item for item in queues}
    counts = {item.queue: item.counts for item in queues}
    names = sorted({*known, *policies})
    found: list[dict[str, object]] = [
        {
            "queue": name,
            "counts": counts.get(name, {}),
            "policy": PolicyView.of(policies.get(name, DEFAULT_POLICY)),
            "outage": dependency_of(name) in out,
            **{field: getattr(known.get(name), field, None) for field in _SAMPLED},
        }
        for name in names
    ]
    if as_json:
        document(found)
    elif ndjson:
        lines(found)
    elif not found:
        note("no queues yet")
    else:
        states = ("pending", "blocked", "in_flight", "completed", "dead")
        table(
            ("QUEUE", *(state.upper() for state in states), *_FLOW, "LIMITS"),
            [
                (
                    name,
                    *(getattr(counts.get(name), state, 0) for state in states),
                    *_flow(known.get(name)),
                    _limits_and_outage(name, policies, out),
                )
                for name in names
            ],
            right=[*(state.upper() for state in states), *_FLOW],
        )


_SAMPLED = ("held", "oldest_age_seconds", "rates", "sampled_at")
_FLOW = ("OLDEST", "IN/S", "DONE/S")


def _flow(item: QueueStatus | None) -> tuple[str, str, str]:
    if item is None or item.rates is None:
        return "", "", ""
    oldest = short_age(item.oldest_age_seconds) if item.counts.pending else ""
    rates = item.rates
    return oldest, short_number(rates.enqueued_per_second), short_number(rates.completed_per_second)


async def _queues_and_policies(
    operations: Operations,
) -> tuple[list[QueueStatus], Mapping[str, QueuePolicy], Mapping[str, Outage]]:
    out = {one.dependency: one for one in await operations.engine.outages()}
    return (await operations.status()).queues, await operations.policies(), out


def _limits_and_outage(
    queue: str, policies: Mapping[str, QueuePolicy], out: Mapping[str, Outage]
) -> str:
    """Return the limits of a queue, and whether what it needs is out."""
    text = limits_text(policies.get(queue, DEFAULT_POLICY))
    outage = out.get(dependency_of(queue))
    return text if outage is None else f"{outage.dependency} is {outage.phase.value}; {text}"


@queues_group.command("series")
@click.argument("queue")
@click.option("--since", default="1h", metavar="DURATION", help="From how long ago; at most 48h.")
@click.option("--step", metavar="DURATION", help="How far points are apart at least.")
@stream_options
@click.pass_obj
def series(
    context: CommandContext,
    queue: str,
    *,
    since: str,
    step: str | None,
    as_json: bool,
    ndjson: bool,
) -> None:
    """Print how a queue was: depth, oldest age and rates, at most 500 points.

    A daemon takes a sample every ten seconds. They are kept for 2 hours, and points of a minute for
    48 hours. A point has the greatest depth and age of its time, and mean rates.
    """
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    since_seconds = seconds_of("--since", since)
    step_seconds = 0.0 if step is None else seconds_of("--step", step)
    found = store_access.read_store(
        context.settings(),
        lambda operations: operations.series(queue, since_seconds, step_seconds),
    )
    if as_json:
        document(found)
    elif ndjson:
        lines(found)
    elif not found:
        note(f"no samples of {queue!r} since {since}: a daemon takes them while it runs")
    else:
        cells = [_point_cells(point) for point in found]
        table(("AT", *_POINT_NAMES), cells, right=_POINT_NAMES)


_DEPTH_NAMES = ("PENDING", "BLOCKED", "IN FLIGHT", "DEAD", "HELD")
_POINT_NAMES = (*_DEPTH_NAMES, "OLDEST", "IN/S", "DONE/S", "RETRY/S", "DEAD/S")


def _point_cells(point: PointView) -> tuple[str, ...]:
    depths = (point.pending, point.blocked, point.in_flight, point.dead, point.held)
    rates = point.rates
    flow = (
        rates.enqueued_per_second,
        rates.completed_per_second,
        rates.retried_per_second,
        rates.dead_per_second,
    )
    return (
        f"{point.at:%Y-%m-%d %H:%M:%S}Z",
        *(f"{depth:,}" for depth in depths),
        short_age(point.oldest_age_seconds),
        *map(short_number, flow),
    )


_NEW = click.option("--new", is_flag=True, help="The queue has no jobs yet, and is meant.")


@queues_group.command("pause")
@click.argument("queue")
@_NEW
@who_options
@json_option
@click.pass_obj
def pause(
    context: CommandContext, queue: str, *, new: bool, who: Callable[[], Author], as_json: bool
) -> None:
    """Pause a queue: running jobs continue, no new ones start."""
    _change(context, queue, {"paused": True}, who, new=new, as_json=as_json)


@queues_group.command("resume")
@click.argument("queue")
@who_options
@json_option
@click.pass_obj
def resume(
    context: CommandContext, queue: str, *, who: Callable[[], Author], as_json: bool
) -> None:
    """Resume a queue. An outage of what it needs goes on: see `holdfast outages`."""
    _change(context, queue, {"paused": False}, who, new=False, as_json=as_json)


@queues_group.command("set")
@click.argument("queue")
@click.option("--max-in-flight", metavar="N", help="How many may run at once.")
@click.option("--max-per-key", metavar="N", help="How many of one key may run at once.")
@click.option("--max-per-tenant", metavar="N", help="How many of one tenant may run at once.")
@click.option("--rate", metavar="N/UNIT", help="How many may start per time: 10/m, 5/s, 100/h.")
@click.option("--fair/--no-fair", default=None, help="Whether tenants take turns.")
@click.option("--ordered/--no-ordered", default=None, help="Whether jobs of a key run in order.")
@click.option(
    "--keep-payload/--drop-payload",
    default=None,
    help="Whether finished jobs keep their payload.",
)
@click.option("--default", "reset", is_flag=True, help="First remove every limit.")
@_NEW
@who_options
@json_option
@click.pass_obj
def set_policy(
    context: CommandContext,
    /,
    queue: str,
    *,
    reset: bool,
    new: bool,
    who: Callable[[], Author],
    as_json: bool,
    **asked: str | bool | None,
) -> None:
    """Set the limits of a queue; others stay as they are, and 'none' removes one."""
    changes: dict[str, object] = {}
    if reset:
        changes = {field: getattr(DEFAULT_POLICY, field) for field in QueuePolicy.__struct_fields__}
    for name, value in asked.items():
        option = f"--{name.replace('_', '-')}"
        if value is None:
            continue
        if isinstance(value, bool):
            changes[name] = value
        elif value.strip().lower() == "none":
            changes[name] = None
        else:
            changes[name] = rate_of(option, value) if name == "rate" else _whole(option, value)
    if not changes:
        raise InvalidInput("queue", "give a limit, such as --max-in-flight 5")
    _change(context, queue, changes, who, new=new, as_json=as_json)


def _change(
    context: CommandContext,
    queue: str,
    changes: Mapping[str, object],
    who: Callable[[], Author],
    *,
    new: bool,
    as_json: bool,
) -> None:
    from holdfast.cli import store_access  # noqa: PLC0415
    from holdfast.operations.policy_views import PolicyView  # noqa: PLC0415

    asked = who()

    async def change(operations: Operations) -> QueuePolicy:
        known = await operations.fleet.task_queues()
        return await operations.change_policy(queue, changes, asked, new=new, also_known=known)

    policy = store_access.write_store(context.settings(), change)
    if as_json:
        document({"queue": queue, "policy": PolicyView.of(policy)})
    else:
        echo(f"{queue}: {limits_text(policy)}")


def _whole(option: str, text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*", text):
        raise InvalidInput(option, f"{text[:40]!r} is neither a whole number nor none")
    return int(text)


def limits_text(policy: QueuePolicy) -> str:
    """Return the limits of a policy as text."""
    from holdfast.operations.policy_views import PolicyView  # noqa: PLC0415 - imports an engine

    view = PolicyView.of(policy)
    parts = ["paused"] if policy.paused else []
    parts += [
        f"{field.replace('_', ' ')} {getattr(view, field)}"
        for field in ("max_in_flight", "max_per_key", "max_per_tenant", "rate")
        if getattr(view, field) is not None
    ]
    parts += ["fair"] if policy.fair else []
    parts += [] if policy.ordered else ["keys in any order"]
    if policy.keep_payload is not None:
        parts += ["keeps payloads" if policy.keep_payload else "drops payloads"]
    return ", ".join(parts) or "no limits"
