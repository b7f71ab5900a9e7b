"""``holdfast top``: a live overview."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.group import CommandContext
from holdfast.cli.options import json_option
from holdfast.cli.output import ago, document, table
from holdfast.model.durations import format_seconds, seconds_of
from holdfast.model.fleet import RunningAttempt
from holdfast.model.job import State
from holdfast.model.search import Filter, Order

if TYPE_CHECKING:
    from rich.console import Group as Screen

    from holdfast.operations.operations import Operations
    from holdfast.operations.views import Status
    from holdfast.settings import Settings

MAX_PENDING = 50_000
"""With more pending jobs the age of the oldest is not shown: finding it costs too much."""
RATES = {
    "enqueued": "queue_jobs_created",
    "completed": "queue_jobs_completed",
    "retried": "queue_jobs_retried",
    "dead": "queue_jobs_dead",
}


class QueueRow(msgspec.Struct, frozen=True):
    """One queue."""

    queue: str
    pending: int
    blocked: int
    in_flight: int
    dead: int
    paused: bool
    oldest_pending_at: datetime | None


class ReasonRow(msgspec.Struct, frozen=True):
    """Dead jobs of one reason."""

    error_reason: str
    failure_class: str
    count: int
    last_at: datetime


class TopScreen(msgspec.Struct, frozen=True):
    """One sample."""

    at: float
    running_daemon: bool
    slots: int
    """Of all processes of the live daemons."""
    busy: int
    draining: bool
    totals: Mapping[str, float]
    queues: list[QueueRow]
    reasons: list[ReasonRow]
    running: list[RunningAttempt]
    rates_per_second: Mapping[str, float] = {}


@click.command("top")
@click.option("--interval", default="2s", metavar="DURATION", help="How often to refresh.")
@click.option("--once", is_flag=True, help="Print once and exit.")
@json_option
@click.pass_obj
def top(context: CommandContext, *, interval: str, once: bool, as_json: bool) -> None:
    """Show depth, rates, ages, slots and failure reasons, live on a terminal.

    Without a terminal it prints once, or with --json one object per refresh.
    """
    pause_seconds = max(0.2, seconds_of("--interval", interval))
    settings = context.settings()
    if once or (not as_json and not sys.stdout.isatty()):
        found = _sample(settings, None)
        if as_json:
            document(found)
        else:
            _print(found)
        return
    try:
        if as_json:
            _stream(settings, pause_seconds)
        else:
            _live(settings, pause_seconds)
    except KeyboardInterrupt:
        return


def _stream(settings: Settings, pause_seconds: float) -> None:
    found: TopScreen | None = None
    while True:
        found = _sample(settings, found)
        document(found)
        sys.stdout.flush()
        time.sleep(pause_seconds)


def _live(settings: Settings, pause_seconds: float) -> None:
    from rich.live import Live  # noqa: PLC0415 - only for a terminal

    found = _sample(settings, None)
    with Live(_screen(settings, found), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(pause_seconds)
            found = _sample(settings, found)
            live.update(_screen(settings, found), refresh=True)


def _sample(settings: Settings, before: TopScreen | None) -> TopScreen:
    """Take a sample; rates are since the one before."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    from .status import read_status  # noqa: PLC0415

    status = read_status(settings)
    at = time.monotonic()
    rows, reasons = store_access.read_store(settings, lambda operations: _rows(operations, status))
    found = TopScreen(
        at=at,
        running_daemon=bool(status.slots),
        slots=sum(one.slots for one in status.processes.values() if one is not None),
        busy=sum(one.busy for one in status.processes.values() if one is not None),
        draining=status.draining,
        totals=status.totals,
        queues=rows,
        reasons=reasons,
        running=status.running,
    )
    if before is None or at <= before.at:
        return found
    seconds = at - before.at
    rates = {
        name: max(0, status.totals.get(counter, 0) - before.totals.get(counter, 0)) / seconds
        for name, counter in RATES.items()
        if counter in status.totals
    }
    return msgspec.structs.replace(found, rates_per_second=rates)


async def _rows(operations: Operations, status: Status) -> tuple[list[QueueRow], list[ReasonRow]]:
    policies = await operations.policies()
    cheap = status.pending <= MAX_PENDING
    rows: list[QueueRow] = []
    for item in status.queues:
        oldest: datetime | None = None
        if item.counts.pending and cheap:
            wanted = Filter(queues=(item.queue,), states=(State.PENDING,))
            page = await operations.page(wanted, limit=1, order=Order.CREATED)
            oldest = page.jobs[0].created_at if page.jobs else None
        rows.append(
            QueueRow(
                item.queue,
                item.counts.pending,
                item.counts.blocked,
                item.counts.in_flight,
                item.counts.dead,
                item.queue in policies and policies[item.queue].paused,
                oldest,
            )
        )
    reasons: dict[tuple[str, str], ReasonRow] = {}
    for group in await operations.groups():
        key = group.error_reason, group.failure_class
        known = reasons.get(key)
        count, last = (0, group.last_at) if known is None else (known.count, known.last_at)
        reasons[key] = ReasonRow(*key, count + group.count, max(last, group.last_at))
    return rows, sorted(reasons.values(), key=lambda one: -one.count)[:10]


def _head(found: TopScreen) -> str:
    if not found.running_daemon:
        return "no daemon is running"
    drained = " (draining)" if found.draining else ""
    rates = "  ".join(f"{name} {rate:,.1f}/s" for name, rate in found.rates_per_second.items())
    return f"slots {found.busy}/{found.slots}{drained}  {rates}".rstrip()


_QUEUE_NAMES = ("QUEUE", "PENDING", "BLOCKED", "IN FLIGHT", "DEAD", "OLDEST", "")
_REASON_NAMES = ("REASON", "CLASS", "DEAD", "LAST")
_RUN_NAMES = ("RUNNING", "TASK", "FOR", "PROGRESS")


def _queue_rows(found: TopScreen) -> list[tuple[str, ...]]:
    return [
        (
            one.queue,
            f"{one.pending:,}",
            f"{one.blocked:,}",
            f"{one.in_flight:,}",
            f"{one.dead:,}",
            ago(one.oldest_pending_at),
            "paused" if one.paused else "",
        )
        for one in found.queues
    ]


def _reason_rows(found: TopScreen) -> list[tuple[str, ...]]:
    return [
        (one.error_reason, one.failure_class, f"{one.count:,}", ago(one.last_at))
        for one in found.reasons
    ]


def _run_rows(found: TopScreen) -> list[tuple[str, ...]]:
    return [
        (
            run.job_id,
            run.task,
            format_seconds(round(run.seconds, 1)),
            "" if run.progress_share is None else f"{run.progress_share:.0%}",
        )
        for run in found.running[:15]
    ]


def _print(found: TopScreen) -> None:
    click.echo(_head(found))
    right = ("PENDING", "BLOCKED", "IN FLIGHT", "DEAD", "FOR")
    for names, rows in (
        (_QUEUE_NAMES, _queue_rows(found)),
        (_REASON_NAMES, _reason_rows(found)),
        (_RUN_NAMES, _run_rows(found)),
    ):
        if rows:
            click.echo()
            table(names, rows, right=right)


def _screen(settings: Settings, found: TopScreen) -> Screen:
    from rich.console import Group as Screen  # noqa: PLC0415 - only for a terminal
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    parts: list[Table | Text] = [
        Text(f"holdfast {settings.store_shown}  {_head(found)}", style="bold")
    ]
    for names, rows in (
        (_QUEUE_NAMES, _queue_rows(found)),
        (_REASON_NAMES, _reason_rows(found)),
        (_RUN_NAMES, _run_rows(found)),
    ):
        if rows:
            made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
            for name in names:
                numbers = name in ("PENDING", "BLOCKED", "IN FLIGHT", "DEAD", "FOR")
                made.add_column(name, justify="right" if numbers else "left")
            for row in rows:
                made.add_row(*(Text(cell) for cell in row))
            parts += [Text(""), made]
    return Screen(*parts)
