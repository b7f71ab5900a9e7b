"""What tasks really did, as an observer outside of Holdfast sees it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NamedTuple

from holdfast.worker.attempt import Attempt

from .process import Process
from .trace import Trace

Name = tuple[str, str]
"""A job's tenant and id."""


class ObservedRun(NamedTuple):
    """An attempt that is under way."""

    process: Process
    attempt: Attempt
    task: asyncio.Task[object] | None

    @property
    def wanted(self) -> bool:
        """Whether its worker is there and has not told it to end."""
        return self.process.alive and (self.task is None or not self.task.cancelling())


class ObservedRuns:
    """Every run of every job."""

    def __init__(self, trace: Trace) -> None:
        self.under_way: dict[int, ObservedRun] = {}
        """By token."""
        self.most_at_once = 0
        self._trace = trace
        self._started: Counter[Name] = Counter()
        self._tokens: set[int] = set()
        self._handed_out: dict[int, tuple[Name, str]] = {}

    def handed_out(self, name: Name, token: int, process: Process) -> None:
        """Take note that a worker was given this job under this token."""
        before = self._handed_out.setdefault(token, (name, process.name))
        if before != (name, process.name):
            self._trace.broken(f"token {token} was handed out twice: {before}, {process.name}")

    def begin(self, process: Process, attempt: Attempt) -> int:
        """Take note that a task begins; return how often its job was begun before."""
        name, token = (attempt.job.tenant, attempt.job.id), attempt.token
        self._trace.note("run.begin", process.name, f"{attempt.id} {attempt.number} {token}")
        if token in self._tokens:
            self._trace.broken(f"{attempt.id} was run twice under the token {token}")
        if self._handed_out.get(token) != (name, process.name):
            self._trace.broken(f"{process.name} runs {attempt.id}, which it was not given")
        self._tokens.add(token)
        self.under_way[token] = ObservedRun(process, attempt, asyncio.current_task())
        living = sum(run.process.alive for run in self.under_way.values())
        self.most_at_once = max(self.most_at_once, living)
        before = self._started[name]
        self._started[name] += 1
        return before

    def end(self, process: Process, attempt: Attempt, how: str) -> None:
        """Take note that a task has ended."""
        if process.alive:
            self._trace.note("run.end", process.name, f"{attempt.id} {attempt.token} {how}")
            self.under_way.pop(attempt.token, None)

    def started(self, name: Name) -> int:
        """How often the job was begun."""
        return self._started[name]

    def living(self) -> list[ObservedRun]:
        """Return what runs in processes that are there."""
        return [run for run in self.under_way.values() if run.process.alive]
