"""The tasks that come with Holdfast, to try a queue without any code."""

from __future__ import annotations

import asyncio
import random

import msgspec

from .registry import Execution, Registry, TaskSpec
from .signature import Signature

SIMULATE = "holdfast.simulate"
BY_TYPE = "holdfast.by_type"
"""The task of a job that names none: the worker that runs it decides by ``payload.type``."""


class SimulatedFailure(Exception):
    """Raised by one run of ten of the simulated work."""


async def simulate(**payload: object) -> None:
    """Pretend to work for 100 to 500 ms, and fail in one run of ten.

    ``seconds`` and ``fail_rate`` in the payload override this.
    """
    seconds, fail_rate = payload.get("seconds"), payload.get("fail_rate")
    await asyncio.sleep(
        float(seconds) if isinstance(seconds, int | float) else random.uniform(0.1, 0.5)
    )
    if random.random() < (float(fail_rate) if isinstance(fail_rate, int | float) else 0.1):
        raise SimulatedFailure("simulated failure: one run of ten ends like this")


def add_builtin(registry: Registry, default_task: str | None = None) -> Registry:
    """Add the built-in tasks to an application, unless it has its own of these names."""
    default_task = default_task or SIMULATE
    for name in (SIMULATE, BY_TYPE):
        if name not in registry.tasks:
            spec = TaskSpec(name, simulate, Signature(simulate, name), Execution.LOOP)
            registry.add_task(spec)
    registry.task(default_task)
    registry.default_task = default_task
    return registry


def by_type(registry: Registry, payload: bytes) -> tuple[TaskSpec, bytes]:
    """Return the task for a job that names none, and the payload to call it with.

    That is the task named by ``payload.type``, if there is one, else the default task.
    """
    fields = msgspec.json.decode(payload, type=dict[str, object])
    named = fields.get("type")
    spec = registry.tasks.get(named) if isinstance(named, str) else None
    if spec is None or named == BY_TYPE:
        return registry.task(registry.default_task), payload
    if not spec.signature.takes("type"):
        del fields["type"]
    return spec, msgspec.json.encode(fields)
