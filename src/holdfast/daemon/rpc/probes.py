"""What the port of metrics and health answers, to peers that nobody knows."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from holdfast.http.allowed_hosts import AllowedHosts
from holdfast.http.credential_files import TokenFile
from holdfast.http.exchange import Disconnected, HttpRequest, HttpResponse, problem

from .app import Route, RpcApp

METRICS_PATH = "/metrics"


class ProbeApp:
    """Serves health to every peer, and metrics to those that have the token, if there is one."""

    def __init__(
        self, routes: Mapping[str, Route], hosts: AllowedHosts, token_file: TokenFile | None = None
    ) -> None:
        self._routes = RpcApp(None, routes)
        self._hosts = hosts
        self._token_file = token_file

    async def handle(self, request: HttpRequest, disconnected: Disconnected) -> HttpResponse:
        """Answer one request."""
        hosts = [value for name, value in request.headers if name == b"host"]
        if len(hosts) > 1:
            return problem(400, "a request has one Host header")
        if not self._hosts.allow(hosts[0] if hosts else None, request.http_version):
            return problem(
                421, "this name is not one of this server: add it to metrics_allowed_hosts"
            )
        if request.path == METRICS_PATH and not self._authorized(request):
            challenge = [("www-authenticate", "Bearer")]
            return problem(401, "metrics need a token: Authorization: Bearer TOKEN", challenge)
        return await self._routes.handle(request, disconnected)

    def _authorized(self, request: HttpRequest) -> bool:
        if self._token_file is None:
            return True
        given = request.header(b"authorization") or b""
        scheme, _space, token = given.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(
            token.strip(), self._token_file.token()
        )
