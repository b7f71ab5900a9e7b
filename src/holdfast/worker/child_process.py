"""The child process that runs one job at a time: ``python -m holdfast.worker.child_process``.

Orders come in on the standard input and reports go out on what was the standard output, each a
length and a msgpack body. The child leaves when its input ends: it never outlives its worker.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from .registry import Registry, is_async
from .verdicts import Verdicts

LENGTH = struct.Struct(">I")
_LOOK_SECONDS = 0.5


class ChildConfig(msgspec.Struct, frozen=True):
    """What a child is told once."""

    reference: str | None
    retry: RetryPolicy
    default_task: str
    memory_limit_bytes: int | None = None
    logs: LogOptions | None = None


class ChildJob(msgspec.Struct, frozen=True):
    """Run this job."""

    job: Job
    timeout_seconds: float | None


class ChildReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """How it goes, and in the end the outcome. ``ready`` and ``broken`` are about the child."""

    ready: bool = False
    broken: str | None = None
    outcome: Outcome | None = None
    progress_share: float | None = None
    progress_note: str = ""


def read_frame(stream: BinaryIO) -> bytes | None:
    """Return the next body, or None at the end."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    body = stream.read(LENGTH.unpack(head)[0])
    return body or None


def frame(body: msgspec.Struct) -> bytes:
    """Return the body with its length before it."""
    encoded = msgspec.msgpack.encode(body)
    return LENGTH.pack(len(encoded)) + encoded


def main() -> None:
    """Serve until the input ends."""
    orders_in, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a task prints must not get between the reports
    leave_no_input()  # and what it reads must not be our orders
    # Ctrl-C is the worker's to handle. Not SIG_IGN: whatever a task starts would inherit it.
    signal.signal(signal.SIGINT, lambda _signal, _frame: None)
    charter_body = read_frame(orders_in)
    if charter_body is None:
        return
    charter = msgspec.msgpack.decode(charter_body, type=ChildConfig)
    if charter.logs is not None:
        configure_logging(charter.logs)
    orders: queue.SimpleQueue[ChildJob] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(orders_in, orders), daemon=True).start()
    outlive_nobody(os.getppid(), _leave)
    try:
        if charter.memory_limit_bytes is not None:
            _limit_memory(charter.memory_limit_bytes)
        definition = load_registry(charter.reference) if charter.reference else Registry()
        add_builtin(definition, charter.default_task)
    except BaseException as error:  # noqa: BLE001 - the worker must hear why there is no child
        _tell(out, ChildReport(broken=f"{type(error).__name__}: {error}"))
        return
    verdicts = Verdicts(definition.classifier, charter.retry)
    _tell(out, ChildReport(ready=True))
    while True:
        outcome = _run(orders.get(), definition, verdicts, out)
        _tell(out, ChildReport(outcome=outcome))


def leave_no_input() -> None:
    """Let whoever reads the standard input find its end there."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _receive(orders_in: BinaryIO, orders: queue.SimpleQueue[ChildJob]) -> None:
    decoder = msgspec.msgpack.Decoder(ChildJob)
    while (body := read_frame(orders_in)) is not None:
        orders.put(decoder.decode(body))
    _leave()


def outlive_nobody(parent: int, leave: Callable[[], None]) -> None:
    """Leave when this process is no longer its parent's.

    The end of the input says so sooner, unless something that the parent forked holds it open.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        leave()

    threading.Thread(target=watch, name="holdfast-parent", daemon=True).start()


def _leave() -> None:
    # The worker is gone, whatever is going on here: leave, with all that was started here.
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _run(order: ChildJob, definition: Registry, verdicts: Verdicts, out: BinaryIO) -> Outcome:
    job = order.job
    task = definition.tasks.get(job.task)
    if task is None:
        return verdicts.of_error(job, None, LookupError(f"the child knows no task {job.task!r}"))
    attempt = Attempt(job, task, order.timeout_seconds)
    attempt.report_progress_to(
        lambda share, note: _tell(out, ChildReport(progress_share=share, progress_note=note))
    )
    token = enter(attempt)
    try:
        args, kwargs = task.signature.arguments(job.payload)
        value = task.function(*args, **kwargs)
        if is_async(task.function):
            value = asyncio.run(value)  # type: ignore[arg-type]
        return verdicts.of_value(job, task, value)
    except BaseException as error:  # noqa: BLE001 - SystemExit too is only this job's failure
        return verdicts.of_error(job, task, error)
    finally:
        leave(token)


def _tell(out: BinaryIO, report: ChildReport) -> None:
    with contextlib.suppress(OSError):
        out.write(frame(report))
        out.flush()


def _limit_memory(limit_bytes: int) -> None:
    if sys.platform == "win32":
        return  # Windows has no such limit for a process to set itself
    import resource  # noqa: PLC0415 - not on Windows

    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))


if __name__ == "__main__":
    main()
