"""What ``holdfast config`` does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from holdfast.model.errors import InvalidInput, NoOwner
from holdfast.settings import DEFAULTS, LoadedSettings, Settings, changed, plain, read, written

if TYPE_CHECKING:
    from holdfast.daemon.reload import RunningSettings
    from holdfast.settings import SettingsReport

EXIT_USAGE = 2
_PLACES = ("store", "wal_path", "snapshot_path")


def show(*, origin: bool, as_json: bool) -> None:
    """Print every setting that holds, as a settings file. Passwords are not shown."""
    loaded = _loaded(_read())
    values = plain(loaded.settings)
    if as_json and origin:
        click.echo(
            msgspec.json.encode(
                {
                    field: {"value": value, "origin": loaded.origins[field]}
                    for field, value in values.items()
                }
            )
        )
    elif as_json:
        click.echo(msgspec.json.encode(values))
    else:
        for field in values:
            line = f"{field}: {written(field, getattr(loaded.settings, field))}"
            click.echo(f"{line:<45} # {loaded.origins[field]}" if origin else line)


def check(file: str | None, *, as_json: bool) -> None:
    """Say everything that is wrong with the settings; exit 2 if anything is.

    FILE is a settings file to look at instead of the usual one. The environment counts as well.
    """
    from holdfast.settings import unusable_places  # noqa: PLC0415

    reading = _read(file)
    problems = list(reading.problems)
    if reading.loaded is not None:
        problems += unusable_places(reading.loaded)
    if as_json:
        found = [{"field": problem.field, "problem": problem.problem} for problem in problems]
        click.echo(
            msgspec.json.encode(
                {"file": reading.file, "problems": found, "warnings": reading.warnings}
            )
        )
    else:
        _say_all(problems, reading.warnings)
        if not problems:
            click.echo(f"{reading.file or 'the settings'}: nothing is wrong")
    if problems:
        raise SystemExit(EXIT_USAGE)


class _Difference(NamedTuple):
    field: str
    before: str
    after: str
    before_origin: str
    after_origin: str
    needs_restart: bool


def diff(*, as_json: bool) -> None:
    """Print what differs from the defaults, and from what the running daemon goes by."""
    loaded = _loaded(_read())
    mine = [
        _Difference(
            field,
            written(field, DEFAULTS[field]),
            written(field, getattr(loaded.settings, field)),
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
        click.echo("everything is at its default")
    for one in mine:
        click.echo(f"{one.field}: {one.before} -> {one.after} ({one.after_origin})")
    if running is None:
        return
    if not theirs:
        click.echo(f"the daemon (process {running.process}) goes by the same settings")
        return
    click.echo(f"the daemon (process {running.process}) goes by other settings:")
    for one in theirs:
        after = f"{one.after} ({one.after_origin})"
        then = "needs a restart" if one.needs_restart else "holdfast config reload takes it over"
        click.echo(f"  {one.field}: {one.before} ({one.before_origin}) -> {after}: {then}")


def reload(by: str | None, reason: str, *, as_json: bool) -> None:
    """Have the running daemon read its settings again, as a SIGHUP does, and say what changed.

    The daemon reads its own file, environment and flags. If anything is wrong there, it goes on as
    before.
    """
    from holdfast.daemon.reload import ReloadResult  # noqa: PLC0415
    from holdfast.daemon.rpc.bodies import ReloadBody  # noqa: PLC0415
    from holdfast.daemon.rpc.config_routes import RELOAD  # noqa: PLC0415

    from .options import who_of  # noqa: PLC0415
    from .store_access import ask  # noqa: PLC0415

    settings = _loaded(_read()).settings
    body = msgspec.json.encode(ReloadBody(who_of(by, reason)))
    report = ask(settings, "POST", RELOAD, body, ReloadResult)
    if report is None:
        raise NoOwner(
            f"no daemon runs on {settings.store_shown}: start one with `holdfast run`, or name "
            "another store with --store"
        )
    if as_json:
        click.echo(msgspec.json.encode(report))
        return
    for warning in report.warnings:
        click.echo(f"holdfast: {warning}", err=True)
    for change in report.changed:
        click.echo(f"{change.field}: {change.before} -> {change.after} ({change.origin})")
    for change in report.needs_restart:
        line = f"{change.field}: {change.before} -> {change.after} ({change.origin})"
        click.echo(f"needs a restart: {line}")
    if not report.changed:
        click.echo("nothing has changed")


# --- reading and comparing ----------------------------------------------------------------------


def _read(file: str | None = None) -> SettingsReport:
    asked = click.get_current_context().find_root().params
    path, store = asked.get("config") if file is None else file, asked.get("store")
    return read(path, environ=os.environ, flags={"store": store})


def _loaded(reading: SettingsReport) -> LoadedSettings:
    """Return the settings, or say everything that is wrong and leave."""
    _say_all(reading.problems, reading.warnings)
    if reading.loaded is None:
        raise SystemExit(EXIT_USAGE)
    return reading.loaded


def _say_all(problems: Sequence[InvalidInput], warnings: Sequence[str]) -> None:
    for line in (*problems, *warnings):
        click.echo(f"holdfast: {line}", err=True)


def _running(settings: Settings) -> RunningSettings | None:
    from holdfast.daemon.reload import RunningSettings  # noqa: PLC0415
    from holdfast.daemon.rpc.config_routes import CONFIG  # noqa: PLC0415

    from .store_access import ask  # noqa: PLC0415

    return ask(settings, "GET", CONFIG, b"", RunningSettings)


def _differences(running: RunningSettings, loaded: LoadedSettings) -> list[_Difference]:
    """Return where the daemon's settings are not what file and environment say to us.

    What it was told by a flag is left out: it would be told that again. Its environment is its own
    for as long as it runs.
    """
    return [
        _Difference(
            field,
            written(field, running.settings[field]),
            written(field, getattr(loaded.settings, field)),
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
    """Whether two paths may be one: it is the same store, and we do not know where it was said."""
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
    click.echo(msgspec.json.encode(found))
