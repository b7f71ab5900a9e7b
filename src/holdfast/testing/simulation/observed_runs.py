"""The runs of tasks, as observed from outside of Holdfast."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NamedTuple

from holdfast.model.job import Job
from holdfast.worker.attempt import Attempt

from .process import Process
from .trace import Trace

JobKey = tuple[str, str]
"""The tenant and id of a job."""


class ObservedRun(NamedTuple):
    """An attempt that is running."""

    process: Process
    attempt: Attempt
    task: asyncio.Task[object] | None

    @property
    def active(self) -> bool:
        """Whether its worker is alive and has not cancelled it."""
        return self.process.alive and (self.task is None or not self.task.cancelling())


class ObservedRuns:
    """Every run of every job."""

    def __init__(self, trace: Trace) -> None:
        self.under_way: dict[int, ObservedRun] = {}
        """By token."""
        self.max_concurrent = 0
        self._trace = trace
        self._started: Counter[JobKey] = Counter()
        self._tokens: set[int] = set()
        self._claimed_by: dict[int, tuple[JobKey, str]] = {}

    def claimed(self, name: JobKey, token: int, process: Process) -> None:
        """Record that a worker claimed this job under this token."""
        before = self._claimed_by.setdefault(token, (name, process.name))
        if before != (name, process.name):
            self._trace.broken(f"token {token} was claimed twice: {before}, {process.name}")

    def begin(self, process: Process, attempt: Attempt) -> int:
        """Record that a task starts; return how often its job was started before."""
        name, token = (attempt.job.tenant, attempt.job.id), attempt.token
        self._trace.note("run.begin", process.name, f"{attempt.id} {attempt.number} {token}")
        if token in self._tokens:
            self._trace.broken(f"{attempt.id} was run twice under the token {token}")
        if self._claimed_by.get(token) != (name, process.name):
            self._trace.broken(f"{process.name} runs {attempt.id}, which it did not claim")
        self._tokens.add(token)
        self.under_way[token] = ObservedRun(process, attempt, asyncio.current_task())
        running = sum(run.process.alive for run in self.under_way.values())
        self.max_concurrent = max(self.max_concurrent, running)
        before = self._started[name]
        self._started[name] += 1
        return before

    def begin_item(self, process: Process, job: Job) -> int:
        """Record that a batch has come to this item; return how often it had before.

        Under one token it may do so several times, as a batch is called again in halves.
        """
        name = job.tenant, job.id
        self._trace.note("run.item", process.name, f"{job.id} {job.attempt} {job.token}")
        if self._claimed_by.get(job.token) != (name, process.name):
            self._trace.broken(f"{process.name} runs {job.id}, which it did not claim")
        before = self._started[name]
        self._started[name] += 1
        return before

    def end(self, process: Process, attempt: Attempt, how: str) -> None:
        """Record that a task has ended."""
        if process.alive:
            self._trace.note("run.end", process.name, f"{attempt.id} {attempt.token} {how}")
            self.under_way.pop(attempt.token, None)

    def started(self, name: JobKey) -> int:
        """How often the job was started."""
        return self._started[name]

    def running(self) -> list[ObservedRun]:
        """Return the runs in processes that are alive."""
        return [run for run in self.under_way.values() if run.process.alive]
