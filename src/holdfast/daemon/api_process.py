"""The HTTP API beside the daemon, in a process of its own: parsing never delays a settle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys

import msgspec

from holdfast.api.child_process import STOP, ApiProcessConfig
from holdfast.api.server import api_options, refuse_open_door, tls_files, token_verifier
from holdfast.engines.contract import Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.http.credential_files import TokenFile
from holdfast.http.listeners import bind_port
from holdfast.model.errors import InvalidInput
from holdfast.settings import Settings

log = StructuredLog("holdfast.processes")

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
_STEADY_SECONDS = 30.0
"""One that has run for so long is started again without a pause."""
_STOP_MARGIN_SECONDS = 2.0


class ApiProcess:
    """Keeps the API running until it is stopped.

    The socket is the daemon's: while a process that died is replaced, who connects waits.
    """

    def __init__(self, settings: Settings, bound: socket.socket) -> None:
        self._settings = settings
        self._bound = bound
        self._stopping = False
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, if one runs."""
        return None if self._process is None else self._process.pid

    @property
    def address(self) -> str:
        """Where it is served."""
        host, port = self._bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if self._settings.api_tls_cert_file is None else "https"
        return f"{scheme}://{shown}:{port}"

    def start(self) -> None:
        """Start it, and another one whenever it ends."""
        self._task = asyncio.get_running_loop().create_task(self._keep_running())

    async def stop(self) -> None:
        """Take no more connections, let it finish what is in progress, and end it."""
        self._stopping = True
        self._bound.close()
        process, patience = self._process, self._settings.drain_seconds + _STOP_MARGIN_SECONDS
        if process is not None and process.stdin is not None:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(STOP)
        if self._task is None:
            return
        if process is None:
            self._task.cancel()  # it pauses
        await asyncio.wait([self._task], timeout=patience)
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        pause_seconds = _FIRST_PAUSE_SECONDS
        while not self._stopping:
            began = loop.time()
            try:
                process = self._process = await self._spawn()
            except OSError as error:  # too many files or processes, or too little memory
                log.emit("api.process_not_started", error=error)
            else:
                log.emit("api.process_started", pid=process.pid, address=self.address)
                if self._stopping and process.stdin is not None:
                    process.stdin.write(STOP)
                code = await process.wait()
                self._process = None
                if self._stopping:
                    return
                log.emit("api.process_ended", pid=process.pid, code=code)
            if loop.time() - began >= _STEADY_SECONDS:
                pause_seconds = _FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)

    async def _spawn(self) -> asyncio.subprocess.Process:
        number = self._bound.fileno()
        inherited = sys.platform != "win32"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "holdfast.api.child_process",
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            pass_fds=(number,) if inherited else (),
        )
        config = ApiProcessConfig(self._settings, number if inherited else None)
        if process.stdin is not None:
            process.stdin.write(msgspec.json.encode(config) + b"\n")
        return process


async def api_beside(settings: Settings, engine: Engine) -> ApiProcess:
    """Return the API of a store with this engine, bound and not started.

    Raise ``InvalidInput`` for a setting that cannot be used.
    """
    if settings.remote:
        problem = f"{settings.store_shown} is on another machine, and so is its API"
        raise InvalidInput("api_port", problem)
    tls_files(api_options(settings), "api_tls_cert_file")
    if settings.api_metrics_token_file is not None:
        TokenFile(settings.api_metrics_token_file, "api_metrics_token_file")
    token_verifier(settings)
    await refuse_open_door(engine, settings, settings.api_host, "api_host")
    try:
        return ApiProcess(settings, bind_port(settings.api_host, settings.api_port or 0))
    except InvalidInput as error:
        raise InvalidInput("api_port", error.problem) from error
