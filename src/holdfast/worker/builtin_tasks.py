"""The tasks that come with Holdfast: enough to try a queue before there is any code."""

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
    """What the simulated work raises in one run of ten."""


async def simulate(**payload: object) -> None:
    """Pretend to work for 100 to 500 ms, and fail in one run of ten.

    ``seconds`` and ``fail_rate`` in the payload say otherwise.
    """
    seconds, fail_rate = payload.get("seconds"), payload.get("fail_rate")
    await asyncio.sleep(
        float(seconds) if isinstance(seconds, int | float) else random.uniform(0.1, 0.5)
    )
    if random.random() < (float(fail_rate) if isinstance(fail_rate, int | float) else 0.1):
        raise SimulatedFailure("simulated failure: one run of ten ends like this")


def add_builtin(definition: Registry, default_task: str | None = None) -> Registry:
    """Give an application the built-in tasks as well, unless it has its own of that name."""
    default_task = default_task or SIMULATE
    for name in (SIMULATE, BY_TYPE):
        if name not in definition.tasks:
            spec = TaskSpec(name, simulate, Signature(simulate, name), Execution.LOOP)
            definition.add_task(spec)
    definition.task(default_task)
    definition.default_task = default_task
    return definition


def by_type(definition: Registry, payload: bytes) -> tuple[TaskSpec, bytes]:
    """Return the task for a job that names none, and the payload to call it with.

    That is the task of the name in ``payload.type``, if there is one, else the default task.
    """
    fields = msgspec.json.decode(payload, type=dict[str, object])
    named = fields.get("type")
    spec = definition.tasks.get(named) if isinstance(named, str) else None
    if spec is None or named == BY_TYPE:
        return definition.task(definition.default_task), payload
    if not spec.signature.takes("type"):
        del fields["type"]  # it has done its duty
    return spec, msgspec.json.encode(fields)
