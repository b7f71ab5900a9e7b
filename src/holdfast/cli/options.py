"""Options that commands share: output, filters, times, who and why, and confirmation."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast.cli.output import echo_lines
from holdfast.model import moments
from holdfast.model.errors import InvalidInput
from holdfast.model.job import MICROSECONDS, State, check_id
from holdfast.model.search import EVERYTHING, Filter
from holdfast.model.visible_text import visible

if TYPE_CHECKING:
    from holdfast.operations.attribution import Author

F = TypeVar("F", bound=Callable[..., object])

NO_LIMIT = 1_000_000_000


# --- output -------------------------------------------------------------------------------------


def json_option(command: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def stream_options(command: F) -> F:
    """Add ``--json`` and ``--ndjson``."""
    add = click.option("--ndjson", is_flag=True, help="Print one JSON object per line.")
    return json_option(add(command))


def worker_option(command: F) -> F:
    """Add ``--worker``: which live workers a command is for."""
    return click.option(
        "--worker",
        "workers",
        metavar="NAME",
        multiple=True,
        help="This live worker (see workers list); may be repeated. Default: all of them.",
    )(command)


# --- filters ------------------------------------------------------------------------------------

_FILTERS: tuple[tuple[tuple[str, ...], str, bool, str], ...] = (
    (("--id", "named"), "ID", True, "This job; may be repeated, like most of these."),
    (("--queue", "queues"), "NAME", True, "In this queue."),
    (("--task", "tasks"), "NAME", True, "Of this task."),
    (("--tenant", "tenant"), "NAME", False, "Of this tenant."),
    (("--scope", "scope"), "PATH", False, "In this scope, or inside it."),
    (("--key", "keys"), "KEY", True, "Of this ordering key."),
    (("--error-reason", "error_reasons"), "REASON", True, "That failed for this reason."),
    (
        ("--class", "classes"),
        "CLASS",
        True,
        "Whose failure is transient, deterministic or unknown.",
    ),
    (
        ("--http-status", "statuses"),
        "CODE",
        True,
        "Whose failure has this HTTP status: 404; 0: none.",
    ),
    (("--group", "group"), "GROUP", False, "Of this group of failures (see dead groups)."),
    (
        ("--fingerprint", "fingerprint"),
        "TEXT",
        False,
        "With this error fingerprint (see dead groups).",
    ),
    (("--text", "text"), "TEXT", False, "With this text in its last error."),
    (("--attempts", "attempts"), "N", False, "With this many attempts: 3, 2-5 or 3+."),
    (("--created-since", "created_since"), "WHEN", False, "Created at or after this date or age."),
    (("--created-until", "created_until"), "WHEN", False, "Created before this date or age."),
    (
        ("--since", "--finished-since", "finished_since"),
        "WHEN",
        False,
        "Finished since this.",
    ),
    (("--until", "--finished-until", "finished_until"), "WHEN", False, "Finished before this."),
)


def filter_options(*, states: bool = False) -> Callable[[F], F]:
    """Add every filter; the command gets one ``wanted``."""

    def add(command: F) -> F:
        @functools.wraps(command)
        def with_filter(*args: object, **options: object) -> object:
            named = {field: options.pop(field) for field in _FIELDS if field in options}
            group = named.pop("group", None)
            wanted = filter_of(named)
            if group is not None:
                wanted = _narrowed(wanted, str(group))
            where = options.pop("where")
            if where is not None:
                wanted = narrowed(wanted, str(where))
            return command(*args, wanted=wanted, **options)

        decorated: Callable[..., object] = click.option(
            "-q",
            "--where",
            metavar="FILTER",
            help="And by a filter in one line: 'queue:mail age>2h -reason:timeout' ('help' "
            "explains it).",
        )(with_filter)
        for names, metavar, multiple, text in reversed(_FILTERS):
            option = click.option(*names, metavar=metavar, multiple=multiple, help=text)
            decorated = option(decorated)
        if states:
            decorated = click.option(
                "--status",
                "--state",
                "states",
                metavar="STATE",
                multiple=True,
                help="In this state: pending, blocked, in_flight, completed, cancelled, dead "
                "(or failed), archived.",
            )(decorated)
        return decorated  # type: ignore[return-value]

    return add


_FIELDS = ("states", *(names[-1] for names, _metavar, _multiple, _text in _FILTERS))


def filter_of(named: dict[str, object]) -> Filter:
    """Return the filter of these options; raise ``InvalidInput`` naming a wrong one."""
    from holdfast.operations.named_filter import filter_of as filter_of_names  # noqa: PLC0415

    given = {field: value for field, value in named.items() if value not in (None, ())}
    for field, value in given.items():
        _check_text(field, value)
    if "named" in given:
        given["ids"] = given.pop("named")
    try:
        return filter_of_names(given, _now_us())
    except InvalidInput as error:
        raise InvalidInput(_OPTIONS.get(error.field, error.field), error.problem) from None


def narrowed(wanted: Filter, where: str) -> Filter:
    """Return the filter for what also matches a filter in one line; 'help' prints how it looks."""
    from holdfast.model.filter_grammar import compile_filter  # noqa: PLC0415
    from holdfast.model.filter_intersection import intersection  # noqa: PLC0415

    if where.strip() == "help":
        echo_lines(FILTER_HELP)
        raise click.exceptions.Exit
    _check_text("--where", where)
    try:
        return intersection(wanted, compile_filter(where, _now_us()))
    except InvalidInput as error:
        raise InvalidInput("--where", error.problem) from None


FILTER_HELP = """\
A filter in one line: words with values, all of which must match.

  queue:mail,sms            in one of these queues; a word again also means or
  -reason:timeout           not that one; also reason!=timeout
  "connection refused"      with this text in the last error, whatever its case

  status:                   pending, blocked, in_flight (or processing), completed (or done),
                            cancelled, dead (or failed), archived
  queue: task: key: id:     one or more names
  reason: class:            of the last failure; class is transient, deterministic or unknown
  fingerprint: text:        of the last failure: see dead groups
  tenant: scope:            one; a scope with everything inside it
  worker:                   who claimed it last
  run:                      the replay run or operation that took it
  attempts:3 :2-5 :3+ >3    how many attempts
  age>2h                    created more than two hours ago
  created< finished< died<  2h: within two hours; 2027-01-31: before that day (UTC)
                            or a range: finished:2027-01-31..2027-02-01
  payload.user.id=42        a field of the payload is this JSON value; or a word: payload.lang=de

Put a value with spaces or commas in double quotes. More: docs/filters.md."""


def only_in(wanted: Filter, *states: State) -> Filter:
    """Return the filter for jobs in these states; raise ``InvalidInput`` if it wants others."""
    from msgspec.structs import replace  # noqa: PLC0415

    possible = tuple(state for state in wanted.states or states if state in states)
    if not possible:
        names = " or ".join(states)
        raise InvalidInput(
            "--where", f"this command is for jobs that are {names}: leave out status"
        )
    return replace(wanted, states=possible)


_OPTIONS = {names[-1]: names[0] for names, _metavar, _multiple, _text in _FILTERS} | {
    "states": "--status"
}


def _check_text(field: str, value: object) -> None:
    """Raise ``InvalidInput`` if a text is not valid Unicode: the shell passed other bytes."""
    for text in value if isinstance(value, tuple) else (value,):
        try:
            str(text).encode()
        except UnicodeEncodeError:
            problem = "it contains an unpaired surrogate: is it UTF-8?"
            raise InvalidInput(_OPTIONS.get(field, field), problem) from None


def check_job(job_id: str, tenant: str) -> None:
    """Raise ``InvalidInput`` unless these can be the id and tenant of a job."""
    check_id(job_id)
    check_id(tenant, "--tenant")


def with_ids(wanted: Filter, ids: tuple[str, ...]) -> Filter:
    """Return the filter with these ids added."""
    from msgspec.structs import replace  # noqa: PLC0415

    both = replace(wanted, ids=tuple(dict.fromkeys([*wanted.ids, *ids])))
    both.check()
    return both


def check_some(wanted: Filter, *, everything: bool) -> None:
    """Refuse a filter without any condition, unless ``--all`` is given."""
    if wanted == EVERYTHING and not everything:
        raise InvalidInput("jobs", "name them by id or by a filter, or say --all")


def _narrowed(wanted: Filter, group_id: str) -> Filter:
    """Return the filter for members of a group alone: the store knows what those have in common."""
    from . import store_access  # noqa: PLC0415 - imports an engine
    from .group import CommandContext  # noqa: PLC0415

    context = click.get_current_context().find_object(CommandContext)
    if context is None:
        raise InvalidInput("--group", "this command has no store")
    return store_access.read_store(
        context.settings(), lambda operations: operations.groups.narrow(wanted, group_id)
    )


def moment_us(field: str, text: str) -> int:
    """Return the time that a person gives: a date, or an age such as ``2h``."""
    return moments.moment_us(field, text, _now_us())


def _now_us() -> int:
    return int(time.time() * MICROSECONDS)


def limit_option(command: F) -> F:
    """Add ``--limit``, by default without one."""
    limits = click.IntRange(1, NO_LIMIT)
    text = "How many at most (all)."
    return click.option("--limit", type=limits, default=NO_LIMIT, help=text)(command)


# --- who and why --------------------------------------------------------------------------------


def who_options(command: F) -> F:
    """Add ``--by`` and ``--reason``; the command gets ``who``, to be called when needed."""

    @functools.wraps(command)
    def with_who(*args: object, by: str | None, reason: str | None, **options: object) -> object:
        return command(*args, who=functools.partial(who_of, by, reason), **options)

    decorated: Callable[..., object] = click.option(
        "--reason", metavar="TEXT", help="Why; it is recorded with the change."
    )(with_who)
    return by_option(decorated)  # type: ignore[return-value]


def by_option(command: F) -> F:
    """Add ``--by``."""
    return click.option("--by", metavar="NAME", help="Who does it (default: your login name).")(
        command
    )


def who_of(by: str | None, reason: str | None) -> Author:
    """Return who and why; ask for a missing reason on a terminal, and refuse without one."""
    from holdfast.model.audit import Attribution  # noqa: PLC0415
    from holdfast.operations.attribution import Author  # noqa: PLC0415

    if reason is None or not reason.strip():
        if not on_terminal():
            raise InvalidInput("--reason", "give a reason: it is recorded with the change")
        reason = str(click.prompt("Why", err=True))
    who = Author(login_name(by), reason)
    Attribution(who.by, who.why).check()
    return who


def login_name(by: str | None) -> str:
    """Return the name of the person, or raise ``InvalidInput`` if it is unknown."""
    if by is not None:
        if not by.strip():
            raise InvalidInput("--by", "give a name")
        return by
    import getpass  # noqa: PLC0415

    try:
        # With sudo: the person, not root.
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (OSError, KeyError, ImportError):
        raise InvalidInput("--by", "the login name is unknown: give a name") from None


# --- confirmation -------------------------------------------------------------------------------


def confirm_options(command: F) -> F:
    """Add ``--dry-run`` and ``--yes``."""
    add = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
    sure = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
    return add(sure(command))


def on_terminal() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal; elsewhere refuse unless ``--yes`` was given."""
    if yes:
        return
    if not on_terminal():
        raise InvalidInput("--yes", f"{question} No terminal to ask on: add --yes to do it")
    click.confirm(visible(question), abort=True, err=True)
