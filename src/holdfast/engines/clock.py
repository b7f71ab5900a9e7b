"""The engine's clock: it follows the wall clock forward and never goes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

monotonic = time.monotonic
"""Seconds for measuring durations; never for leases."""


def utc_now() -> datetime:
    """Return the wall clock's time, for people to read."""
    return datetime.now(UTC)


class Timer(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None:
        """Cancel it; harmless if it already fired."""


class Clock(Protocol):
    """The time of an engine. ``holdfast.testing.VirtualClock`` is another one."""

    def now_us(self) -> int:
        """Return microseconds since the epoch; never less than before."""

    def call_at(self, when_us: int, callback: Callable[[], None]) -> Timer:
        """Call back on the running event loop once ``now_us`` has reached ``when_us``."""


class SystemClock:
    """The wall clock, made safe for leases.

    A step back (NTP, an operator) is absorbed: time continues at its own pace, ahead of the wall
    clock. A step forward, a resumed machine included, is followed at once.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] | None = None,
        monotonic_ns: Callable[[], int] | None = None,
    ) -> None:
        """Take other clocks to read, for tests."""
        self._wall_ns = wall_ns or time.time_ns
        self._monotonic_ns = monotonic_ns or time.monotonic_ns
        self._offset_ns = self._wall_ns() - self._monotonic_ns()

    def now_us(self) -> int:
        """Return microseconds since the epoch; never less than before."""
        # The wall clock first: a pause between the two can then only make the offset too small.
        wall_ns = self._wall_ns()
        monotonic_ns = self._monotonic_ns()
        offset_ns = wall_ns - monotonic_ns
        self._offset_ns = max(self._offset_ns, offset_ns)
        return (monotonic_ns + self._offset_ns) // 1000

    def call_at(self, when_us: int, callback: Callable[[], None]) -> Timer:
        """Call back on the running event loop once ``now_us`` has reached ``when_us``."""
        delay_seconds = max(0, when_us - self.now_us()) / 1_000_000
        return asyncio.get_running_loop().call_later(delay_seconds, callback)
