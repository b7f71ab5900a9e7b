"""From a request to its answer: authenticates, limits, finds the route, and calls its handler."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from holdfast import __version__
from holdfast.engines.contract import Engine
from holdfast.http.credential_files import TokenFile
from holdfast.model.errors import AccessDenied, HoldfastError
from holdfast.model.permissions import Permission
from holdfast.model.principal import Principal
from holdfast.operations.access.denials import DenialLog
from holdfast.operations.change_watch import ChangeWatch
from holdfast.operations.cursor_secret import CursorSecret
from holdfast.operations.once import OnceEngine
from holdfast.operations.operations import Operations
from holdfast.telemetry.http_metrics import HttpMetrics

from .authentication import Authenticator, has_token
from .call import ApiCall
from .declarations import Declarations
from .deprecation import HEADERS as DEPRECATION
from .deprecation import deprecated, refuse_after_sunset
from .engine_calls import EngineCalls, engine_path
from .forwarded import TrustedProxies
from .health import live, ready
from .idempotency import KeyedCall, idempotency_key
from .job_quota import QuotaEngine, RemoteQuotaEngine
from .limits import LimitOptions, RequestLimits, give_back, limit_headers
from .openapi import openapi_document
from .problems import RequestRefused, refusal_of
from .request import ApiRequest
from .response import Response, plain, success
from .routing import METRICS_PATH, Match, find_route
from .streaming import StreamedAnswer

if TYPE_CHECKING:
    from .oidc import TokenVerifier

_OLDER = b"/v1/"


class ServiceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the API knows and allows."""

    default_max_attempts: int
    limits: LimitOptions = LimitOptions()
    declared: Declarations = msgspec.field(default_factory=Declarations)
    metrics_token: TokenFile | None = None
    """Who has it may read the metrics of this process, and nothing else."""
    proxies: TrustedProxies = msgspec.field(default_factory=TrustedProxies)
    tokens: TokenVerifier | None = None
    """Checks the tokens of an identity provider, which then count beside keys."""


class RequestHandler:
    """Answers requests; raises ``RequestRefused`` or an error of Holdfast."""

    def __init__(
        self, engine: Engine, looking: Engine, options: ServiceOptions, metrics: HttpMetrics
    ) -> None:
        """``engine`` is the store itself, and ``looking`` too, for what only reads.

        Every call goes through the checks of its key.
        """
        self._looking = looking
        self.draining = False
        self._engine = engine
        self._options = options
        self._metrics = metrics
        self._authenticator = Authenticator(engine, options.tokens)
        self._denials = DenialLog(engine)
        limits = options.limits
        self._limits = RequestLimits(limits)
        self._bounded = QuotaEngine(engine, limits.max_jobs) if limits.max_jobs else engine
        self._cursor_secret = CursorSecret(engine)
        self._watch = ChangeWatch(engine)
        self._engine_calls = EngineCalls(RemoteQuotaEngine(self._bounded), self._denials)

    def drain(self) -> None:
        """End what waits, streams at once: the server is about to stop."""
        self.draining = True
        self._watch.close()
        self._engine_calls.stop()

    async def answer(self, request: ApiRequest) -> Response | StreamedAnswer:
        """Answer one request."""
        if request.method in ("GET", "HEAD"):
            unrouted = await self._unrouted(request)
            if unrouted is not None:
                return unrouted
        if (remote := engine_path(request.raw_path)) is not None:
            tenant, path = remote
            principal = await self._principal(request, tenant)
            body = await request.whole_body()
            return Response(
                *await self._engine_calls.answer(
                    request.method, path, body, principal, request.body.gone
                )
            )
        if not request.raw_path.startswith(_OLDER):
            return await self._routed(request)
        try:
            refuse_after_sunset()
            answer = await self._routed(request)
        except RequestRefused as refused:
            raise deprecated(refused) from None
        except HoldfastError as error:
            if (told := refusal_of(error)).type.status == 500:
                raise
            raise deprecated(told) from None
        return replace(answer, headers={**DEPRECATION, **answer.headers})

    async def _unrouted(self, request: ApiRequest) -> Response | None:
        """Return what has no envelope, or None."""
        match request.raw_path:
            case b"/health/live":
                return plain(*live())
            case b"/health/ready":
                return plain(*await ready(self._engine, draining=self.draining))
            case b"/v1/openapi.json":
                return plain(200, openapi_document("v1"))
            case b"/v2/openapi.json":
                return plain(200, openapi_document())
            case path if path == METRICS_PATH:
                return await self._scrape(request)
        return None

    async def _routed(self, request: ApiRequest) -> Response | StreamedAnswer:
        match = find_route(request.method, request.raw_path)
        principal = await self._principal(request, match.tenant)
        taken = self._limits.admit(principal)
        key = idempotency_key(match.route, request.headers)
        once = None if key is None else OnceEngine(self._bounded)
        reads = match.route.method == "GET"
        engine = self._looking if reads else once or self._bounded
        call = await self._call(request, match, principal, engine)
        if match.route.permission is not None:
            await call.require(match.route.permission, everything=match.route.everything)
        call.check_parameters(match.route.parameters)
        if once is None or key is None:
            answer = await match.route.handle(call)
        else:
            answer = await KeyedCall(once, call, match.route, key, request.id).answer()
        if isinstance(answer, StreamedAnswer):
            return replace(answer, headers={**answer.headers, **limit_headers(taken)})
        if answer.status == 304:
            give_back(taken)
        told = {**answer.headers, **limit_headers(taken)}
        return success(replace(answer, headers=told), request.id)

    async def _call(
        self, request: ApiRequest, match: Match, principal: Principal, engine: Engine
    ) -> ApiCall:
        def authenticate() -> Awaitable[Principal]:
            return self._principal(request, match.tenant)

        operations = Operations(
            engine,
            default_max_attempts=self._options.default_max_attempts,
            principal=principal,
            denials=self._denials,
        )
        return ApiCall(
            operations,
            principal,
            self._denials,
            self._cursor_secret,
            operation_id=match.route.operation_id,
            path=match.path,
            query=request.query(),
            headers=request.headers,
            body=b"" if match.route.streams_body else await request.whole_body(),
            stream=request.body,
            watch=self._watch,
            authenticate_again=authenticate,
            draining=lambda: self.draining,
            declared=self._options.declared,
        )

    async def _principal(self, request: ApiRequest, tenant: str | None) -> Principal:
        authorization = request.headers.get("authorization")
        self._limits.check_key(authorization)
        return await self._authenticator.principal(
            authorization,
            tenant,
            self._options.proxies.address(request.peer, request.headers),
            request.id,
            deprecated=request.raw_path.startswith(_OLDER),
        )

    async def _scrape(self, request: ApiRequest) -> Response:
        """Return the metrics, to who has the token, or may see counts of every tenant."""
        token = self._options.metrics_token
        if not has_token(request.headers.get("authorization"), token):
            principal = await self._principal(request, None)
            needed = Permission.COUNTS_READ
            if not (principal.may(needed) and principal.caller.unlimited):
                await self._denials.denied(principal, needed)
                principal.require(needed)
                raise AccessDenied("everything", needed.value)
        kind, text = self._metrics.exposition(__version__)
        return Response(200, kind, text)
