"""Serves the API of a store, as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from holdfast.engines.contract import Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.http.allowed_hosts import AllowedHosts
from holdfast.http.asgi import AsgiHandler
from holdfast.http.credential_files import TlsFiles, TokenFile
from holdfast.http.limits import HttpLimits
from holdfast.http.listeners import bind_port
from holdfast.http.server import serving
from holdfast.model.errors import InvalidInput
from holdfast.model.principal import local_principal
from holdfast.operations.keys import KeyOperations
from holdfast.settings import Settings
from holdfast.settings.parsers import is_loopback
from holdfast.stores.opening import connect_for_looking, connect_postgres, open_client

from .application import ApiApplication
from .declarations import Declarations
from .forwarded import TrustedProxies
from .limits import LimitOptions
from .problems import TYPES_OF_SERVER
from .request_handler import ServiceOptions
from .streaming import MAX_STREAMED_BYTES

if TYPE_CHECKING:
    from .oidc import TokenVerifier

log = StructuredLog("holdfast.api")

MAX_CONNECTIONS = 1_024
"""Twice the streams: these stay open."""
DRAIN_SECONDS = 30.0
"""How long requests in progress may take once the server is asked to stop."""


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API is served, and how."""

    host: str = "127.0.0.1"
    port: int = 8080
    cert_file: str = ""
    key_file: str = ""
    allowed_hosts: tuple[str, ...] = ()
    metrics_token_file: str = ""
    limits: LimitOptions = LimitOptions()
    trusted_proxies: tuple[str, ...] = ()
    drain_seconds: float = DRAIN_SECONDS


def api_options(settings: Settings) -> ApiOptions:
    """Return where a daemon has its API."""
    cert = settings.api_tls_cert_file or ""
    return ApiOptions(
        host=settings.api_host,
        port=settings.api_port or 0,
        cert_file=cert,
        key_file=settings.api_tls_key_file or cert,
        allowed_hosts=tuple((settings.api_allowed_hosts or "").split(",")),
        metrics_token_file=settings.api_metrics_token_file or "",
        limits=LimitOptions(
            key_rate=settings.api_key_rate,
            tenant_rate=settings.api_tenant_rate,
            max_jobs=settings.api_tenant_jobs,
        ),
        trusted_proxies=tuple((settings.api_trusted_proxies or "").split(",")),
        drain_seconds=settings.drain_seconds,
    )


Stopping = Callable[[Callable[[], None]], None]
"""Takes what to call, on the event loop, when the process is asked to end."""


async def serve(
    settings: Settings,
    options: ApiOptions,
    say: Callable[[str], None],
    declared: Declarations,
    sock: socket.socket | None = None,
    stopping: Stopping | None = None,
) -> None:
    """Serve until it is asked to stop, by default by a signal; then finish what is in progress.

    A server keeps the store, or the owner of the directory does: this process is its client, so
    that no request ever delays a worker. ``sock`` is listening already.
    """
    tls = tls_files(options, "--tls-cert")
    proxies = TrustedProxies(options.trusted_proxies)
    token_file = options.metrics_token_file
    token = TokenFile(token_file, "--metrics-token-file") if token_file else None
    tokens = token_verifier(settings)
    async with contextlib.AsyncExitStack() as stack:
        engine = await _open(settings)
        stack.push_async_callback(engine.close)
        await refuse_open_door(engine, settings, options.host, "--host")
        service = ServiceOptions(
            default_max_attempts=settings.max_attempts,
            limits=options.limits,
            declared=declared,
            metrics_token=token,
            proxies=proxies,
            tokens=tokens,
        )
        looking = None
        if settings.on_server:
            looking = await connect_for_looking(settings)
            stack.push_async_callback(looking.close)
        application = ApiApplication(engine, service, looking)
        sock = sock or bind_port(options.host, options.port)
        host, port = sock.getsockname()[:2]
        stopped = asyncio.Event()

        def stop() -> None:
            application.drain()
            stopped.set()

        (stopping or _on_signals)(stop)
        server = serving(
            AsgiHandler(application, TYPES_OF_SERVER),
            sockets=[sock],
            limits=HttpLimits(max_body_bytes=MAX_STREAMED_BYTES, max_connections=MAX_CONNECTIONS),
            tls=tls,
            hosts=AllowedHosts(options.allowed_hosts, "--allowed-host"),
            grace_seconds=options.drain_seconds,
        )
        async with server:
            address = f"{'http' if tls is None else 'https'}://{host}:{port}"
            log.emit("api.started", address=address, store=settings.store_shown)
            say(f"holdfast: the API of {settings.store_shown} is at {address}")
            await stopped.wait()
            log.emit("api.draining", seconds=options.drain_seconds)
        log.emit("api.stopped")


def tls_files(options: ApiOptions, setting: str) -> TlsFiles | None:
    """Return the certificate, or None; raise ``InvalidInput`` for this setting."""
    if bool(options.cert_file) != bool(options.key_file):
        raise InvalidInput(setting, "give a certificate and its key, or neither")
    return TlsFiles(options.cert_file, options.key_file, setting) if options.cert_file else None


async def _open(settings: Settings) -> Engine:
    if settings.on_server:
        return await connect_postgres(settings)
    return await open_client(settings)


def token_verifier(settings: Settings) -> TokenVerifier | None:
    """Return what checks tokens, or None if none count; raise ``InvalidInput`` if it cannot."""
    if settings.api_oidc_issuer is None:
        return None
    needed = ("api_oidc_audience", "api_oidc_jwks", "api_oidc_roles")
    if missing := [field for field in needed if getattr(settings, field) is None]:
        raise InvalidInput("api_oidc_issuer", f"it needs {' and '.join(missing)} too")
    try:
        from .oidc import TokenVerifier  # noqa: PLC0415 - an extra
    except ImportError as error:
        problem = f"tokens need PyJWT and cryptography ({error}): pip install 'holdfast[oidc]'"
        raise InvalidInput("api_oidc_issuer", problem) from None
    return TokenVerifier(settings)


async def refuse_open_door(engine: Engine, settings: Settings, host: str, setting: str) -> None:
    """Raise ``InvalidInput`` if others could reach the API, and nobody has a key or a token yet."""
    if is_loopback(host) or settings.api_oidc_issuer is not None:
        return
    if not await KeyOperations(engine, local_principal("holdfast")).exist():
        text = f"{host} can be reached by others, and there is no key yet"
        raise InvalidInput(setting, f"{text}: `holdfast keys create NAME --role admin` makes one")


def _on_signals(stop: Callable[[], None]) -> None:
    """Have SIGTERM and SIGINT stop the process; a second one ends it at once."""
    asked: list[bool] = []

    def handle() -> None:
        if asked:
            sys.stdout.flush()
            os._exit(128 + signal.SIGTERM)
        asked.append(True)
        stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle)
