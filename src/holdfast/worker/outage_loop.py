"""Reports to the store what a worker process sees of dependencies, and checks their health."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from holdfast.engines.contract import Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import HoldfastError, InvalidInput
from holdfast.model.flags import OUTAGE_MODE, outage_mode_on
from holdfast.model.job import MICROSECONDS
from holdfast.model.outage import DependencyReport, Outage

from .outage_detector import OutageDetector

log = StructuredLog("holdfast.outages")

FLAGS_SECONDS = 5.0
LOOK_SECONDS = 2.0
"""How often the flags are read, and the outages while none is known."""
DEFAULT_HEALTH_CHECK_SECONDS = 10.0
_SYSTEM = "holdfast"


class HealthCheck(msgspec.Struct, frozen=True):
    """A function that tells whether a dependency works: it raises, or returns False, if not."""

    function: Callable[[], Awaitable[object] | object]
    timeout_seconds: float = DEFAULT_HEALTH_CHECK_SECONDS

    async def healthy(self) -> bool:
        """Call it; a plain function runs in a thread."""
        async with asyncio.timeout(self.timeout_seconds):
            if inspect.iscoroutinefunction(self.function):
                answer = await self.function()
            else:
                answer = await asyncio.to_thread(self.function)
                if inspect.isawaitable(answer):
                    answer = await answer
        return answer is not False


class OutageLoop:
    """Reports every second while there is something to report or an outage lasts."""

    interval_seconds = 1.0

    def __init__(
        self,
        engine: Engine,
        detector: OutageDetector,
        health_checks: Mapping[str, HealthCheck],
    ) -> None:
        self._engine = engine
        self._detector = detector
        self._health_checks = health_checks
        self._active: dict[str, Outage] = {}
        self._look_at_us = 0
        self._flags_at_us = 0
        self._lock = asyncio.Lock()
        self._trip: asyncio.Task[None] | None = None
        detector.on_trip = self._report_trip

    async def step(self, now_us: int) -> int:
        """Report, call the health checks that this process is asked for, and follow the flags."""
        if now_us >= self._flags_at_us:
            self._detector.flags = await self._engine.flags()
            self._flags_at_us = now_us + int(FLAGS_SECONDS * MICROSECONDS)
        reported = await self._report()
        if not reported and now_us >= self._look_at_us:
            self._know(await self._engine.outages())
            self._look_at_us = now_us + int(LOOK_SECONDS * MICROSECONDS)
        await self._end_switched_off()
        return now_us + int(self.interval_seconds * MICROSECONDS)

    async def _report(self) -> bool:
        """Report, if there is something to report or an outage lasts; return whether."""
        async with self._lock:
            reports = self._detector.reports(self._active, self._health_checks)
            if not reports and not self._active:
                return False
            update = await self._engine.report_outage(reports)
            self._know(update.outages)
            for dependency in update.health_checks:
                await self._check(dependency)
            return True

    def _report_trip(self) -> None:
        """Report at once: jobs that fail fast would all have failed before the next step."""
        if self._trip is None or self._trip.done():
            self._trip = asyncio.get_running_loop().create_task(self._try_report())

    async def _try_report(self) -> None:
        with contextlib.suppress(HoldfastError):  # the next step reports again
            await self._report()

    def _know(self, outages: Iterable[Outage]) -> None:
        self._active = {outage.dependency: outage for outage in outages}

    async def _check(self, dependency: str) -> None:
        try:
            healthy = await self._health_checks[dependency].healthy()
        except Exception as error:  # noqa: BLE001 - that is its answer
            log.emit("outage.health_check_failed", dependency=dependency, foreign=error)
            healthy = False
        report = DependencyReport(dependency, has_health_check=True, healthy=healthy)
        self._know((await self._engine.report_outage([report])).outages)

    async def _end_switched_off(self) -> None:
        """End the outages that a flag switches off, except those that a person started."""
        for name, outage in list(self._active.items()):
            if outage.by or outage_mode_on(self._detector.flags, name):
                continue
            why = f"the flag {OUTAGE_MODE} is off"
            entry = AuditEntry("outage.end", "outage", name, _SYSTEM, reason=why)
            with contextlib.suppress(InvalidInput):  # another process was faster
                await self._engine.set_outage(name, Attribution(_SYSTEM, why, (entry,)), on=False)
            del self._active[name]
