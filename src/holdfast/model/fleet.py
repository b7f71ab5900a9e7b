"""The fleet: the processes that run jobs, as they announce themselves, and commands to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from .errors import InvalidInput
from .job import check_id, check_size
from .outage import base_queue

MAX_SLOTS = 10_000
MAX_ANNOUNCED_SECONDS = 3_600.0
REMEMBERED_SECONDS = 3_600.0
"""How long a process that is gone, and a command, can still be looked up."""
ACTIONS = ("resize", "drain", "resume", "reload", "log_level")
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


class RunningAttempt(msgspec.Struct, frozen=True):
    """A running attempt."""

    job_id: str
    task: str
    queue: str
    attempt: int
    seconds: float
    progress_share: float | None
    progress_note: str


class ProcessSlots(msgspec.Struct, frozen=True):
    """The slots of one process of a daemon, by its last report."""

    slots: int
    busy: int
    draining: bool
    """Whether the process knows that it must claim no more."""


class WorkerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon with its worker processes, as it announces itself."""

    id: str
    """Of this life: a process that starts again has another."""
    name: str
    """The worker_id, or host and pid."""
    host: str
    pid: int
    machine: str = ""
    """The running kernel and its namespace of pids; empty where that cannot be known."""
    started_ticks: int = 0
    """When the kernel says the process started: no two processes of one pid have the same."""
    pids: Mapping[str, tuple[int, int]] = {}
    """The pid and started_ticks of each of its processes, by the name under which it claims."""
    version: str
    started_at_us: int
    slots: Mapping[str, int]
    """How many slots each of its processes has, by the queue that they serve."""
    processes: Mapping[str, ProcessSlots | None]
    """By the name under which each claims, its own first; None: it has not reported yet."""
    queues: tuple[str, ...] | None = None
    """The queues that it serves; None: all."""
    tasks: tuple[str, ...] = ()
    """The tasks that it knows."""
    task_queues: tuple[str, ...] = ()
    """The queues of its tasks and schedules."""
    draining: bool = False
    metrics: str = ""
    """The address of its metrics."""
    running: tuple[RunningAttempt, ...] = ()
    """The attempts that have run for longest."""
    totals: Mapping[str, float] = {}
    """Its counters since its start, by name."""

    def check(self) -> None:
        """Raise ``InvalidInput`` if a field is invalid."""
        for field, value in (("id", self.id), ("name", self.name), ("host", self.host)):
            check_id(value, field)
        if not self.processes:
            raise InvalidInput("processes", "give the name under which it claims")
        for worker in self.processes:
            check_id(worker, "processes")

    def serves(self, queue: str) -> bool:
        """Whether it claims jobs of this queue."""
        queues = self.queues
        return queues is None or queue in queues or base_queue(queue) in queues


def unserved(queues: Sequence[str], fleet: Sequence[WorkerProcess]) -> list[str]:
    """Return the queues that no process of a fleet claims from; none without a fleet."""
    if not fleet or any(process.queues is None for process in fleet):
        return []
    served = {queue for process in fleet for queue in process.queues or ()}
    return [queue for queue in queues if not {queue, base_queue(queue)} & served]


class WorkerEntry(msgspec.Struct, frozen=True):
    """A process in the registry, and when it was last seen."""

    process: WorkerProcess
    seen_at_us: int
    live: bool = True


class WorkerCommand(msgspec.Struct, frozen=True):
    """What a process is to do. One that does not know the action refuses it."""

    action: str
    slots: int = 0
    queue: str = ""
    """The queue whose slots are resized; empty: those of all queues."""
    level: str = ""

    def check(self) -> None:
        """Raise ``InvalidInput`` if this version has no such command."""
        if self.action not in ACTIONS:
            raise InvalidInput("action", f"give one of {', '.join(ACTIONS)}")
        if self.action == "resize":
            check_size("workers", self.slots, 1, MAX_SLOTS)
            if self.queue:
                check_id(self.queue, "queue")
        if self.action == "log_level" and self.level not in LOG_LEVELS:
            raise InvalidInput("level", f"give one of {', '.join(LOG_LEVELS)}")


class SentCommand(msgspec.Struct, frozen=True):
    """A command that waits for a process: who sent it, and why."""

    id: str
    command: WorkerCommand
    by: str
    why: str


class CommandAnswer(msgspec.Struct, frozen=True):
    """What a process says to a command: done, or the error that refused it."""

    command_id: str
    process_id: str
    code: str = ""
    """The code of the error; empty if it was done."""
    text: str = ""
    """The error, or what was done where there is more to say, as JSON."""
