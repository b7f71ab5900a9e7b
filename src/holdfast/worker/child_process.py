"""The child process that runs one job at a time: ``python -m holdfast.worker.child_process``.

Jobs come in on the standard input and reports go out on the original standard output, each a
length and a msgpack body. The child exits when its input ends: it never outlives its worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import queue
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from holdfast.model.job import Job
from holdfast.model.outcome import Outcome
from holdfast.model.retry import RetryPolicy
from holdfast.telemetry.log_output import LogOptions, configure_logging

from .app_loader import load_registry
from .attempt import Attempt, enter, leave
from .builtin_tasks import add_builtin
from .item_batch import ItemBatch
from .registry import Registry, TaskSpec, is_async
from .verdicts import Verdicts

LENGTH = struct.Struct(">I")
_PARENT_CHECK_SECONDS = 0.5


class ChildConfig(msgspec.Struct, frozen=True):
    """The first message to a child."""

    reference: str | None
    retry: RetryPolicy
    default_task: str
    memory_limit_bytes: int | None = None
    cpu_limit_seconds: float | None = None
    logs: LogOptions | None = None


class ChildJob(msgspec.Struct, frozen=True):
    """The message to run a job, or all jobs of a batch."""

    jobs: list[Job]
    timeout_seconds: float | None


class ChildReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress, and in the end the outcomes. ``ready`` and ``broken`` are about the child."""

    ready: bool = False
    broken: str | None = None
    outcomes: list[Outcome | None] | None = None
    """Of each job; None: another call may tell."""
    progress_share: float | None = None
    progress_note: str = ""


def read_frame(stream: BinaryIO) -> bytes | None:
    """Return the next message body, or None at the end."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    body = stream.read(LENGTH.unpack(head)[0])
    return body or None


def frame(body: msgspec.Struct) -> bytes:
    """Return the message with its length in front."""
    encoded = msgspec.msgpack.encode(body)
    return LENGTH.pack(len(encoded)) + encoded


def main() -> None:
    """Serve until the input ends."""
    jobs_in, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a task prints must not mix with the reports
    close_stdin()  # and it must not read our jobs
    # The worker handles Ctrl-C. Not SIG_IGN: processes that a task starts would inherit it.
    signal.signal(signal.SIGINT, lambda _signal, _frame: None)
    config_body = read_frame(jobs_in)
    if config_body is None:
        return
    config = msgspec.msgpack.decode(config_body, type=ChildConfig)
    if config.logs is not None:
        configure_logging(config.logs)
    jobs: queue.SimpleQueue[ChildJob] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(jobs_in, jobs), daemon=True).start()
    exit_with_parent(os.getppid(), _exit)
    try:
        if config.memory_limit_bytes is not None:
            _limit_memory(config.memory_limit_bytes)
        registry = load_registry(config.reference) if config.reference else Registry()
        add_builtin(registry, config.default_task)
    except BaseException as error:  # noqa: BLE001 - reported to the worker
        _send(out, ChildReport(broken=f"{type(error).__name__}: {error}"))
        return
    verdicts = Verdicts(registry.classifier, config.retry)
    _send(out, ChildReport(ready=True))
    while True:
        child_job = jobs.get()
        if config.cpu_limit_seconds is not None:
            _limit_cpu(config.cpu_limit_seconds)
        outcomes = _run(child_job, registry, verdicts, out)
        _send(out, ChildReport(outcomes=outcomes))


def close_stdin() -> None:
    """Replace the standard input by an empty one."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _receive(jobs_in: BinaryIO, jobs: queue.SimpleQueue[ChildJob]) -> None:
    decoder = msgspec.msgpack.Decoder(ChildJob)
    while (body := read_frame(jobs_in)) is not None:
        jobs.put(decoder.decode(body))
    _exit()


def exit_with_parent(parent: int, leave: Callable[[], None]) -> None:
    """Call ``leave`` when the parent process is gone.

    The end of the input usually comes first, unless a fork of the parent holds it open.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_SECONDS)
        leave()

    threading.Thread(target=watch, name="holdfast-parent", daemon=True).start()


def _exit() -> None:
    # The worker is gone: exit at once, with every process that was started here.
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _run(
    child_job: ChildJob, registry: Registry, verdicts: Verdicts, out: BinaryIO
) -> list[Outcome | None]:
    jobs = child_job.jobs
    job = jobs[0]
    task = registry.tasks.get(job.task)
    if task is None:
        error = LookupError(f"the child has no task {job.task!r}")
        return [verdicts.of_error(one, None, error) for one in jobs]
    attempt = Attempt(job, task, child_job.timeout_seconds)
    attempt.jobs = tuple(jobs)
    attempt.report_progress_to(
        lambda share, note: _send(out, ChildReport(progress_share=share, progress_note=note))
    )
    token = enter(attempt)
    try:
        if task.batch:
            batch = ItemBatch(task, jobs, verdicts)
            value = _call(task, batch.items) if batch.jobs else None
            return list(batch.outcomes(value))
        args, kwargs = task.signature.arguments(job.payload)
        return [verdicts.of_value(job, task, _call(task, *args, **kwargs))]
    except BaseException as error:  # noqa: BLE001 - even SystemExit fails only this job
        return verdicts.of_batch_error(jobs, task, error)
    finally:
        leave(token)


def _call(task: TaskSpec, *args: object, **kwargs: object) -> object:
    value = task.function(*args, **kwargs)
    return asyncio.run(value) if is_async(task.function) else value  # type: ignore[arg-type]


def _send(out: BinaryIO, report: ChildReport) -> None:
    with contextlib.suppress(OSError):
        out.write(frame(report))
        out.flush()


def _limit_memory(limit_bytes: int) -> None:
    if sys.platform == "win32":
        return  # Windows has no such limit
    import resource  # noqa: PLC0415 - not on Windows

    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))


def _limit_cpu(limit_seconds: float) -> None:
    """Have the kernel end this process by SIGXCPU when it has used so much more than by now."""
    if sys.platform == "win32":
        return  # Windows has no such limit
    import resource  # noqa: PLC0415 - not on Windows

    used = resource.getrusage(resource.RUSAGE_SELF)
    most = math.ceil(used.ru_utime + used.ru_stime + limit_seconds)
    # The hard limits stay: a process that reuses them could not raise them again.
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(
        resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


if __name__ == "__main__":
    main()
