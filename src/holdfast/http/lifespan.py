"""The lifespan of an ASGI application: it starts before the first request, and ends after all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from holdfast.model.errors import Unavailable

from .asgi import ASGI, AsgiHandler, AsgiMessage


@contextlib.asynccontextmanager
async def lifespan(handler: AsgiHandler, end_seconds: float) -> AsyncIterator[None]:
    """Run the application while the context is open; at the end it has ``end_seconds``.

    Raise ``Unavailable`` if it says that it cannot start. An application that knows no lifespan
    raises at once, and is served without.
    """
    events: asyncio.Queue[AsgiMessage] = asyncio.Queue()
    answers: asyncio.Queue[AsgiMessage] = asyncio.Queue()
    handler.state = {}
    scope: AsgiMessage = {"type": "lifespan", "asgi": ASGI, "state": handler.state}

    async def run() -> None:
        try:
            await handler.app(scope, events.get, answers.put)
        except Exception as error:  # noqa: BLE001 - ASGI leaves open what is raised
            await answers.put({"type": "lifespan.unsupported", "message": str(error)})
        else:
            await answers.put({"type": "lifespan.ended"})

    running = asyncio.create_task(run())
    try:
        await events.put({"type": "lifespan.startup"})
        answer = await answers.get()
        if answer["type"] == "lifespan.startup.failed":
            why = answer.get("message") or "it does not say why"
            raise Unavailable(f"the application did not start: {why}")
        yield
        await events.put({"type": "lifespan.shutdown"})
        await asyncio.wait([running], timeout=end_seconds)
    finally:
        running.cancel()
        await asyncio.wait([running])
