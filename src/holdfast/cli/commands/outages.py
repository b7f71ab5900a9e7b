"""``holdfast outages``: dependencies that do not answer, and what waits for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import json_option, stream_options, who_options
from holdfast.cli.output import document, echo, lines, note

if TYPE_CHECKING:
    from holdfast.operations.attribution import Author
    from holdfast.operations.operations import Operations
    from holdfast.operations.outages import OutageView


@click.group("outages", cls=CommandGroup)
def outages_group() -> None:
    """List outages of dependencies, start and end them."""


@outages_group.command("list")
@click.option("--ended", is_flag=True, help="Also the last ones that have ended.")
@stream_options
@click.pass_obj
def list_outages(context: CommandContext, *, ended: bool, as_json: bool, ndjson: bool) -> None:
    """List the dependencies that are out or recovering, and how many jobs wait."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    found = store_access.read_store(
        context.settings(), lambda operations: operations.outages(ended=ended)
    )
    if as_json:
        document(found)
    elif ndjson:
        lines(found)
    elif not found:
        note("no outages")
    else:
        for outage in found:
            echo(outage.line)


@outages_group.command("start")
@click.argument("dependency")
@click.option("--new", is_flag=True, help="No queue needs it yet, and it is meant.")
@who_options
@json_option
@click.pass_obj
def start(
    context: CommandContext, dependency: str, *, new: bool, who: Callable[[], Author], as_json: bool
) -> None:
    """Hold the jobs of a dependency back: one at a time probes it until it works again.

    DEPENDENCY is what follows the @ in the names of its queues, or the name of a queue.
    """
    _set(context, dependency, who, on=True, new=new, as_json=as_json)


@outages_group.command("end")
@click.argument("dependency")
@who_options
@json_option
@click.pass_obj
def end(
    context: CommandContext, dependency: str, *, who: Callable[[], Author], as_json: bool
) -> None:
    """End an outage: all its jobs may run at once."""
    _set(context, dependency, who, on=False, as_json=as_json)


def _set(
    context: CommandContext,
    dependency: str,
    who: Callable[[], Author],
    *,
    on: bool,
    as_json: bool,
    new: bool = False,
) -> None:
    from holdfast.cli import store_access  # noqa: PLC0415

    asked = who()

    async def change(operations: Operations) -> OutageView:
        known = await operations.fleet.task_queues()
        return await operations.set_outage(dependency, asked, on=on, new=new, also_known=known)

    outage = store_access.write_store(context.settings(), change)
    if as_json:
        document(outage)
    else:
        echo(outage.line)
