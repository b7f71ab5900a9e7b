"""``holdfast operations``: list, show, pause, resume and abort them, and change their rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.operation_output import operations_table, print_operation
from holdfast.cli.options import json_option, stream_options, who_options
from holdfast.cli.output import document, echo, lines, note
from holdfast.model.job import check_id
from holdfast.model.operation import OperationChange
from holdfast.model.policy import rate_of

if TYPE_CHECKING:
    from holdfast.operations.attribution import Author

_ID = click.argument("operation_id", metavar="ID")


@click.group("operations", cls=CommandGroup)
def operations_group() -> None:
    """List, show, pause, resume and abort operations on many jobs, such as a replay."""


@operations_group.command("list")
@click.option("--running", is_flag=True, help="Only those that have not ended.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=20,
    show_default=True,
    help="How many at most.",
)
@stream_options
@click.pass_obj
def list_operations(
    context: CommandContext, *, running: bool, limit: int, as_json: bool, ndjson: bool
) -> None:
    """List operations, newest first."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    found = store_access.read_store(
        context.settings(), lambda operations: operations.bulk.listed(running=running, limit=limit)
    )
    if as_json:
        document(found)
    elif ndjson:
        lines(found)
    elif found:
        operations_table(found)
    else:
        note("no operations")


@operations_group.command("show")
@_ID
@json_option
@click.pass_obj
def show_operation(context: CommandContext, operation_id: str, *, as_json: bool) -> None:
    """Show one operation: what was asked for, how far it is, and what came of it."""
    from holdfast.cli import store_access  # noqa: PLC0415

    check_id(operation_id, "operation")
    view = store_access.read_store(
        context.settings(), lambda operations: operations.bulk.report(operation_id)
    )
    if as_json:
        document(view)
    else:
        print_operation(view)


@operations_group.command("pause")
@_ID
@who_options
@json_option
@click.pass_obj
def pause_operation(
    context: CommandContext, operation_id: str, *, who: Callable[[], Author], as_json: bool
) -> None:
    """Stop acting on more jobs until it is resumed."""
    _change(context, operation_id, OperationChange(paused=True), who, as_json=as_json)


@operations_group.command("resume")
@_ID
@who_options
@json_option
@click.pass_obj
def resume_operation(
    context: CommandContext, operation_id: str, *, who: Callable[[], Author], as_json: bool
) -> None:
    """Go on with an operation that is paused, also after a canary that did not run."""
    _change(context, operation_id, OperationChange(paused=False), who, as_json=as_json)


@operations_group.command("rate")
@_ID
@click.argument("rate", metavar="N/UNIT|none")
@who_options
@json_option
@click.pass_obj
def change_rate(
    context: CommandContext,
    operation_id: str,
    rate: str,
    *,
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Change how many jobs an operation acts on per time, such as 100/m."""
    change = OperationChange(without_rate=True)
    if rate.strip().lower() != "none":
        change = OperationChange(rate=rate_of("rate", rate))
    _change(context, operation_id, change, who, as_json=as_json)


@operations_group.command("abort")
@_ID
@who_options
@json_option
@click.pass_obj
def abort_operation(
    context: CommandContext, operation_id: str, *, who: Callable[[], Author], as_json: bool
) -> None:
    """End an operation; what it has done stays done."""
    _change(context, operation_id, OperationChange(abort=True), who, as_json=as_json)


def _change(
    context: CommandContext,
    operation_id: str,
    change: OperationChange,
    who: Callable[[], Author],
    *,
    as_json: bool,
) -> None:
    from holdfast.cli import store_access  # noqa: PLC0415

    check_id(operation_id, "operation")
    asked = who()
    view = store_access.write_store(
        context.settings(),
        lambda operations: operations.bulk.change(operation_id, change, asked),
    )
    if as_json:
        document(view)
        return
    rate = "" if view.rate is None else f", at most {view.rate}"
    echo(f"operation {view.id} is {view.state}{rate}")
