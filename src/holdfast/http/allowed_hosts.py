"""Which names a listener answers to, so that a page in a browser cannot reach it by another one."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from .exchange import HttpRequest, HttpResponse, problem

_MAX_HOST_BYTES = 300


class AllowedHosts:
    """Addresses, ``localhost`` and the name of this machine are always allowed; others by name.

    A name is allowed as it is, one that begins with a dot with everything below it, and ``*`` is
    any. A web page that was served under a name of its owner's can have that name point here (DNS
    rebinding): then the browser sends that name, and is refused.
    """

    def __init__(self, names: Iterable[str], setting: str) -> None:
        """``setting`` has the names: the answer to another one says so."""
        given = {name.lower() for name in names if name}
        self._setting = setting
        self._any = "*" in given
        self._domains = tuple(name for name in given if name.startswith("."))
        self._names = given | {"localhost", socket.gethostname().lower()}

    def refusal(self, request: HttpRequest) -> HttpResponse | None:
        """Return the answer to a request that names another host, or None."""
        hosts = request.values(b"host")
        if self._any or (not hosts and request.http_version == "1.0"):
            return None
        if len(hosts) != 1:
            return problem(400, "a request has one Host header")
        if not self._allow(hosts[0]):
            return problem(421, f"this server does not have this name: {self._setting} has them")
        return None

    def _allow(self, host: bytes) -> bool:
        if len(host) > _MAX_HOST_BYTES:
            return False
        name = _without_port(host.decode("latin-1").lower()).rstrip(".")
        return name in self._names or name.endswith(self._domains) or _is_address(name)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, _colon, port = host.rpartition(":")
    return name if name and port.isdigit() else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
