"""Where work is kept: the forms of a store, how the two paths follow it, and what disks say."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from types import MappingProxyType

from holdfast.model.errors import InvalidInput
from holdfast.model.masking import masked, shown

MEMORY_STORE = "memory:"
DEFAULT_PLACES: Mapping[str, str] = MappingProxyType(
    {"store": "./data", "wal_path": "./data/wal.log", "snapshot_path": "./data/snapshot.json"}
)
# Two letters or more: one is a drive of Windows.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_POSTGRESQL = re.compile(r"(?i:postgres(?:ql)?(?:\+[a-z0-9_]+)?)://(.*)", re.DOTALL)


def store(field: str, value: object) -> str:
    """Read where work is kept. What SQLAlchemy calls a dialect is left out of a URL."""
    if not isinstance(value, str) or not value.strip() or not _is_text(value):
        raise InvalidInput(field, f"{shown(value)} is neither a directory nor {MEMORY_STORE}")
    if found := _POSTGRESQL.fullmatch(value.strip()):
        return f"postgresql://{_checked_url(field, value, found[1])}"
    if value != MEMORY_STORE and (_SCHEME.match(value) or "://" in value):
        problem = f"neither a directory nor {MEMORY_STORE}, nor postgresql://user@host/database"
        raise InvalidInput(field, f"{shown(value)} is {problem}")
    return value


def database_url(field: str, value: object) -> str:
    """Read a store that can only be a URL: a slip there must not make a directory of that name."""
    found = store(field, value)
    if is_directory(found):
        raise InvalidInput(field, f"{shown(value)} is not postgresql://user@host/database")
    return found


def file_path(field: str, value: object) -> str:
    """Read the path of a file that need not exist."""
    if (
        not isinstance(value, str)
        or not _is_text(value)
        or "://" in value
        or re.search(r"(^|[/\\])\.{0,2}$", value)
    ):
        raise InvalidInput(field, f"{shown(value)} does not name a file, as ./data/wal.log does")
    return value


def is_directory(place: str) -> bool:
    """Whether a store of this name is a directory of this machine."""
    return place != MEMORY_STORE and not is_server(place)


def is_server(place: str) -> bool:
    """Whether a store of this name is on a PostgreSQL server."""
    return place.startswith("postgresql://")


def placed(store: str, wal_path: str | None, snapshot_path: str | None) -> dict[str, str | None]:
    """Make the store and the two paths agree; what is at its default follows what is not."""
    said = {
        field: value
        for field, value in (("wal_path", wal_path), ("snapshot_path", snapshot_path))
        if value is not None and value != DEFAULT_PLACES[field]
    }
    if not is_directory(store):
        for field, value in said.items():
            raise InvalidInput(field, f"{value!r} has no meaning with store {masked(store)}")
        return {"store": store, "wal_path": None, "snapshot_path": None}
    usual = DEFAULT_PLACES["store"]
    if "wal_path" in said and store == usual:
        store = str(PurePath(said["wal_path"]).parent)
    elif "wal_path" in said and PurePath(said["wal_path"]).parent != PurePath(store):
        problem = f"{said['wal_path']!r} is not in the store {store!r}: give one of the two"
        raise InvalidInput("wal_path", problem)
    paths = {
        field: said.get(field) or (path if store == usual else _in(store, path))
        for field, path in DEFAULT_PLACES.items()
        if field != "store"
    }
    return {"store": store, **paths}


def unusable(field: str, value: str, directory: str) -> InvalidInput | None:
    """Return why a directory could not be made or written, as far as can be seen; None is well.

    Nothing is made. ``field`` and ``value`` are the setting that names it.
    """
    place = Path(directory).absolute()
    try:
        while not place.exists():
            place = place.parent
        if not place.is_dir():
            why = f"{place} is not a directory"
        elif not os.access(place, os.W_OK | os.X_OK):
            why = f"this user may not write in {place}"
        else:
            return None
    except OSError as error:
        why = str(error.strerror or error)
    return InvalidInput(field, f"{value!r} cannot be used: {why}")


def _in(store: str, path: str) -> str:
    return str(PurePath(store) / PurePath(path).name)


def _is_text(value: str) -> bool:
    """Whether it has no NUL and no half of a character in it: no file can be called so."""
    return "\0" not in value and not re.search("[\ud800-\udfff]", value)


def _checked_url(field: str, value: str, rest: str) -> str:
    """Return what follows the scheme, as it was; only what no server could be asked is refused."""
    if not rest.isprintable() or " " in rest:
        raise InvalidInput(field, f"{shown(value)} is no URL: it has blanks in it")
    hosts = re.split(r"[/?]", rest, maxsplit=1)[0].rpartition("@")[2]
    for host in hosts.split(","):
        _name, colon, port = re.sub(r"\[.*\]", "", host).partition(":")
        if colon and not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) <= 65_535):
            problem = "the port is not a number up to 65,535; in a password, write / as %2F"
            raise InvalidInput(field, f"{shown(value)} is no URL: {problem}")
    return rest
