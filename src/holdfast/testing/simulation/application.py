"""The application that simulated workers run: async tasks whose payload sets how each run ends.

Threads and child processes cannot be simulated: ``tests/e2e`` runs them in real processes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypedDict

import msgspec
from msgspec.structs import replace

from holdfast.model.failure import Classifier, Failure
from holdfast.model.signals import Cancel, Dead, Retry, Snooze
from holdfast.worker.attempt import current
from holdfast.worker.builtin_tasks import add_builtin
from holdfast.worker.item_signature import ItemSignature
from holdfast.worker.registry import Execution, Registry, TaskSpec
from holdfast.worker.schedules import Schedule
from holdfast.worker.signature import Signature

from . import projected
from .process import current_process

LONG_TIMEOUT_SECONDS = 60.0
QUEUES = ("default", "mail", "slow", "bulk")
TASKS = {"work": "default", "mail": "mail", "long": "slow", "bulk": "bulk"}
"""The tasks and the queue of each."""


class _HttpError(Exception):
    """An error as an HTTP client raises it."""

    def __init__(self, status_code: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"the service answered {status_code}")
        self.status_code = status_code
        self.headers = dict(headers or {})


FAILURES: Mapping[str, Callable[[], Exception]] = {
    "unexpected": lambda: RuntimeError("something nobody thought of"),
    "rate_limited": lambda: _HttpError(429, {"retry-after": "1"}),
    "upstream_5xx": lambda: _HttpError(503),
    "upstream_4xx": lambda: _HttpError(404),
    "connection": lambda: ConnectionResetError("gone"),
    "timeout": lambda: TimeoutError("it took too long elsewhere"),
    "parse_error": lambda: json.JSONDecodeError("no value", "", 0),
    "payload_invalid": lambda: msgspec.ValidationError("no such book"),
    "business_error": lambda: Dead("this order was never paid"),
    "retry": lambda: Retry("not yet", after=0.3),
    "snooze": lambda: Snooze(0.7),
    "cancel": lambda: Cancel("nobody wants it"),
}
"""Ways to fail. ``stubborn`` and ``endless`` are two more: they run into their timeout."""
_OF_ALL = frozenset({"unexpected", "connection"})
"""Those that a batch raises, and does not say which item had them."""


class _WithoutTracebacks(Classifier):
    """Leaves tracebacks out: their paths differ between machines."""

    def classify(self, error: BaseException, now: datetime) -> Failure:
        return replace(super().classify(error, now), traceback="")


async def work(
    ms: int = 0,
    fates: list[str] | None = None,
    event_id: str = "",  # noqa: ARG001 - of the jobs of a subscription
) -> str | None:
    """Sleep, then end as ``fates`` sets for this run of the job; succeed after the last of them."""
    attempt, process = current(), current_process()
    run = process.world.runs.begin(process, attempt)
    ending = "ok"
    try:
        await asyncio.sleep(ms / 1000)
        result = await _end_as("ok" if fates is None or run >= len(fates) else fates[run])
    except BaseException as error:
        ending = type(error).__name__
        raise
    finally:
        process.world.runs.end(process, attempt, ending)
    return result


class Item(TypedDict, total=False):
    """What ``work`` takes, as an item of a batch."""

    ms: int
    fates: list[str] | None


async def bulk(items: list[Item]) -> list[object]:
    """End each item as its ``fates`` say for this call; some of them are the end of all."""
    process = current_process()
    found: list[object] = []
    jobs = current().jobs
    await asyncio.sleep(max(item.get("ms", 0) for item in items) / 1000)
    for job, item in zip(jobs, items, strict=True):
        run, fates = process.world.runs.begin_item(process, job), item.get("fates")
        fate = "ok" if fates is None or run >= len(fates) else fates[run]
        if fate in _OF_ALL:
            error = FAILURES[fate]()
            raise error
        found.append(FAILURES[fate]() if fate in FAILURES else await _end_as(fate))
    return found


async def _end_as(draw_cut: str) -> str | None:
    if draw_cut in FAILURES:
        error = FAILURES[draw_cut]()
        raise error
    if draw_cut == "endless":
        await asyncio.sleep(3_600)
    if draw_cut == "stubborn":
        await _ignore_cancellation()
    return "done" if draw_cut == "result" else None


async def _ignore_cancellation() -> None:
    for _ in range(3):
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            continue


_SPECS = [
    TaskSpec(
        name,
        work,
        Signature(work, name),
        Execution.LOOP,
        queue=queue,
        timeout_seconds=LONG_TIMEOUT_SECONDS if name == "long" else None,
    )
    for name, queue in TASKS.items()
    if name != "bulk"
]
_SPECS.append(
    TaskSpec(
        "bulk", bulk, ItemSignature(bulk, "bulk"), Execution.LOOP, queue=TASKS["bulk"], batch=4
    )
)
_SCHEDULES = [
    Schedule(name="often", expression="*/7 * * * * *", task="work", catch_up_seconds=10.0),
    Schedule(
        name="each",
        expression="*/11 * * * * *",
        task="mail",
        queue="mail",
        missed="all",
        overlap="allow",
        catch_up_seconds=15.0,
    ),
]


def registry(*, owner: bool) -> Registry:
    """Return the registry of the application: only the owner has schedules and a projection."""
    found = Registry(_WithoutTracebacks())
    for spec in _SPECS:
        found.add_task(spec)
    if owner:
        found.add_projection(projected.PROJECTION)
        for schedule in _SCHEDULES:
            found.add_schedule(schedule)
    return add_builtin(found)
