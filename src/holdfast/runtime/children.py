"""Child processes for tasks that compute, cannot be trusted, or have killed a worker before."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import msgspec

from holdfast.model.job import Job
from holdfast.model.outcome import Outcome, lost

from .attempt import Attempt
from .child import LENGTH, Charter, Order, Report, frame

_REPORT = msgspec.msgpack.Decoder(Report)


class ChildBroken(Exception):
    """A child could not even begin: the application cannot be imported there."""


class Children:
    """Runs jobs in child processes, which are kept for the next job, or killed when cancelled."""

    def __init__(self, charter: Charter) -> None:
        self._charter = charter
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()

    async def run(self, attempt: Attempt, *, alone: bool) -> Outcome:
        """Run it; a child that dies is a loss. Cancelling this kills the child."""
        child = self._idle.pop() if self._idle and not alone else await self._spawn()
        try:
            outcome = await child.run(attempt)
        except BaseException:
            self._bury(child)
            raise
        if outcome is not None and not alone:
            self._idle.append(child)
            return outcome
        epitaph = "" if outcome else await child.epitaph(attempt.job)
        self._bury(child)
        return outcome or lost(attempt.job, epitaph)

    def close(self) -> None:
        """Kill them all."""
        for child in list(self._all):
            self._bury(child)

    async def _spawn(self) -> _Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "holdfast.runtime.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        )
        child = _Child(process)
        self._all.add(child)
        try:
            await child.begin(self._charter)
        except BaseException:
            self._bury(child)
            raise
        return child

    def _bury(self, child: _Child) -> None:
        self._all.discard(child)
        child.kill()


class _Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def begin(self, charter: Charter) -> None:
        self._send(charter)
        report = await self._report()
        if report is None or not report.ready:
            why = "it ended while it started" if report is None else report.broken
            raise ChildBroken(f"no child process can run this application: {why}")

    async def run(self, attempt: Attempt) -> Outcome | None:
        """Return the outcome, or None when the child died over it."""
        self._send(Order(attempt.job, attempt.timeout_seconds))
        while (report := await self._report()) is not None:
            if report.outcome is not None:
                return report.outcome
            attempt.progress(report.progress_share, report.progress_note)
        return None

    def kill(self) -> None:
        # Not Popen.kill: it would reap the process behind the back of asyncio's watcher.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        if self._process.stdin is not None:
            self._process.stdin.close()

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

    async def _report(self) -> Report | None:
        stream = self._process.stdout
        if stream is None:
            return None
        try:
            head = await stream.readexactly(LENGTH.size)
            return _REPORT.decode(await stream.readexactly(LENGTH.unpack(head)[0]))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
