"""The processes that run jobs: who is live, what they hold, and commands to one, some or all."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.engines.clock import SystemClock
from holdfast.engines.contract import OWN_SLOT_PREFIX, Engine
from holdfast.model.audit import Attribution
from holdfast.model.errors import InvalidInput, Unavailable
from holdfast.model.fleet import (
    CommandAnswer,
    RunningAttempt,
    WorkerCommand,
    WorkerEntry,
    WorkerProcess,
)
from holdfast.model.job import MICROSECONDS, Job, State
from holdfast.model.search import MAX_PAGE, Filter
from holdfast.worker.process_identity import is_gone

from .attribution import Author, entry_of
from .views import WorkerView

COMMAND_SECONDS = 5.0
"""How long a process may take to fetch a command …"""
_ANSWER_SECONDS = 2.0
"""… and then to answer."""
_POLL_SECONDS = 0.05


class CommandResult(msgspec.Struct, frozen=True):
    """What one process made of a command."""

    worker: str
    host: str
    pid: int
    outcome: Literal["done", "refused", "silent"]
    text: str = ""
    """Why it was refused, or what there is to say, as JSON."""
    code: str = ""
    """The code of the error that refused it."""


class FleetOperations:
    """What people see of the processes that run jobs, and ask of them."""

    def __init__(
        self, engine: Engine, this_process: Callable[[], WorkerProcess] | None = None
    ) -> None:
        """``this_process`` is the one beside the operations, if there is one, as it is now."""
        self._engine = engine
        self._this_process = this_process

    async def live(self) -> list[WorkerEntry]:
        """Return the live processes, by name, without those that certainly have ended."""
        here = None if self._this_process is None else self._this_process()
        return [
            replace(entry, process=here) if here and entry.process.id == here.id else entry
            for entry in await self._engine.workers()
            if not is_gone(entry.process)
        ]

    async def task_queues(self) -> list[str]:
        """Return the queues of the tasks of live processes.

        Without a registry of tasks only they know the queues of an application.
        """
        return [name for entry in await self.live() for name in entry.process.task_queues]

    async def workers(self) -> list[WorkerView]:
        """Return every worker that is live or holds leases, those with the most leases first."""
        held = await self._held()
        found: list[WorkerView] = []
        for entry in await self.live():
            found += [
                WorkerView.of(worker, held.pop(worker, []), entry)
                for worker in entry.process.processes
            ]
        found += [WorkerView.of(worker, jobs) for worker, jobs in held.items()]
        return sorted(found, key=lambda one: (-one.leases, one.worker))

    async def running(self, processes: Sequence[WorkerProcess]) -> list[RunningAttempt]:
        """Return what these processes hold leases of."""
        held, now_us = await self._held(), SystemClock().now_us()
        return [
            RunningAttempt(
                job.id,
                job.task,
                job.queue,
                job.attempt,
                max(0, now_us - job.claimed_at_us) / MICROSECONDS,
                None,
                "",
            )
            for process in processes
            for worker in process.processes
            for job in held.get(worker, [])
        ]

    async def targets(self, names: Sequence[str] = ()) -> list[WorkerProcess]:
        """Return the live processes of these names, or all.

        Raise ``Unavailable`` if none is live, or ``InvalidInput`` for a name that none has.
        """
        live = [entry.process for entry in await self.live()]
        if not live:
            raise Unavailable("no daemon runs on this store: start one with `holdfast run`")
        for name in names:
            if not any(_is_called(process, name) for process in live):
                known = ", ".join(process.name for process in live)
                raise InvalidInput(
                    "worker", f"no live worker is called {name!r}; there are {known}"
                )
        return [
            process
            for process in live
            if not names or any(_is_called(process, name) for name in names)
        ]

    async def command(
        self, command: WorkerCommand, targets: Sequence[WorkerProcess], who: Author
    ) -> list[CommandResult]:
        """Send a command to these processes; return what each made of it.

        Raise ``InvalidInput``, and send nothing, if none of them can do it.
        """
        command.check()
        if command.action == "resize":
            targets = _with_slots(targets, command.queue)
        names = [process.name for process in targets]
        changes = {
            field: value
            for field in ("slots", "queue", "level")
            if (value := getattr(command, field))
            or (command.action == "resize" and field == "queue")
        }
        one = names[0] if len(names) == 1 else ""
        action = f"worker.{command.action}"
        entry = entry_of(action, "worker", one, who, {**changes, "workers": names})
        command_id = await self._engine.command(
            command,
            [process.id for process in targets],
            Attribution(who.by, who.why, (entry,)),
            ttl_seconds=COMMAND_SECONDS,
        )
        answers = await self._answers(command_id, len(targets))
        return [_result(process, answers.get(process.id)) for process in targets]

    async def _answers(self, command_id: str, count: int) -> dict[str, CommandAnswer]:
        """Wait until this many have answered, or the time is up."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + COMMAND_SECONDS + _ANSWER_SECONDS
        while True:
            answers = {one.process_id: one for one in await self._engine.answers(command_id)}
            if len(answers) >= count or loop.time() >= give_up:
                return answers
            await asyncio.sleep(_POLL_SECONDS)

    async def _held(self) -> dict[str, list[Job]]:
        """Return the jobs in flight, by their worker."""
        held: defaultdict[str, list[Job]] = defaultdict(list)
        cursor = ""
        while True:
            page = await self._engine.find(
                Filter(states=(State.IN_FLIGHT,)), cursor=cursor, limit=MAX_PAGE
            )
            for job in page.jobs:
                held[job.worker].append(job)
            cursor = page.cursor
            if not cursor:
                return dict(held)


def _is_called(process: WorkerProcess, name: str) -> bool:
    return (
        name == process.name
        or name in process.processes
        or f"{OWN_SLOT_PREFIX}{name}" in process.processes
    )


def _with_slots(targets: Sequence[WorkerProcess], queue: str) -> list[WorkerProcess]:
    """Return the processes that have slots for this queue, or raise ``InvalidInput``."""
    found = [process for process in targets if queue in process.slots]
    if not found:
        known = sorted({label for process in targets for label in process.slots})
        text = ", ".join(map(repr, known))
        raise InvalidInput("queue", f"no slots are reserved for {queue!r}; there are {text}")
    return found


def _result(process: WorkerProcess, answer: CommandAnswer | None) -> CommandResult:
    where = process.name, process.host, process.pid
    if answer is None:
        return CommandResult(*where, "silent")
    return CommandResult(*where, "refused" if answer.code else "done", answer.text, answer.code)
