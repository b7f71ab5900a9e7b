"""The path of the socket on which the owner of a store listens."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import stat
import tempfile
from pathlib import Path

from holdfast.model.errors import StorageError, StoreNotOurs

from .ownership import make_directory, named

SOCKET_NAME = "holdfast.sock"
MAX_PATH_BYTES = 100
"""Some systems limit the address of a Unix socket to 103 bytes."""


def socket_path(store: str | Path) -> str:
    """Return the path of the store's socket, the same for every process.

    It is in the store or, if that path is too long, in a private directory of this user below the
    system's temporary directory. Raise ``StorageError`` if others can open that directory.
    """
    root = Path(store).resolve()
    beside = str(root / SOCKET_NAME)
    if len(os.fsencode(beside)) <= MAX_PATH_BYTES:
        return beside
    return private_socket_path(hashlib.sha256(os.fsencode(root)).hexdigest())


def start_advice(path: str) -> str:
    """Return how to start an owner that listens on this path."""
    place = Path(path)
    option = f" --store {place.parent}" if place.name == SOCKET_NAME else ""
    return (
        f"start one with `holdfast{option} run`. If it runs already, it has another store: name "
        "one store for both, in the application or with --store"
    )


def private_socket_path(digest: str) -> str:
    """Return a path with this digest in a directory that only this user can open."""
    return str(private_socket_directory() / f"{digest[:16]}.sock")


def private_socket_directory() -> Path:
    """Return this user's directory of sockets; raise ``StoreNotOurs`` if others can use it."""
    directory = Path(tempfile.gettempdir()) / f"holdfast-{os.geteuid()}"
    _make_private(directory)
    return directory


def _make_private(directory: Path) -> None:
    try:
        with contextlib.suppress(FileExistsError):
            make_directory(directory)
        found = directory.lstat()
    except OSError as error:
        raise StorageError(f"{directory} cannot be made for the socket: {error}") from error
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.geteuid()
        or stat.S_IMODE(found.st_mode) & 0o077
    ):
        problem = (
            "and is for the socket of a store, but is not a directory that only this user can open "
            "(TMPDIR can name another place)"
        )
        command = f"sudo rm -r {shlex.quote(str(directory))}"
        raise StoreNotOurs(str(directory), named(found.st_uid), problem, command)
