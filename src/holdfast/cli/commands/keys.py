"""``holdfast keys``: who may call over the network, and what each may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import stream_options, who_options
from holdfast.cli.output import ago, document, echo, lines, note, table
from holdfast.model.durations import seconds_of
from holdfast.model.permissions import Role

if TYPE_CHECKING:
    from holdfast.operations.attribution import Author
    from holdfast.operations.keys import NewKey

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group("keys", cls=CommandGroup)
def keys_group() -> None:
    """Make, list, rotate and revoke keys for the HTTP API."""


@keys_group.command("create")
@click.argument("name")
@click.option(
    "--role",
    "roles",
    multiple=True,
    required=True,
    help=f"What it may do: {', '.join(Role)}; may be repeated.",
)
@click.option("--tenant", "tenants", multiple=True, help="A tenant that it reaches (all).")
@click.option("--scope", "scopes", multiple=True, help="A scope that it reaches (all).")
@click.option(
    "--rate",
    "requests_per_minute",
    type=click.IntRange(min=1, max=100_000_000),
    metavar="N",
    help="How many requests a minute it may send (as `holdfast serve` says).",
)
@click.option("--expires-in", metavar="DURATION", help="How long it counts (for ever).")
@who_options
@_JSON
@click.pass_obj
def create_key(
    context: CommandContext,
    name: str,
    roles: tuple[str, ...],
    tenants: tuple[str, ...],
    scopes: tuple[str, ...],
    requests_per_minute: int | None,
    expires_in: str | None,
    *,
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Make a key and print it: nobody can see it again."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine
    from holdfast.engines.clock import SystemClock  # noqa: PLC0415
    from holdfast.model.job import MICROSECONDS  # noqa: PLC0415
    from holdfast.operations.keys import KeyRequest  # noqa: PLC0415

    expires_at_us = 0
    if expires_in is not None:
        seconds = seconds_of("--expires-in", expires_in)
        expires_at_us = SystemClock().now_us() + int(seconds * MICROSECONDS)
    request = KeyRequest(
        name=name,
        roles=roles,
        tenants=tenants,
        scopes=scopes,
        expires_at_us=expires_at_us,
        requests_per_minute=requests_per_minute or 0,
    )
    asked = who()
    made = store_access.write_store(
        context.settings(), lambda operations: operations.keys.create(request, asked)
    )
    _show_new(made, as_json=as_json)


@keys_group.command("list")
@stream_options
@click.pass_obj
def list_keys(context: CommandContext, *, as_json: bool, ndjson: bool) -> None:
    """List the keys, by name."""
    from holdfast.cli import store_access  # noqa: PLC0415

    keys = store_access.read_store(context.settings(), lambda operations: operations.keys.all())
    if as_json:
        document(keys)
    elif ndjson:
        lines(keys)
    elif not keys:
        echo("no keys: `holdfast keys create NAME --role admin` makes the first one")
    else:
        names = ("NAME", "ID", "ROLES", "TENANTS", "SCOPES", "STATE", "EXPIRES", "LAST USED")
        table(
            names,
            [
                (
                    key.name,
                    key.id,
                    ", ".join(key.roles),
                    ", ".join(key.tenants) or "all",
                    ", ".join(key.scopes) or "all",
                    key.state,
                    ago(key.expires_at) or "never",
                    ago(key.last_used_at) or "never",
                )
                for key in keys
            ],
        )


@keys_group.command("rotate")
@click.argument("name")
@click.option(
    "--overlap",
    metavar="DURATION",
    default="24h",
    show_default=True,
    help="How long the old secret still counts.",
)
@who_options
@_JSON
@click.pass_obj
def rotate_key(
    context: CommandContext, name: str, overlap: str, *, who: Callable[[], Author], as_json: bool
) -> None:
    """Give a key a new secret and print it."""
    from holdfast.cli import store_access  # noqa: PLC0415

    seconds, asked = seconds_of("--overlap", overlap), who()
    made = store_access.write_store(
        context.settings(), lambda operations: operations.keys.rotate(name, asked, seconds)
    )
    _show_new(made, as_json=as_json)


@keys_group.command("revoke")
@click.argument("name")
@who_options
@_JSON
@click.pass_obj
def revoke_key(
    context: CommandContext, name: str, *, who: Callable[[], Author], as_json: bool
) -> None:
    """Remove a key: it counts no longer."""
    from holdfast.cli import store_access  # noqa: PLC0415

    asked = who()
    key = store_access.write_store(
        context.settings(), lambda operations: operations.keys.revoke(name, asked)
    )
    if as_json:
        document(key)
    else:
        echo(f"key {key.name} ({key.id}) is revoked")


def _show_new(made: NewKey, *, as_json: bool) -> None:
    if as_json:
        document(made)
        return
    note(f"key {made.key.name} ({made.key.id}), {', '.join(made.key.roles)}: keep it, it is")
    note("shown only now")
    echo(made.text)
