"""Announces this daemon to the store, and executes the commands that wait for it there."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from holdfast import __version__
from holdfast.engines.contract import Engine
from holdfast.engines.entropy import random_bytes
from holdfast.engines.structured_log import StructuredLog, error_text
from holdfast.model.errors import DurabilityLost, EngineClosed, HoldfastError, WorkerIdInUse
from holdfast.model.fleet import CommandAnswer, RunningAttempt, SentCommand, WorkerProcess
from holdfast.worker.process_identity import host_name, machine_identity, started_ticks

log = StructuredLog("holdfast.daemon")

BEAT_SECONDS = 1.0
TTL_SECONDS = 4.0
"""How long after its last announcement a process counts as live."""
_MAX_RUNNING = 20
"""How many running attempts are announced: those that have run for longest …"""
_LEAST_RUNNING_SECONDS = 1.0
"""… and for at least this long."""

Execute = Callable[[SentCommand], Awaitable[str]]
"""Executes a command; returns what there is to say, or raises why it is refused."""


def this_process(name: str, workers: list[str], now_us: int) -> WorkerProcess:
    """Return the entry of a process that starts; ``workers`` are the names under which it claims.

    Its own is the first.
    """
    pid = os.getpid()
    ticks = started_ticks(pid)
    return WorkerProcess(
        id=random_bytes(16).hex(),
        name=name,
        host=host_name(),
        pid=pid,
        machine=machine_identity() if ticks else "",
        started_ticks=ticks,
        pids={workers[0]: (pid, ticks)},
        version=__version__,
        started_at_us=now_us,
        slots={},
        processes=dict.fromkeys(workers),
    )


class Announcer:
    """Announces a process every second, and at once when a command for it may have come."""

    def __init__(
        self,
        engine: Engine,
        current: Callable[[], WorkerProcess],
        execute: Execute,
        on_refused: Callable[[WorkerIdInUse], None],
    ) -> None:
        """``current`` returns the process as it is now.

        ``on_refused`` is called when another one has its name: this one fell silent for long.
        """
        self._engine = engine
        self._current = current
        self._execute = execute
        self._on_refused = on_refused
        self._answers: dict[str, CommandAnswer] = {}
        """What was executed, until the store has the answer."""
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Announce from now on."""
        self._task = asyncio.get_running_loop().create_task(self._keep_announcing())

    def announce_soon(self) -> None:
        """Announce now: a command may wait, or a worker process has started."""
        self._wanted.set()

    async def stop(self) -> None:
        """Stop announcing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def beat(self) -> None:
        """Announce, and execute what waits; then announce again, with the answers."""
        while True:
            answers = dict(self._answers)
            process = self._current()
            sent = await self._engine.announce(
                replace(process, running=_longest(process.running)),
                ttl_seconds=TTL_SECONDS,
                answers=list(answers.values()),
            )
            for command_id in answers:
                del self._answers[command_id]
            if not sent:
                return
            for command in sent:
                self._answers[command.id] = await self._answer(command, process.id)

    async def _answer(self, sent: SentCommand, process_id: str) -> CommandAnswer:
        action = sent.command.action
        try:
            text = await self._execute(sent)
        except Exception as error:  # noqa: BLE001 - logged, and the sender reads it
            log.emit(
                "daemon.command_refused", action=action, user=sent.by, why=sent.why, error=error
            )
            if isinstance(error, HoldfastError):
                return CommandAnswer(sent.id, process_id, error.code, str(error))
            return CommandAnswer(sent.id, process_id, HoldfastError.code, error_text(error))
        log.emit("daemon.command", action=action, user=sent.by, why=sent.why)
        return CommandAnswer(sent.id, process_id, text=text)

    async def _keep_announcing(self) -> None:
        while True:
            self._wanted.clear()
            try:
                await self.beat()
            except (EngineClosed, DurabilityLost):
                return  # the daemon is about to stop
            except WorkerIdInUse as error:
                self._on_refused(error)
                return
            except HoldfastError:
                pass  # the store is away: its other users log that
            except Exception as error:  # noqa: BLE001 - logged, and tried again
                log.emit("loop.step_failed", loop=type(self).__name__, error=error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._wanted.wait()


def _longest(running: tuple[RunningAttempt, ...]) -> tuple[RunningAttempt, ...]:
    """Return the attempts that have run for longest, those of less than a second left out."""
    long = [one for one in running if one.seconds >= _LEAST_RUNNING_SECONDS]
    return tuple(sorted(long, key=lambda one: -one.seconds)[:_MAX_RUNNING])


def child_pids(pids: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return the worker processes with when the kernel says that they started."""
    return {worker: (pid, started_ticks(pid)) for worker, pid in pids.items()}
