"""``holdfast dead groups``, ``dead group`` and what a person does with a group of failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from holdfast.cli.group import CommandContext
from holdfast.cli.options import (
    by_option,
    filter_options,
    json_option,
    login_name,
    moment_us,
    stream_options,
    who_options,
)
from holdfast.cli.output import (
    ago,
    cut,
    document,
    echo,
    fields,
    jobs_table,
    lines,
    moment,
    note,
    table,
)
from holdfast.model.durations import seconds_of
from holdfast.model.errors import InvalidInput
from holdfast.model.group_life import GroupChange, GroupState, GroupVerb
from holdfast.model.job import MICROSECONDS
from holdfast.model.search import Filter
from holdfast.model.visible_text import visible

if TYPE_CHECKING:
    from holdfast.operations.attribution import Author
    from holdfast.operations.groups import GroupDetail, GroupView

_BARS = "▁▂▃▄▅▆▇█"
_GROUP = click.argument("group_id", metavar="GROUP")


@click.command("groups")
@filter_options()
@click.option(
    "--state",
    "group_states",
    metavar="STATE",
    multiple=True,
    help="In this state: open, acknowledged, fixed, quiet or came_back; may be repeated.",
)
@click.option("--muted", is_flag=True, help="Also those that are muted.")
@stream_options
@click.pass_obj
def groups(
    context: CommandContext,
    *,
    wanted: Filter,
    group_states: tuple[str, ...],
    muted: bool,
    as_json: bool,
    ndjson: bool,
) -> None:
    """List dead letters in groups: same queue, task, reason, HTTP status and error.

    TREND is the last 24 hours. JSON has muted groups too.
    """
    from holdfast.cli import store_access  # noqa: PLC0415 - imports an engine

    asked = frozenset(_state(word) for words in group_states for word in words.split(","))
    found = store_access.read_store(
        context.settings(), lambda operations: operations.groups.list(wanted, asked)
    )
    if as_json:
        document(found)
    elif ndjson:
        lines(found)
    else:
        _print_groups(found, muted=muted)


def _state(word: str) -> GroupState:
    try:
        return GroupState(word.strip().lower().replace("-", "_"))
    except ValueError:
        known = ", ".join(GroupState)
        raise InvalidInput("--state", f"{word[:60]!r} is not one of {known}") from None


def _print_groups(found: Sequence[GroupView], *, muted: bool) -> None:
    now = datetime.now(UTC)
    shown = [one for one in found if muted or one.muted_until is None or one.muted_until <= now]
    if shown:
        table(
            (
                *("GROUP", "COUNT", "REASON", "STATUS", "TASK", "QUEUE", "HELD", "FIRST", "LAST"),
                *("TREND", "STATE", "OWNER", "ERROR"),
            ),
            [
                (
                    group.id,
                    f"{group.count:,}",
                    group.error_reason,
                    group.status,
                    group.task,
                    group.queue,
                    f"{group.held_behind:,}",
                    ago(group.first_at, now),
                    ago(group.last_at, now),
                    sparkline(group.trend),
                    group.state,
                    group.owner,
                    cut(group.fingerprint, 50),
                )
                for group in shown
            ],
            right=("COUNT", "HELD"),
        )
    elif not found:
        note("no dead letters")
    if len(shown) < len(found):
        note(f"{len(found) - len(shown)} muted not shown: add --muted")


def sparkline(numbers: Sequence[int]) -> str:
    """Return numbers as a row of bars; a dot for none."""
    most = max(numbers, default=0)
    return "".join(
        _BARS[(number * (len(_BARS) - 1) + most - 1) // most] if number else "·"
        for number in numbers
    )


@click.command("group")
@_GROUP
@json_option
@click.pass_obj
def show_group(context: CommandContext, group_id: str, *, as_json: bool) -> None:
    """Show one group: its oldest letters, whom it hits, what people did, and how to go on."""
    from holdfast.cli import store_access  # noqa: PLC0415

    found = store_access.read_store(
        context.settings(), lambda operations: operations.groups.detail(group_id)
    )
    if as_json:
        document(found)
    else:
        _print_detail(found)


def _print_detail(found: GroupDetail) -> None:
    group = found.group
    fields(
        [
            ("group", group.id),
            ("state", group.state),
            ("owner", visible(group.owner)),
            ("fixed_in", visible(group.fixed_in)),
            ("muted_until", moment(group.muted_until)),
            ("dead_letters", f"{group.count:,}, of {group.total:,} that died"),
            ("held_behind", f"{group.held_behind:,}"),
            ("error_reason", f"{visible(group.error_reason)} ({group.failure_class})"),
            ("status", group.status),
            ("error", visible(group.fingerprint)),
            ("task", visible(group.task)),
            ("queue", visible(group.queue)),
            ("first_at", moment(group.first_at)),
            ("last_at", moment(group.last_at)),
            ("last_24_hours", sparkline(group.trend)),
            ("hits", f"{group.tenants:,} tenants, {group.scopes:,} scopes"),
        ]
    )
    for tenant, scope in found.hit:
        echo(f"  {tenant}{f' in {scope}' if scope else ''}")
    if found.samples:
        echo("oldest dead letters:")
        jobs_table(found.samples)
    if group.acts:
        echo("what people did:")
        for act in group.acts:
            value = f" {visible(act.value)}" if act.value else ""
            by = visible(act.by)
            echo(f"  {moment(act.at)} {by}: {act.action}{value}: {act.text}")
    echo("go on:")
    for command in _next_commands(group):
        echo(f"  holdfast {command}")


def _next_commands(group: GroupView) -> list[str]:
    """Return the commands that a person may want next."""
    found = [f"runbook {group.id}"]
    found += [f"dead list --group {group.id}"] if group.count else []
    if group.state in (GroupState.OPEN, GroupState.CAME_BACK):
        found.append(f"dead ack {group.id} --reason 'looking at it'")
    if group.state in (GroupState.OPEN, GroupState.CAME_BACK, GroupState.ACKNOWLEDGED):
        found.append(f"dead fixed {group.id} --in 'release' --reason 'what was changed'")
    if group.count:
        fixed = " --fixed 'what'" if group.failure_class == "deterministic" else ""
        found.append(f"replay --group {group.id} --limit 10{fixed} --reason 'try a few'")
        found.append(f"replay --group {group.id}{fixed} --reason 'it is fixed'")
    else:
        found.append(f"dead forget {group.id} --reason 'it is over'")
    return found


def change_group(
    context: CommandContext, group_id: str, change: GroupChange, who: Author, *, as_json: bool
) -> None:
    """Store what a person does with a group, and print the group."""
    from holdfast.cli import store_access  # noqa: PLC0415

    change.check()
    found = store_access.write_store(
        context.settings(), lambda operations: operations.groups.change(group_id, change, who)
    )
    if as_json:
        document(found)
    elif found is None:
        echo(f"{group_id} is forgotten")
    else:
        owner = f", owner {visible(found.owner)}" if found.owner else ""
        until = f", muted until {moment(found.muted_until)}" if found.muted_until else ""
        echo(f"{found.id} is {found.state}{owner}{until}")


def _simple(name: str, verb: GroupVerb, text: str) -> click.Command:
    """Return a command for a change that needs nothing but who and why."""

    @click.command(name, help=text)
    @_GROUP
    @who_options
    @json_option
    @click.pass_obj
    def command(
        context: CommandContext, group_id: str, *, who: Callable[[], Author], as_json: bool
    ) -> None:
        change_group(context, group_id, GroupChange(verb), who(), as_json=as_json)

    return command


@click.command("fixed")
@_GROUP
@click.option("--in", "fixed_in", metavar="TEXT", required=True, help="In what: a release, a fix.")
@who_options
@json_option
@click.pass_obj
def fixed(
    context: CommandContext,
    group_id: str,
    *,
    fixed_in: str,
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Say that a group is fixed: if something dies of it from now on, it came back."""
    change = GroupChange(GroupVerb.FIX, fixed_in)
    change_group(context, group_id, change, who(), as_json=as_json)


@click.command("assign")
@_GROUP
@click.argument("owner", required=False, default="")
@who_options
@json_option
@click.pass_obj
def assign(
    context: CommandContext, group_id: str, owner: str, *, who: Callable[[], Author], as_json: bool
) -> None:
    """Give a group an owner; without a name it has none any more."""
    change = GroupChange(GroupVerb.ASSIGN, owner)
    change_group(context, group_id, change, who(), as_json=as_json)


@click.command("mute")
@_GROUP
@click.option("--for", "duration", metavar="DURATION", help="For how long: 8h, 3d.")
@click.option("--until", metavar="WHEN", help="Until this date (UTC).")
@who_options
@json_option
@click.pass_obj
def mute(
    context: CommandContext,
    group_id: str,
    *,
    duration: str | None,
    until: str | None,
    who: Callable[[], Author],
    as_json: bool,
) -> None:
    """Leave a group out of the list for a while; what dies of it is counted."""
    if (duration is None) == (until is None):
        raise InvalidInput("--for", "say for how long (--for 8h) or until when (--until)")
    if until is not None:
        until_us = moment_us("--until", until)
    else:
        seconds = seconds_of("--for", duration or "")
        until_us = int((datetime.now(UTC).timestamp() + seconds) * MICROSECONDS)
    change = GroupChange(GroupVerb.MUTE, until_us=until_us)
    change_group(context, group_id, change, who(), as_json=as_json)


@click.command("note")
@click.argument("job_id", metavar="ID|GROUP")
@click.argument("text")
@click.option("--tenant", help="The tenant of the job (default).")
@by_option
@json_option
@click.pass_obj
def note_dead(
    context: CommandContext,
    job_id: str,
    text: str,
    *,
    tenant: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Add a note to the history of a job, or to a group (g-…)."""
    from holdfast.operations.attribution import Author  # noqa: PLC0415

    from .dead import note_on_job  # noqa: PLC0415

    if tenant is None and is_group_id(job_id):
        who = Author(login_name(by), text)
        change_group(context, job_id, GroupChange(GroupVerb.NOTE), who, as_json=as_json)
    else:
        note_on_job(context, job_id, text, tenant=tenant, by=by, as_json=as_json)


def is_group_id(text: str) -> bool:
    """Whether this has the form of a group's id."""
    digits = text.removeprefix("g-")
    return len(digits) == 10 and len(text) == 12 and set(digits) <= set("0123456789abcdef")


COMMANDS: tuple[click.Command, ...] = (
    groups,
    show_group,
    _simple("ack", GroupVerb.ACKNOWLEDGE, "Acknowledge a group: say that you know about it."),
    fixed,
    _simple("reopen", GroupVerb.REOPEN, "Take back that a group is acknowledged or fixed."),
    assign,
    mute,
    _simple("unmute", GroupVerb.UNMUTE, "List a muted group again."),
    note_dead,
    _simple("forget", GroupVerb.FORGET, "Forget what people did with a group."),
)
