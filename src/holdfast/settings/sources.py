"""The doors that settings come in by: a file, the environment, flags; and which of them wins."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from types import MappingProxyType

import msgspec

from holdfast.model.errors import InvalidInput
from holdfast.model.masking import has_secret, shown

from .fields import Settings
from .files import read_file
from .parsers import READERS
from .store_url import DEFAULT_PLACES, database_url, unusable
from .validation import doubts

DEFAULT_FILE = "./configs/default.yaml"
"""Read when no file is named and this one exists, relative to the working directory."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "max_retry": "max_attempts",
        "task_timeout": "task_timeout_seconds",
        "timeout": "task_timeout_seconds",
        "snapshot_interval": "snapshot_interval_seconds",
        "snapshot": "snapshot_interval_seconds",
        "workers": "worker_count",
    }
)
"""Other names of a setting, for file, environment (``HOLDFAST_…``) and flags."""

_OLD_FIELDS = (
    "worker_id metrics_port batch_size poll_interval_seconds lease_seconds max_attempts "
    "base_backoff_seconds max_backoff_seconds reclaim_interval_seconds max_processing_seconds "
    "run_seconds"
)
OLD_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {f"OUTBOX_{field.upper()}": field for field in _OLD_FIELDS.split()}
)
"""Names in the environment from before; ``HOLDFAST_…`` wins over them."""
DATABASE_URL: Mapping[str, str] = MappingProxyType({"DATABASE_URL": "store"})
"""What others put into the environment too: everything else that names the store wins over it."""

_LONGEST = 1_000
"""How many characters a problem may have that quotes what it is about."""
_NAMES: Mapping[str, str] = {**{field: field for field in Settings.__struct_fields__}, **ALIASES}
_OURS: Mapping[str, str] = {f"HOLDFAST_{name.upper()}": field for name, field in _NAMES.items()}


class LoadedSettings(msgspec.Struct, frozen=True):
    """Settings, and where each came from."""

    settings: Settings
    origins: Mapping[str, str]
    """By field: ``default``, ``file <path>``, ``environment NAME`` or ``flag --name``."""
    warnings: tuple[str, ...] = ()
    """A sentence for each thing that was hardly meant: a misspelt name, a setting without use."""


class SettingsReport(msgspec.Struct, frozen=True):
    """What came in, and everything that is wrong with it."""

    loaded: LoadedSettings | None
    """None if there is a problem."""
    problems: tuple[InvalidInput, ...]
    warnings: tuple[str, ...]
    file: str | None
    """The settings file that was read."""


def load(
    path: str | None = None,
    *,
    environ: Mapping[str, str],
    flags: Mapping[str, object] = MappingProxyType({}),
) -> LoadedSettings:
    """Read the file, the environment and the flags, and return what holds.

    Without a path ``DEFAULT_FILE`` is read if it exists. A flag of None was not given. Of
    ``store`` and ``wal_path`` the one from the stronger door places the store, and from one door
    they must agree; a ``snapshot_path`` from a weaker door than the store's does not follow it
    elsewhere. In a file, a place that equals its default counts as not given.

    Raise ``InvalidInput`` for the first thing that is wrong.
    """
    reading = read(path, environ=environ, flags=flags)
    if reading.loaded is None:
        raise reading.problems[0]
    return reading.loaded


def read(
    path: str | None = None,
    *,
    environ: Mapping[str, str],
    flags: Mapping[str, object] = MappingProxyType({}),
) -> SettingsReport:
    """Read as ``load`` does, and return everything that is wrong instead of raising the first."""
    problems: list[InvalidInput] = []
    if path is None and Path(DEFAULT_FILE).is_file():
        path = DEFAULT_FILE
    given = _given(path, environ, flags, problems)
    origins = dict.fromkeys(Settings.__struct_fields__, "default")
    origins |= {field: item.origin for field, item in given.items()}
    values: dict[str, object] = {}
    for field, item in given.items():
        try:
            values[field] = _read_value(field, item)
        except InvalidInput as problem:
            problems.append(problem)
    _settle_places(values, given, origins)
    settings = _made(values, origins, problems)
    warnings = _misspelt(environ)
    if problems or settings is None:
        return SettingsReport(None, tuple(problems), warnings, path)
    warnings += tuple(doubts(settings))
    return SettingsReport(
        LoadedSettings(settings, MappingProxyType(origins), warnings), (), warnings, path
    )


def unusable_places(loaded: LoadedSettings) -> list[InvalidInput]:
    """Return what is wrong with the places that the settings name, on this machine, now."""
    settings = loaded.settings
    found: list[InvalidInput] = []
    for field, directory in (
        ("store", settings.directory),
        ("snapshot_path", settings.snapshot_directory),
    ):
        value = getattr(settings, field)
        problem = directory and unusable(field, value, directory)
        if problem:
            found.append(with_origin(problem, loaded.origins))
    return found


def with_origin(problem: InvalidInput, origins: Mapping[str, str]) -> InvalidInput:
    """Return the problem with where its field came from."""
    origin = origins.get(problem.field, "default")
    return InvalidInput(problem.field, f"{problem.problem} ({origin})")


# --- what comes in ------------------------------------------------------------------------------


class _Source(enum.IntEnum):
    """Where a value came in; a higher one wins."""

    DATABASE_URL = 1
    FILE = 2
    ENVIRONMENT = 3
    FLAG = 4


class _SourcedValue(msgspec.Struct, frozen=True):
    value: object
    origin: str
    door: _Source


def _given(
    path: str | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    problems: list[InvalidInput],
) -> dict[str, _SourcedValue]:
    """Return what all doors gave, by field, each from the strongest."""
    from_environ = lambda name: f"environment {name}"
    given = _by_field(
        _named(environ, DATABASE_URL), DATABASE_URL, _Source.DATABASE_URL, from_environ, problems
    )
    content: dict[str, object] = {}
    try:
        content = {} if path is None else read_file(path)
    except InvalidInput as problem:
        problems.append(problem)
    from_file = _by_field(content, _NAMES, _Source.FILE, lambda _name: f"file {path}", problems)
    for field, item in from_file.items():
        # A file that lists every default says nothing of places.
        if field not in given or not _usual_place(field, item.value):
            given[field] = item
    for names in (OLD_ENVIRONMENT, _OURS):
        given |= _by_field(
            _named(environ, names), names, _Source.ENVIRONMENT, from_environ, problems
        )
    options = {name.replace("-", "_"): value for name, value in flags.items() if value is not None}
    from_flag = lambda name: f"flag --{name.replace('_', '-')}"
    return given | _by_field(options, _NAMES, _Source.FLAG, from_flag, problems)


def _named(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, object]:
    return {name: environ[name] for name in names if name in environ}


def _by_field(
    named: Mapping[str, object],
    names: Mapping[str, str],
    door: _Source,
    origin: Callable[[str], str],
    problems: list[InvalidInput],
) -> dict[str, _SourcedValue]:
    """Return what one door gave, by field; note unknown names, and two for one field."""
    found: dict[str, _SourcedValue] = {}
    spelt: dict[str, str] = {}
    for name, value in named.items():
        field = names.get(name)
        if field is None:
            problem = f"not a setting{_nearest(name, names)} ({origin(name)})"
            problems.append(InvalidInput(name, problem))
        elif field in found:
            problem = f"the same setting as {spelt[field]}: give one of the two ({origin(name)})"
            problems.append(InvalidInput(name, problem))
        else:
            found[field] = _SourcedValue(value, origin(name), door)
            spelt[field] = name
    return found


def _nearest(name: str, names: Iterable[str], likeness: float = 0.6) -> str:
    import difflib  # noqa: PLC0415 - only for mistakes

    near = difflib.get_close_matches(name, list(names), 1, likeness)
    return f"; did you mean {near[0]}?" if near else ""


def _misspelt(environ: Mapping[str, str]) -> tuple[str, ...]:
    # Warned of and not refused: the prefix is not ours alone (Kubernetes makes such names too).
    known = {**_OURS, **OLD_ENVIRONMENT}
    doubtful = sorted(name for name in environ if name.startswith(("HOLDFAST_", "OUTBOX_")))
    near = {name: _nearest(name, known, 0.9) for name in doubtful if name not in known}
    return tuple(f"{name} is not a setting{hint}" for name, hint in near.items() if hint)


# --- what is made of it -------------------------------------------------------------------------


def _read_value(field: str, given: _SourcedValue) -> object:
    try:
        reader = database_url if given.door is _Source.DATABASE_URL else READERS[field]
        return reader(field, given.value)
    except InvalidInput as error:
        seen, problem = shown(given.value), error.problem
        if seen not in problem and (has_secret(given.value) or len(problem) > _LONGEST):
            problem = "it is nothing that this setting takes"  # and no part of it is quoted
        if seen not in problem:
            problem = f"{seen}: {problem}"
        raise InvalidInput(field, f"{problem} ({given.origin})") from None


def _made(
    values: dict[str, object], origins: Mapping[str, str], problems: list[InvalidInput]
) -> Settings | None:
    """Make settings, noting what clashes; whatever is blamed is left out and the rest looked at."""
    while True:
        try:
            return msgspec.convert(values, Settings)
        except InvalidInput as problem:
            problems.append(with_origin(problem, origins))
            if values.pop(problem.field, None) is None:
                return None


def _usual_place(field: str, value: object) -> bool:
    """Whether this, in a file, says nothing of where work is kept."""
    return field in DEFAULT_PLACES and (value is None or value == DEFAULT_PLACES[field])


def _settle_places(
    values: dict[str, object], given: Mapping[str, _SourcedValue], origins: dict[str, str]
) -> None:
    """Of places from different doors keep what the strongest says, and note who said it."""
    doors = dict.fromkeys(DEFAULT_PLACES, 0)
    for field in doors.keys() & values.keys():
        usual = values[field] == DEFAULT_PLACES[field]
        if values[field] is None or (usual and given[field].door is _Source.FILE):
            del values[field]
        else:
            doors[field] = given[field].door
            if usual:  # spelt another way, so that it counts as said
                values[field] = str(PurePath(str(values[field])))
    by = "store" if doors["store"] >= doors["wal_path"] else "wal_path"
    for field, door in doors.items():
        if door < doors[by]:
            values.pop(field, None)
            origins[field] = origins[by]
