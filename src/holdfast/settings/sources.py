"""The sources of settings: a file, the environment, flags; and which of them wins."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from types import MappingProxyType

import msgspec

from holdfast.model.errors import InvalidInput
from holdfast.model.redaction import has_secret, masked, shown

from .fields import DEFAULTS, Settings
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
        "keep_log": "keep_log_bytes",
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

_STORE_FIELDS = frozenset({"store", "wal_path"})
"""The settings that name the store."""
MAX_VALUE_LENGTH = 32 * 1024
"""The longest value that a variable of the environment or a flag may have."""
_MAX_HINTS = 20
"""For how many unknown names of a source the nearest one is looked for: that takes a while."""
_MAX_QUOTED = 1_000
"""The longest problem that may quote its value."""
_NAMES: Mapping[str, str] = {**{field: field for field in Settings.__struct_fields__}, **ALIASES}
_VARIABLES: Mapping[str, str] = {
    f"HOLDFAST_{name.upper()}": field for name, field in _NAMES.items()
}


_OTHER_VARIABLES = re.compile(
    # Those of our tests and tools, and those that Kubernetes makes for a service of this name.
    r"HOLDFAST_(DEBUG|API_KEY|WRITE_GOLDEN|(TEST|BENCH)_\w+|"
    r"(\w{1,200}_)?(SERVICE_HOST|SERVICE_PORT(_\w{1,100})?|PORT(_\d{1,5}_\w{1,100})?))"
)


class ApplicationSettings(msgspec.Struct, frozen=True):
    """What an application names itself: ``Holdfast("./store", config="settings.yaml")``."""

    store: str | None = None
    config: str | None = None
    key: str | None = None
    """For a store at ``https://…``."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(store={masked(self.store or '')!r}, config={self.config!r})"


NO_APPLICATION = ApplicationSettings()


class LoadedSettings(msgspec.Struct, frozen=True):
    """Settings, and the source of each."""

    settings: Settings
    origins: Mapping[str, str]
    """By field: ``default``, ``file <path>``, ``environment NAME``, ``application`` or
    ``flag --name``."""
    warnings: tuple[str, ...] = ()
    """Probable mistakes: a misspelt name, a setting without effect, two stores."""


class SettingsReport(msgspec.Struct, frozen=True):
    """The settings that were read, and every problem with them."""

    loaded: LoadedSettings | None
    """None if there is a problem."""
    problems: tuple[InvalidInput, ...]
    warnings: tuple[str, ...]
    file: str | None
    """The settings file that was read."""

    def checked(self) -> LoadedSettings:
        """Return the settings, or raise ``InvalidInput`` for the first problem."""
        if self.loaded is None:
            raise self.problems[0]
        return self.loaded


def load(
    path: str | None = None,
    *,
    environ: Mapping[str, str],
    flags: Mapping[str, object] = MappingProxyType({}),
    application: ApplicationSettings = NO_APPLICATION,
) -> LoadedSettings:
    """Read the file, the environment and the flags, and return the settings in effect.

    Without a path the application's file is read, or ``DEFAULT_FILE`` if it exists. A flag of None
    is not given. Of ``store`` and ``wal_path`` the one from the stronger source decides, and in one
    source they must agree; a ``snapshot_path`` from a weaker source than the store's is ignored. In
    a file, a path that equals its default counts as not given.

    Raise ``InvalidInput`` for the first problem.
    """
    return read(path, environ=environ, flags=flags, application=application).checked()


def read(
    path: str | None = None,
    *,
    environ: Mapping[str, str],
    flags: Mapping[str, object] = MappingProxyType({}),
    application: ApplicationSettings = NO_APPLICATION,
) -> SettingsReport:
    """Read as ``load`` does, and return every problem instead of raising the first."""
    problems: list[InvalidInput] = []
    warnings = _misspelt(environ) + _other_file(path, application)
    path = application.config if path is None else path
    if path is None and Path(DEFAULT_FILE).is_file():
        path = DEFAULT_FILE
    by_source = _by_source(path, environ, flags, application, problems)
    warnings += _other_store(by_source) + _passwords_in_flags(by_source[-1])
    given = {field: item for one in by_source for field, item in one.items()}
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
    if problems or settings is None:
        return SettingsReport(None, tuple(problems), warnings, path)
    lowered = settings.task_timeout_seconds != DEFAULTS["task_timeout_seconds"]
    if lowered and "task_timeout_seconds" not in given:
        origins["task_timeout_seconds"] = origins["max_processing_seconds"]  # see within_cap
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
    APPLICATION = 4
    FLAG = 5


class _SourcedValue(msgspec.Struct, frozen=True):
    value: object
    origin: str
    source: _Source


def _by_source(
    path: str | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    application: ApplicationSettings,
    problems: list[InvalidInput],
) -> list[dict[str, _SourcedValue]]:
    """Return the values by field, of each source, the weakest first."""
    from_environ = lambda name: f"environment {name}"
    platform = _by_field(
        _named(environ, DATABASE_URL), DATABASE_URL, _Source.DATABASE_URL, from_environ, problems
    )
    content: dict[str, object] = {}
    try:
        content = {} if path is None else read_file(path)
    except InvalidInput as problem:
        problems.append(problem)
    from_file = _by_field(content, _NAMES, _Source.FILE, lambda _name: f"file {path}", problems)
    found = [
        platform,
        # A file that lists every default does not set the paths.
        {
            field: item
            for field, item in from_file.items()
            if field not in platform or not _is_default_path(field, item.value)
        },
    ]
    found += [
        _by_field(_named(environ, names), names, _Source.ENVIRONMENT, from_environ, problems)
        for names in (OLD_ENVIRONMENT, _VARIABLES)
    ]
    if application.store is not None:
        named = _SourcedValue(application.store, "application", _Source.APPLICATION)
        found.append({"store": named})
    options = {name.replace("-", "_"): value for name, value in flags.items() if value is not None}
    from_flag = lambda name: f"flag --{name.replace('_', '-')}"
    return [*found, _by_field(options, _NAMES, _Source.FLAG, from_flag, problems)]


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
            hint = _nearest(name, names) if len(problems) < _MAX_HINTS else ""
            shown_name = name if len(name) <= _MAX_QUOTED else f"{name[:_MAX_QUOTED]}…"
            problems.append(InvalidInput(shown_name, f"not a setting{hint} ({origin(shown_name)})"))
        elif field in found:
            problem = f"the same setting as {named_as[field]}: give one of the two ({origin(name)})"
            problems.append(InvalidInput(name, problem))
        else:
            found[field] = _SourcedValue(value, origin(name), source)
            named_as[field] = name
            if isinstance(value, str) and len(value) > MAX_VALUE_LENGTH:
                del found[field]
                problem = f"it has more than {MAX_VALUE_LENGTH:,} characters ({origin(name)})"
                problems.append(InvalidInput(name, problem))
    return found


def _nearest(name: str, names: Iterable[str], likeness: float = 0.6) -> str:
    import difflib  # noqa: PLC0415 - only for mistakes

    near = difflib.get_close_matches(name, list(names), 1, likeness)
    return f"; did you mean {near[0]}?" if near else ""


def _misspelt(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return a warning for each variable with our prefix that is not a setting.

    Not an error: others use the prefix too. Of the old prefix only near misses are named.
    """
    known = {**_VARIABLES, **OLD_ENVIRONMENT}
    found = []
    for name in sorted(environ.keys() - known):
        if name.startswith("OUTBOX_") and (hint := _nearest(name, OLD_ENVIRONMENT, 0.9)):
            found.append(f"{name} is not a setting{hint}")
        elif name.startswith("HOLDFAST_") and not _OTHER_VARIABLES.fullmatch(name):
            hint = _nearest(name, _VARIABLES, 0.8) if len(found) < _MAX_HINTS else ""
            found.append(f"{name[:_MAX_QUOTED]} is not a setting{hint}")
    return tuple(found)


def _other_file(path: str | None, application: ApplicationSettings) -> tuple[str, ...]:
    """Return a warning if the application reads another settings file."""
    named = application.config
    if path is None or named is None or Path(path).absolute() == Path(named).absolute():
        return ()
    return (f"config: {path} is read, and the application itself reads {named}",)


def _other_store(by_source: Sequence[Mapping[str, _SourcedValue]]) -> tuple[str, ...]:
    """Return a warning for each source that names another store than the application does."""
    given = [item for one in by_source for field, item in one.items() if field in _STORE_FIELDS]
    named = next((item for item in given if item.source is _Source.APPLICATION), None)
    if named is None:
        return ()
    store, warnings = masked(str(named.value)), []
    for one in by_source:
        for field in _STORE_FIELDS & one.keys():
            item = one[field]
            if item.source is _Source.DATABASE_URL or _names_store(field, item, named.value):
                continue
            other = f"{masked(str(item.value))} ({item.origin})"
            warnings.append(
                f"{field}: the application names {store}, so {other} is not used: remove one of "
                "the two"
                if item.source < _Source.APPLICATION
                else f"{field}: {other} is used, and the application names {store}: its other "
                "processes enqueue there"
            )
    return tuple(warnings)


def _passwords_in_flags(flags: Mapping[str, _SourcedValue]) -> tuple[str, ...]:
    """Return a warning for each flag with a password: every user of the machine can read it."""
    return tuple(
        f"{field}: every user of this machine can read the password in {item.origin} (ps): name it "
        f"in HOLDFAST_{field.upper()}, in a settings file, or in ~/.pgpass"
        for field, item in flags.items()
        if has_secret(item.value)
    )


def _names_store(field: str, item: _SourcedValue, store: object) -> bool:
    """Whether this value means this store, or nothing."""
    value = item.value
    if not isinstance(value, str) or (
        item.source is _Source.FILE and _is_default_path(field, value)
    ):
        return True
    if field == "wal_path":
        value = str(PurePath(value).parent)
    if "://" in value or "://" in str(store):
        return value == store
    return Path(value).absolute() == Path(str(store)).absolute()


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
