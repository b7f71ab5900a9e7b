"""Whether the server lives, and whether it can answer. Neither needs a key."""

from __future__ import annotations

import asyncio

from holdfast.engines.contract import Engine
from holdfast.model.errors import HoldfastError

READY_SECONDS = 2.0


def live() -> tuple[int, dict[str, str]]:
    """Return that the process answers."""
    return 200, {"status": "ok"}


async def ready(engine: Engine, *, draining: bool) -> tuple[int, dict[str, str]]:
    """Return whether the store answers."""
    if draining:
        return 503, {"status": "unhealthy", "reason": "the server is closing"}
    try:
        async with asyncio.timeout(READY_SECONDS):
            await engine.flags()
    except TimeoutError:
        return 503, {"status": "unhealthy", "reason": f"no answer within {READY_SECONDS:g} s"}
    except (HoldfastError, OSError):
        return 503, {"status": "unhealthy", "reason": "the store does not answer"}
    return 200, {"status": "ready"}
