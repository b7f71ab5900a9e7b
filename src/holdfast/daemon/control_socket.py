"""The socket on which a daemon takes commands."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator

from holdfast.engines.socket_path import private_socket_path, socket_path
from holdfast.model.errors import StorageError
from holdfast.settings import Settings

from .forks import close_in_forks, keep_open_in_forks


def control_path(settings: Settings) -> str:
    """Return the path of the socket on which a daemon of this store takes commands.

    A shared store may have several daemons on this machine: the first one takes this path.
    """
    if settings.directory is not None:
        return socket_path(settings.store)
    name = f"{settings.store} {settings.schema}"
    return private_socket_path(hashlib.sha256(os.fsencode(name)).hexdigest())


@contextlib.contextmanager
def control_lock(path: str) -> Iterator[bool]:
    """Yield whether this daemon is the one that takes commands at this path: it has the lock.

    Checking for a listener is not enough: of two daemons that start at the same time both
    would find none, and one would remove the other's socket.
    """
    import fcntl  # noqa: PLC0415 - where there are such sockets, there is this

    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        number = os.open(f"{path}.lock", flags, 0o600)
    except OSError as error:
        raise StorageError(f"no lock can be made at {path}.lock: {error}") from error
    close_in_forks(path, number)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        keep_open_in_forks(number)
        os.close(number)
