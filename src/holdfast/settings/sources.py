"""The sources of settings: a file, the environment, flags; and which of them wins."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from types import MappingProxyType

import msgspec

from holdfast.model.errors import InvalidInput
from holdfast.model.redaction import has_secret, shown

from .fields import Settings
from .files import read_file
from .parsers import PARSERS
from .store_url import DEFAULT_PATHS, database_url, unusable
from .validation import doubtful

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
"""Other names of settings, in file, environment (``HOLDFAST_…``) and flags."""

_OLD_FIELDS = (
    "worker_id metrics_port batch_size poll_interval_seconds lease_seconds max_attempts "
    "base_backoff_seconds max_backoff_seconds reclaim_interval_seconds max_processing_seconds "
    "run_seconds"
)
OLD_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {f"OUTBOX_{field.upper()}": field for field in _OLD_FIELDS.split()}
)
"""Old names in the environment; ``HOLDFAST_…`` wins over them."""
DATABASE_URL: Mapping[str, str] = MappingProxyType({"DATABASE_URL": "store"})
"""Set by many platforms; every other source of the store wins over it."""

_MAX_QUOTED = 1_000
"""The longest problem that may quote its value."""
_NAMES: Mapping[str, str] = {**{field: field for field in Settings.__struct_fields__}, **ALIASES}
_VARIABLES: Mapping[str, str] = {
    f"HOLDFAST_{name.upper()}": field for name, field in _NAMES.items()
}


class LoadedSettings(msgspec.Struct, frozen=True):
    """Settings, and the source of each."""

    settings: Settings
    origins: Mapping[str, str]
    """By field: ``default``, ``file <path>``, ``environment NAME`` or ``flag --name``."""
    warnings: tuple[str, ...] = ()
    """Probable mistakes: a misspelt name, a setting without effect."""


class SettingsReport(msgspec.Struct, frozen=True):
    """The settings that were read, and every problem with them."""

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
    """Read the file, the environment and the flags, and return the settings in effect.

    Without a path ``DEFAULT_FILE`` is read if it exists. A flag of None is not given. Of ``store``
    and ``wal_path`` the one from the stronger source decides, and in one source they must agree; a
    ``snapshot_path`` from a weaker source than the store's is ignored. In a file, a path that
    equals its default counts as not given.

    Raise ``InvalidInput`` for the first problem.
    """
    report = read(path, environ=environ, flags=flags)
    if report.loaded is None:
        raise report.problems[0]
    return report.loaded


def read(
    path: str | None = None,
    *,
    environ: Mapping[str, str],
    flags: Mapping[str, object] = MappingProxyType({}),
) -> SettingsReport:
    """Read as ``load`` does, and return every problem instead of raising the first."""
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
    _resolve_paths(values, given, origins)
    settings = _made(values, origins, problems)
    warnings = _misspelt(environ)
    if problems or settings is None:
        return SettingsReport(None, tuple(problems), warnings, path)
    warnings += tuple(doubtful(settings))
    return SettingsReport(
        LoadedSettings(settings, MappingProxyType(origins), warnings), (), warnings, path
    )


def unusable_paths(loaded: LoadedSettings) -> list[InvalidInput]:
    """Return why the directories in the settings cannot be used on this machine."""
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
    """Return the problem with the source of its field."""
    origin = origins.get(problem.field, "default")
    return InvalidInput(problem.field, f"{problem.problem} ({origin})")


# --- sources ------------------------------------------------------------------------------------


class _Source(enum.IntEnum):
    """Where a value comes from; the highest one wins."""

    DATABASE_URL = 1
    FILE = 2
    ENVIRONMENT = 3
    FLAG = 4


class _SourcedValue(msgspec.Struct, frozen=True):
    value: object
    origin: str
    source: _Source


def _given(
    path: str | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    problems: list[InvalidInput],
) -> dict[str, _SourcedValue]:
    """Return the values of all sources, by field, each from the strongest source."""
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
        # A file that lists every default does not set the paths.
        if field not in given or not _is_default_path(field, item.value):
            given[field] = item
    for names in (OLD_ENVIRONMENT, _VARIABLES):
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
    source: _Source,
    origin: Callable[[str], str],
    problems: list[InvalidInput],
) -> dict[str, _SourcedValue]:
    """Return the values of one source, by field; add unknown and duplicate names to problems."""
    found: dict[str, _SourcedValue] = {}
    named_as: dict[str, str] = {}
    for name, value in named.items():
        field = names.get(name)
        if field is None:
            problem = f"not a setting{_nearest(name, names)} ({origin(name)})"
            problems.append(InvalidInput(name, problem))
        elif field in found:
            problem = f"the same setting as {named_as[field]}: give one of the two ({origin(name)})"
            problems.append(InvalidInput(name, problem))
        else:
            found[field] = _SourcedValue(value, origin(name), source)
            named_as[field] = name
    return found


def _nearest(name: str, names: Iterable[str], likeness: float = 0.6) -> str:
    import difflib  # noqa: PLC0415 - only for mistakes

    near = difflib.get_close_matches(name, list(names), 1, likeness)
    return f"; did you mean {near[0]}?" if near else ""


def _misspelt(environ: Mapping[str, str]) -> tuple[str, ...]:
    # A warning, not an error: others use the prefix too (Kubernetes makes such names).
    known = {**_VARIABLES, **OLD_ENVIRONMENT}
    doubtful = sorted(name for name in environ if name.startswith(("HOLDFAST_", "OUTBOX_")))
    near = {name: _nearest(name, known, 0.9) for name in doubtful if name not in known}
    return tuple(f"{name} is not a setting{hint}" for name, hint in near.items() if hint)


# --- values -------------------------------------------------------------------------------------


def _read_value(field: str, given: _SourcedValue) -> object:
    try:
        reader = database_url if given.source is _Source.DATABASE_URL else PARSERS[field]
        return reader(field, given.value)
    except InvalidInput as error:
        seen, problem = shown(given.value), error.problem
        if seen not in problem and (has_secret(given.value) or len(problem) > _MAX_QUOTED):
            problem = "not a valid value"  # without quoting any of it
        if seen not in problem:
            problem = f"{seen}: {problem}"
        raise InvalidInput(field, f"{problem} ({given.origin})") from None


def _made(
    values: dict[str, object], origins: Mapping[str, str], problems: list[InvalidInput]
) -> Settings | None:
    """Make settings; add each conflict to problems, drop its field and try the rest."""
    while True:
        try:
            return msgspec.convert(values, Settings)
        except InvalidInput as problem:
            problems.append(with_origin(problem, origins))
            if values.pop(problem.field, None) is None:
                return None


def _is_default_path(field: str, value: object) -> bool:
    """Whether this path, in a file, counts as not given."""
    return field in DEFAULT_PATHS and (value is None or value == DEFAULT_PATHS[field])


def _resolve_paths(
    values: dict[str, object], given: Mapping[str, _SourcedValue], origins: dict[str, str]
) -> None:
    """Of the paths of different sources keep those of the strongest, and note their origin."""
    sources = dict.fromkeys(DEFAULT_PATHS, 0)
    for field in sources.keys() & values.keys():
        default = values[field] == DEFAULT_PATHS[field]
        if values[field] is None or (default and given[field].source is _Source.FILE):
            del values[field]
        else:
            sources[field] = given[field].source
            if default:  # spelled differently, so that it counts as given
                values[field] = str(PurePath(str(values[field])))
    winner = "store" if sources["store"] >= sources["wal_path"] else "wal_path"
    for field, source in sources.items():
        if source < sources[winner]:
            values.pop(field, None)
            origins[field] = origins[winner]
