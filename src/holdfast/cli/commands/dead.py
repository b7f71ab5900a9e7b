"""``holdfast dead`` (or ``failed``) and ``holdfast replay``: dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.job_actions import OperationCommand, run_operation
from holdfast.cli.operation_options import Pace, pace_options
from holdfast.cli.options import (
    NO_LIMIT,
    check_job,
    check_some,
    confirm_options,
    filter_options,
    json_option,
    limit_option,
    login_name,
    only_in,
    stream_options,
    who_options,
    with_ids,
)
from holdfast.cli.output import document, echo
from holdfast.model.access import DEFAULT_TENANT
from holdfast.model.actions import ArchiveJobs, ReplayJobs, RestoreJobs
from holdfast.model.audit import check_text
from holdfast.model.job import State
from holdfast.model.plural import count_of
from holdfast.model.search import Filter, Order

from . import groups as group_commands
from .jobs import count_options, page_options, print_count, print_job, print_page

if TYPE_CHECKING:
    from holdfast.operations.attribution import Author

_ARCHIVED = click.option("--archived", is_flag=True, help="Archived ones instead.")


@click.group("dead", cls=CommandGroup)
def dead_group() -> None:
    """List, count, group, try, edit and archive dead letters: jobs that failed for good."""


dead_group.lazy_commands = {"edit": "fixes:edit_dead", "try": "fixes:try_dead"}


for _command in group_commands.COMMANDS:
    dead_group.add_command(_command)


@dead_group.command("list")
@filter_options()
@_ARCHIVED
@page_options(Order.CREATED)
@stream_options
@click.pass_obj
def list_dead(
    context: CommandContext,
    *,
    wanted: Filter,
    archived: bool,
    order: Order,
    limit: int,
    cursor: str,
    as_json: bool,
    ndjson: bool,
) -> None:
    """List dead letters by any filter, oldest first, as `holdfast replay --limit` takes them."""
    wanted = only_in(wanted, State.ARCHIVED if archived else State.DEAD)
    print_page(
        context, wanted, order=order, limit=limit, cursor=cursor, as_json=as_json, ndjson=ndjson
    )


@dead_group.command("count")
@filter_options()
@_ARCHIVED
@count_options
@click.pass_obj
def count_dead(
    context: CommandContext, *, wanted: Filter, archived: bool, cap: int, as_json: bool
) -> None:
    """Count dead letters by any filter."""
    wanted = only_in(wanted, State.ARCHIVED if archived else State.DEAD)
    print_count(context, wanted, cap=cap, as_json=as_json)


@dead_group.command("show")
@click.argument("job_id", metavar="ID")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True, help="The tenant of the job.")
@json_option
@click.pass_obj
def show_dead(context: CommandContext, job_id: str, tenant: str, *, as_json: bool) -> None:
    """Show one dead letter: every attempt, its error, and the notes about it."""
    print_job(context, job_id, tenant, as_json=as_json)


def note_on_job(
    context: CommandContext,
    job_id: str,
    text: str,
    *,
    tenant: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Add a note to the history of a job."""
    from holdfast.cli import store_access  # noqa: PLC0415

    tenant = DEFAULT_TENANT if tenant is None else tenant
    check_job(job_id, tenant)
    name = login_name(by)
    wanted = with_ids(Filter(tenant=tenant), (job_id,))
    done = store_access.write_store(
        context.settings(), lambda operations: operations.note(wanted, text, name)
    )
    if as_json:
        document(done)
    else:
        echo(f"noted on {count_of(done.done)}")


@dead_group.command("archive")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filter_options()
@click.option("--all", "everything", is_flag=True, help="Every dead letter.")
@limit_option
@pace_options()
@who_options
@confirm_options
@json_option
@click.pass_obj
def archive(
    context: CommandContext,
    ids: tuple[str, ...],
    *,
    wanted: Filter,
    everything: bool,
    limit: int,
    pace: Pace,
    who: Callable[[], Author],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Archive dead letters, by id or by filter.

    Jobs that depend on them are cancelled; other jobs of their key continue.
    """
    wanted = with_ids(wanted, ids)
    check_some(wanted, everything=everything)
    command = OperationCommand(
        ArchiveJobs(),
        wanted,
        who,
        limit=limit,
        pace=pace,
        dry_run=dry_run,
        as_json=as_json,
        ask=not wanted.ids,
        yes=yes,
    )
    run_operation(context, command)


@dead_group.command("restore")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filter_options()
@click.option("--all", "everything", is_flag=True, help="Every archived job.")
@limit_option
@pace_options()
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@who_options
@json_option
@click.pass_obj
def restore(
    context: CommandContext,
    ids: tuple[str, ...],
    *,
    wanted: Filter,
    everything: bool,
    limit: int,
    pace: Pace,
    dry_run: bool,
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Turn archived jobs back into dead letters, by id or by filter."""
    wanted = with_ids(wanted, ids)
    check_some(wanted, everything=everything)
    command = OperationCommand(
        RestoreJobs(), wanted, who, limit=limit, pace=pace, dry_run=dry_run, as_json=as_json
    )
    run_operation(context, command)


@click.command("replay")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filter_options()
@click.option(
    "--limit",
    type=click.IntRange(1, NO_LIMIT),
    default=1_000,
    show_default=True,
    help="How many at most, oldest first.",
)
@click.option(
    "--fixed",
    metavar="TEXT",
    default="",
    help="What you fixed; replays deterministic failures too.",
)
@pace_options(outcomes=True)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@who_options
@json_option
@click.pass_obj
def replay(
    context: CommandContext,
    ids: tuple[str, ...],
    *,
    wanted: Filter,
    limit: int,
    fixed: str,
    pace: Pace,
    dry_run: bool,
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Replay dead letters, oldest first, with a fresh budget of attempts.

    Without --fixed, deterministic failures stay dead; they are counted, and the exit code is 4. The
    command returns when the jobs are pending again. With --rate, --canary or --abort-above a daemon
    carries it out, and the command waits until it is known how the jobs ended; exit 1 if it was
    aborted. Either way each job is replayed once: see holdfast operations.
    """
    wanted = with_ids(wanted, ids)
    if fixed:
        check_text("--fixed", fixed)
    command = OperationCommand(
        ReplayJobs(fixed=fixed),
        wanted,
        who,
        limit=limit,
        pace=pace,
        dry_run=dry_run,
        as_json=as_json,
    )
    run_operation(context, command)
