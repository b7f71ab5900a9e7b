"""Who is at the other end of a Unix socket, asked of the system before anything is sent."""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.model.errors import StoreNotOurs

from .ownership import current_uid, is_trusted, named

_LINUX = struct.Struct("iII")
"""``struct ucred``: process, user, group."""
_BSD = struct.Struct("IIh2x16I")
"""``struct xucred``: version, user, number of groups, groups."""
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1


class ConnectedSocket(Protocol):
    """A socket, or what a transport of asyncio offers instead."""

    def getsockopt(self, level: int, option: int, buffer_bytes: int, /) -> bytes:
        """See ``socket.socket``."""


class Peer(NamedTuple):
    """The process that listens."""

    uid: int
    pid: int | None
    """None where the system does not tell."""


def peer_of(sock: ConnectedSocket, path: str) -> Peer:
    """Return who listens on this socket, which is connected to this path."""
    if sys.platform == "linux":
        found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _LINUX.size)
        pid, uid, _gid = _LINUX.unpack(found)
        return Peer(uid, pid)
    if sys.platform in ("darwin", "freebsd"):
        found = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _BSD.size)
        return Peer(_BSD.unpack_from(found)[1], None)
    return Peer(Path(path).lstat().st_uid, None)  # who made it; its directory is private


def refuse_stranger(sock: ConnectedSocket, path: str) -> None:
    """Raise ``StoreNotOurs`` unless the process that listens runs as this user, or as root."""
    me = current_uid()
    if me is None:
        return
    peer = peer_of(sock, path)
    if not is_trusted(peer.uid):
        process = "a process" if peer.pid is None else f"process {peer.pid}"
        command = f"sudo -u '#{peer.uid}' holdfast …" if me == 0 else f"sudo rm {path}"
        said = f"and so does {process}, which listens there: nothing was sent to it"
        raise StoreNotOurs(path, named(peer.uid), said, command)
