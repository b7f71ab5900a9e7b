"""``holdfast projections``: list and show them, their rows and outbox, roll back, remove."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from holdfast.cli.event_options import app_option
from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.options import json_option, stream_options, who_options
from holdfast.cli.output import document, echo, lines, note
from holdfast.model.errors import InvalidInput
from holdfast.model.plural import count_of

if TYPE_CHECKING:
    from holdfast.operations.attribution import Author

_NAME = click.argument("name", metavar="NAME")


@click.group("projections", cls=CommandGroup)
def projections_group() -> None:
    """List and show projections, their rows and outbox, roll one back, remove one."""


@projections_group.command("list")
@app_option
@stream_options
@click.pass_obj
def list_projections(
    context: CommandContext, *, app: str | None, as_json: bool, ndjson: bool
) -> None:
    """List projections: which generation readers see, and how far behind it is.

    LAG is in events, without those behind a failed one of their key (HELD).
    """
    from holdfast.cli.projection_access import read_projections  # noqa: PLC0415 - an engine
    from holdfast.cli.projection_output import projections_table  # noqa: PLC0415

    found = read_projections(context, app, lambda projections: projections.listed())
    if as_json:
        document(found)
    elif ndjson:
        lines(found)
    elif found:
        projections_table(found)
    else:
        note("no projections")


@projections_group.command("show")
@_NAME
@app_option
@json_option
@click.pass_obj
def show_projection(context: CommandContext, name: str, *, app: str | None, as_json: bool) -> None:
    """Show one projection: its lag, its generations, and its rebuilds."""
    from holdfast.cli.projection_access import read_projections  # noqa: PLC0415
    from holdfast.cli.projection_output import print_projection  # noqa: PLC0415

    found = read_projections(context, app, lambda projections: projections.show(name))
    document(found) if as_json else print_projection(found, app)


@projections_group.command("rows")
@_NAME
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Only rows with this value there; may be repeated.",
)
@click.option("--search", default="", metavar="TEXT", help="Only rows with these words.")
@click.option("--order", metavar="[-]COLUMN", help="By this column (by the key).")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="How many (50).")
@app_option
@stream_options
@click.pass_obj
def show_rows(
    context: CommandContext,
    name: str,
    *,
    conditions: tuple[str, ...],
    search: str,
    order: str | None,
    limit: int,
    app: str | None,
    as_json: bool,
    ndjson: bool,
) -> None:
    """Show rows of a projection, as its readers see them now.

    On PostgreSQL the view with the name of its table has the same. In Python: app.rows(NAME).
    """
    from holdfast.cli.projection_access import read_projections  # noqa: PLC0415
    from holdfast.cli.projection_output import print_rows  # noqa: PLC0415

    if order is not None and not order.strip("-"):
        raise InvalidInput("--order", "give the name of a column")
    where: dict[str, str] = {}
    for one in conditions:
        column, equals, value = one.partition("=")
        if not equals or column in where:
            problem = f"{one[:60]!r} is not COLUMN=VALUE, each column once"
            raise InvalidInput("--where", problem)
        where[column] = value
    found = read_projections(
        context,
        app,
        lambda projections: projections.rows(
            name, where, search=search, order=order or "", limit=limit
        ),
    )
    if as_json:
        document(found.rows)
    elif ndjson:
        lines(found.rows)
    else:
        print_rows(name, found)


@projections_group.command("outbox")
@_NAME
@click.option(
    "--status",
    "statuses",
    multiple=True,
    metavar="STATUS",
    help="Only pending, processing, done or failed; may be repeated.",
)
@click.option("--count", is_flag=True, help="Count the rows by status instead.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, help="How many (50).")
@click.option("--cursor", default="", metavar="TEXT", help="Go on where a page ended.")
@app_option
@stream_options
@click.pass_obj
def show_outbox(
    context: CommandContext,
    name: str,
    *,
    statuses: tuple[str, ...],
    count: bool,
    limit: int,
    cursor: str,
    app: str | None,
    as_json: bool,
    ndjson: bool,
) -> None:
    """Show the outbox of a projection: what waits, runs, is done or has failed.

    On PostgreSQL the view NAME_outbox_events has the same columns. Rows that are done are there
    while finished jobs are kept.
    """
    from holdfast.cli.projection_access import read_projections  # noqa: PLC0415
    from holdfast.cli.projection_output import outbox_table  # noqa: PLC0415

    if count:
        counts = read_projections(context, app, lambda projections: projections.outbox_counts(name))
        if as_json or ndjson:
            document(counts)
        else:
            for status, number in counts.items():
                echo(f"{status + ':':<12}{number:,}")
        return
    page = read_projections(
        context,
        app,
        lambda projections: projections.outbox(name, statuses, cursor=cursor, limit=limit),
    )
    if as_json:
        document(page)
    elif ndjson:
        lines(page.rows)
    elif page.rows:
        outbox_table(page.rows)
    else:
        note("nothing in the outbox")
    if page.cursor and not as_json:
        note(f"more: --cursor {page.cursor}")


@projections_group.command("rollback")
@_NAME
@app_option
@who_options
@json_option
@click.pass_obj
def roll_back(
    context: CommandContext,
    name: str,
    *,
    app: str | None,
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Let readers see the generation before the live one again; it is kept for a day."""
    from holdfast.cli.projection_access import write_projections  # noqa: PLC0415

    asked = who()
    found = write_projections(context, app, lambda projections: projections.roll_back(name, asked))
    if as_json:
        document(found)
    else:
        echo(f"readers of {name} see generation {found.generation} again")


@projections_group.command("remove")
@_NAME
@click.option(
    "--pending",
    type=click.Choice(["cancel", "keep"]),
    help="What becomes of its jobs that wait: cancel them, or let workers apply them.",
)
@app_option
@who_options
@json_option
@click.pass_obj
def remove_projection(
    context: CommandContext,
    name: str,
    *,
    pending: str | None,
    app: str | None,
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Stop giving events to a projection; its table stays.

    A daemon that still declares it begins anew when it starts: take the declaration out first.
    """
    from holdfast.cli.projection_access import write_projections  # noqa: PLC0415

    asked = who()
    cancel = None if pending is None else pending == "cancel"
    found = write_projections(
        context,
        app,
        lambda projections: projections.remove(name, asked, cancel_pending=cancel),
    )
    if as_json:
        document(found)
        return
    jobs = f"{count_of(found.cancelled)} cancelled, {found.kept:,} kept"
    echo(f"{name} gets no more events ({count_of(len(found.subscriptions), 'queue')}, {jobs})")
