"""``holdfast queues``: counts and limits of queues."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import json_option, stream_options, who_options
from holdfast.cli.output import clean, document, lines, note, table
from holdfast.model.durations import format_seconds, seconds_of
from holdfast.model.errors import InvalidInput
from holdfast.model.outage import Outage, dependency_of
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy, Rate

if TYPE_CHECKING:
    from holdfast.engines.contract import Counts
    from holdfast.operations.attribution import Author
    from holdfast.operations.operations import Operations

_UNITS = {"s": 1.0, "second": 1.0, "m": 60.0, "minute": 60.0, "h": 3_600.0, "hour": 3_600.0}


@click.group("queues", cls=CommandGroup)
def queues_group() -> None:
    """List queues, pause them, and set their limits."""


@queues_group.command("list")
@stream_options
@click.pass_obj
def list_queues(context: CommandContext, *, as_json: bool, ndjson: bool) -> None:
    """List every queue with its counts and limits."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    counts, policies, out = store_access.read_store(context.settings(), _counts_and_policies)
    names = sorted({*counts, *policies})
    found = [
        {
            "queue": name,
            "counts": counts.get(name, {}),
            "policy": policy_view(policies.get(name, DEFAULT_POLICY)),
            "outage": dependency_of(name) in out,
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
            ("QUEUE", *(state.upper() for state in states), "LIMITS"),
            [
                (
                    name,
                    *(getattr(counts.get(name), state, 0) for state in states),
                    _limits_and_outage(name, policies, out),
                )
                for name in names
            ],
            right=[state.upper() for state in states],
        )


async def _counts_and_policies(
    operations: Operations,
) -> tuple[Mapping[str, Counts], Mapping[str, QueuePolicy], Mapping[str, Outage]]:
    out = {one.dependency: one for one in await operations.engine.outages()}
    return await operations.engine.counts(), await operations.policies(), out


def _limits_and_outage(
    queue: str, policies: Mapping[str, QueuePolicy], out: Mapping[str, Outage]
) -> str:
    """Return the limits of a queue, and whether what it needs is out."""
    text = limits_text(policies.get(queue, DEFAULT_POLICY))
    outage = out.get(dependency_of(queue))
    return text if outage is None else f"{outage.dependency} is {outage.phase.value}; {text}"


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

    asked = who()

    async def change(operations: Operations) -> QueuePolicy:
        # Without a registry of tasks only live daemons know the queues of an application.
        live = await operations.fleet.live()
        known = [name for entry in live for name in entry.process.task_queues]
        return await operations.change_policy(queue, changes, asked, new=new, also_known=known)

    policy = store_access.write_store(context.settings(), change)
    if as_json:
        document({"queue": queue, "policy": policy_view(policy)})
    else:
        click.echo(f"{clean(queue)}: {limits_text(policy)}")


def rate_of(option: str, text: str) -> Rate:
    """Parse a rate such as ``10/m``, ``5/s`` or ``100/15m``."""
    found = re.fullmatch(r"\s*([0-9]{1,9})\s*/\s*(\S{1,20})\s*", text)
    if found is None:
        raise InvalidInput(option, f"{text[:40]!r} is not a rate such as 10/m, 5/s or 100/15m")
    count, unit = int(found[1]), found[2]
    seconds = _UNITS.get(unit) or seconds_of(option, unit)
    if not count or not seconds:
        raise InvalidInput(option, f"{text[:40]!r} allows nothing: pause the queue instead")
    return Rate(count, seconds)


def _whole(option: str, text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*", text):
        raise InvalidInput(option, f"{text[:40]!r} is neither a whole number nor none")
    return int(text)


def policy_view(policy: QueuePolicy) -> dict[str, object]:
    """Return a policy for output."""
    view: dict[str, object] = {
        field: getattr(policy, field)
        for field in QueuePolicy.__struct_fields__
        if field != "outage_until_us"
    }
    rate = policy.rate
    view["rate"] = None if rate is None else f"{rate.count}/{format_seconds(rate.per_seconds)}"
    return view


def limits_text(policy: QueuePolicy) -> str:
    """Return the limits of a policy as text."""
    view = policy_view(policy)
    parts = ["paused"] if policy.paused else []
    parts += [
        f"{field.replace('_', ' ')} {view[field]}"
        for field in ("max_in_flight", "max_per_key", "max_per_tenant", "rate")
        if view[field] is not None
    ]
    parts += ["fair"] if policy.fair else []
    parts += [] if policy.ordered else ["keys in any order"]
    if policy.keep_payload is not None:
        parts += ["keeps payloads" if policy.keep_payload else "drops payloads"]
    return ", ".join(parts) or "no limits"
