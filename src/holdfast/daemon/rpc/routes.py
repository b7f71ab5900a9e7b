"""Routes beside the engine's verbs: health, metrics, operations, settings. Bodies are JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from holdfast import __version__
from holdfast.daemon.reload import SettingsReloader
from holdfast.engines.clock import SystemClock
from holdfast.engines.contract import Engine
from holdfast.engines.protocol import messages
from holdfast.model.errors import HoldfastError, PayloadInvalid
from holdfast.model.redaction import without_secrets
from holdfast.operations.operations import Operations
from holdfast.telemetry.counters import Metrics
from holdfast.telemetry.exposition import exposition

from . import CONFIG, OPERATIONS
from .app import Route
from .bodies import CheckPayloadsBody, EnqueueBody, HistoryBody, RunScheduleBody
from .shared_answer import SharedAnswer

T = TypeVar("T")

_JSON = "application/json"
READY_SECONDS = 2.0
"""How long the store may take to answer before the daemon is not ready."""
_READY_KEPT_SECONDS = 0.1
_METRICS_KEPT_SECONDS = 0.5
_METRICS_SHARE = 0.05
"""Of the time of the event loop, what making the text of the metrics may take."""


def health_routes(engine: Engine, problem: Callable[[], str | None]) -> dict[str, Route]:
    """Return the two probes. ``problem`` returns why the daemon is not ready, or None."""

    async def live(_body: bytes) -> tuple[int, str, bytes]:
        return 200, _JSON, b'{"status":"ok"}'

    async def check() -> str | None:
        reason = problem()
        if reason is not None:
            return reason
        try:
            # Answered only when the store is durable.
            await asyncio.wait_for(engine.get([]), READY_SECONDS)
        except HoldfastError as error:
            return str(error)
        except TimeoutError:
            return f"the store has not answered for {READY_SECONDS:g} s"
        return None

    checked = SharedAnswer(check, _READY_KEPT_SECONDS)

    async def ready(_body: bytes) -> tuple[int, str, bytes]:
        reason = await checked.get()
        if reason is None:
            return 200, _JSON, b'{"status":"ready"}'
        return (
            503,
            _JSON,
            msgspec.json.encode({"status": "unhealthy", "reason": without_secrets(reason)}),
        )

    return {"GET /health/live": live, "GET /health/ready": ready}


def metrics_routes(metrics: Metrics) -> dict[str, Route]:
    """Return the route that Prometheus scrapes."""

    async def render() -> tuple[str, bytes]:
        return exposition(metrics, __version__)

    rendered = SharedAnswer(render, _METRICS_KEPT_SECONDS, share=_METRICS_SHARE)

    async def scrape(_body: bytes) -> tuple[int, str, bytes]:
        return 200, *await rendered.get()

    return {"GET /metrics": scrape}


def operation_routes(operations: Operations) -> Mapping[str, Route]:
    """Return the operations of the command line that need more than the engine."""
    clock = SystemClock()

    async def enqueue(body: bytes) -> object:
        request = _read_body(body, EnqueueBody)
        return await operations.enqueue(request.jobs, request.on_duplicate)

    async def status(_body: bytes) -> object:
        return await operations.status()

    async def history(body: bytes) -> object:
        request = _read_body(body, HistoryBody)
        return await operations.history(request.id, request.tenant)

    async def check_payloads(body: bytes) -> object:
        return await operations.check_payloads(_read_body(body, CheckPayloadsBody).request)

    async def run_schedule(body: bytes) -> object:
        request = _read_body(body, RunScheduleBody)
        return await operations.run_schedule(request.name, request.who, clock.now_us())

    return {
        f"POST {OPERATIONS}enqueue": _json_route(enqueue),
        f"GET {OPERATIONS}status": _json_route(status),
        f"POST {OPERATIONS}check_payloads": _json_route(check_payloads),
        f"POST {OPERATIONS}history": _json_route(history),
        f"POST {OPERATIONS}run_schedule": _json_route(run_schedule),
    }


def config_routes(reloader: SettingsReloader) -> Mapping[str, Route]:
    """Return the route of ``holdfast config diff``."""

    async def running(_body: bytes) -> object:
        return reloader.running()

    return {f"GET {CONFIG}": _json_route(running)}


def _read_body(body: bytes, kind: type[T]) -> T:
    """Return the decoded body, or raise ``PayloadInvalid``."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PayloadInvalid("body", str(error)) from None


def _json_route(operation: Callable[[bytes], Awaitable[object]]) -> Route:
    """Return the route of an operation: its result as JSON, or its error."""

    async def route(body: bytes) -> tuple[int, str, bytes]:
        try:
            return 200, _JSON, msgspec.json.encode(await operation(body))
        except HoldfastError as error:
            return messages.REFUSED, messages.MSGPACK, messages.write_error(error)

    return route
