"""The picture of ``holdfast top``: what stands where, on a wide and on a narrow terminal."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.model.visible_text import visible

from .output import ago, echo, first_names, table
from .sparkline import short_age, short_number, sparkline

if TYPE_CHECKING:
    from rich.console import Group as Screen
    from rich.table import Table
    from rich.text import Text

    from holdfast.settings import Settings

    from .commands.top import QueueRow, TopScreen

WIDE = 112
"""From this width on there is room for every column."""
_MAX_RUNNING = 15
_MAX_NAME = 24


class Column(NamedTuple):
    """One column of the table of queues."""

    name: str
    cell: Callable[[QueueRow], str]
    right: bool = True
    narrow: bool = True
    """Whether it is shown on a narrow terminal too."""


class Part(NamedTuple):
    """A table: its names, which of them are right-aligned, and its rows."""

    names: tuple[str, ...]
    right: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def head(found: TopScreen) -> str:
    """Return the line at the top: slots, and rates of all queues."""
    if not found.running_daemon:
        return "no daemon is running"
    drained = " (draining)" if found.draining else ""
    rates = "  ".join(
        f"{_SHORT[name]} {short_number(rate)}/s" for name, rate in found.rates_per_second.items()
    )
    return f"slots {found.busy}/{found.slots}{drained}  {rates}".rstrip()


_SHORT = {"enqueued": "in", "completed": "done", "retried": "retry", "dead": "dead"}


def notices(found: TopScreen) -> list[str]:
    """Return what a person should know first, a line each; empty if nothing is unusual."""
    paused = [one.queue for one in found.queues if one.paused]
    lines = [f"paused: {first_names(paused)}"] if paused else []
    if found.unserved:
        lines.append(f"no live worker serves {first_names(found.unserved)}")
    if found.more_queues:
        lines.append(f"the busiest queues; {found.more_queues:,} more: `holdfast queues list`")
    return lines


def queue_part(found: TopScreen, *, wide: bool, trend_width: int) -> Part:
    """Return the queues."""
    columns = [column for column in _COLUMNS if wide or column.narrow]
    if any(one.trend for one in found.queues) and trend_width:
        drawn = lambda one: sparkline(one.trend, trend_width)
        columns.append(Column("LAST 30 MIN", drawn, right=False))
    return Part(
        tuple(column.name for column in columns),
        tuple(column.name for column in columns if column.right),
        [tuple(column.cell(one) for column in columns) for one in found.queues],
    )


def _rate(field: str) -> Callable[[QueueRow], str]:
    def cell(one: QueueRow) -> str:
        return "" if one.rates is None else short_number(getattr(one.rates, f"{field}_per_second"))

    return cell


def _oldest(one: QueueRow) -> str:
    if one.oldest_age_seconds is None:
        return ago(one.oldest_pending_at).removesuffix(" ago")
    return short_age(one.oldest_age_seconds) if one.pending else ""


def _name(one: QueueRow) -> str:
    name = one.queue if len(one.queue) <= _MAX_NAME else one.queue[: _MAX_NAME - 1] + "…"
    return f"{name} ‖" if one.paused else name


_COLUMNS = (
    Column("QUEUE", _name, right=False),
    Column("PENDING", lambda one: short_number(one.pending)),
    Column("BLOCKED", lambda one: short_number(one.blocked), narrow=False),
    Column("HELD", lambda one: "" if one.held is None else short_number(one.held), narrow=False),
    Column("RUNNING", lambda one: short_number(one.in_flight)),
    Column("DEAD", lambda one: short_number(one.dead)),
    Column("OLDEST", _oldest),
    Column("IN/S", _rate("enqueued")),
    Column("DONE/S", _rate("completed")),
    Column("RETRY/S", _rate("retried"), narrow=False),
    Column("DEAD/S", _rate("dead"), narrow=False),
)


def worker_part(found: TopScreen) -> Part:
    """Return the live daemons."""
    rows = [
        (
            one.worker,
            one.host,
            f"{one.busy}/{one.slots}",
            "draining" if one.draining else "claims",
            "all" if one.queues is None else first_names(one.queues),
        )
        for one in found.workers
    ]
    return Part(("WORKER", "HOST", "BUSY", "STATE", "SERVES"), ("BUSY",), rows)


def reason_part(found: TopScreen) -> Part:
    """Return why jobs are dead."""
    rows = [
        (one.error_reason, one.failure_class, f"{one.count:,}", ago(one.last_at))
        for one in found.reasons
    ]
    return Part(("REASON", "CLASS", "DEAD", "LAST"), ("DEAD",), rows)


def running_part(found: TopScreen) -> Part:
    """Return the attempts that run."""
    rows = [
        (
            run.job_id,
            run.task,
            short_age(run.seconds),
            "" if run.progress_share is None else f"{run.progress_share:.0%}",
        )
        for run in found.running[:_MAX_RUNNING]
    ]
    return Part(("RUNS", "TASK", "FOR", "PROGRESS"), ("FOR",), rows)


def _parts(found: TopScreen, width: int) -> list[Part]:
    wide = width >= WIDE
    queues = queue_part(found, wide=wide, trend_width=0)
    free = width - _width(queues) - 2
    if free >= _LEAST_TREND:
        queues = queue_part(found, wide=wide, trend_width=min(_MOST_TREND, free))
    return [queues, worker_part(found), reason_part(found), running_part(found)]


_LEAST_TREND = len("LAST 30 MIN")
_MOST_TREND = 30


def _width(part: Part) -> int:
    columns = zip(part.names, *part.rows, strict=True)
    return sum(2 + max(map(len, column)) for column in columns) - 2


def print_screen(found: TopScreen) -> None:
    """Print it once, with every column."""
    echo(head(found))
    for line in notices(found):
        echo(line)
    for part in _parts(found, WIDE + _MOST_TREND):
        if part.rows:
            echo()
            table(part.names, part.rows, right=part.right)


def live_screen(settings: Settings, found: TopScreen, width: int | None = None) -> Screen:
    """Return it for a terminal of this width."""
    from rich.console import Group as Screen  # noqa: PLC0415 - only for a terminal
    from rich.text import Text  # noqa: PLC0415

    columns = shutil.get_terminal_size().columns if width is None else width
    parts: list[Table | Text] = [
        Text(visible(f"holdfast {settings.store_shown}  {head(found)}"), style="bold")
    ]
    parts += [Text(visible(line), style="yellow") for line in notices(found)]
    for part in _parts(found, columns):
        if part.rows:
            parts += [Text(""), _drawn(part)]
    return Screen(*parts)


def _drawn(part: Part) -> Table:
    from rich.table import Table  # noqa: PLC0415 - only for a terminal

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in part.names:
        made.add_column(name, justify="right" if name in part.right else "left", no_wrap=True)
    for row in part.rows:
        made.add_row(*_cells(part.names, row))
    return made


def _cells(names: Sequence[str], row: Sequence[str]) -> list[Text]:
    from rich.text import Text  # noqa: PLC0415 - only for a terminal

    styles = {"DEAD": "red", "LAST 30 MIN": "cyan"}
    return [
        Text(visible(cell), style=styles.get(name, "") if cell != "0" else "dim")
        for name, cell in zip(names, row, strict=True)
    ]
