"""Who asks, where proxies stand between: their word counts only if they are trusted."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from holdfast.model.errors import InvalidInput

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class TrustedProxies:
    """The proxies whose ``X-Forwarded-For`` is believed."""

    def __init__(self, networks: Iterable[str] = (), setting: str = "--trusted-proxy") -> None:
        """Take addresses and networks; raise ``InvalidInput`` for this setting."""
        self._networks = [_network(one, setting) for one in networks if one]

    def address(self, peer: str, headers: Mapping[str, str]) -> str:
        """Return the address of who asks: the last one that no trusted proxy has.

        Each proxy adds the address that it saw at the end. What stands before the first that is
        not trusted is anybody's word.
        """
        found = peer
        named = headers.get("x-forwarded-for", "").split(",")
        while self._trusts(found) and named:
            said = _plain(named.pop())
            if not said:
                break
            found = said
        return found

    def _trusts(self, address: str) -> bool:
        if not self._networks:
            return False
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return any((mapped or found) in network for network in self._networks)


def _network(text: str, setting: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        problem = f"{text!r} is neither an address nor a network such as 10.0.0.0/8"
        raise InvalidInput(setting, problem) from None


def _plain(said: str) -> str:
    """Return an address as it is written without a port; empty if it is none."""
    text = said.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""
