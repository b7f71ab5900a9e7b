"""Every command that starts a stored operation: plan, confirm, start, carry out, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.model.errors import NoOwner, Unavailable
from holdfast.model.job import MICROSECONDS
from holdfast.model.operation import Operation, Phase
from holdfast.model.plural import count_of

from .exit_codes import EXIT_FAILED, EXIT_REFUSED
from .group import CommandContext
from .operation_options import Pace
from .operation_output import print_plan, print_report, print_skipped
from .options import confirm
from .output import document, echo, note, progress

if TYPE_CHECKING:
    from holdfast.model.actions import AnyAction
    from holdfast.model.search import Filter
    from holdfast.operations.attribution import Author
    from holdfast.operations.operation_views import OperationPlan, OperationView
    from holdfast.operations.operations import Operations
    from holdfast.settings import Settings

DONE_TEXTS: Mapping[str, str] = {
    "replay": "pending again",
    "archive": "archived",
    "restore": "dead again",
    "cancel": "cancelled, or asked to stop if in flight",
    "purge": "purged",
    "edit": "edited",
    "retarget": "given to the other task",
}


class OperationCommand:
    """An operation, and the options of its command."""

    def __init__(
        self,
        action: AnyAction,
        wanted: Filter,
        who: Callable[[], Author],
        *,
        limit: int,
        pace: Pace,
        dry_run: bool = False,
        as_json: bool = False,
        ask: bool = False,
        yes: bool = False,
    ) -> None:
        self.request = pace.request(action, wanted, limit)
        self.who = who
        self.expect = pace.expect
        self.detach = pace.detach
        self.dry_run = dry_run
        self.as_json = as_json
        self.ask = ask and not yes
        self.operation_id = ""
        """Set when it has started."""


def run_operation(context: CommandContext, command: OperationCommand) -> None:
    """Start the operation, or only plan it; exit 4 if a replay left jobs as they were."""
    from . import store_access  # noqa: PLC0415 - imports an engine

    settings = context.settings()
    make_plan = lambda operations: operations.bulk.plan(command.request)
    if command.dry_run:
        plan = store_access.read_store(settings, make_plan)
        document(plan) if command.as_json else print_plan(plan)
        return
    who, planned = command.who(), None
    if command.ask:
        planned = store_access.read_store(settings, make_plan)
        least = "" if planned.exact else "at least "
        name = command.request.action.name.capitalize()
        confirm(f"{name} {least}{count_of(planned.would)}?", yes=False)
        # What was shown is what is done.
        as_of_us = round(planned.as_of.timestamp() * MICROSECONDS)
        command.request = replace(command.request, as_of_us=as_of_us)
    try:
        plan, operation = store_access.write_store(
            settings, lambda operations: _carry_out(operations, command, who, planned)
        )
        if operation is None or not (command.detach or command.request.paced):
            _print_done(command, plan, operation)
        else:
            _follow(settings, command, operation)
    except KeyboardInterrupt:
        if not command.operation_id:
            raise
        note(f"operation {command.operation_id} goes on while a daemon runs: {_look(command)}")


async def _carry_out(
    operations: Operations, command: OperationCommand, who: Author, plan: OperationPlan | None
) -> tuple[OperationPlan, Operation | None]:
    """Start the operation; take its steps if it needs no time."""
    bulk, request = operations.bulk, command.request
    if plan is None:
        plan = await bulk.plan(request)
    if not plan.matched and not request.wanted.ids and command.expect is None:
        return plan, None
    operation = await bulk.start(request, plan, who, expect=command.expect)
    command.operation_id = operation.id
    if command.detach or request.paced:
        return plan, operation
    name = request.action.name
    with progress(name, plan.would, wanted=not command.as_json) as on_progress:
        return plan, await bulk.drive(operation.id, on_progress)


def _print_done(command: OperationCommand, plan: OperationPlan, done: Operation | None) -> None:
    name, acted = command.request.action.name, 0 if done is None else done.acted
    skipped = {} if done is None else done.skipped
    kept = sum(skipped.values())
    if command.as_json:
        result = {"done": acted, "kept": kept, "ids": plan.ids if acted else []}
        if done is not None:
            result |= {"operation": done.id, "skipped": skipped}
        document(result)
    else:
        echo(f"{count_of(acted)} {DONE_TEXTS[name]}")
        print_skipped(skipped)
        if command.request.limit is not None and acted >= command.request.limit:
            echo("stopped at --limit: there may be more")
        if done is not None:
            note(f"operation {done.id}")
    if name == "replay" and kept:
        raise SystemExit(EXIT_REFUSED)


def _follow(settings: Settings, command: OperationCommand, operation: Operation) -> None:
    """Show how far a daemon is with the operation, until it has ended."""
    from . import store_access  # noqa: PLC0415

    found = store_access.read_store(settings, lambda operations: _live(settings, operations))
    if command.detach or not found:
        report = lambda operations: operations.bulk.report(operation.id)
        if command.as_json:
            document(store_access.read_store(settings, report))
        else:
            echo(f"operation {operation.id} started")
        if not found:
            note("it goes on when a daemon runs: start `holdfast run`")
        note(_look(command))
        return
    name = command.request.action.name
    note(f"operation {operation.id} started: Ctrl-C leaves it running")
    with progress(name, operation.matched, wanted=not command.as_json) as on_progress:

        async def wait(operations: Operations) -> OperationView:
            await operations.bulk.wait(operation.id, on_progress)
            return await operations.bulk.report(operation.id)

        try:
            view = store_access.read_store(settings, wait)
        except (NoOwner, Unavailable):
            note(f"operation {operation.id} goes on when a daemon runs: {_look(command)}")
            raise
    _print_followed(command, view)


def _print_followed(command: OperationCommand, view: OperationView) -> None:
    if command.as_json:
        document(view)
    else:
        echo(f"operation {view.id} {view.state}{f': {view.note}' if view.note else ''}")
        print_report(view)
    if view.state != Phase.COMPLETED:
        raise SystemExit(EXIT_FAILED)
    if view.action == "replay" and view.kept:
        raise SystemExit(EXIT_REFUSED)


async def _live(settings: Settings, operations: Operations) -> bool:
    """Whether a daemon runs that carries operations out."""
    from . import store_access  # noqa: PLC0415

    if settings.directory is None:
        return bool(await operations.fleet.live())
    return store_access.has_owner(settings)


def _look(command: OperationCommand) -> str:
    return f"holdfast operations show {command.operation_id}"
