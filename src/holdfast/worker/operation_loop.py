"""Carries out stored operations: the periodic caller of ``Engine.advance_operation``."""

from __future__ import annotations

import asyncio

from holdfast.engines.contract import Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import DurabilityLost, EngineClosed, UnknownOperation
from holdfast.model.job import MICROSECONDS
from holdfast.model.operation import MAX_RUNNING, Operation

log = StructuredLog("holdfast.operations")

STEP_SECONDS = 5.0
"""How long one step of the loop goes on at most."""
BUSY_SECONDS = 1.0
"""The longest wait while an operation runs: an outcome may lead on at any time."""
IDLE_SECONDS = 2.0
_LEAST_SECONDS = 0.05


class OperationLoop:
    """Takes the steps of all operations that have not ended, in turn, as far as they are due.

    Every daemon has one. Steps are commits of the store, so it does not matter which of them takes
    a step, nor whether several try at once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def step(self, now_us: int) -> int:
        """Do what is due; return when to look again."""
        clock = asyncio.get_running_loop()
        give_up = clock.time() + STEP_SECONDS
        left = await self._engine.operations(running=True, limit=MAX_RUNNING)
        if not left:
            return now_us + int(IDLE_SECONDS * MICROSECONDS)
        left.reverse()  # the oldest first: it has the jobs that two want
        wait_us = int(BUSY_SECONDS * MICROSECONDS)
        began = clock.time()
        while left and clock.time() < give_up:
            busy = []
            for operation in left:
                next_at_us, acted = await self._advance(operation)
                if acted:
                    busy.append(operation)
                elif next_at_us is not None:
                    wait_us = min(wait_us, next_at_us - now_us)
            left = busy
        spent_us = int((clock.time() - began) * MICROSECONDS)
        least_us = 0 if left else int(_LEAST_SECONDS * MICROSECONDS)
        return now_us + spent_us + max(wait_us - spent_us, least_us)

    async def _advance(self, operation: Operation) -> tuple[int | None, int]:
        """Take a step; return when the next one may do more, and how many members it acted on."""
        try:
            step = await self._engine.advance_operation(operation.id)
        except (DurabilityLost, EngineClosed):
            raise
        except UnknownOperation:  # it ended, and was forgotten
            return None, 0
        except Exception as error:  # noqa: BLE001 - logged; the others go on
            log.emit(
                "operation.step_failed",
                operation=operation.id,
                action=operation.action.name,
                error=error,
            )
            return None, 0
        return step.next_at_us, step.acted
