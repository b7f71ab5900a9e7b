"""Printing stored operations: the plan, how far one is, and the report."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping
from datetime import UTC
from typing import TYPE_CHECKING

import click

from holdfast.model.actions import DETERMINISTIC
from holdfast.model.durations import format_seconds
from holdfast.model.plural import count_of
from holdfast.model.redaction import without_secrets
from holdfast.model.visible_text import visible

from .group import TYPED
from .output import echo, fields, jobs_table, moment, table

if TYPE_CHECKING:
    from holdfast.operations.operation_views import OperationPlan, OperationView

_LEFT_OUT = {"--dry-run", "--json", "--yes", "-y"}
_TEXTS: Mapping[str, str] = {
    "stop_requested": "asked to stop earlier",
    "unique_taken": "an unfinished job does the same work",
    "unchanged": "they are like that already",
    "no_such_path": "their payload has no such field",
    "too_large": "their payload would be too large",
    "changed": "they changed meanwhile",
    "not_found": "no such job",
}


def print_plan(plan: OperationPlan) -> None:
    """Print what an operation would do, and the command that starts it."""
    least = "" if plan.exact else "at least "
    would = f"{least}{count_of(plan.would)}"
    echo(f"would {plan.action}: {would}; nothing was changed")
    print_skipped(plan.skipped, would=True)
    if plan.looked_at < plan.matched - plan.skipped.get(DETERMINISTIC, 0):
        echo(f"why jobs are left was looked up for the first {plan.looked_at:,}")
    if plan.limit is not None and plan.would < plan.matched - plan.kept:
        echo(f"{count_of(plan.matched)} match: --limit takes the oldest")
    if len(plan.reasons) > 1:
        table(
            ("COUNT", "REASON", "CLASS"),
            [(f"{one.count:,}", one.error_reason, one.failure_class) for one in plan.reasons],
            right=("COUNT",),
        )
    if plan.held_behind:
        echo(f"{count_of(plan.held_behind)} held behind them")
    if plan.expected_seconds:
        echo(f"it takes about {_about(plan.expected_seconds)} at this rate")
    if plan.jobs:
        jobs_table(plan.jobs)
        if plan.would > len(plan.jobs):
            echo(f"… and {plan.would - len(plan.jobs):,} more")
    if plan.would:
        echo(f"as of this moment: {_start_command(plan)}")


def _start_command(plan: OperationPlan) -> str:
    """Return the command that starts what was planned: the moment and the count are fixed."""
    context = click.get_current_context()
    typed = [word for word in context.meta.get(TYPED, ()) if word not in _LEFT_OUT]
    words = ["holdfast", *(without_secrets(word) for word in typed)]
    if not any(word == "--reason" or word.startswith("--reason=") for word in typed):
        words += ["--reason", "WHY"]
    moment_text = plan.as_of.astimezone(UTC).isoformat(timespec="microseconds")[:-6]
    words += ["--as-of", f"{moment_text}Z", "--expect", str(plan.would)]
    return visible(shlex.join(words))


def print_skipped(skipped: Mapping[str, int], *, would: bool = False) -> None:
    """Print how many jobs were left alone, and why."""
    for reason, count in skipped.items():
        if reason == DETERMINISTIC:
            kept = "would be kept" if would else "kept"
            echo(f"{count:,} deterministic {kept}: add --fixed 'what'")
        else:
            echo(f"{count_of(count)} left: {visible(_TEXTS.get(reason, reason))}")


def print_operation(view: OperationView) -> None:
    """Print one operation: what was asked for, how far it is, and what came of it."""
    fields(
        [
            ("operation", view.id),
            ("state", view.state + (f": {visible(view.note)}" if view.note else "")),
            ("action", view.action),
            ("filter", _filter_lines(view.filter)),
            ("by", f"{visible(view.by)}: {visible(view.why)}"),
            ("fixed", visible(view.fixed)),
            ("as of", moment(view.as_of)),
            ("started", moment(view.started_at)),
            ("ended", moment(view.ended_at)),
            ("pace", _pace_text(view)),
        ],
        width=12,
    )
    print_report(view)


def print_report(view: OperationView) -> None:
    """Print what an operation did, and what came of it."""
    total = "" if view.total is None else f" of {view.total:,}"
    echo(f"acted on {view.acted:,}{total}" + (f", {view.gone:,} gone" if view.gone else ""))
    if view.action == "replay":
        echo(
            f"done {view.done:,}, failed again {view.failed_again:,}, "
            f"cancelled {view.cancelled:,}, still waiting {view.waiting:,}"
        )
    print_skipped(view.skipped)
    if view.new_since is not None:
        echo(f"new since of the same kind: {view.new_since:,}")


def operations_table(views: list[OperationView]) -> None:
    """Print operations, one per line."""
    table(
        ("ID", "STATE", "ACTION", "ACTED", "KEPT", "DONE", "FAILED", "BY", "STARTED"),
        [
            (
                view.id,
                view.state,
                view.action,
                f"{view.acted:,}",
                f"{view.kept:,}",
                f"{view.done:,}",
                f"{view.failed_again:,}",
                view.by[:12],
                view.started_at.strftime("%m-%d %H:%M"),
            )
            for view in views
        ],
        right=("ACTED", "KEPT", "DONE", "FAILED"),
    )


def _filter_lines(wanted: Mapping[str, object]) -> tuple[str, ...]:
    parts = []
    for name, value in wanted.items():
        some = value if isinstance(value, list) else [value]
        more = ",…" if len(some) > 5 else ""
        parts.append(f"{name}={','.join(str(one) for one in some[:5])}{more}")
    return tuple(textwrap.wrap(visible(" ".join(parts)), 66, break_on_hyphens=False))


def _pace_text(view: OperationView) -> str:
    parts = [f"at most {view.rate}" if view.rate else ""]
    parts += [f"canary {view.canary}" if view.canary else ""]
    if view.abort_above is not None:
        parts.append(f"abort above {view.abort_above:.0%}")
    return ", ".join(part for part in parts if part)


def _about(seconds: float) -> str:
    unit = 60 if seconds >= 600 else 1
    return format_seconds(float(max(1, round(seconds / unit) * unit)))
