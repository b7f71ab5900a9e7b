"""``holdfast config``: show, check, compare and reload settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from holdfast.cli.exit_codes import EXIT_USAGE
from holdfast.cli.group import CommandContext
from holdfast.cli.options import by_option, json_option, who_of, worker_option
from holdfast.cli.output import document, echo
from holdfast.model.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.daemon.reload import ReloadResult, RunningSettings
    from holdfast.settings import LoadedSettings, Settings, SettingsReport

_PLACES = ("store", "wal_path", "snapshot_path")


@click.group("config")
def config() -> None:
    """Show, check and reload the settings of the daemon and the commands."""


@config.command("show")
@click.option("--origin", is_flag=True, help="Show where each setting comes from.")
@json_option
def show(*, origin: bool, as_json: bool) -> None:
    """Print every setting in effect, as a settings file. Passwords are hidden."""
    from holdfast.settings import formatted, plain  # noqa: PLC0415 - help needs none

    loaded = _loaded(_read())
    values = plain(loaded.settings)
    if as_json and origin:
        document(
            {
                field: {"value": value, "origin": loaded.origins[field]}
                for field, value in values.items()
            }
        )
    elif as_json:
        document(values)
    else:
        for field in values:
            line = f"{field}: {formatted(field, getattr(loaded.settings, field))}"
            echo(f"{line:<45} # {loaded.origins[field]}" if origin else line)


@config.command("check")
@click.argument("file", required=False, metavar="[FILE]")
@json_option
def check(file: str | None, *, as_json: bool) -> None:
    """List every problem in the settings; exit 2 if there is one.

    FILE is the settings file to check instead of the default one. The environment counts too.
    """
    from holdfast.settings import unusable_paths  # noqa: PLC0415

    reading = _read(file)
    problems = list(reading.problems)
    if reading.loaded is not None:
        problems += unusable_paths(reading.loaded)
    if as_json:
        found = [{"field": problem.field, "problem": problem.problem} for problem in problems]
        document({"file": reading.file, "problems": found, "warnings": reading.warnings})
    else:
        _print_problems(problems, reading.warnings)
        if not problems:
            echo(f"{reading.file or 'the settings'}: no problems")
    if problems:
        raise SystemExit(EXIT_USAGE)


class _Difference(NamedTuple):
    field: str
    before: str
    after: str
    before_origin: str
    after_origin: str
    needs_restart: bool


@config.command("diff")
@json_option
def diff(*, as_json: bool) -> None:
    """Print what differs from the defaults and from the running daemon's settings."""
    from holdfast.settings import DEFAULTS, changed, formatted  # noqa: PLC0415

    loaded = _loaded(_read())
    mine = [
        _Difference(
            field,
            formatted(field, DEFAULTS[field]),
            formatted(field, getattr(loaded.settings, field)),
            "default",
            loaded.origins[field],
            needs_restart=False,
        )
        for field in changed(loaded.settings)
    ]
    running = _running(loaded.settings)
    theirs = [] if running is None else _differences(running, loaded)
    if as_json:
        _print_differences(mine, running, theirs)
        return
    if not mine:
        echo("every setting has its default")
    for one in mine:
        echo(f"{one.field}: {one.before} -> {one.after} ({one.after_origin})")
    if running is None:
        return
    if not theirs:
        echo(f"the daemon (process {running.process}) uses the same settings")
        return
    echo(f"the daemon (process {running.process}) uses other settings:")
    for one in theirs:
        after = f"{one.after} ({one.after_origin})"
        then = "needs a restart" if one.needs_restart else "holdfast config reload applies it"
        echo(f"  {one.field}: {one.before} ({one.before_origin}) -> {after}: {then}")


@config.command("reload")
@worker_option
@by_option
@click.option(
    "--reason",
    metavar="TEXT",
    default="config reload",
    show_default=True,
    help="Why; it is recorded with the names of the changed settings.",
)
@json_option
def reload(*, workers: tuple[str, ...], by: str | None, reason: str, as_json: bool) -> None:
    """Make the live daemons read their settings again, as SIGHUP does, and print the changes.

    Each reads its own file, environment and flags. If they have a problem, it keeps the settings
    that it has.
    """
    from holdfast.cli.worker_commands import raise_for, send_command  # noqa: PLC0415
    from holdfast.daemon.reload import ReloadResult  # noqa: PLC0415
    from holdfast.model.fleet import WorkerCommand  # noqa: PLC0415

    settings = _loaded(_read()).settings
    sent = send_command(settings, WorkerCommand("reload"), workers, who_of(by, reason))
    done = [one for one in sent.results if one.outcome == "done"]
    reports = [msgspec.json.decode(one.text, type=ReloadResult) for one in done]
    if as_json and len(sent.results) == 1 and reports:
        document(reports[0])
    elif as_json:
        document({"workers": sent.results})
    else:
        for one, report in zip(done, reports, strict=True):
            _print_reload(report, f"{one.worker}: " if len(sent.results) > 1 else "")
    raise_for(sent.results)


def _print_reload(report: ReloadResult, prefix: str) -> None:
    for warning in report.warnings:
        echo(f"holdfast: {prefix}{warning}", err=True)
    for change in report.changed:
        echo(f"{prefix}{change.field}: {change.before} -> {change.after} ({change.origin})")
    for change in report.needs_restart:
        line = f"{change.field}: {change.before} -> {change.after} ({change.origin})"
        echo(f"{prefix}needs a restart: {line}")
    if not report.changed:
        echo(f"{prefix}nothing changed")


# --- reading and comparing ----------------------------------------------------------------------


def _read(file: str | None = None) -> SettingsReport:
    context: CommandContext = click.get_current_context().find_object(CommandContext)  # type: ignore[assignment]
    return context.read(file)


def _loaded(reading: SettingsReport) -> LoadedSettings:
    """Return the settings, or print every problem and exit."""
    _print_problems(reading.problems, reading.warnings)
    if reading.loaded is None:
        raise SystemExit(EXIT_USAGE)
    return reading.loaded


def _print_problems(problems: Sequence[InvalidInput], warnings: Sequence[str]) -> None:
    for line in (*problems, *warnings):
        echo(f"holdfast: {line}", err=True)


def _running(settings: Settings) -> RunningSettings | None:
    from holdfast.cli.store_access import request_owner  # noqa: PLC0415
    from holdfast.daemon.reload import RunningSettings  # noqa: PLC0415
    from holdfast.daemon.rpc import CONFIG  # noqa: PLC0415

    return request_owner(settings, "GET", CONFIG, b"", RunningSettings)


def _differences(running: RunningSettings, loaded: LoadedSettings) -> list[_Difference]:
    """Return where the daemon's settings differ from our file and environment.

    Those set by a flag are left out: the flag would be given again. The daemon keeps its own
    environment as long as it runs.
    """
    from holdfast.settings import changed, formatted  # noqa: PLC0415

    return [
        _Difference(
            field,
            formatted(field, running.settings[field]),
            formatted(field, getattr(loaded.settings, field)),
            running.origins.get(field, "default"),
            loaded.origins[field],
            needs_restart=field not in running.reloadable
            or running.origins.get(field, "").startswith("environment "),
        )
        for field in changed(loaded.settings, running.settings)
        if not running.origins.get(field, "").startswith("flag ")
        and not (field in _PLACES and _same_place(running.settings[field], loaded, field))
    ]


def _same_place(theirs: object, loaded: LoadedSettings, field: str) -> bool:
    """Whether two paths may be the same: relative ones cannot be compared."""
    ours = getattr(loaded.settings, field)
    return not (
        isinstance(theirs, str)
        and isinstance(ours, str)
        and PurePath(theirs).is_absolute()
        and PurePath(ours).is_absolute()
    )


def _print_differences(
    mine: list[_Difference], running: RunningSettings | None, theirs: list[_Difference]
) -> None:
    found = {
        "from_defaults": [one._asdict() for one in mine],
        "from_daemon": [one._asdict() for one in theirs],
        "daemon_process": None if running is None else running.process,
    }
    document(found)
