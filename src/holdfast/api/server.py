"""Serves the API of a store, as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable

import msgspec

from holdfast.engines.contract import Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.http.allowed_hosts import AllowedHosts
from holdfast.http.asgi import AsgiHandler
from holdfast.http.credential_files import TlsFiles
from holdfast.http.limits import HttpLimits
from holdfast.http.listeners import bind_port
from holdfast.http.server import serving
from holdfast.model.errors import InvalidInput
from holdfast.model.principal import local_principal
from holdfast.operations.keys import KeyOperations
from holdfast.settings import Settings
from holdfast.settings.parsers import is_loopback
from holdfast.stores.opening import connect_postgres, open_client

from .application import MAX_BODY_BYTES, ApiApplication

log = StructuredLog("holdfast.api")

DRAIN_SECONDS = 30.0
"""How long requests in progress may take once the server is asked to stop."""


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API is served, and how."""

    host: str = "127.0.0.1"
    port: int = 8080
    cert_file: str = ""
    key_file: str = ""
    allowed_hosts: tuple[str, ...] = ()


async def serve(settings: Settings, options: ApiOptions, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; then finish what is in progress. A second one ends at once.

    A server keeps the store, or the owner of the directory does: this process is its client, so
    that no request ever delays a worker.
    """
    if bool(options.cert_file) != bool(options.key_file):
        raise InvalidInput("--tls-cert", "give --tls-cert and --tls-key, or neither")
    tls = TlsFiles(options.cert_file, options.key_file, "--tls-cert") if options.cert_file else None
    async with contextlib.AsyncExitStack() as stack:
        engine = await _open(settings)
        stack.push_async_callback(engine.close)
        await _refuse_open_door(engine, options.host)
        application = ApiApplication(engine, default_max_attempts=settings.max_attempts)
        sock = bind_port(options.host, options.port)
        host, port = sock.getsockname()[:2]
        stopped = _stop_signal(application)
        server = serving(
            AsgiHandler(application),
            sockets=[sock],
            limits=HttpLimits(max_body_bytes=MAX_BODY_BYTES),
            tls=tls,
            hosts=AllowedHosts(options.allowed_hosts, "--allowed-host"),
            grace_seconds=DRAIN_SECONDS,
        )
        async with server:
            address = f"{'http' if tls is None else 'https'}://{host}:{port}"
            log.emit("api.started", address=address, store=settings.store_shown)
            say(f"holdfast: the API of {settings.store_shown} is at {address}")
            await stopped.wait()
            log.emit("api.draining", seconds=DRAIN_SECONDS)
        log.emit("api.stopped")


async def _open(settings: Settings) -> Engine:
    if settings.on_server:
        return await connect_postgres(settings)
    return await open_client(settings)


async def _refuse_open_door(engine: Engine, host: str) -> None:
    """Raise ``InvalidInput`` if others could reach the API, and nobody has a key yet."""
    if is_loopback(host):
        return
    if not await KeyOperations(engine, local_principal("holdfast")).exist():
        text = f"{host} can be reached by others, and there is no key yet"
        raise InvalidInput("--host", f"{text}: `holdfast keys create NAME --role admin` makes one")


def _stop_signal(application: ApiApplication) -> asyncio.Event:
    """Return what is set when the process is asked to end."""
    stopped = asyncio.Event()

    def stop() -> None:
        if stopped.is_set():
            sys.stdout.flush()
            os._exit(128 + signal.SIGTERM)
        application.drain()
        stopped.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopped
