"""``holdfast rebuild``: fill a projection again from the events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.event_options import app_option
from holdfast.cli.exit_codes import EXIT_FAILED
from holdfast.cli.group import CommandContext
from holdfast.cli.options import by_option, json_option, login_name
from holdfast.cli.output import document, echo, note
from holdfast.model.errors import InvalidInput
from holdfast.model.projection import RebuildMode, RebuildPhase

if TYPE_CHECKING:
    from holdfast.model.projection import Rebuild
    from holdfast.operations.attribution import Author
    from holdfast.operations.operations import Operations
    from holdfast.operations.projection_views import RebuildView
    from holdfast.operations.projections import ProjectionOperations


class _Request:
    """What the command was asked for; ``started`` is set when it is stored."""

    def __init__(self, name: str, who: Author, *, detach: bool, shows: bool) -> None:
        self.name = name
        self.who = who
        self.detach = detach
        self.shows = shows
        self.mode = RebuildMode.GENERATION
        self.resume = False
        self.cancel = False
        self.max_errors: int | None = None
        self.started: Rebuild | None = None


@click.command("rebuild")
@click.argument("name", metavar="NAME")
@click.option("--truncate", is_flag=True, help="Empty the table and fill it in place.")
@click.option(
    "--emit-outbox",
    is_flag=True,
    help="With --truncate: make every event a job again, for the workers to apply.",
)
@click.option(
    "--max-errors",
    type=click.IntRange(0, 1_000_000),
    metavar="N",
    help="Go on after so many events that fail; they become dead letters (0).",
)
@click.option("--resume", is_flag=True, help="Go on with one that failed or was interrupted.")
@click.option("--cancel", is_flag=True, help="End one; a generation beside the live one is gone.")
@click.option("--detach", is_flag=True, help="Return when it is stored: a daemon carries it out.")
@app_option
@by_option
@click.option("--reason", metavar="TEXT", help="Why; it is recorded with the rebuild.")
@json_option
@click.pass_obj
def rebuild(
    context: CommandContext,
    name: str,
    *,
    truncate: bool,
    emit_outbox: bool,
    max_errors: int | None,
    resume: bool,
    cancel: bool,
    detach: bool,
    app: str | None,
    by: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Fill a projection again from the events: beside the table that readers see, then swap.

    With --truncate it is filled in place, and readers see it grow. A rebuild is stored: if it is
    interrupted, --resume goes on with it. Exit 1 if it stopped at an event that fails.
    """
    from holdfast.model.audit import Attribution  # noqa: PLC0415
    from holdfast.operations.attribution import Author  # noqa: PLC0415

    if emit_outbox and not truncate:
        problem = "add --truncate: jobs of all events make sense for an empty table only"
        raise InvalidInput("--emit-outbox", problem)
    if resume + cancel + truncate > 1:
        raise InvalidInput("--resume", "give one of --truncate, --resume and --cancel")
    if cancel and max_errors is not None:
        raise InvalidInput("--max-errors", "it is not for --cancel")
    who = Author(login_name(by), f"holdfast rebuild {name}" if reason is None else reason)
    Attribution(who.by, who.why).check()
    request = _Request(name, who, detach=detach, shows=not as_json)
    request.resume, request.cancel, request.max_errors = resume, cancel, max_errors
    if truncate:
        request.mode = RebuildMode.EMIT if emit_outbox else RebuildMode.TRUNCATE
    view = _carry_out(context, app, request)
    if as_json:
        document(view)
    else:
        _print(request, view, app)
    wanted = RebuildPhase.CANCELLED if cancel else RebuildPhase.DONE
    if not detach and view.phase != wanted:
        raise SystemExit(EXIT_FAILED)


def _carry_out(context: CommandContext, app: str | None, request: _Request) -> RebuildView:
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine
    from holdfast.cli.projection_access import projection_operations  # noqa: PLC0415
    from holdfast.cli.projection_output import rebuild_progress  # noqa: PLC0415

    make = projection_operations(context, app)

    async def work(operations: Operations) -> RebuildView:
        projections = make(operations)
        found = await _begin(projections, request)
        request.started = found
        if request.detach:
            return await projections.rebuild_view(found)
        with rebuild_progress(wanted=request.shows) as show:
            owned = operations.engine.capabilities.name != "client"
            go_on = projections.drive if owned else projections.wait
            return await go_on(request.name, found.id, show)

    try:
        return store_access.write_store(context.settings(), work)
    except KeyboardInterrupt:
        if request.started is not None:
            again = f"holdfast rebuild {request.name} --resume"
            note(f"rebuild {request.started.id} is stored: a daemon goes on with it, or {again}")
        raise


async def _begin(projections: ProjectionOperations, request: _Request) -> Rebuild:
    if request.cancel:
        return await projections.cancel(request.name, request.who)
    if request.resume:
        return await projections.resume(request.name, request.who, max_errors=request.max_errors)
    return await projections.start(
        request.name, request.mode, request.who, max_errors=request.max_errors or 0
    )


def _print(request: _Request, view: RebuildView, app: str | None) -> None:
    from holdfast.cli.projection_output import print_rebuilt  # noqa: PLC0415

    if request.detach:
        echo(f"rebuild {view.id} of {request.name} is stored")
        note(f"a daemon carries it out: holdfast projections show {request.name}")
    else:
        print_rebuilt(request.name, view, app)
