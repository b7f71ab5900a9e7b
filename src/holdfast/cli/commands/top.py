"""``holdfast top``: a live overview."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from time import time_ns
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli.group import CommandContext
from holdfast.cli.options import json_option
from holdfast.cli.output import document
from holdfast.cli.top_screen import live_screen, print_screen
from holdfast.model.durations import seconds_of
from holdfast.model.fleet import RunningAttempt
from holdfast.model.job import MICROSECONDS, State
from holdfast.model.search import Filter, Order

if TYPE_CHECKING:
    from holdfast.operations.operations import Operations
    from holdfast.operations.views import QueueRates, QueueStatus, Status
    from holdfast.settings import Settings

MAX_PENDING = 50_000
"""With more pending jobs the age of the oldest is not shown: finding it costs too much."""
RATES = {
    "enqueued": "queue_jobs_created",
    "completed": "queue_jobs_completed",
    "retried": "queue_jobs_retried",
    "dead": "queue_jobs_dead",
}
TREND_MINUTES = 30
MAX_QUEUES = 200
"""With more queues than this, those with the most unfinished and dead jobs are shown."""


class QueueRow(msgspec.Struct, frozen=True):
    """One queue."""

    queue: str
    pending: int
    blocked: int
    in_flight: int
    dead: int
    paused: bool
    oldest_pending_at: datetime | None
    held: int | None = None
    oldest_age_seconds: float | None = None
    rates: QueueRates | None = None
    trend: list[int] = []
    """Unfinished jobs in each of the last 30 minutes, the oldest first; empty without samples."""


class WorkerRow(msgspec.Struct, frozen=True):
    """A live daemon."""

    worker: str
    host: str
    slots: int
    busy: int
    draining: bool
    queues: tuple[str, ...] | None
    """The queues that it serves; None: all."""


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
    """Of all queues: by their samples, and without any since the last refresh."""
    workers: list[WorkerRow] = []
    unserved: list[str] = []
    """The queues with pending jobs that no live daemon serves."""
    more_queues: int = 0
    """How many queues there are besides these."""


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
            print_screen(found)
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
    with Live(live_screen(settings, found), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(pause_seconds)
            found = _sample(settings, found)
            live.update(live_screen(settings, found), refresh=True)


def _sample(settings: Settings, before: TopScreen | None) -> TopScreen:
    """Take a sample; rates are since the one before."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    from .status import read_status  # noqa: PLC0415

    status = read_status(settings)
    at = time.monotonic()
    rows, reasons, workers = store_access.read_store(
        settings, lambda operations: _rows(operations, status)
    )
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
        rates_per_second=_sampled_rates(rows),
        workers=workers,
        unserved=status.unserved,
        more_queues=len(status.queues) - len(rows),
    )
    if found.rates_per_second or before is None or at <= before.at:
        return found
    seconds = at - before.at
    rates = {
        name: max(0, status.totals.get(counter, 0) - before.totals.get(counter, 0)) / seconds
        for name, counter in RATES.items()
        if counter in status.totals
    }
    return msgspec.structs.replace(found, rates_per_second=rates)


def _sampled_rates(rows: Sequence[QueueRow]) -> dict[str, float]:
    rates = [one.rates for one in rows if one.rates is not None]
    if not rates:
        return {}
    return {name: sum(getattr(one, f"{name}_per_second") for one in rates) for name in RATES}


async def _rows(
    operations: Operations, status: Status
) -> tuple[list[QueueRow], list[ReasonRow], list[WorkerRow]]:
    from holdfast.operations.samples import trend_of  # noqa: PLC0415 - imports an engine

    now_us = time_ns() // 1_000
    series = await operations.engine.samples(
        from_us=now_us - TREND_MINUTES * 60 * MICROSECONDS, to_us=now_us + 1, step_seconds=60
    )
    policies = await operations.policies()
    cheap = status.pending <= MAX_PENDING
    rows: list[QueueRow] = []
    for item in _busiest(status.queues):
        oldest: datetime | None = None
        if item.counts.pending and cheap:
            wanted = Filter(queues=(item.queue,), states=(State.PENDING,))
            page = await operations.page(wanted, limit=1, order=Order.CREATED)
            oldest = page.jobs[0].created_at if page.jobs else None
        trend = trend_of(series, item.queue, TREND_MINUTES, now_us) if item.rates else []
        rows.append(
            QueueRow(
                item.queue,
                item.counts.pending,
                item.counts.blocked,
                item.counts.in_flight,
                item.counts.dead,
                item.queue in policies and policies[item.queue].paused,
                oldest,
                item.held,
                item.oldest_age_seconds,
                item.rates,
                trend,
            )
        )
    return rows, await _reasons(operations), await _workers(operations)


def _busiest(queues: Sequence[QueueStatus]) -> Sequence[QueueStatus]:
    """Return the queues to show, in the order of their names."""
    if len(queues) <= MAX_QUEUES:
        return queues

    def work(item: QueueStatus) -> int:
        counts = item.counts
        return counts.pending + counts.blocked + counts.in_flight + counts.dead

    return sorted(nlargest(MAX_QUEUES, queues, key=work), key=lambda item: item.queue)


async def _reasons(operations: Operations) -> list[ReasonRow]:
    reasons: dict[tuple[str, str], ReasonRow] = {}
    for group in await operations.groups.list():
        if not group.count:
            continue
        key = group.error_reason, group.failure_class
        known = reasons.get(key)
        count, last = (0, group.last_at) if known is None else (known.count, known.last_at)
        reasons[key] = ReasonRow(*key, count + group.count, max(last, group.last_at))
    return sorted(reasons.values(), key=lambda one: -one.count)[:10]


async def _workers(operations: Operations) -> list[WorkerRow]:
    found: list[WorkerRow] = []
    for entry in await operations.fleet.live():
        process = entry.process
        known = [one for one in process.processes.values() if one is not None]
        found.append(
            WorkerRow(
                worker=process.name,
                host=process.host,
                slots=sum(one.slots for one in known),
                busy=sum(one.busy for one in known),
                draining=process.draining,
                queues=process.queues,
            )
        )
    return found
