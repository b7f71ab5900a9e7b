"""``holdfast jobs``: list, show, explain, cancel, purge, confirm, reclaim, edit, retarget."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

import click

from holdfast.cli.group import CommandContext, CommandGroup
from holdfast.cli.job_actions import OperationCommand, run_operation
from holdfast.cli.operation_options import Pace, pace_options
from holdfast.cli.options import (
    check_job,
    check_some,
    confirm_options,
    filter_options,
    json_option,
    limit_option,
    moment_us,
    stream_options,
    who_options,
    with_ids,
)
from holdfast.cli.output import cut, document, echo, fields, jobs_table, lines, moment, note, table
from holdfast.model.access import DEFAULT_TENANT
from holdfast.model.actions import CancelJobs, PurgeJobs
from holdfast.model.errors import InvalidInput
from holdfast.model.plural import count_of
from holdfast.model.search import MAX_COUNT, MAX_PAGE, Filter, Order, check_order
from holdfast.model.visible_text import visible

if TYPE_CHECKING:
    from holdfast.operations.attribution import Author
    from holdfast.operations.operations import Operations
    from holdfast.operations.views import ExplanationView, HistoryView, JobView

_TENANT = click.option(
    "--tenant", default=DEFAULT_TENANT, show_default=True, help="The tenant of the job."
)


@click.group("jobs", cls=CommandGroup)
def jobs_group() -> None:
    """List, count, show, explain, cancel, purge, confirm, reclaim, edit and retarget jobs."""


jobs_group.lazy_commands = {"retarget": "fixes:retarget_jobs"}


def page_options(usual: Order) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options for a part of a list; the command gets its ``order``."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_order(
            *args: object, newest: bool | None, order: str | None, **options: object
        ) -> None:
            if newest is not None and order is not None:
                raise InvalidInput("--order", "give it, or --newest or --oldest, not both")
            by_creation = Order.NEWEST if newest else Order.CREATED
            chosen = by_creation if newest is not None else usual
            command(*args, order=chosen if order is None else _order(order), **options)

        return _with_page_options(with_order, usual)

    return add


def _order(text: str) -> Order:
    try:
        return check_order(text)
    except InvalidInput as error:
        raise InvalidInput("--order", error.problem) from None


def _with_page_options(command: Callable[..., None], usual: Order) -> Callable[..., None]:
    first = "newest" if usual is Order.NEWEST else "oldest"
    for option in (
        click.option(
            "--order",
            metavar="ORDER",
            help=f"Sort by {', '.join(Order)}; with a minus, the last or the most first. By "
            "finished only jobs that have finished are listed, by run_at only the others.",
        ),
        click.option(
            "--newest/--oldest",
            default=None,
            help=f"Sort by when they were created ({first} first).",
        ),
        click.option(
            "--limit",
            type=click.IntRange(1, 1_000_000),
            default=100,
            show_default=True,
            help="How many at most.",
        ),
        click.option("--cursor", default="", help="Continue where a list ended."),
    ):
        command = option(command)
    return command


def count_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a command that counts."""
    cap = click.option(
        "--cap",
        type=click.IntRange(1, MAX_COUNT),
        default=100_000,
        show_default=True,
        help="Count no further.",
    )
    return json_option(cap(command))


@jobs_group.command("list")
@filter_options(states=True)
@page_options(Order.NEWEST)
@stream_options
@click.pass_obj
def list_jobs(
    context: CommandContext,
    *,
    wanted: Filter,
    order: Order,
    limit: int,
    cursor: str,
    as_json: bool,
    ndjson: bool,
) -> None:
    """List jobs by any filter, newest first.

    WHEN is a date (UTC) or an age: --created-since 2h, --since 2027-01-31.
    """
    print_page(
        context, wanted, order=order, limit=limit, cursor=cursor, as_json=as_json, ndjson=ndjson
    )


def print_page(
    context: CommandContext,
    wanted: Filter,
    *,
    order: Order,
    limit: int,
    cursor: str,
    as_json: bool,
    ndjson: bool,
) -> None:
    """Print the jobs that a filter finds, and the cursor for more."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    jobs: list[JobView] = []
    take: Callable[[list[JobView]], None] = lines if ndjson and not as_json else jobs.extend

    async def read(operations: Operations) -> str:
        left, after = limit, cursor
        while True:
            page = await operations.page(
                wanted, cursor=after, limit=min(left, MAX_PAGE), order=order
            )
            take(page.jobs)
            left, after = left - len(page.jobs), page.cursor
            if not after or left <= 0:
                return after

    after = store_access.read_store(context.settings(), read)
    if as_json:
        document({"jobs": jobs, "cursor": after})
        return
    if jobs:
        jobs_table(jobs)
    elif not ndjson:
        note("no jobs")
    if after:
        note(f"there are more: add --cursor {after}")


@jobs_group.command("count")
@filter_options(states=True)
@count_options
@click.pass_obj
def count_jobs(context: CommandContext, *, wanted: Filter, cap: int, as_json: bool) -> None:
    """Count jobs by any filter."""
    print_count(context, wanted, cap=cap, as_json=as_json)


def print_count(context: CommandContext, wanted: Filter, *, cap: int, as_json: bool) -> None:
    """Print how many jobs a filter finds."""
    from holdfast.cli import store_access  # noqa: PLC0415

    found = store_access.read_store(
        context.settings(), lambda operations: operations.count(wanted, cap=cap)
    )
    if as_json:
        document(found)
        return
    echo(f"{'more than ' if found.capped else ''}{count_of(found.value)}")


@jobs_group.command("show")
@click.argument("job_id", metavar="ID")
@_TENANT
@json_option
@click.pass_obj
def show_job(context: CommandContext, job_id: str, tenant: str, *, as_json: bool) -> None:
    """Show one job: its state, lease, last error, history, and why it waits."""
    print_job(context, job_id, tenant, as_json=as_json)


def print_job(context: CommandContext, job_id: str, tenant: str, *, as_json: bool) -> None:
    """Print a job with its history."""
    import msgspec  # noqa: PLC0415

    from holdfast.cli import store_access  # noqa: PLC0415
    from holdfast.daemon.rpc import OPERATIONS  # noqa: PLC0415
    from holdfast.daemon.rpc.bodies import HistoryBody  # noqa: PLC0415
    from holdfast.operations.views import HistoryView  # noqa: PLC0415

    check_job(job_id, tenant)
    settings = context.settings()
    store_access.require_persistent(settings)
    body = msgspec.json.encode(HistoryBody(job_id, tenant))
    view = store_access.request_owner(
        settings, "POST", f"{OPERATIONS}history", body, HistoryView, or_server=True
    )
    if view is None:
        view = store_access.read_store(
            settings, lambda operations: operations.history(job_id, tenant)
        )
    if as_json:
        document(_flat(view))
        return
    _print_view(view.job)
    if view.explanation is not None:
        _print_explanation(view.explanation)
    _print_history(view)


def _flat(view: HistoryView) -> dict[str, object]:
    """Return the fields of the job, with its attempts and notes, and why it waits."""
    import msgspec  # noqa: PLC0415

    job = msgspec.json.decode(msgspec.json.encode(view.job), type=dict[str, msgspec.Raw])
    why = view.explanation
    waits = [] if why is None else [*why.blocking, *why.advisory]
    return {**job, "attempts": view.attempts, "notes": view.notes, "waits_for": waits}


@jobs_group.command("explain")
@click.argument("job_id", metavar="ID")
@_TENANT
@json_option
@click.pass_obj
def explain_one(context: CommandContext, job_id: str, tenant: str, *, as_json: bool) -> None:
    """Say why a job is not running, and which command would change that."""
    from holdfast.cli import store_access  # noqa: PLC0415

    check_job(job_id, tenant)
    view = store_access.read_store(
        context.settings(), lambda operations: operations.explain(job_id, tenant)
    )
    if as_json:
        document(view)
    else:
        _print_explanation(view)


def _print_explanation(view: ExplanationView) -> None:
    """Print the answer, and each reason with its command on a line of its own."""
    from holdfast.operations.explain import summary_of  # noqa: PLC0415

    echo(summary_of(view))
    for reason in (*view.blocking, *view.advisory):
        echo(visible(f"- {reason.text}"))
        if reason.command:
            echo(visible(f"    {reason.command}"))


def _print_view(view: JobView) -> None:
    import msgspec  # noqa: PLC0415

    times = {"created_at", "run_at", "claimed_at", "lease_until", "finished_at", "expires_at"}
    plain = msgspec.json.decode(msgspec.json.encode(view), type=dict[str, object])
    shown: list[tuple[str, object]] = []
    for name, value in plain.items():
        if name in times or name == "last_replayed_at":
            shown.append((name, moment(getattr(view, name))))
        elif name != "traceback":
            shown.append((name, visible(value) if isinstance(value, str) else value))
    fields(shown)
    if view.traceback:
        echo("traceback:")
        for line in view.traceback.rstrip().split("\n"):  # indented: it cannot look like a field
            echo(f"  {line}")


def _print_history(view: HistoryView) -> None:
    if view.attempts:
        echo("attempts:")
        table(
            ("#", "ENDED", "TOOK", "WORKER", "ENDING", "REASON", "ERROR"),
            [
                (
                    one.number,
                    moment(one.ended_at),
                    f"{one.duration_seconds:.3g}s",
                    one.worker,
                    one.ending,
                    one.error_reason,
                    cut(one.error, 40),
                )
                for one in view.attempts
            ],
            right=("#", "TOOK"),
        )
    if view.notes:
        echo("notes:")
        for one in view.notes:
            echo(f"  {moment(one.at)} {one.kind} by {one.by}: {one.text}")


@jobs_group.command("cancel")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filter_options(states=True)
@click.option("--all", "everything", is_flag=True, help="Every unfinished job.")
@limit_option
@pace_options()
@who_options
@confirm_options
@json_option
@click.pass_obj
def cancel_jobs(
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
    """Cancel unfinished jobs, by id or by filter; those in flight are asked to stop."""
    wanted = with_ids(wanted, ids)
    check_some(wanted, everything=everything)
    command = OperationCommand(
        CancelJobs(),
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


@jobs_group.command("purge")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filter_options(states=True)
@click.option("--all", "everything", is_flag=True, help="Every finished job.")
@limit_option
@pace_options()
@who_options
@confirm_options
@json_option
@click.pass_obj
def purge_jobs(
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
    """Delete finished jobs and their history, by id or by filter."""
    wanted = with_ids(wanted, ids)
    check_some(wanted, everything=everything)
    command = OperationCommand(
        PurgeJobs(),
        wanted,
        who,
        limit=limit,
        pace=pace,
        dry_run=dry_run,
        as_json=as_json,
        ask=True,
        yes=yes,
    )
    run_operation(context, command)


@jobs_group.command("confirm")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--tenant", default=None, metavar="NAME", help="In this tenant.")
@who_options
@json_option
@click.pass_obj
def confirm_jobs(
    context: CommandContext,
    ids: tuple[str, ...],
    *,
    tenant: str | None,
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Confirm jobs that wait for a person."""
    from holdfast.cli import store_access  # noqa: PLC0415

    wanted = with_ids(Filter(tenant=tenant), ids)
    asked = who()
    done = store_access.write_store(
        context.settings(), lambda operations: operations.confirm(wanted, asked)
    )
    if as_json:
        document(done)
    else:
        echo(f"{count_of(done.done)} confirmed")


@jobs_group.command("reclaim")
@click.argument("job_id", metavar="ID")
@_TENANT
@who_options
@json_option
@click.pass_obj
def reclaim_job(
    context: CommandContext, job_id: str, *, tenant: str, who: Callable[[], Author], as_json: bool
) -> None:
    """End the lease of a job in flight now: its worker loses it.

    The job runs again, and its losses go up by one; without attempts left it is dead.
    """
    from holdfast.cli import store_access  # noqa: PLC0415

    check_job(job_id, tenant)
    asked = who()
    view = store_access.write_store(
        context.settings(), lambda operations: operations.reclaim(job_id, tenant, asked)
    )
    if as_json:
        document(view)
    else:
        echo(f"{view.id} is {view.status}")


@jobs_group.command("edit")
@click.argument("job_id", metavar="ID")
@click.option("--payload", type=click.File("rb"), help="A file with the new payload; - is stdin.")
@click.option("--priority", type=int, help="Higher goes first.")
@click.option("--max-attempts", type=int, help="Total runs before it is dead.")
@click.option("--run-at", metavar="WHEN", help="Not before this date.")
@click.option("--version", type=int, help="Refuse if the job has another version.")
@_TENANT
@who_options
@json_option
@click.pass_obj
def edit_job(
    context: CommandContext,
    job_id: str,
    *,
    payload: IO[bytes] | None,
    priority: int | None,
    max_attempts: int | None,
    run_at: str | None,
    version: int | None,
    tenant: str,
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Change the payload, priority, attempts or time of a job that is not running."""
    from holdfast.cli import store_access  # noqa: PLC0415
    from holdfast.model.errors import InvalidInput  # noqa: PLC0415
    from holdfast.model.job import Edit, encode_payload  # noqa: PLC0415

    check_job(job_id, tenant)
    changes = Edit(
        payload=None if payload is None else encode_payload(payload.read()),
        priority=priority,
        max_attempts=max_attempts,
        run_at_us=None if run_at is None else moment_us("--run-at", run_at),
    )
    if changes == Edit():
        raise InvalidInput("changes", "give something to change, such as --payload FILE")
    asked = who()
    view = store_access.write_store(
        context.settings(),
        lambda operations: operations.edit(job_id, tenant, changes, asked, version),
    )
    if as_json:
        document(view)
    else:
        echo(f"{view.id} is at version {view.version}")
