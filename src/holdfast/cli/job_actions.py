"""Every command that acts on jobs: preview, confirm, act, print the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from holdfast.model.actions import AnyAction
from holdfast.model.plural import count_of
from holdfast.model.search import Filter

from .exit_codes import EXIT_REFUSED
from .group import CommandContext
from .options import confirm
from .output import document, jobs_table, progress

if TYPE_CHECKING:
    from holdfast.operations.attribution import Author
    from holdfast.operations.operations import Operations, ReplayPace
    from holdfast.operations.views import OperationPreview, OperationResult

DONE_TEXTS: Mapping[str, str] = {
    "replay": "pending again",
    "archive": "archived",
    "restore": "dead again",
    "cancel": "cancelled, or asked to stop if in flight",
    "purge": "purged",
    "confirm": "confirmed",
}
_KEPT_TEXTS: Mapping[str, str] = {
    "cancel": "asked to stop earlier",
    "confirm": "waiting for other jobs only",
}

PREVIEW_LIMIT = 10_000
"""How many jobs a preview counts at most."""


class ActionCommand:
    """An action on jobs, and the options of its command."""

    def __init__(
        self,
        action: AnyAction,
        wanted: Filter,
        who: Callable[[], Author],
        *,
        limit: int,
        pace: ReplayPace | None = None,
        dry_run: bool = False,
        as_json: bool = False,
        ask: bool = False,
        yes: bool = False,
    ) -> None:
        self.action = action
        self.wanted = wanted
        self.who = who
        self.limit = limit
        self.pace = pace
        self.dry_run = dry_run
        self.as_json = as_json
        self.ask = ask
        self.yes = yes


def run_action(context: CommandContext, command: ActionCommand) -> None:
    """Run the action, or only preview it; exit 4 if deterministic failures were kept."""
    from . import store_access  # noqa: PLC0415 - imports an engine

    settings = context.settings()
    if command.dry_run:
        _print_preview(
            command,
            store_access.read_store(settings, lambda operations: _preview(operations, command)),
        )
        return
    who = command.who()
    total: int | None = None
    if command.ask and not command.yes:
        found = store_access.read_store(settings, lambda operations: _preview(operations, command))
        more = "at least " if found.would == PREVIEW_LIMIT else ""
        confirm(f"{command.action.name.capitalize()} {more}{count_of(found.would)}?", yes=False)
        total = None if more else found.would
    if total is None and command.limit < 1_000_000:
        total = command.limit
    with progress(command.action.name, total, wanted=not command.as_json) as on_progress:
        done = store_access.write_store(
            settings, lambda operations: _act(operations, command, who, on_progress)
        )
    _print_done(command, done)
    if command.action.name == "replay" and done.kept:
        raise SystemExit(EXIT_REFUSED)


async def _preview(operations: Operations, command: ActionCommand) -> OperationPreview:
    limit = min(command.limit, PREVIEW_LIMIT)
    return await operations.preview(command.action, command.wanted, limit=limit)


async def _act(
    operations: Operations, command: ActionCommand, who: Author, on_progress: Callable[[int], None]
) -> OperationResult:
    # Without a daemon nothing runs, and the store must not stay locked for long.
    paced = operations.engine.capabilities.name == "client"
    return await operations.operate(
        command.action,
        command.wanted,
        who,
        limit=command.limit,
        on_progress=on_progress,
        pace=command.pace if paced else None,
    )


def _print_done(command: ActionCommand, done: OperationResult) -> None:
    if command.as_json:
        document(done)
        return
    click.echo(f"{count_of(done.done)} {DONE_TEXTS[command.action.name]}")
    if command.action.name == "replay":
        if done.kept:
            click.echo(f"{done.kept:,} deterministic kept: add --fixed 'what'")
        if done.done >= command.limit:
            click.echo("stopped at --limit: there may be more")
    elif done.kept:
        click.echo(
            f"{count_of(done.kept)} left: {_KEPT_TEXTS.get(command.action.name, 'as they were')}"
        )


def _print_preview(command: ActionCommand, found: OperationPreview) -> None:
    if command.as_json:
        document(found)
        return
    more = "at least " if found.would == PREVIEW_LIMIT < command.limit else ""
    click.echo(f"would {command.action.name}: {more}{count_of(found.would)}; nothing was changed")
    if found.kept:
        what = "deterministic would be kept: add --fixed 'what'"
        if command.action.name != "replay":
            what = _KEPT_TEXTS.get(command.action.name, "would be left")
        click.echo(f"{found.kept:,} {what}")
    if found.jobs:
        jobs_table(found.jobs)
        if found.would > len(found.jobs):
            click.echo(f"… and {found.would - len(found.jobs):,} more")
