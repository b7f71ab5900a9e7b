"""``holdfast enqueue``, ``status`` and ``validate``."""

from __future__ import annotations

import sys
import time
from typing import IO, TYPE_CHECKING

import click

from holdfast.cli.exit_codes import EXIT_FAILED
from holdfast.cli.group import CommandContext
from holdfast.cli.options import json_option
from holdfast.cli.output import document, echo, first_names, note
from holdfast.model.durations import format_seconds, seconds_of

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.engines.contract import OnDuplicate, Receipt
    from holdfast.operations.views import Status
    from holdfast.settings import Settings


@click.command("enqueue")
@click.option("-f", "--file", "file", type=click.File("rb"), default="-", help="Or - for stdin.")
@click.option("--app", metavar="MODULE:APP", help="Use its store, and check its tasks.")
@click.option("--skip-duplicates", is_flag=True, help="Skip ids that exist; enqueue the rest.")
@click.option("--json", "as_json", is_flag=True, help="Print the ids as JSON.")
@click.pass_obj
def enqueue(
    context: CommandContext,
    file: IO[bytes],
    app: str | None,
    *,
    skip_duplicates: bool,
    as_json: bool,
) -> None:
    """Enqueue jobs from a file: a JSON array, one object, or an object per line.

    All of them or none. Works with and without a running daemon; without one, --app tells which
    tasks there are, and their queues, priorities, attempts and time limits.
    """
    import msgspec  # noqa: PLC0415

    from holdfast.cli import store_access  # noqa: PLC0415
    from holdfast.daemon.rpc import OPERATIONS  # noqa: PLC0415
    from holdfast.daemon.rpc.bodies import EnqueueBody  # noqa: PLC0415
    from holdfast.engines.contract import Receipt  # noqa: PLC0415
    from holdfast.operations.inputs import check_ids_differ, new_jobs, read_inputs  # noqa: PLC0415
    from holdfast.operations.operations import Operations, created  # noqa: PLC0415

    registry = context.registry(app)
    settings = context.settings()
    inputs = read_inputs(file.read())
    on_duplicate: OnDuplicate = "skip" if skip_duplicates else "refuse"
    body = msgspec.json.encode(EnqueueBody(inputs, on_duplicate))
    if not skip_duplicates:
        check_ids_differ(inputs)
    if registry is not None:
        from holdfast.worker.builtin_tasks import add_builtin  # noqa: PLC0415

        add_builtin(registry, settings.default_task)
        new_jobs(inputs, registry, settings.max_attempts)  # the daemon may have other tasks

    def ask_owner() -> list[list[Receipt]] | None:
        found = store_access.request_owner(
            settings, "POST", f"{OPERATIONS}enqueue", body, list[Receipt], or_server=True
        )
        return None if found is None else [found]

    def alone() -> list[Receipt]:
        new_jobs(inputs, registry, settings.max_attempts)  # before a store is created
        return store_access.with_store(
            settings,
            lambda operations: Operations(
                operations.engine, registry, default_max_attempts=settings.max_attempts
            ).enqueue(inputs, on_duplicate),
        )

    receipts = store_access.through_owner(ask_owner, alone)
    if as_json:
        document(receipts)
        return
    count = created(receipts)
    others = len(receipts) - count
    echo(
        f"{count} job{'' if count == 1 else 's'} enqueued"
        + (f", {others} skipped: they exist already" if others else "")
    )


@click.command("status")
@click.option("--watch", is_flag=True, help="Repeat.")
@click.option("--interval", default="1s", metavar="DURATION", help="How often, with --watch.")
@json_option
@click.pass_obj
def status(context: CommandContext, *, watch: bool, interval: str, as_json: bool) -> None:
    """Count the jobs: pending, in flight, completed, dead, and blocked.

    A blocked job waits for other jobs or for a person: see `holdfast jobs show`.
    """
    pause_seconds = max(0.1, seconds_of("interval", interval))
    settings = context.settings()
    if not watch:
        _print_status(read_status(settings), as_json=as_json)
        return
    try:
        if as_json or not sys.stdout.isatty():
            while True:
                _print_status(read_status(settings), as_json=as_json)
                sys.stdout.flush()
                time.sleep(pause_seconds)
        from rich.live import Live  # noqa: PLC0415 - only for a terminal

        with Live(_status_table(read_status(settings)), auto_refresh=False) as live:
            while True:
                time.sleep(pause_seconds)
                live.update(_status_table(read_status(settings)), refresh=True)
    except KeyboardInterrupt:
        return


@click.command("validate")
@json_option
@click.pass_obj
def validate(context: CommandContext, *, as_json: bool) -> None:
    """Check every invariant of the stored jobs; exit 1 if one does not hold.

    `journal verify` checks the files.
    """
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    problems = store_access.read_store(
        context.settings(), lambda operations: operations.engine.validate()
    )
    if as_json:
        document({"valid": not problems, "problems": problems})
    else:
        for problem in problems:
            echo(f"wrong: {problem}")
        if not problems:
            echo("every invariant holds")
    if problems:
        raise SystemExit(EXIT_FAILED)


def read_status(settings: Settings) -> Status:
    """Return the counts and who works: from the owner of a directory, or from the store."""
    from holdfast.cli import store_access  # noqa: PLC0415
    from holdfast.daemon.rpc import OPERATIONS  # noqa: PLC0415
    from holdfast.operations.views import Status  # noqa: PLC0415

    store_access.require_persistent(settings)
    if settings.directory is not None:  # of a server, no single daemon knows more than its tables
        found = store_access.request_owner(settings, "GET", f"{OPERATIONS}status", b"", Status)
        if found is not None:
            return found
    return store_access.read_store(settings, lambda operations: operations.status())


def _print_status(found: Status, *, as_json: bool) -> None:
    if as_json:
        document(found)
        return
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415 - only for a terminal

        Console().print(_status_table(found))
        return
    for name in ("pending", "in_flight", "completed", "dead", "blocked"):
        echo(f"{name + ':':<11}{getattr(found, name)}")
    for line in found.outages:
        echo(f"outage:    {line}")
    if found.unserved:
        note(f"no live worker serves {first_names(found.unserved)}: see `holdfast doctor`")


def _status_table(found: Status) -> Table:
    from rich.table import Table  # noqa: PLC0415 - only for a terminal

    table = Table(
        title=f"pending {found.pending} · in flight {found.in_flight} · "
        f"completed {found.completed} · dead {found.dead} · blocked {found.blocked}"
    )
    names = ("pending", "blocked", "in_flight", "completed", "cancelled", "dead", "archived")
    table.add_column("queue")
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for item in found.queues:
        table.add_row(item.queue, *(str(getattr(item.counts, name)) for name in names))
    for line in found.outages:
        table.add_row(f"  outage of {line}")
    for run in found.running[:20]:
        share = "" if run.progress_share is None else f" {run.progress_share:.0%}"
        table.add_row(f"  {run.task} {run.job_id} for {format_seconds(run.seconds)}{share}")
    return table
