"""Child processes for tasks that compute, cannot be trusted, or have killed a worker before."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable

import msgspec

from holdfast.model.job import Job
from holdfast.model.outcome import Outcome, lost
from holdfast.telemetry.log_output import LogOptions, log_terms

from .attempt import Attempt
from .child_process import LENGTH, ChildConfig, ChildJob, ChildReport, frame

_BURIAL_SECONDS = 1.0
_REPORT = msgspec.msgpack.Decoder(ChildReport)


class ChildBroken(Exception):
    """A child could not even begin: the application cannot be imported there."""


class Children:
    """Runs jobs in child processes, which are kept for the next job, or killed when cancelled."""

    def __init__(self, charter: ChildConfig) -> None:
        self._charter = charter
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        self._spawning: set[asyncio.Task[_Child]] = set()
        self._dying: set[asyncio.Task[None]] = set()
        self._closed = False
        self.kills = 0
        """How many children were killed over their job."""

    async def run(
        self,
        attempt: Attempt,
        began: Callable[[Attempt], None] = lambda _attempt: None,
        *,
        alone: bool,
    ) -> Outcome:
        """Run it; a child that dies is a loss. Cancelling this kills the child."""
        child = None if alone else self._idle_child()
        if child is None:
            child = await self._spawned()
        began(attempt)
        try:
            outcome = await child.run(attempt)
        except BaseException:
            self.kills += 1
            self._bury(child)
            raise
        if outcome is not None and not alone and child.charter == self._charter:
            self._idle.append(child)
            return outcome
        epitaph = "" if outcome else await child.epitaph(attempt.job)
        self._bury(child)
        return outcome or lost(attempt.job, epitaph)

    def change(self, charter: ChildConfig) -> None:
        """Have children of another charter from now on; those of the old one end with their job."""
        if charter != self._charter:
            self._charter = charter
            idle, self._idle = self._idle, []
            for child in idle:
                self._bury(child)

    async def close(self) -> None:
        """Kill them all, and see them off."""
        self._closed = True
        for child in list(self._all):
            self._bury(child)
        if self._spawning:
            await asyncio.wait(self._spawning, timeout=_BURIAL_SECONDS)
        if self._dying:
            await asyncio.wait(self._dying, timeout=_BURIAL_SECONDS)

    def _idle_child(self) -> _Child | None:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._bury(child)  # it died while it had nothing to do: no job is to blame
        return None

    async def _spawned(self) -> _Child:
        """Start a child. If this is cancelled meanwhile, the child is for the next job.

        Not to be cancelled itself: in the midst of starting a process, asyncio may then wait for
        ever.
        """
        spawning = asyncio.get_running_loop().create_task(self._spawn())
        self._spawning.add(spawning)
        spawning.add_done_callback(self._spawning.discard)
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            spawning.add_done_callback(self._keep)
            raise

    def _keep(self, spawning: asyncio.Task[_Child]) -> None:
        if spawning.cancelled() or spawning.exception() is not None:
            return
        if self._closed or spawning.result().charter != self._charter:
            self._bury(spawning.result())
        else:
            self._idle.append(spawning.result())

    async def _spawn(self) -> _Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "holdfast.worker.child_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # what it starts ends with it, and its group is not ours
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        )
        child = _Child(process, self._charter)
        self._all.add(child)
        try:
            await child.begin(log_terms())
        except BaseException:
            self._bury(child)
            raise
        return child

    def _bury(self, child: _Child) -> None:
        self._all.discard(child)
        child.kill()
        dying = asyncio.get_running_loop().create_task(child.dead())
        self._dying.add(dying)
        dying.add_done_callback(self._dying.discard)


def _kill_group(leader: int) -> None:
    """Kill a child and everything that its task has started."""
    if hasattr(os, "killpg"):
        os.killpg(leader, signal.SIGKILL)
    else:
        os.kill(leader, signal.SIGTERM)  # Windows: the same as killing it


class _Child:
    def __init__(self, process: asyncio.subprocess.Process, charter: ChildConfig) -> None:
        self.charter = charter
        self._process = process

    @property
    def alive(self) -> bool:
        """Whether it has not been seen to end."""
        return self._process.returncode is None

    async def begin(self, logs: LogOptions | None) -> None:
        self._send(msgspec.structs.replace(self.charter, logs=logs))
        report = await self._report()
        if report is None or not report.ready:
            why = "it ended while it started" if report is None else report.broken
            raise ChildBroken(f"no child process can run this application: {why}")

    async def run(self, attempt: Attempt) -> Outcome | None:
        """Return the outcome, or None when the child died over it."""
        self._send(ChildJob(attempt.job, attempt.timeout_seconds))
        while (report := await self._report()) is not None:
            if report.outcome is not None:
                return report.outcome
            attempt.progress(report.progress_share, report.progress_note)
        return None

    def kill(self) -> None:
        # Not Popen.kill: it would reap the process behind the back of asyncio's watcher.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                _kill_group(self._process.pid)
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def dead(self) -> None:
        """Return when nothing is left of the process."""
        if self._process.stdout is not None:
            await self._process.stdout.read()
        await self._process.wait()

    async def epitaph(self, job: Job) -> str:
        """Say how the process ended."""
        code = await self._process.wait()
        how = f"exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        return f"the child process that ran attempt {job.attempt} ended with {how}"

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
