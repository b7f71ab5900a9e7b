"""A worker process of an owner: ``python -m holdfast.interfaces.worker_process``."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading

import msgspec

from holdfast.engines.client import ClientEngine
from holdfast.engines.clock import SystemClock
from holdfast.engines.socket_path import socket_path
from holdfast.runtime.builtin import add_builtin
from holdfast.runtime.child import outlive_nobody
from holdfast.runtime.definition import Definition
from holdfast.runtime.loading import load_definition
from holdfast.runtime.loops import LeaseLoop, Supervisor
from holdfast.runtime.worker import Worker

from .opening import let_go_in_forks, worker_options
from .processes import ProcessCharter
from .watchdog import Watchdog, leave_in_time


def main() -> None:
    """Work until the owner says stop, or is gone."""
    # Signals to the whole group are the owner's to handle: it tells us. Not by SIG_IGN, which
    # whatever a task starts would inherit, and then could not be terminated.
    signal.signal(signal.SIGINT, _leave_it_to_the_owner)
    signal.signal(signal.SIGTERM, _leave_it_to_the_owner)
    charter = msgspec.json.decode(sys.stdin.buffer.readline(), type=ProcessCharter)
    asyncio.run(_work(charter))


async def _work(charter: ProcessCharter) -> None:
    settings = charter.settings
    definition = load_definition(charter.reference) if charter.reference else Definition()
    add_builtin(definition, settings.default_task)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    threading.Thread(target=_listen, args=(loop, stop), daemon=True).start()
    outlive_nobody(os.getppid(), lambda: os._exit(1))
    for hook in definition.on_start:
        pending = hook()
        if inspect.isawaitable(pending):
            await pending
    path = socket_path(settings.store)
    let_go_in_forks(path)
    engine = ClientEngine(path)
    worker = Worker(engine, definition, charter.name, worker_options(settings))
    await worker.look_for_queues()
    worker.start()
    leases = LeaseLoop(engine, worker, settings.reclaim_interval_seconds, SystemClock())
    supervisor = Supervisor([leases], SystemClock())
    supervisor.start()
    if settings.stall_seconds is not None:
        # The owner starts another one, and ends the leases of this one.
        Watchdog(settings.stall_seconds, lambda: os._exit(70)).start()
    await stop.wait()
    await worker.stop(settings.drain_seconds)
    await supervisor.stop()
    for hook in definition.on_stop:
        pending = hook()
        if inspect.isawaitable(pending):
            await pending
    await engine.close()
    leave_in_time(loop, 0)


def _leave_it_to_the_owner(_signal: int, _frame: object) -> None:
    """Do nothing."""


def _listen(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    if sys.stdin.buffer.readline() == b"stop\n":
        loop.call_soon_threadsafe(stop.set)
        return
    os._exit(1)  # the owner is gone


if __name__ == "__main__":
    main()
