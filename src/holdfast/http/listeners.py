"""Sockets that listen: a Unix one for this user alone, or a port."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

from holdfast.model.errors import DirectoryInUse, InvalidInput, StorageError

BACKLOG = 128
"""How many connections may wait to be accepted."""


def bind_socket(path: str) -> socket.socket:
    """Return a Unix socket at this path that only this user can connect to.

    For the owner of the store: a file that an earlier owner left is replaced. Raise
    ``DirectoryInUse`` if a process listens there, or another ``StorageError``.
    """
    _remove_stale_socket(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The file gets the mode of the socket where the system supports it. Elsewhere it is open
        # until chmod, but no process listens yet.
        with contextlib.suppress(OSError):
            os.fchmod(sock.fileno(), 0o600)
        sock.bind(path)
        Path(path).chmod(0o600)
    except OSError as error:
        sock.close()
        raise StorageError(f"no socket can be made at {path}: {error}") from error
    return sock


def bind_port(host: str, port: int) -> socket.socket:
    """Return a TCP socket that listens on this address; port 0 is any free one.

    Raise ``InvalidInput`` for an address that is not one of this machine, or is taken.
    """
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise InvalidInput("host", f"{host!r} is not an IP address, nor localhost") from None
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((str(address), port))
        # Bound is not enough: until one of them listens, two processes can have the same address.
        sock.listen(BACKLOG)
    except (OSError, OverflowError, TypeError) as error:
        sock.close()
        raise InvalidInput("port", f"{host} port {port!r} cannot be used ({error})") from error
    return sock


def _remove_stale_socket(path: str) -> None:
    """Remove a socket on which no process listens."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise StorageError(f"no socket can be made at {path!r}: {error}") from error
    if not stat.S_ISSOCK(found.st_mode):
        raise StorageError(f"{path} is to be a socket, and something else is there: move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            remove_sockets([path])
            return
        except BlockingIOError:
            pass  # a process listens, and is busy
        except OSError as error:
            raise StorageError(f"{path} cannot be looked at: {error}") from error
    raise DirectoryInUse(
        f"another process listens on {path}, so it owns the store: stop it first, or be its client"
    )


def remove_sockets(paths: Sequence[str]) -> None:
    """Remove the files of Unix sockets."""
    for path in paths:
        Path(path).unlink(missing_ok=True)
