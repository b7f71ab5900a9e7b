"""What a daemon works on: a store that it owns, or a server that it shares with others."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from holdfast.engines.clock import Clock, SystemClock
from holdfast.engines.contract import Engine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.queue_stats import StoreMetrics
from holdfast.model.errors import Unavailable
from holdfast.model.job import MICROSECONDS, Job
from holdfast.settings import Settings
from holdfast.stores.opening import connect_postgres, own_journal
from holdfast.worker.loops import Loop, PruneLoop

if TYPE_CHECKING:
    from holdfast.engines.postgres.engine import PostgresEngine


class Store(Protocol):
    """An engine, and what a daemon wants to know of the place behind it."""

    @property
    def engine(self) -> Engine:
        """What keeps the work."""

    @property
    def clock(self) -> Clock:
        """The clock that the daemon's loops go by."""

    @property
    def recovery_seconds(self) -> float:
        """How long it took to be ready."""

    @property
    def lost_at_open(self) -> Sequence[Job]:
        """Jobs that were lost with the process that was here before."""

    def greeting(self, settings: Settings) -> str:
        """Return what to say of it at the start."""

    def figures(self) -> StoreMetrics:
        """Return how it is doing, for a scrape."""

    def held_now(self) -> list[Job]:
        """Return the jobs that are held already, by whoever outlived a restart."""

    async def held_by(self, worker: str) -> list[Job]:
        """Return what a worker holds that does not claim through this daemon."""

    def waits_for_disk(self) -> bool:
        """Whether the event loop is held up by the disk at this moment; ask from any thread."""

    def loops(self, settings: Settings) -> list[Loop]:
        """Return what has to be done now and then."""

    def change(self, settings: Settings) -> None:
        """Go by these settings, as far as they can change."""


class JournalStore:
    """A directory that this process owns."""

    def __init__(self, journal: JournalEngine) -> None:
        self.engine = journal
        self.clock = journal.clock
        self.recovery_seconds = journal.recovery.seconds
        self.lost_at_open: Sequence[Job] = journal.lost_at_open
        self.figures = journal.figures
        self.held_now = journal.held_now
        self.snapshots = SnapshotLoop(journal, 0.0)

    def greeting(self, settings: Settings) -> str:
        """See ``Store.greeting``."""
        recovered = f"{self.engine.recovery.jobs} jobs recovered"
        return f"(sync={settings.sync}), {recovered} in {self.recovery_seconds * 1000:.0f} ms"

    async def held_by(self, _worker: str) -> list[Job]:
        """Know of nobody: its worker processes claim through the daemon."""
        return []

    def waits_for_disk(self) -> bool:
        """See ``Store.waits_for_disk``."""
        return self.engine.commit.waits_for_disk

    def loops(self, settings: Settings) -> list[Loop]:
        """See ``Store.loops``."""
        self.change(settings)
        return [self.snapshots]

    def change(self, settings: Settings) -> None:
        """See ``Store.change``."""
        self.snapshots.interval_seconds = settings.snapshot_interval_seconds


class SnapshotLoop:
    """Looks now and then whether enough has been logged to be worth a snapshot."""

    def __init__(self, journal: JournalEngine, interval_seconds: float) -> None:
        self._journal = journal
        self.interval_seconds = interval_seconds

    async def step(self, now_us: int) -> int:
        """Compact if it is worth it."""
        if self._journal.compaction_due():
            await self._journal.compact()
        return now_us + int(self.interval_seconds * MICROSECONDS)


class ServerStore:
    """A server that many daemons share."""

    def __init__(self, server: PostgresEngine, took_seconds: float) -> None:
        self.engine = server
        self.clock: Clock = SystemClock()
        self.recovery_seconds = took_seconds
        self.lost_at_open: Sequence[Job] = ()
        self.figures = server.figures
        self.held_by = server.held_by

    def greeting(self, settings: Settings) -> str:
        """See ``Store.greeting``."""
        took_ms = self.recovery_seconds * 1000
        return f"(schema {settings.schema}, wake={settings.wake}), connected in {took_ms:.0f} ms"

    def held_now(self) -> list[Job]:
        """Hold nothing: what others hold is theirs."""
        return []

    def waits_for_disk(self) -> bool:
        """Have no disk."""
        return False

    def loops(self, _settings: Settings) -> list[Loop]:
        """See ``Store.loops``."""
        return [StatsLoop(self.engine), PruneLoop(self.engine)]

    def change(self, _settings: Settings) -> None:
        """Have nothing that changes."""


class StatsLoop:
    """Has a server counted now and then, so that a scrape need not wait for it."""

    interval_seconds = 5.0
    _AT_MOST = 0.05
    """Of the server's time: where counting takes long it is done less often."""

    def __init__(self, server: PostgresEngine) -> None:
        self._server = server
        self._begun = False

    async def step(self, now_us: int) -> int:
        """Count; but a daemon that has just started takes up its work first."""
        if not self._begun:
            self._begun = True
            return now_us + int(self.interval_seconds * MICROSECONDS)
        seconds = 0.0
        with contextlib.suppress(Unavailable):  # others say so
            seconds = await self._server.take_survey()
        pause_seconds = max(self.interval_seconds, seconds / self._AT_MOST)
        return now_us + int(pause_seconds * MICROSECONDS)


async def open_store(settings: Settings) -> Store:
    """Own the directory, or connect to the server, that the settings name."""
    if not settings.on_server:
        return JournalStore(await own_journal(settings))
    clock = SystemClock()
    began_us = clock.now_us()
    server = await connect_postgres(settings)
    return ServerStore(server, (clock.now_us() - began_us) / MICROSECONDS)
