"""``holdfast move``: copy a store to another one."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.group import CommandContext
from holdfast.cli.options import confirm, json_option
from holdfast.cli.output import document, echo, progress, table
from holdfast.model.errors import InvalidInput
from holdfast.model.plural import count_of

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.stores.move import MoveResult


@click.command("move")
@click.option("--from", "from_place", metavar="PLACE", required=True, help="The source store.")
@click.option("--to", "to_place", metavar="PLACE", required=True, help="An empty store.")
@click.option(
    "--anew", is_flag=True, help="Delete what an interrupted move or load left on a server."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def move_store(
    context: CommandContext, from_place: str, to_place: str, *, anew: bool, yes: bool, as_json: bool
) -> None:
    """Copy everything in a store to another one, and compare the two.

    A PLACE is a directory or postgresql://user@host/database, whose schema must exist (holdfast
    migrate). Stop all workers of the source first. If it is interrupted, run it again: a move to a
    server continues where it was. An old directory keeps everything, and is marked: it refuses to
    run, and says where everything went.
    """
    from holdfast.stores import move as move_module  # noqa: PLC0415 - imports engines

    source = _place(context, "--from", from_place)
    target = _place(context, "--to", to_place)
    move_module.check(source, target)
    confirm(f"Move everything in {source.store_shown} to {target.store_shown}?", yes=yes)
    moved = _move(source, target, anew=anew, quiet=as_json)
    if as_json:
        document(
            {
                "from": source.store_shown,
                "to": target.store_shown,
                "records": dict(moved.contents.counts),
                "sha256": moved.contents.sha256,
                "known_records": moved.known_records,
            }
        )
        return
    _show(moved, source, target)


def _place(context: CommandContext, option: str, text: str) -> Settings:
    from holdfast.cli.store_access import require_at_hand  # noqa: PLC0415

    usual = context.settings()
    if usual.directory is not None and Path(usual.directory).absolute() == Path(text).absolute():
        return usual  # its snapshots may be in another directory
    try:
        settings = context.settings(store=text)
        require_at_hand(settings)
    except InvalidInput as error:
        if error.field != "store":
            raise
        raise InvalidInput(option, error.problem) from None
    return settings


def _move(source: Settings, target: Settings, *, anew: bool, quiet: bool) -> MoveResult:
    import asyncio  # noqa: PLC0415

    from holdfast.stores.move import MoveProgress, move  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        begin = lambda steps: stack.enter_context(progress("move", steps, wanted=not quiet))
        return asyncio.run(move(source, target, MoveProgress(begin), anew=anew))


def _show(moved: MoveResult, source: Settings, target: Settings) -> None:
    kinds = sorted({*moved.contents.counts, *moved.read_back.counts})
    rows = [
        (kind, f"{moved.contents.counts[kind]:,}", f"{moved.read_back.counts[kind]:,}")
        for kind in kinds
    ]
    rows.append(("sha256", moved.contents.sha256[:16], moved.read_back.sha256[:16]))
    table(("RECORDS", "FROM", "TO"), rows, right=("FROM", "TO"))
    known = f", {moved.known_records:,} of them before" if moved.known_records else ""
    total = count_of(sum(moved.contents.counts.values()), "record")
    old = "is unchanged: do not use it any more"
    if source.directory is not None:
        old = "is marked as moved: it will not run any more"
    echo(
        f"{target.store_shown}: {total} moved{known}, read back and compared. "
        f"{source.store_shown} {old}"
    )
