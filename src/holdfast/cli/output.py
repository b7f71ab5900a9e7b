"""Printing results: tables for people, one JSON document, or one JSON object per line."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from holdfast.model.durations import format_seconds
from holdfast.model.visible_text import visible, visible_json, visible_lines

if TYPE_CHECKING:
    from holdfast.operations.views import JobView

_MAX_WIDTH = 60
_MAX_NAMES = 20
_CLEAR = "\r\x1b[K"
"""Begins the line again, and empties it."""
_AS_SPACES = str.maketrans("\t\r\n", "   ")
_COLOURS = {"dead": "red", "wrong": "red", "warning": "yellow", "in_flight": "cyan", "ok": "green"}


class StyledText(NamedTuple):
    """A part of a line that has a colour or is bold."""

    text: str
    colour: str | None = None
    bold: bool | None = None


def echo(*parts: str | StyledText, err: bool = False) -> None:
    """Print one line. Whoever wrote a part of it, nothing in it can control the terminal."""
    shown = [
        visible(one)
        if isinstance(one, str)
        else click.style(visible(one.text), fg=one.colour, bold=one.bold)
        for one in parts
    ]
    click.echo("".join(shown), err=err)


def echo_lines(text: str, *, err: bool = False) -> None:
    """Print a text of several lines in the same way."""
    click.echo(visible_lines(text), err=err, nl=not text.endswith("\n"))


def first_names(names: Sequence[str]) -> str:
    """Return the first of these names, and how many more there are."""
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def rewrite_line(text: str) -> None:
    """Print a line to standard error in the place of the last one, which had no end."""
    click.echo(_CLEAR + visible(text), nl=False, err=True)


def document(value: object, *, err: bool = False) -> None:
    """Print one JSON document."""
    click.echo(visible_json(msgspec.json.encode(value)), err=err)


def lines(values: Sequence[object]) -> None:
    """Print one JSON object per line."""
    for value in values:
        document(value)


def note(text: str) -> None:
    """Print a remark to standard error."""
    echo(text, err=True)


def cut(text: str, width_limit: int = _MAX_WIDTH) -> str:
    """Return the text on one line, shortened; a line break becomes a space."""
    text = visible(" ".join(part for part in text.translate(_AS_SPACES).split(" ") if part))
    if len(text) <= width_limit // 2 or _width(text) <= width_limit:
        return text
    width, end = 0, 0
    while (width := width + _width(text[end])) < width_limit:
        end += 1
    return text[:end] + "…"


def ago(moment: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago a time was, or how far in the future it is."""
    if moment is None:
        return ""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    text = format_seconds(float(_rough(abs(seconds))))
    return f"in {text}" if seconds < 0 else f"{text} ago"


def moment(value: datetime | None) -> str:
    """Return a time in UTC, and how long ago it was."""
    if value is None:
        return ""
    return f"{value.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z ({ago(value)})"


def _rough(seconds: float) -> int:
    """Return a duration rounded for people."""
    whole = int(seconds)
    unit = 3_600 if whole >= 86_400 else 60 if whole >= 3_600 else 1
    return whole - whole % unit


def table(
    names: Sequence[str], rows: Sequence[Sequence[object]], *, right: Collection[str] = ()
) -> None:
    """Print a table; columns in ``right`` are right-aligned."""
    texts = [[cut("" if cell is None else str(cell)) for cell in row] for row in rows]
    widths = [max(_width(cell) for cell in column) for column in zip(names, *texts, strict=True)]
    for number, row in enumerate([list(names), *texts]):
        cells = [
            cell.rjust(width) if name in right else cell + " " * (width - _width(cell))
            for name, cell, width in zip(names, row, widths, strict=True)
        ]
        if number:
            _echo_row(cells)
        else:
            echo(StyledText("  ".join(cells).rstrip(), bold=True))


def _echo_row(cells: list[str]) -> None:
    while cells and not cells[-1].strip():
        cells.pop()
    parts: list[str | StyledText] = []
    for number, cell in enumerate(cells, 1):
        text = cell.rstrip() if number == len(cells) else f"{cell}  "
        colour = _COLOURS.get(cell.strip())
        parts.append(text if colour is None else StyledText(text, colour))
    echo(*parts)


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def fields(pairs: Sequence[tuple[str, object]], width: int = 15) -> None:
    """Print one field per line, without empty ones; a tuple is the lines of one field."""
    for name, value in pairs:
        if value in ("", None, ()):
            continue
        first, *more = value if isinstance(value, tuple) else (value,)
        text = first if isinstance(first, str) else msgspec.json.encode(first).decode()
        echo(f"{name + ': ':<{width}}{text}")
        for line in more:
            echo(f"{' ' * width}{line}")


def jobs_table(jobs: Sequence[JobView]) -> None:
    """Print jobs, one per line."""
    now = datetime.now(UTC)
    table(
        (
            "ID",
            "STATUS",
            "QUEUE",
            "TASK",
            "ATTEMPT",
            "CREATED",
            "FINISHED",
            "REASON",
            "HTTP",
            "LAST ERROR",
        ),
        [
            (
                job.id,
                job.status,
                job.queue,
                job.task,
                f"{job.attempt}/{job.max_attempts}{_in_all(job)}",
                ago(job.created_at, now),
                ago(job.finished_at, now),
                job.error_reason,
                job.http_status,
                cut(job.last_error, 40),
            )
            for job in jobs
        ],
        right=("ATTEMPT",),
    )


def _in_all(job: JobView) -> str:
    return f" ({job.total_attempts} in all)" if job.total_attempts else ""


@contextmanager
def progress(
    label: str, total: int | None, *, wanted: bool = True
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yield a function that takes the number done."""
    if not wanted or not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console  # noqa: PLC0415 - only for a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415
    from rich.progress import TimeRemainingColumn as TimeLeft  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeLeft(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, rate="")

        def show(done: int) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, rate="" if speed is None else f"{speed:,.0f}/s")

        yield show
