"""What the port of metrics and health answers, to peers that nobody knows."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from holdfast.http.credential_files import TokenFile
from holdfast.http.exchange import Disconnected, HttpRequest, HttpResponse, problem

from .app import Route, RpcApp

METRICS_PATH = "/metrics"


class ProbeApp:
    """Serves health to every peer, and metrics to those that have the token, if there is one."""

    def __init__(self, routes: Mapping[str, Route], token_file: TokenFile | None = None) -> None:
        self._routes = RpcApp(None, routes)
        self._token_file = token_file

    async def handle(self, request: HttpRequest, disconnected: Disconnected) -> HttpResponse:
        """Answer one request."""
        if request.path == METRICS_PATH and not self._authorized(request):
            challenge = [("www-authenticate", "Bearer")]
            return problem(401, "metrics need a token: Authorization: Bearer TOKEN", challenge)
        return await self._routes.handle(request, disconnected)

    def _authorized(self, request: HttpRequest) -> bool:
        if self._token_file is None:
            return True
        wanted = self._token_file.token()
        given = [value.partition(b" ") for value in request.values(b"authorization")]
        return len(given) == 1 and all(
            scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), wanted)
            for scheme, _space, token in given
        )
