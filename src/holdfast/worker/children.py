"""Child processes for tasks that compute, cannot be trusted, or have killed a worker before."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable

import msgspec

from holdfast.engines.structured_log import StructuredLog
from holdfast.model.job import Job
from holdfast.model.outcome import Outcome, lost, snooze
from holdfast.telemetry.log_output import LogOptions, log_options

from .attempt import Attempt
from .child_process import LENGTH, ChildConfig, ChildJob, ChildReport, frame

_EXIT_SECONDS = 1.0
SNOOZE_SECONDS = 5.0
"""How long a job waits when no process could be started for it."""
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EAGAIN, errno.ENOMEM})
"""What others may end without this job. Any other error is one of the installation."""
_REPORT = msgspec.msgpack.Decoder(ChildReport)

log = StructuredLog("holdfast.worker")


class ChildBroken(Exception):
    """A child process could not start: the application cannot be imported there."""


class ChildNotStarted(Exception):
    """The system could not start a process: no file, memory or process was left for it."""


class CpuLimitExceeded(Exception):
    """An attempt used more processor time than ``cpu_limit_seconds`` allows."""

    error_reason = "cpu_limit"


class Children:
    """Runs jobs in child processes; each is kept for the next job, or killed on a cancellation."""

    def __init__(self, config: ChildConfig) -> None:
        self._config = config
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        self._spawning: set[asyncio.Task[_Child]] = set()
        self._exiting: set[asyncio.Task[None]] = set()
        self._closed = False
        self.kills = 0
        """How many children were killed while they ran a job."""

    async def run(
        self,
        attempt: Attempt,
        on_start: Callable[[Attempt], None] = lambda _attempt: None,
        *,
        alone: bool,
    ) -> Outcome:
        """Run it; a child that dies is a lost attempt. Cancelling this kills the child."""
        [outcome] = await self.run_batch(attempt, on_start, alone=alone)
        return outcome or lost(attempt.job, "its child process returned no outcome")

    async def run_batch(
        self,
        attempt: Attempt,
        on_start: Callable[[Attempt], None] = lambda _attempt: None,
        *,
        alone: bool,
    ) -> list[Outcome | None]:
        """Run it; return the outcome of each of its jobs, or None where the child cannot tell.

        A child that dies is a lost attempt of all of them. Cancelling this kills the child.
        While there is no room for a process, jobs are tried again later: no attempt is charged.
        Raise ``ChildBroken`` if none can be started at all, or ``CpuLimitExceeded``.
        """
        child = None if alone else self._idle_child()
        if child is None:
            try:
                child = await self._start_child()
            except ChildNotStarted as error:
                job = attempt.job
                log.emit(
                    "worker.child_not_started",
                    task=job.task,
                    job=job.id,
                    queue=job.queue,
                    tenant=job.tenant,
                    error=error,
                )
                return [snooze(job, SNOOZE_SECONDS) for job in attempt.jobs]
        on_start(attempt)
        try:
            outcomes = await child.run(attempt)
        except BaseException:
            self.kills += 1
            self._terminate(child)
            raise
        if outcomes is not None and not alone and child.config == self._config:
            self._idle.append(child)
            return outcomes
        exit_reason = "" if outcomes else await child.exit_reason(attempt.job)
        self._terminate(child)
        if not outcomes and (most_seconds := child.exceeded_cpu_seconds):
            raise CpuLimitExceeded(
                f"attempt {attempt.job.attempt} used more than {most_seconds:g} s of processor "
                "time, and its child process was ended: see cpu_limit_seconds"
            )
        return outcomes or [lost(job, exit_reason) for job in attempt.jobs]

    def change(self, config: ChildConfig) -> None:
        """Use another config for new children; those with the old one end with their job."""
        if config != self._config:
            self._config = config
            idle, self._idle = self._idle, []
            for child in idle:
                self._terminate(child)

    async def close(self) -> None:
        """Kill every child and wait for its exit."""
        self._closed = True
        for child in list(self._all):
            self._terminate(child)
        if self._spawning:
            await asyncio.wait(self._spawning, timeout=_EXIT_SECONDS)
        if self._exiting:
            await asyncio.wait(self._exiting, timeout=_EXIT_SECONDS)

    def _idle_child(self) -> _Child | None:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._terminate(child)  # it died while idle: no job is to blame
        return None

    async def _start_child(self) -> _Child:
        """Start a child. If this is cancelled, the child is kept for the next job.

        The start itself is never cancelled: asyncio may then wait for ever.
        """
        spawning = asyncio.get_running_loop().create_task(self._spawn())
        self._spawning.add(spawning)
        spawning.add_done_callback(self._spawning.discard)
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            spawning.add_done_callback(self._keep_idle)
            raise

    def _keep_idle(self, spawning: asyncio.Task[_Child]) -> None:
        if spawning.cancelled() or spawning.exception() is not None:
            return
        if self._closed or spawning.result().config != self._config:
            self._terminate(spawning.result())
        else:
            self._idle.append(spawning.result())

    async def _spawn(self) -> _Child:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "holdfast.worker.child_process",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # a process group of its own, killed as a whole
                env={**os.environ, "PYTHONPATH": path},
            )
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise ChildNotStarted(str(error)) from error
            text = f"no child process can be started with {sys.executable}: {error}"
            raise ChildBroken(text) from error
        child = _Child(process, self._config)
        self._all.add(child)
        try:
            await child.begin(log_options())
        except BaseException:
            self._terminate(child)
            raise
        return child

    def _terminate(self, child: _Child) -> None:
        self._all.discard(child)
        child.kill()
        exiting = asyncio.get_running_loop().create_task(child.wait_closed())
        self._exiting.add(exiting)
        exiting.add_done_callback(self._exiting.discard)


def _kill_group(leader: int) -> None:
    """Kill a child and every process that its task has started."""
    if hasattr(os, "killpg"):
        os.killpg(leader, signal.SIGKILL)
    else:
        os.kill(leader, signal.SIGTERM)  # on Windows this kills it


class _Child:
    def __init__(self, process: asyncio.subprocess.Process, config: ChildConfig) -> None:
        self.config = config
        self._process = process

    @property
    def alive(self) -> bool:
        """Whether its exit has not been seen."""
        return self._process.returncode is None

    async def begin(self, logs: LogOptions | None) -> None:
        self._send(msgspec.structs.replace(self.config, logs=logs))
        report = await self._report()
        if report is None or not report.ready:
            why = "it exited during its start" if report is None else report.broken
            raise ChildBroken(f"no child process can run this application: {why}")

    async def run(self, attempt: Attempt) -> list[Outcome | None] | None:
        """Return the outcomes, or None if the child died."""
        self._send(ChildJob(list(attempt.jobs), attempt.timeout_seconds))
        while (report := await self._report()) is not None:
            if report.outcomes is not None:
                return report.outcomes
            attempt.progress(report.progress_share, report.progress_note)
        return None

    def kill(self) -> None:
        # Not Popen.kill: it would reap the process before asyncio's watcher does.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                _kill_group(self._process.pid)
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def wait_closed(self) -> None:
        """Wait until the process has exited and its output is read."""
        if self._process.stdout is not None:
            await self._process.stdout.read()
        await self._process.wait()

    async def exit_reason(self, job: Job) -> str:
        """Return how the process ended."""
        code = await self._process.wait()
        how = f"exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        return f"the child process that ran attempt {job.attempt} ended with {how}"

    @property
    def exceeded_cpu_seconds(self) -> float | None:
        """The limit of processor time that ended it, if that did."""
        if self._process.returncode == -signal.SIGXCPU:
            return self.config.cpu_limit_seconds
        return None

    def _send(self, message: msgspec.Struct) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(frame(message))

    async def _report(self) -> ChildReport | None:
        stream = self._process.stdout
        if stream is None:
            return None
        try:
            head = await stream.readexactly(LENGTH.size)
            return _REPORT.decode(await stream.readexactly(LENGTH.unpack(head)[0]))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
