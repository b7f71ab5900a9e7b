"""Everything that the daemon and apps read: one struct, four doors, one name for each setting.

``lease_seconds`` is the field, the key in the file, ``HOLDFAST_LEASE_SECONDS`` in the environment
and ``--lease-seconds`` on the command line. A flag wins over the environment, the environment over
the file, the file over the default. What cannot be read is an error that names the field, the
value and where it came from; nothing is corrected in silence.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.durations import Duration, seconds_of
from holdfast.model.errors import InvalidInput
from holdfast.model.job import (
    MAX_LEASE_SECONDS,
    MAX_TIME_US,
    MICROSECONDS,
    check_name,
    check_seconds,
    check_size,
)

SyncWord = Literal["always", "interval", "off"]
HistoryWord = Literal["required", "anew"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LogFormat = Literal["console", "json", "auto"]

DEFAULT_FILE = "./configs/default.yaml"
"""Read when no file is named and this one exists, relative to the working directory."""
MEMORY_STORE = "memory:"
MAX_WORKERS = 10_000

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
    "worker_id metrics_port lease_seconds max_attempts base_backoff_seconds max_backoff_seconds "
    "reclaim_interval_seconds max_processing_seconds run_seconds"
)
OLD_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {f"OUTBOX_{field.upper()}": field for field in _OLD_FIELDS.split()}
)
"""Names in the environment from before; ``HOLDFAST_…`` wins over them."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set. Making one checks every field; ``InvalidInput`` names the bad one.

    Relative paths are relative to the working directory, also those in a file. Durations are
    seconds, or text such as ``500ms``, ``3s`` and ``1h30m`` wherever they are read.
    """

    store: str = "./data"
    """Where work is kept: a directory, or ``memory:``, which ends with the process."""
    wal_path: str | None = "./data/wal.log"
    """Another way to name the store: the log lies in the directory of this path, in ``log/``. The
    file name itself is not used. None if the store has no log."""
    snapshot_path: str | None = "./data/snapshot.json"
    """Snapshots lie in the directory of this path, in ``snapshots/``: elsewhere than the log, if
    one wishes. The file name itself is not used. No two stores may share the directory. None if
    the store has no snapshots."""
    worker_count: int = 8
    """How many jobs run at once."""
    processes: int = 1
    """How many worker processes there are."""
    queues: str | None = None
    """The queues to serve and how many slots each has at most, such as ``mail:8,slow:2``; None is
    every queue of a registered task. See ``queue_slots``."""
    worker_id: str | None = None
    """What this worker is called; None lets it make a name of its own."""
    default_task: str = "holdfast.simulate"
    """The task of a job that names none."""
    task_timeout_seconds: float = 3.0
    """How long a task may run, unless it says otherwise."""
    lease_seconds: float = 30.0
    """How long a claim lasts without a heartbeat."""
    max_processing_seconds: float = 600.0
    """How long a job may stay claimed, heartbeats or not."""
    reclaim_interval_seconds: float = 1.0
    """How often to look for leases that ran out."""
    max_attempts: int = 3
    """How often a job runs in all before it is dead."""
    base_backoff_seconds: float = 1.0
    """The most that is waited after the first failure; it doubles with each."""
    max_backoff_seconds: float = 300.0
    """The most that is waited after any failure."""
    remember_seconds: float = 3_600.0
    """How long finished jobs are kept and their ids refused."""
    snapshot_interval_seconds: float = 2.0
    """How often to look whether a snapshot is worth while."""
    sync: SyncWord = "always"
    """When acknowledged work is on stable storage: always, within an interval, or whenever."""
    history: HistoryWord = "required"
    """Whether to begin ``anew`` when the file of finished work is damaged or missing."""
    drain_seconds: float = 30.0
    """How long a stop waits for the jobs that run."""
    run_seconds: float | None = None
    """Stop by itself after this long; None is never."""
    stall_seconds: float | None = 30.0
    """How long a task may hold the event loop before the process starts over; None is for ever."""
    memory_limit_bytes: int | None = None
    """The most memory of a task that runs in a process of its own; None is no limit."""
    metrics_host: str = "127.0.0.1"
    """The address that metrics are served on."""
    metrics_port: int | None = 9090
    """The port that metrics are served on; 0 is any free one, None or ``off`` is none at all."""
    log_level: LogLevel = "info"
    """The least that is logged."""
    log_format: LogFormat = "auto"
    """How it is logged; ``auto`` is console on a terminal and json elsewhere."""

    def __post_init__(self) -> None:
        for field, read in _READERS.items():
            force_setattr(self, field, read(field, getattr(self, field)))
        _place(self)

    @property
    def directory(self) -> str | None:
        """The directory that the journal owns; None if the store is not one."""
        return None if self.store == MEMORY_STORE else self.store

    @property
    def snapshot_directory(self) -> str | None:
        """The directory of the snapshots; None if the store has none."""
        if self.snapshot_path is None:
            return None
        return str(PurePath(self.snapshot_path).parent / "snapshots")


class Loaded(msgspec.Struct, frozen=True):
    """Settings, and where each came from."""

    settings: Settings
    origins: Mapping[str, str]
    """By field: ``default``, ``file <path>``, ``environment NAME`` or ``flag --name``."""
    warnings: tuple[str, ...] = ()
    """A sentence for each name in the environment that looks like a misspelt setting."""


def load(
    path: str | None = None,
    *,
    environ: Mapping[str, str],
    flags: Mapping[str, object] = MappingProxyType({}),
) -> Loaded:
    """Read the file, the environment and the flags, and return what holds.

    Without a path ``DEFAULT_FILE`` is read if it exists. A flag of None was not given. Of
    ``store`` and ``wal_path`` the one from the stronger door places the store, and from one door
    they must agree; a ``snapshot_path`` from a weaker door than the store's does not follow it
    elsewhere. In a file, a place that equals its default counts as not given.
    """
    if path is None and Path(DEFAULT_FILE).is_file():
        path = DEFAULT_FILE
    content = {} if path is None else _read_file(path)
    given = _by_field(content, _NAMES, _Door.FILE, lambda _name: f"file {path}")
    ours = {f"HOLDFAST_{name.upper()}": field for name, field in _NAMES.items()}
    for names in (OLD_ENVIRONMENT, ours):
        found = {name: environ[name] for name in names if name in environ}
        given |= _by_field(found, names, _Door.ENVIRONMENT, lambda name: f"environment {name}")
    options = {name.replace("-", "_"): value for name, value in flags.items() if value is not None}
    given |= _by_field(options, _NAMES, _Door.FLAG, lambda name: f"flag --{name.replace('_', '-')}")
    values = {field: _read(field, item) for field, item in given.items()}
    origins = dict.fromkeys(Settings.__struct_fields__, "default")
    origins |= {field: item.origin for field, item in given.items()}
    _settle_places(values, given, origins)
    try:
        settings = msgspec.convert(values, Settings)
    except InvalidInput as error:
        raise InvalidInput(error.field, f"{error.problem} ({origins[error.field]})") from None
    return Loaded(settings, MappingProxyType(origins), _misspelt(environ, ours))


def queue_slots(text: str) -> dict[str, int | None]:
    """Return the queues that text such as ``mail:8,slow:2,default`` names, and the slots of each.

    None is as many as there are. What follows the last colon is the number, so that the name of a
    queue with a colon in it needs one.
    """
    found: dict[str, int | None] = {}
    for part in text.split(","):
        name, colon, number = part.strip().rpartition(":")
        if not colon:
            name, number = number, ""
        name = check_name("queues", name.strip())
        if name in found:
            raise InvalidInput("queues", f"{text!r} names {name!r} twice")
        found[name] = _whole(1, MAX_WORKERS)("queues", number.strip()) if colon else None
    return found


# --- one value ----------------------------------------------------------------------------------

Reader: TypeAlias = Callable[[str, object], object]
"""Returns the value of a field as it is kept, from how it is written; or ``InvalidInput``."""


def _whole(least: int, most: int = MAX_TIME_US) -> Callable[[str, object], int]:
    def read(field: str, value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", value):
            value = int(value)
        if type(value) is not int:
            raise InvalidInput(field, f"{value!r} is not a whole number")
        return check_size(field, value, least, most)

    return read


def _seconds(*, zero: bool = False, most: float = MAX_TIME_US / MICROSECONDS) -> Reader:
    def read(field: str, value: object) -> float:
        if not isinstance(value, Duration):
            raise InvalidInput(field, f"{value!r} is not a duration")
        try:
            seconds = seconds_of(field, value)
        except OverflowError:
            raise InvalidInput(field, f"{value!r} is not a duration: it is too long") from None
        return seconds if zero and seconds == 0 else check_seconds(field, seconds, most)

    return read


def _word(choices: tuple[str, ...]) -> Reader:
    def read(field: str, value: object) -> str:
        # YAML reads the word "off" as false.
        word = "off" if value is False else value
        if not isinstance(word, str) or word.strip().lower() not in choices:
            raise InvalidInput(field, f"{value!r} is not one of {', '.join(choices)}")
        return word.strip().lower()

    return read


def _or_none(read: Reader, words: tuple[str, ...] = ("none", "off")) -> Reader:
    def read_or_none(field: str, value: object) -> object:
        off = value is None or (value is False and "off" in words)
        if off or (isinstance(value, str) and value.strip().lower() in words):
            return None
        return read(field, value)

    return read_or_none


def _name(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field, f"{value!r} is not text: put it in quotes")
    return check_name(field, value)


def _store(field: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise InvalidInput(field, f"{value!r} is neither a directory nor {MEMORY_STORE}")
    # Two letters or more: one is a drive of Windows.
    if value != MEMORY_STORE and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", value):
        problem = f"neither a directory nor {MEMORY_STORE}, and work is kept nowhere else"
        raise InvalidInput(field, f"{value!r} is {problem}")
    return value


def _file_path(field: str, value: object) -> str:
    if not isinstance(value, str) or "\0" in value or re.search(r"(^|[/\\])\.{0,2}$", value):
        raise InvalidInput(field, f"{value!r} does not name a file, as ./data/wal.log does")
    return value


def _queues(field: str, value: object) -> str:
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        value = ",".join(value)
    if not isinstance(value, str):
        raise InvalidInput(field, f"{value!r} is not text such as 'mail:8,slow:2'")
    queue_slots(value)
    return value


_READERS: Mapping[str, Reader] = {
    "store": _store,
    "wal_path": _or_none(_file_path, ()),
    "snapshot_path": _or_none(_file_path, ()),
    "worker_count": _whole(1, MAX_WORKERS),
    "processes": _whole(1, 1_024),
    "queues": _or_none(_queues, ()),
    "worker_id": _or_none(_name, ()),
    "default_task": _name,
    "task_timeout_seconds": _seconds(),
    "lease_seconds": _seconds(most=MAX_LEASE_SECONDS),
    "max_processing_seconds": _seconds(),
    "reclaim_interval_seconds": _seconds(),
    "max_attempts": _whole(1, 1_000_000),
    "base_backoff_seconds": _seconds(zero=True),
    "max_backoff_seconds": _seconds(zero=True),
    "remember_seconds": _seconds(),
    "snapshot_interval_seconds": _seconds(),
    "sync": _word(get_args(SyncWord)),
    "history": _word(get_args(HistoryWord)),
    "drain_seconds": _seconds(zero=True),
    "run_seconds": _or_none(_seconds()),
    "stall_seconds": _or_none(_seconds()),
    "memory_limit_bytes": _or_none(_whole(1024 * 1024)),
    "metrics_host": _name,
    "metrics_port": _or_none(_whole(0, 65_535)),
    "log_level": _word(get_args(LogLevel)),
    "log_format": _word(get_args(LogFormat)),
}
_NAMES: Mapping[str, str] = {**{field: field for field in Settings.__struct_fields__}, **ALIASES}


# --- the doors ----------------------------------------------------------------------------------


class _Door(enum.IntEnum):
    """Where a value came in; a higher one wins."""

    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3


class _Given(msgspec.Struct, frozen=True):
    value: object
    origin: str
    door: _Door


def _by_field(
    named: Mapping[str, object],
    names: Mapping[str, str],
    door: _Door,
    origin: Callable[[str], str],
) -> dict[str, _Given]:
    """Return what one door gave, by field; refuse unknown names, and two for one field."""
    found: dict[str, _Given] = {}
    spelt: dict[str, str] = {}
    for name, value in named.items():
        field = names.get(name)
        if field is None:
            raise InvalidInput(name, f"not a setting{_nearest(name, names)} ({origin(name)})")
        if field in found:
            problem = f"the same setting as {spelt[field]}: give one of the two ({origin(name)})"
            raise InvalidInput(name, problem)
        found[field] = _Given(value, origin(name), door)
        spelt[field] = name
    return found


def _nearest(name: str, names: Iterable[str], likeness: float = 0.6) -> str:
    import difflib  # noqa: PLC0415 - only for mistakes

    near = difflib.get_close_matches(name, list(names), 1, likeness)
    return f"; did you mean {near[0]}?" if near else ""


def _misspelt(environ: Mapping[str, str], known: Mapping[str, str]) -> tuple[str, ...]:
    # Warned of and not refused: the prefix is not ours alone (Kubernetes makes such names too).
    doubtful = sorted(name for name in environ if name.startswith("HOLDFAST_"))
    near = {name: _nearest(name, known, 0.9) for name in doubtful if name not in known}
    return tuple(f"{name} is not a setting{hint}" for name, hint in near.items() if hint)


def _read(field: str, given: _Given) -> object:
    try:
        return _READERS[field](field, given.value)
    except InvalidInput as error:
        shown = repr(given.value)
        problem = error.problem if shown in error.problem else f"{shown}: {error.problem}"
        raise InvalidInput(field, f"{problem} ({given.origin})") from None


def _read_file(path: str) -> dict[str, object]:
    suffix = PurePath(path).suffix.lower()
    if suffix not in _PARSERS:
        raise InvalidInput("config", f"{path} does not end in {', '.join(_PARSERS)}")
    try:
        content = _PARSERS[suffix](Path(path).read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InvalidInput("config", f"{path} cannot be read: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidInput("config", f"{path} is not a list of settings such as worker_count: 8")
    return {str(name): value for name, value in content.items()}


def _parse_toml(text: str) -> object:
    import tomllib  # noqa: PLC0415 - only who has such a file pays for it

    return tomllib.loads(text)


def _parse_yaml(text: str) -> object:
    import yaml  # noqa: PLC0415 - most commands need none

    try:
        root = yaml.compose(text, yaml.SafeLoader)
        if isinstance(root, yaml.MappingNode):
            keys = [key.value for key, _value in root.value]
            if twice := [str(key) for key in keys if keys.count(key) > 1]:
                raise ValueError(f"{twice[0]} is in it twice")  # YAML would keep the last
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


_PARSERS: Mapping[str, Callable[[str], object]] = {
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
    ".toml": _parse_toml,
}


# --- the places ---------------------------------------------------------------------------------

_DEFAULT_PLACES = {
    field: value
    for field, value in zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True)
    if field in ("store", "wal_path", "snapshot_path")
}


def _settle_places(
    values: dict[str, object], given: Mapping[str, _Given], origins: dict[str, str]
) -> None:
    """Of places from different doors keep what the strongest says, and note who said it."""
    doors = dict.fromkeys(_DEFAULT_PLACES, 0)
    for field in doors.keys() & values.keys():
        usual = values[field] == _DEFAULT_PLACES[field]
        if values[field] is None or (usual and given[field].door is _Door.FILE):
            del values[field]  # a file that lists every default says nothing
        else:
            doors[field] = given[field].door
            if usual:  # spelt another way, so that it counts as said
                values[field] = str(PurePath(str(values[field])))
    by = "store" if doors["store"] >= doors["wal_path"] else "wal_path"
    for field, door in doors.items():
        if door < doors[by]:
            values.pop(field, None)
            origins[field] = origins[by]


def _place(settings: Settings) -> None:
    """Make the store and the two paths agree; what is at its default follows what is not."""
    store = settings.store
    said = {
        field: value
        for field in ("wal_path", "snapshot_path")
        if (value := getattr(settings, field)) not in (None, _DEFAULT_PLACES[field])
    }
    if store == MEMORY_STORE:
        for field, value in said.items():
            raise InvalidInput(field, f"{value!r} has no meaning with store {MEMORY_STORE}")
        paths: dict[str, str | None] = {"wal_path": None, "snapshot_path": None}
    else:
        if "wal_path" in said and store == _DEFAULT_PLACES["store"]:
            store = str(PurePath(said["wal_path"]).parent)
        elif "wal_path" in said and PurePath(said["wal_path"]).parent != PurePath(store):
            problem = f"{said['wal_path']!r} is not in the store {store!r}: give one of the two"
            raise InvalidInput("wal_path", problem)
        usual = store == _DEFAULT_PLACES["store"]
        paths = {
            field: said.get(field)
            or (str(path) if usual else str(PurePath(store) / PurePath(str(path)).name))
            for field, path in _DEFAULT_PLACES.items()
            if field != "store"
        }
    for field, value in {"store": store, **paths}.items():
        force_setattr(settings, field, value)
