"""The API beside a daemon, as its child: ``python -m holdfast.api.child_process``.

Its standard input has the configuration in the first line, then commands; it closes when the daemon
ends, and this process ends with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from holdfast.daemon.worker_settings import event_loop_runner
from holdfast.settings import Settings
from holdfast.telemetry.log_output import LogOptions, configure_logging
from holdfast.worker.child_process import close_stdin, exit_with_parent

from .declarations import Declarations
from .server import api_options, serve

STOP = b"stop\n"


class ApiProcessConfig(msgspec.Struct, frozen=True):
    """The first line on the standard input."""

    settings: Settings
    listener: int | None
    """The file descriptor of the socket; None: it binds its own."""


def main() -> None:
    """Serve until the daemon stops this process, or ends."""
    # The daemon handles signals to the whole group, and sends commands.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    daemon_pipe = os.fdopen(os.dup(0), "rb")
    close_stdin()
    line = daemon_pipe.readline()
    if not line:
        os._exit(1)  # the daemon has ended
    config = msgspec.json.decode(line, type=ApiProcessConfig)
    settings = config.settings
    configure_logging(LogOptions(settings.log_level, settings.log_format))
    exit_with_parent(os.getppid(), lambda: os._exit(1))
    sock = None if config.listener is None else socket.socket(fileno=config.listener)
    with event_loop_runner(settings) as runner:
        stopping = lambda stop: _listen_in_thread(daemon_pipe, stop)
        declared = Declarations.of(None, settings)
        options = api_options(settings)
        runner.run(serve(settings, options, _say_nothing, declared, sock, stopping))


def _listen_in_thread(daemon_pipe: BinaryIO, stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()

    def listen() -> None:
        while line := daemon_pipe.readline():
            if line == STOP:
                loop.call_soon_threadsafe(stop)
        os._exit(1)  # the daemon has ended

    threading.Thread(target=listen, name="holdfast-daemon", daemon=True).start()


def _say_nothing(_line: str) -> None:
    """The daemon has said it."""


if __name__ == "__main__":
    main()
