"""The tasks that come with Holdfast: enough to try a queue before there is any code."""

from __future__ import annotations

import asyncio
import random

from .definition import Definition, Execution, TaskSpec
from .signature import Signature

SIMULATE = "holdfast.simulate"


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


def add_builtin(definition: Definition) -> Definition:
    """Give an application the built-in tasks as well, unless it has its own of that name."""
    if SIMULATE not in definition.tasks:
        spec = TaskSpec(SIMULATE, simulate, Signature(simulate, SIMULATE), Execution.LOOP)
        definition.add_task(spec)
    return definition
