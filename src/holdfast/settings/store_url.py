"""Where jobs are stored: the forms of a store, its two paths, and whether a directory is usable."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from types import MappingProxyType

from holdfast.model.errors import InvalidInput
from holdfast.model.redaction import has_secret, masked, shown

MEMORY_STORE = "memory:"
DEFAULT_PATHS: Mapping[str, str] = MappingProxyType(
    {"store": "./data", "wal_path": "./data/wal.log", "snapshot_path": "./data/snapshot.json"}
)
# Two letters or more: one is a drive of Windows.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_LIKE_CONNECTION = re.compile(
    # Key=value of libpq, or a scheme with too few slashes. A directory may begin with ./
    r"(?i)(?:^|\s)(?:host|hostaddr|port|dbname|user|password|passfile|service|sslmode)\s*="
    r"|^postgres(?:ql)?(?::|//)"
)
_REMOTE = re.compile(r"(https|http|http\+insecure)://", re.IGNORECASE)
_LOOPBACK = re.compile(r"localhost|127(?:\.[0-9]{1,3}){3}|::1")
_POSTGRESQL = re.compile(r"(?i:postgres(?:ql)?(?:\+[a-z0-9_]+)?)://(.*)", re.DOTALL)


def store(field: str, value: object) -> str:
    """Parse a store. A SQLAlchemy dialect is removed from a URL."""
    if not isinstance(value, str) or not value.strip() or not _is_text(value):
        raise InvalidInput(field, f"{shown(value)} is neither a directory nor {MEMORY_STORE}")
    if found := _POSTGRESQL.fullmatch(value.strip()):
        return f"postgresql://{_checked_url(field, value, found[1])}"
    if is_remote(value.strip()):
        return _checked_remote(field, value.strip())
    if "://" not in value and (has_secret(value) or _LIKE_CONNECTION.search(value)):
        problem = "is no directory, nor a URL: write postgresql://user@host/database"
        raise InvalidInput(field, f"{shown(value)} {problem}")
    if value != MEMORY_STORE and (_SCHEME.match(value) or "://" in value):
        problem = (
            f"neither a directory nor {MEMORY_STORE}, nor postgresql://user@host/database, nor "
            "https://host:port"
        )
        raise InvalidInput(field, f"{shown(value)} is {problem}")
    return value


def database_url(field: str, value: object) -> str:
    """Parse a store that must be a URL: a typo must not create a directory of that name."""
    found = store(field, value)
    if is_directory(found):
        raise InvalidInput(field, f"{shown(value)} is not postgresql://user@host/database")
    return found


def file_path(field: str, value: object) -> str:
    """Parse the path of a file that need not exist."""
    if (
        not isinstance(value, str)
        or not _is_text(value)
        or "://" in value
        or re.search(r"(^|[/\\])\.{0,2}$", value)
    ):
        raise InvalidInput(field, f"{shown(value)} does not name a file, as ./data/wal.log does")
    return value


def is_directory(store: str) -> bool:
    """Whether this store is a directory on this machine."""
    return store != MEMORY_STORE and not is_server(store) and not is_remote(store)


def is_server(store: str) -> bool:
    """Whether this store is on a PostgreSQL server."""
    return store.startswith("postgresql://")


def is_remote(store: str) -> bool:
    """Whether this store is reached over the API of another machine."""
    return _REMOTE.match(store) is not None


def resolve_paths(
    store: str, wal_path: str | None, snapshot_path: str | None
) -> dict[str, str | None]:
    """Make the store and the two paths agree; defaults follow the values that are given."""
    given = {
        field: value
        for field, value in (("wal_path", wal_path), ("snapshot_path", snapshot_path))
        if value is not None and value != DEFAULT_PATHS[field]
    }
    if not is_directory(store):
        for field, value in given.items():
            raise InvalidInput(field, f"{value!r} has no effect with store {masked(store)}")
        return {"store": store, "wal_path": None, "snapshot_path": None}
    default = DEFAULT_PATHS["store"]
    if "wal_path" in given and store == default:
        store = str(PurePath(given["wal_path"]).parent)
    elif "wal_path" in given and PurePath(given["wal_path"]).parent != PurePath(store):
        problem = f"{given['wal_path']!r} is not in the store {store!r}: give one of the two"
        raise InvalidInput("wal_path", problem)
    paths = {
        field: given.get(field) or (path if store == default else _in(store, path))
        for field, path in DEFAULT_PATHS.items()
        if field != "store"
    }
    return {"store": store, **paths}


def unusable(field: str, value: str, directory: str) -> InvalidInput | None:
    """Return why a directory cannot be created or written, or None. It creates nothing.

    ``field`` and ``value`` are the setting that names it.
    """
    path = Path(directory).absolute()
    try:
        while not path.exists():
            path = path.parent
        if not path.is_dir():
            why = f"{path} is not a directory"
        elif not os.access(path, os.W_OK | os.X_OK):
            why = f"this user may not write in {path}"
        else:
            return None
    except OSError as error:
        why = str(error.strerror or error)
    return InvalidInput(field, f"{value!r} cannot be used: {why}")


def _in(store: str, path: str) -> str:
    return str(PurePath(store) / PurePath(path).name)


def _is_text(value: str) -> bool:
    """Whether it can be a file name: without NUL and unpaired surrogates."""
    return "\0" not in value and not re.search("[\ud800-\udfff]", value)


def _checked_remote(field: str, value: str) -> str:
    """Return the URL of an API without a slash at its end."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - most stores need none

    if not value.isascii() or not value.isprintable() or " " in value:
        raise InvalidInput(field, f"{shown(value)} is not a URL: write blanks and others as %20")
    try:
        parts = urlsplit(value)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidInput(field, f"{shown(value)} is not a URL: its host or port") from None
    if not host or parts.query or parts.fragment:
        raise InvalidInput(field, f"{shown(value)} is not a URL such as https://host:8080")
    if "@" in parts.netloc:
        problem = "has a key or a password in it: HOLDFAST_API_KEY or api_key_file has the key"
        raise InvalidInput(field, f"{shown(value)} {problem}")
    if parts.scheme == "http" and not _LOOPBACK.fullmatch(host):
        problem = "would send the key unencrypted: use https://, or say http+insecure://"
        raise InvalidInput(field, f"{shown(value)} {problem}")
    return value.rstrip("/")


def _checked_url(field: str, value: str, rest: str) -> str:
    """Return the part after the scheme unchanged; refuse only what cannot be a URL."""
    if not rest.isprintable() or " " in rest:
        raise InvalidInput(field, f"{shown(value)} is not a URL: it contains blanks")
    hosts = re.split(r"[/?]", rest, maxsplit=1)[0].rpartition("@")[2]
    for host in hosts.split(","):
        _name, colon, port = re.sub(r"\[[^\[\]]*\]", "", host).partition(":")
        if colon and not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) <= 65_535):
            problem = "the port is not a number up to 65,535; in a password, write / as %2F"
            raise InvalidInput(field, f"{shown(value)} is not a URL: {problem}")
    return rest
