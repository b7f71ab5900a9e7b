"""Printing projections and rebuilds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.durations import format_seconds
from holdfast.model.plural import count_of
from holdfast.model.projection import Rebuild, RebuildMode, RebuildPhase
from holdfast.model.visible_text import visible

from .output import ago, echo, fields, moment, note, rewrite_line, table

if TYPE_CHECKING:
    from holdfast.operations.projection_views import (
        OutboxRow,
        ProjectionView,
        RebuildView,
        RowsView,
    )

_STALL_SECONDS = 5.0


def projections_table(views: Sequence[ProjectionView]) -> None:
    """Print projections, one per line."""
    table(
        ("NAME", "STATE", "GEN", "VERSION", "LAG", "BEHIND", "SLO", "HELD", "FAILED", "REBUILT"),
        [
            (
                view.name,
                view.state,
                view.generation,
                _version(view),
                f"{view.lag_events:,}",
                _short(view.lag_seconds) if view.lag_events else "",
                _slo(view),
                f"{view.held:,}",
                f"{view.failed:,}",
                _rebuilt(view),
            )
            for view in views
        ],
        right=("GEN", "LAG", "BEHIND", "HELD", "FAILED"),
    )


def _version(view: ProjectionView) -> str:
    return f"{view.version} → {view.declared_version}" if view.outdated else str(view.version)


def _slo(view: ProjectionView) -> str:
    if view.lag_slo_seconds is None:
        return ""
    return f"{_short(view.lag_slo_seconds)} {'met' if view.slo_met else 'MISSED'}"


def _rebuilt(view: ProjectionView) -> str:
    if view.rebuild is not None:
        return f"{view.rebuild.phase} {_share(view.rebuild)}"
    return "" if view.last_rebuild is None else ago(view.last_rebuild.ended_at)


def _share(view: RebuildView) -> str:
    return f"{view.done:,}/{view.total:,}"


def _short(seconds: float) -> str:
    return format_seconds(float(round(seconds, 1) if seconds < 10 else round(seconds)))


def print_projection(view: ProjectionView, app: str | None = None) -> None:
    """Print one projection, and what to do about it."""
    held = f"{view.held:,} behind {count_of(view.held_keys, 'key')} that failed"
    behind = f", the oldest has waited {_short(view.lag_seconds)}" if view.lag_events else ""
    until = f"generation {view.previous_generation} until {moment(view.previous_until)}"
    fields(
        [
            ("projection", view.name),
            ("state", view.state),
            ("generation", f"{view.generation} (version {_version(view)})"),
            ("table", view.table),
            ("events", ", ".join(view.event_types) or "all"),
            ("lag", f"{count_of(view.lag_events, 'event')}{behind}"),
            ("lag_slo", _slo(view)),
            ("held", held if view.held else ""),
            (
                "failed",
                f"{view.failed:,}: holdfast dead list --queue {view.queue}" if view.failed else "",
            ),
            ("roll_back_to", until if view.previous_generation else ""),
        ]
    )
    for name, rebuild in (("rebuild", view.rebuild), ("last rebuild", view.last_rebuild)):
        if rebuild is not None:
            echo(f"{name}:")
            print_rebuild(rebuild)
    for advice in _advice(view, "" if app is None else f" --app {app}"):
        note(advice)


def _advice(view: ProjectionView, more: str) -> list[str]:
    found: list[str] = []
    name = view.name + more
    if view.rebuild is not None and view.rebuild.error:
        found.append(f"the rebuild stopped: mend it, then holdfast rebuild {name} --resume")
    if view.incomplete and view.rebuild is None:
        found.append(f"the table is incomplete: holdfast rebuild {name}")
    if view.outdated and view.rebuild is None:
        found.append(f"the declaration is newer than the table: holdfast rebuild {name}")
    if not view.declared:
        found.append("it is not declared here: name the application with --app")
    return found


def print_rows(name: str, view: RowsView) -> None:
    """Print rows of a projection, a column for each of its columns; notes to standard error."""
    if view.rows:
        table(
            [column.upper() for column in view.columns],
            [[_cell(row[column]) for column in view.columns] for row in view.rows],
            right=[column.upper() for column in view.columns if _is_number(view, column)],
        )
    elif view.made:
        note("no rows")
    else:
        note(f"no worker has filled {name} yet: start `holdfast run`, or `holdfast rebuild {name}`")
    if view.incomplete:
        note(f"{name} is incomplete: see `holdfast projections show {name}`")


def _cell(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return value


def _is_number(view: RowsView, column: str) -> bool:
    return type(view.rows[0][column]) in (int, float)


def print_rebuild(view: RebuildView) -> None:
    """Print a rebuild, one field per line."""
    rate = f", {view.rate_per_second:,.0f}/s" if view.rate_per_second else ""
    left = "" if view.eta_seconds is None else f", {_short(view.eta_seconds)} left"
    rows = "" if view.rows is None else f"{view.rows:,}, hash {view.hash}"
    live = f"{view.live_rows:,}, hash {view.live_hash}" if view.live_rows is not None else ""
    fields(
        [
            ("  id", f"{view.id} ({view.mode}, generation {view.generation})"),
            ("  phase", view.phase + (f": {visible(view.error)}" if view.error else "")),
            ("  by", f"{visible(view.by)}: {visible(view.why)}"),
            ("  started", moment(view.started_at)),
            ("  ended", moment(view.ended_at)),
            ("  events", f"{_share(view)} in {_short(view.seconds)}{rate}{left}"),
            ("  failed", f"{view.failed:,}" if view.failed else ""),
            ("  rows", rows),
            ("  rows before", live),
        ]
    )


def print_rebuilt(name: str, view: RebuildView, app: str | None = None) -> None:
    """Print how a rebuild ended, or that it goes on, and what to type next."""
    more = "" if app is None else f" --app {app}"
    if view.phase == RebuildPhase.FAILED:
        echo(f"rebuild {view.id} of {name} failed at {_share(view)}: {view.error}")
        note(
            "readers see what they saw before: mend it, then holdfast rebuild "
            f"{name} --resume{more}; or allow some to fail with --max-errors N; or --cancel"
            if view.mode == RebuildMode.GENERATION
            else f"the table is incomplete: mend it, then holdfast rebuild {name} --resume{more}"
        )
    elif view.phase == RebuildPhase.CANCELLED:
        echo(f"rebuild {view.id} of {name} is cancelled")
    elif view.phase != RebuildPhase.DONE:
        echo(f"rebuild {view.id} of {name}: {view.phase}, {_share(view)}")
    elif view.mode == RebuildMode.EMIT:
        echo(f"{count_of(view.total, 'event')} of {name} emitted: workers apply them")
    else:
        rate = f", {view.rate_per_second:,.0f}/s" if view.rate_per_second else ""
        events = f"{count_of(view.done, 'event')} in {_short(view.seconds)}{rate}"
        echo(f"{name} is rebuilt: {events}, {count_of(view.rows or 0, 'row')}")
        if view.failed:
            echo(f"{view.failed:,} failed: holdfast dead groups")
        if view.mode == RebuildMode.GENERATION:
            same = "the same" if view.hash == view.live_hash else "another"
            before = f"the one before had {view.live_rows:,} with {same} hash"
            echo(f"generation {view.generation} is live; {before}")
            note(f"to return to it within a day: holdfast projections rollback {name}{more}")


@contextmanager
def rebuild_progress(*, wanted: bool) -> Iterator[Callable[[Rebuild], None]]:
    """Show on a terminal how far a rebuild is; say once if it waits for a worker."""
    shows = wanted and sys.stderr.isatty()
    began, first, last, since, said = time.monotonic(), -1, "", time.monotonic(), False

    def show(rebuild: Rebuild) -> None:
        nonlocal first, last, since, said
        now, done = time.monotonic(), rebuild.filled + rebuild.failed
        if first < 0:
            first = done
        if (text := f"{rebuild.phase.value} {done}") != last:
            last, since = text, now
        elif now - since > _STALL_SECONDS and wanted and not said:
            said = True
            note(f"{rebuild.phase.value} waits for workers or open transactions: Ctrl-C leaves it")
        if shows:
            rate = (done - first) / max(0.001, now - began)
            rewrite_line(progress_line(rebuild, rate))

    try:
        yield show
    finally:
        if shows:
            rewrite_line("")


def progress_line(rebuild: Rebuild, rate: float) -> str:
    """Return how far a rebuild is: ``filling 1,200 of 5,000 (24%), 800/s, 5s left``."""
    done = rebuild.filled + rebuild.failed
    text = rebuild.phase.value
    if rebuild.total:
        text += f" {done:,} of {rebuild.total:,} ({done / rebuild.total:.0%})"
    if rate >= 1 and rebuild.phase is RebuildPhase.FILLING:
        text += f", {rate:,.0f}/s, {_short(max(0, rebuild.total - done) / rate)} left"
    return text


def outbox_table(rows: Sequence[OutboxRow]) -> None:
    """Print rows of an outbox."""
    names = ("ID", "STATUS", "ATTEMPTS", "NEXT RETRY", "REASON", "LAST ERROR", "OWNER")
    table(
        (*names, "CREATED", "PROCESSED", "REPLAYS"),
        [
            (
                row.id,
                row.status,
                row.attempts,
                ago(row.next_retry_at),
                row.error_reason,
                row.last_error,
                row.owner,
                ago(row.created_at),
                ago(row.processed_at),
                row.replay_count,
            )
            for row in rows
        ],
        right=("ATTEMPTS", "REPLAYS"),
    )
