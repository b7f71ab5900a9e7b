"""``holdfast dead edit``, ``dead try`` and ``jobs retarget``: mend jobs before a replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec.structs import replace

from holdfast.cli.exit_codes import EXIT_FAILED
from holdfast.cli.group import CommandContext
from holdfast.cli.job_actions import OperationCommand, run_operation
from holdfast.cli.operation_options import Pace, pace_options
from holdfast.cli.options import (
    check_some,
    confirm_options,
    filter_options,
    json_option,
    limit_option,
    who_options,
    with_ids,
)
from holdfast.cli.output import cut, document, echo, note, table
from holdfast.model.actions import EditJobs, RetargetJobs
from holdfast.model.errors import IllegalTransition, InvalidInput, JobNotFound, PayloadInvalid
from holdfast.model.job import Job, State, check_id
from holdfast.model.payload_paths import Assignment
from holdfast.model.search import Filter, Order

if TYPE_CHECKING:
    from holdfast.operations.attribution import Author
    from holdfast.operations.bulk import OperationRequest
    from holdfast.operations.operations import Operations
    from holdfast.operations.payload_checks import PayloadCheck
    from holdfast.operations.trial import Trial
    from holdfast.worker.registry import Registry

_APP = click.option("--app", metavar="MODULE:APP", help="The application that has the tasks.")


@click.command("edit")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--set",
    "assignments",
    metavar="payload.PATH=VALUE",
    multiple=True,
    help="Set a field to a JSON value, or to a word; may be repeated.",
)
@click.option("--unset", "removals", metavar="payload.PATH", multiple=True, help="Remove a field.")
@filter_options()
@click.option("--all", "everything", is_flag=True, help="Every dead letter.")
@limit_option
@_APP
@pace_options()
@who_options
@confirm_options
@json_option
@click.pass_obj
def edit_dead(
    context: CommandContext,
    ids: tuple[str, ...],
    *,
    assignments: tuple[str, ...],
    removals: tuple[str, ...],
    wanted: Filter,
    everything: bool,
    limit: int,
    app: str | None,
    pace: Pace,
    who: Callable[[], Author],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Change fields in the payloads of dead letters, by id or by filter.

    The payloads are checked against the tasks of --app, or of the daemon: an edit that makes one
    invalid is refused, and nothing is changed. Replay them afterwards.
    """
    wanted = with_ids(wanted, ids)
    check_some(wanted, everything=everything)
    changes = (*map(assignment_of, assignments), *map(Assignment, removals))
    if not changes:
        raise InvalidInput("--set", "give something to change, such as --set payload.locale=en")
    action = EditJobs(changes)
    action.check()
    command = OperationCommand(
        action,
        replace(wanted, states=(State.DEAD,)),
        who,
        limit=limit,
        pace=pace,
        dry_run=dry_run,
        as_json=as_json,
        ask=True,
        yes=yes,
    )
    _check_payloads(context, command, app)
    run_operation(context, command)


@click.command("retarget")
@click.argument("old_task", metavar="OLD_TASK")
@click.argument("new_task", metavar="NEW_TASK")
@filter_options(states=True)
@limit_option
@_APP
@pace_options()
@who_options
@confirm_options
@json_option
@click.pass_obj
def retarget_jobs(
    context: CommandContext,
    old_task: str,
    new_task: str,
    *,
    wanted: Filter,
    limit: int,
    app: str | None,
    pace: Pace,
    who: Callable[[], Author],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Give jobs of one task to another: pending, blocked and dead ones; their queue stays.

    They are checked against the new task of --app, or of the daemon: if one does not fit, nothing
    is changed.
    """
    check_id(old_task, "OLD_TASK")
    check_id(new_task, "NEW_TASK")
    command = OperationCommand(
        RetargetJobs(new_task),
        replace(wanted, tasks=(old_task,)),
        who,
        limit=limit,
        pace=pace,
        dry_run=dry_run,
        as_json=as_json,
        ask=True,
        yes=yes,
    )
    _check_payloads(context, command, app)
    run_operation(context, command)


def assignment_of(text: str) -> Assignment:
    """Return what ``payload.locale=en`` says: the value is JSON, or a word."""
    path, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput("--set", f"{text[:60]!r} is not such as payload.locale=en")
    try:
        msgspec.json.decode(value)
        return Assignment(path.strip(), value.encode())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        return Assignment(path.strip(), msgspec.json.encode(value))
    except (msgspec.MsgspecError, ValueError):
        raise InvalidInput("--set", f"{text[:60]!r} is not valid Unicode") from None


def _check_payloads(context: CommandContext, command: OperationCommand, app: str | None) -> None:
    """Show what changes in some jobs; raise ``PayloadInvalid`` if it makes one invalid."""
    found = _payload_check(context, command.request, app)
    if found.problems:
        first, more = found.problems[0], len(found.problems) - 1
        others = f" (and {more:,} more)" if more else ""
        raise PayloadInvalid("payload", f"of job {first.id}: {first.problem}{others}")
    action = command.request.action
    if isinstance(action, RetargetJobs) and found.application and action.task in found.unknown:
        raise InvalidInput("NEW_TASK", f"the application has no task named {action.task!r}")
    if found.unknown and not command.as_json:
        where = ", ".join(found.unknown[:5])
        note(f"not checked: no task {where} is known here; give --app MODULE:APP")
    if found.changes and not command.as_json:
        table(
            ("ID", "FIELD", "BEFORE", "AFTER"),
            [
                (one.id, cut(one.field, 30), cut(one.before, 24), cut(one.after, 24))
                for one in found.changes
            ],
        )


def _payload_check(
    context: CommandContext, request: OperationRequest, app: str | None
) -> PayloadCheck:
    """Check with the application that is named, or else with that of the daemon."""
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine
    from holdfast.daemon.rpc import OPERATIONS  # noqa: PLC0415
    from holdfast.daemon.rpc.bodies import CheckPayloadsBody  # noqa: PLC0415
    from holdfast.operations.payload_checks import PayloadCheck, check_payloads  # noqa: PLC0415

    registry = context.registry(app)
    settings = context.settings()
    if registry is not None:
        from holdfast.worker.builtin_tasks import add_builtin  # noqa: PLC0415

        add_builtin(registry, registry.default_task or None)
    else:
        store_access.require_persistent(settings)
        body = msgspec.json.encode(CheckPayloadsBody(request))
        found = store_access.request_owner(
            settings, "POST", f"{OPERATIONS}check_payloads", body, PayloadCheck, or_server=True
        )
        if found is not None:
            return found
    return store_access.read_store(
        settings, lambda operations: check_payloads(operations.engine, registry, request)
    )


@click.command("try")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@filter_options()
@_APP
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=20,
    show_default=True,
    help="How many at most, the oldest and the newest.",
)
@json_option
@click.pass_obj
def try_dead(
    context: CommandContext,
    ids: tuple[str, ...],
    *,
    wanted: Filter,
    app: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Check dead letters against today's tasks, without running them.

    Each is checked against the parameters of its task, and with the task's own check if it has one
    (@app.task(check=…)). Nothing is changed. Exit 1 if none would pass.
    """
    import asyncio  # noqa: PLC0415

    from holdfast.cli import store_access  # noqa: PLC0415

    wanted = with_ids(wanted, ids)
    registry = context.registry(app)
    if registry is None:
        raise InvalidInput("--app", "give the application that has the tasks: MODULE:APP")
    letters = store_access.read_store(
        context.settings(), lambda operations: _letters(operations, wanted, limit)
    )
    trial = asyncio.run(_try(registry, letters))
    if as_json:
        document(trial)
    elif not letters:
        note("no dead letters")
    else:
        echo(f"{trial.passed:,} of {trial.tried:,} would pass")
        for one in trial.problems:
            echo(f"{one.id}  {one.task}: {cut(one.problem, 200)}")
    if letters and not trial.passed:
        raise SystemExit(EXIT_FAILED)


async def _try(registry: Registry, letters: list[Job]) -> Trial:
    from holdfast.operations.trial import try_letters  # noqa: PLC0415 - imports an engine
    from holdfast.settings import MEMORY_STORE, Settings  # noqa: PLC0415
    from holdfast.stores.opening import open_engine  # noqa: PLC0415

    scratch = await open_engine(Settings(store=MEMORY_STORE), own=True)
    try:
        return await try_letters(registry, letters, scratch)
    finally:
        await scratch.close()


async def _letters(operations: Operations, wanted: Filter, limit: int) -> list[Job]:
    """Return the dead letters that are named, or some of those that match."""
    engine = operations.engine
    if wanted.ids:
        wanted = replace(wanted, ids=wanted.ids[:limit])
        found = (await engine.find(wanted, limit=limit)).jobs
        missing = set(wanted.ids) - {job.id for job in found}
        if missing:
            raise JobNotFound(min(missing))
        for job in found:
            if job.state is not State.DEAD:
                raise IllegalTransition(job.id, job.state, "be tried: it is not dead")
        return found
    wanted = replace(wanted, states=(State.DEAD,))
    oldest = (await engine.find(wanted, limit=limit)).jobs
    newest = (await engine.find(wanted, limit=limit, order=Order.NEWEST)).jobs
    half = oldest[: (limit + 1) // 2]
    taken = {(job.tenant, job.id) for job in half}
    rest = [job for job in newest if (job.tenant, job.id) not in taken]
    return half + rest[: limit - len(half)]
