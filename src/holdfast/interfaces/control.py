"""Where a daemon takes commands."""

from __future__ import annotations

import hashlib
import os

from holdfast.engines.socket_path import private_socket_path, socket_path
from holdfast.settings import Settings


def control_path(settings: Settings) -> str:
    """Return the path of the socket on which a daemon of this store takes commands.

    A server may have several daemons on this machine: the first one takes this path.
    """
    if not settings.on_server:
        return socket_path(settings.store)
    name = f"{settings.store} {settings.schema}"
    return private_socket_path(hashlib.sha256(os.fsencode(name)).hexdigest())
