"""Routes beside the engine's verbs: health, metrics, and what people do. Bodies are JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from holdfast import __version__
from holdfast.engines.clock import SystemClock
from holdfast.engines.contract import Engine
from holdfast.engines.protocol import messages
from holdfast.model.errors import HoldfastError, PayloadInvalid
from holdfast.model.redaction import without_secrets
from holdfast.operations.operations import Operations
from holdfast.telemetry.counters import Metrics
from holdfast.telemetry.exposition import exposition

from . import OPERATIONS
from .bodies import (
    DrainBody,
    EnqueueBody,
    HistoryBody,
    ResizeBody,
    RunScheduleBody,
)

Route = Callable[[bytes], Awaitable[tuple[int, str, bytes]]]

_JSON = "application/json"


def health_routes(engine: Engine, unwell: Callable[[], str | None]) -> dict[str, Route]:
    """Return the two probes. ``unwell`` says why no work should come here, if so."""

    async def live(_body: bytes) -> tuple[int, str, bytes]:
        return 200, _JSON, b'{"status":"ok"}'

    async def ready(_body: bytes) -> tuple[int, str, bytes]:
        reason = unwell()
        if reason is None:
            try:
                await engine.get([])  # an answer means that the store can make things durable
            except HoldfastError as error:
                reason = str(error)
        if reason is None:
            return 200, _JSON, b'{"status":"ready"}'
        return (
            503,
            _JSON,
            msgspec.json.encode({"status": "unhealthy", "reason": without_secrets(reason)}),
        )

    return {"GET /health/live": live, "GET /health/ready": ready}


def metrics_routes(metrics: Metrics) -> dict[str, Route]:
    """Return what Prometheus asks for."""

    async def scrape(_body: bytes) -> tuple[int, str, bytes]:
        kind, text = exposition(metrics, __version__)
        return 200, kind, text

    return {"GET /metrics": scrape}


def operation_routes(operations: Operations) -> Mapping[str, Route]:
    """Return what the command line asks an owner to do, where it takes more than the engine."""
    clock = SystemClock()

    async def enqueue(body: bytes) -> object:
        request = read_body(body, EnqueueBody)
        return await operations.enqueue(request.jobs, request.on_duplicate)

    async def status(_body: bytes) -> object:
        return await operations.status()

    async def history(body: bytes) -> object:
        request = read_body(body, HistoryBody)
        return await operations.history(request.id, request.tenant)

    async def resize(body: bytes) -> object:
        request = read_body(body, ResizeBody)
        await operations.resize(request.slots, request.who, queue=request.queue)
        return await operations.status()

    async def drain(body: bytes) -> object:
        request = read_body(body, DrainBody)
        await operations.drain(request.who, on=request.on)
        return await operations.status()

    async def run_schedule(body: bytes) -> object:
        request = read_body(body, RunScheduleBody)
        return await operations.run_schedule(request.name, request.who, clock.now_us())

    return {
        f"POST {OPERATIONS}enqueue": answering(enqueue),
        f"GET {OPERATIONS}status": answering(status),
        f"POST {OPERATIONS}history": answering(history),
        f"POST {OPERATIONS}resize": answering(resize),
        f"POST {OPERATIONS}drain": answering(drain),
        f"POST {OPERATIONS}run_schedule": answering(run_schedule),
    }


T = TypeVar("T")


def read_body(body: bytes, kind: type[T]) -> T:
    """Return what was asked for, or raise ``PayloadInvalid``."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PayloadInvalid("body", str(error)) from None


def answering(operation: Callable[[bytes], Awaitable[object]]) -> Route:
    """Return the route of an operation: its answer as JSON, or its error."""

    async def route(body: bytes) -> tuple[int, str, bytes]:
        try:
            return 200, _JSON, msgspec.json.encode(await operation(body))
        except HoldfastError as error:
            return messages.REFUSED, messages.MSGPACK, messages.write_error(error)

    return route
