"""``holdfast flags``: feature flags, changed without a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import stream_options, who_options
from holdfast.cli.output import clean, document, lines, note, table

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
    """List the flags that are set."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    found = store_access.read_store(
        context.settings(), lambda operations: operations.engine.flags()
    )
    flags = [{"name": name, "on": on} for name, on in sorted(found.items())]
    if as_json:
        document(flags)
    elif ndjson:
        lines(flags)
    elif not flags:
        note("no flags are set")
    else:
        table(
            ("FLAG", "STATE"), [(name, "on" if on else "off") for name, on in sorted(found.items())]
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
    """Set a flag on or off, or remove it with unset."""
    from holdfast.cli import store_access  # noqa: PLC0415

    asked, on = who(), _STATES[state.lower()]
    store_access.write_store(
        context.settings(), lambda operations: operations.set_flag(name, asked, on=on)
    )
    if as_json:
        document({"name": name, "on": on})
    else:
        click.echo(f"{clean(name)} is {'unset' if on is None else 'on' if on else 'off'}")
