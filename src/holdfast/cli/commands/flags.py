"""``holdfast flags``: feature flags, changed without a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import stream_options, who_options
from holdfast.cli.output import document, echo, lines, table

if TYPE_CHECKING:
    from holdfast.operations.attribution import Author

_STATES = {"on": True, "true": True, "off": False, "false": False, "unset": None, "none": None}


@click.group("flags", cls=CommandGroup)
def flags_group() -> None:
    """List and set flags."""


@flags_group.command("list")
@stream_options
@click.pass_obj
def list_flags(context: CommandContext, *, as_json: bool, ndjson: bool) -> None:
    """List the flags that are set, and those that Holdfast itself follows."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine
    from holdfast.operations.flag_views import flag_views  # noqa: PLC0415

    found = store_access.read_store(
        context.settings(), lambda operations: operations.engine.flags()
    )
    flags = flag_views(found)
    if as_json:
        document(flags)
    elif ndjson:
        lines(flags)
    else:
        table(
            ("FLAG", "STATE", "WHAT IT DOES"),
            [
                (
                    one.name,
                    f"{'on' if one.on else 'off'}{'' if one.is_set else ' (default)'}",
                    one.what,
                )
                for one in flags
            ],
        )


@flags_group.command("set")
@click.argument("name")
@click.argument("state", type=click.Choice(list(_STATES), case_sensitive=False))
@who_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def set_flag(
    context: CommandContext, name: str, state: str, *, who: Callable[[], Author], as_json: bool
) -> None:
    """Set a flag on or off, or remove it with unset.

    Holdfast follows auto_replay and outage_mode, for everything, and
    auto_replay/NAME and outage_mode/NAME, for one queue or dependency;
    auto_replay/REASON is for one error_reason.
    """
    from holdfast.cli import store_access  # noqa: PLC0415

    asked, on = who(), _STATES[state.lower()]
    store_access.write_store(
        context.settings(), lambda operations: operations.set_flag(name, asked, on=on)
    )
    if as_json:
        document({"name": name, "on": on})
    else:
        echo(f"{name} is {'unset' if on is None else 'on' if on else 'off'}")
