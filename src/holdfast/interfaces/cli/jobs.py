"""``holdfast enqueue``, ``status`` and ``jobs``."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.engines.base import OnDuplicate, Receipt
from holdfast.interfaces.http.routes import OPERATIONS, EnqueueRequest, ShowRequest
from holdfast.model.durations import seconds_of, shown
from holdfast.model.errors import InvalidInput, JobNotFound
from holdfast.runtime.builtin import add_builtin
from holdfast.runtime.loading import load_definition
from holdfast.runtime.operations import (
    JobView,
    Operations,
    Status,
    created,
    new_jobs,
    read_inputs,
    status_of,
)
from holdfast.settings import Settings

from .owner import ask, through_owner, with_store

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.engines.journal.offline import Offline


def enqueue(settings: Settings, text: bytes, app: str | None, *, skip: bool, as_json: bool) -> None:
    """Enqueue what the text says and print how many."""
    inputs = read_inputs(text)
    on_duplicate: OnDuplicate = "skip" if skip else "refuse"
    body = msgspec.json.encode(EnqueueRequest(inputs, on_duplicate))
    definition = None
    if app is not None:
        definition = add_builtin(load_definition(app), settings.default_task)
        new_jobs(inputs, definition, settings.max_attempts)  # the owner may know other tasks

    def alone() -> list[Receipt]:
        return with_store(
            settings,
            lambda engine: Operations(
                engine, definition, default_max_attempts=settings.max_attempts
            ).enqueue(inputs, on_duplicate),
        )

    receipts = through_owner(
        lambda: ask(settings, "POST", f"{OPERATIONS}enqueue", body, list[Receipt]),
        alone,
    )
    if as_json:
        click.echo(msgspec.json.encode(receipts))
        return
    count = created(receipts)
    others = len(receipts) - count
    click.echo(
        f"{count} job{'' if count == 1 else 's'} enqueued"
        + (f", {others} left out: they exist already" if others else "")
    )


def status(settings: Settings, *, watch: bool, interval: str, as_json: bool) -> None:
    """Print the counts, once or again and again."""
    pause_seconds = max(0.1, seconds_of("interval", interval))
    if not watch:
        _print_status(_status(settings), as_json=as_json)
        return
    try:
        if as_json or not sys.stdout.isatty():
            while True:
                _print_status(_status(settings), as_json=as_json)
                sys.stdout.flush()
                time.sleep(pause_seconds)
        from rich.live import Live  # noqa: PLC0415 - only for a terminal

        with Live(_status_table(_status(settings)), auto_refresh=False) as live:
            while True:
                time.sleep(pause_seconds)
                live.update(_status_table(_status(settings)), refresh=True)
    except KeyboardInterrupt:
        return


def show(settings: Settings, job_id: str, tenant: str, *, as_json: bool) -> None:
    """Print one job."""
    body = msgspec.json.encode(ShowRequest(job_id, tenant))
    view = ask(settings, "POST", f"{OPERATIONS}show", body, JobView)
    if view is None:
        with _store(settings) as store:
            job = store.get(tenant, job_id)
        if job is None:
            raise JobNotFound(job_id)
        view = JobView.of(job)
    if as_json:
        click.echo(msgspec.json.encode(view))
        return
    for name, value in msgspec.json.decode(msgspec.json.encode(view), type=dict).items():
        if name != "traceback" and value not in ("", None):
            click.echo(f"{name + ':':<15}{_shown(value)}")
    if view.traceback:
        click.echo("traceback:")
        click.echo(view.traceback.rstrip())


def _status(settings: Settings) -> Status:
    found = ask(settings, "GET", f"{OPERATIONS}status", b"", Status)
    if found is not None:
        return found
    with _store(settings) as store:
        return status_of(store.counts())


@contextlib.contextmanager
def _store(settings: Settings) -> Iterator[Offline]:
    """Read the store without owning it: nothing is changed, not even mended."""
    from holdfast.engines.journal.disk import LocalDisk  # noqa: PLC0415 - only without an owner
    from holdfast.engines.journal.offline import look  # noqa: PLC0415

    if settings.directory is None:
        raise InvalidInput("store", f"{settings.store!r} ends with the process that has it")
    with look(LocalDisk(settings.directory, snapshots=settings.snapshot_directory)) as store:
        yield store


def _print_status(found: Status, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415 - only for a terminal

        Console().print(_status_table(found))
        return
    for name in ("pending", "in_flight", "completed", "dead"):
        click.echo(f"{name + ':':<11}{getattr(found, name)}")


def _status_table(found: Status) -> Table:
    from rich.table import Table  # noqa: PLC0415 - only for a terminal

    table = Table(
        title=f"pending {found.pending} · in flight {found.in_flight} · "
        f"completed {found.completed} · dead {found.dead}"
    )
    names = ("pending", "blocked", "in_flight", "completed", "cancelled", "dead", "archived")
    table.add_column("queue")
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for item in found.queues:
        table.add_row(item.queue, *(str(getattr(item.counts, name)) for name in names))
    for run in found.running[:20]:
        share = "" if run.progress_share is None else f" {run.progress_share:.0%}"
        table.add_row(f"  {run.task} {run.job_id} for {shown(run.seconds)}{share}")
    return table


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return str(value)
