"""The store of a daemon: a directory that it owns, or a server that it shares."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from holdfast.engines.clock import Clock, SystemClock
from holdfast.engines.contract import Engine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.queue_stats import StoreMetrics
from holdfast.model.errors import Unavailable
from holdfast.model.job import MICROSECONDS, Job
from holdfast.model.plural import count_of
from holdfast.settings import Settings
from holdfast.stores.opening import connect_postgres, open_remote, own_journal
from holdfast.telemetry.audit_logging import AuditLogLoop
from holdfast.worker.loops import Loop, PruneLoop

if TYPE_CHECKING:
    from holdfast.engines.client.engine import ClientEngine
    from holdfast.engines.postgres.engine import PostgresEngine


_CHECK_SECONDS = 2.0
"""How often to look whether the log has grown enough for a snapshot."""


class Store(Protocol):
    """An engine, and what a daemon needs to know of its storage."""

    @property
    def engine(self) -> Engine:
        """The engine of the store."""

    @property
    def clock(self) -> Clock:
        """The clock of the daemon's loops."""

    @property
    def recovery_seconds(self) -> float:
        """How long it took to be ready."""

    @property
    def lost_at_open(self) -> Sequence[Job]:
        """Jobs that were lost with the last owner."""

    def summary(self, settings: Settings) -> str:
        """Return a description for the message at the start."""

    @property
    def figures(self) -> Callable[[], StoreMetrics] | None:
        """Return its metrics; None: others have them."""

    def held_now(self) -> list[Job]:
        """Return the jobs that workers hold since before a restart."""

    async def held_by(self, worker: str) -> list[Job]:
        """Return the jobs of a worker that does not claim through this daemon."""

    def waits_for_disk(self) -> bool:
        """Whether the disk blocks the event loop at this moment; thread-safe."""

    def loops(self, settings: Settings) -> list[Loop]:
        """Return its periodic loops."""

    def change(self, settings: Settings) -> None:
        """Apply the settings that can change."""

    @property
    def maintained(self) -> bool:
        """Whether its daemons keep it: its schedules, operations, projections and samples."""


class JournalStore:
    """A directory that this process owns."""

    maintained = True

    def __init__(self, journal: JournalEngine) -> None:
        self.engine = journal
        self.clock = journal.clock
        self.recovery_seconds = journal.recovery.seconds
        self.lost_at_open: Sequence[Job] = journal.lost_at_open
        self.figures = journal.figures
        self.held_now = journal.held_now
        self.snapshots = SnapshotLoop(journal)

    def summary(self, settings: Settings) -> str:
        """See ``Store.summary``."""
        recovered = f"{count_of(self.engine.recovery.jobs)} recovered"
        return f"(sync={settings.sync}), {recovered} in {self.recovery_seconds * 1000:.0f} ms"

    async def held_by(self, _worker: str) -> list[Job]:
        """Return none: its worker processes claim through the daemon."""
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
    """Makes a snapshot as often as asked, if anything changed; else when enough was logged."""

    def __init__(self, journal: JournalEngine, interval_seconds: float | None = None) -> None:
        self._journal = journal
        self.interval_seconds = interval_seconds

    async def step(self, now_us: int) -> int:
        """Make a snapshot if one is due."""
        if self.interval_seconds is not None or self._journal.compaction_due():
            await self._journal.compact()
        seconds = _CHECK_SECONDS if self.interval_seconds is None else self.interval_seconds
        return now_us + int(seconds * MICROSECONDS)


class ServerStore:
    """A server that many daemons share."""

    maintained = True

    def __init__(self, server: PostgresEngine, took_seconds: float) -> None:
        self.engine = server
        self.clock: Clock = SystemClock()
        self.recovery_seconds = took_seconds
        self.lost_at_open: Sequence[Job] = ()
        self.figures = server.figures
        self.held_by = server.held_by

    def summary(self, settings: Settings) -> str:
        """See ``Store.summary``."""
        took_ms = self.recovery_seconds * 1000
        return f"(schema {settings.schema}, wake={settings.wake}), connected in {took_ms:.0f} ms"

    def held_now(self) -> list[Job]:
        """Return none: other daemons hold theirs."""
        return []

    def waits_for_disk(self) -> bool:
        """Return false: the disk is the server's."""
        return False

    def loops(self, _settings: Settings) -> list[Loop]:
        """See ``Store.loops``."""
        audit_log = AuditLogLoop(self.engine.take_unlogged_audit)
        return [StatsLoop(self.engine), PruneLoop(self.engine), audit_log]

    def change(self, _settings: Settings) -> None:
        """Do nothing."""


class StatsLoop:
    """Counts the jobs of a server periodically, so that a scrape need not wait for it."""

    interval_seconds = 5.0
    _MAX_SHARE = 0.05
    """The share of the server's time: slow counting is done less often."""

    def __init__(self, server: PostgresEngine) -> None:
        self._server = server

    async def step(self, now_us: int) -> int:
        """Count; until the first count is done, a scrape shows no gauges of the store."""
        seconds = 0.0
        with contextlib.suppress(Unavailable):  # reported elsewhere
            seconds = await self._server.refresh_stats()
        pause_seconds = max(self.interval_seconds, seconds / self._MAX_SHARE)
        return now_us + int(pause_seconds * MICROSECONDS)


class RemoteStore:
    """A store on another machine: this daemon only works for it."""

    maintained = False

    def __init__(self, engine: ClientEngine) -> None:
        self.engine: Engine = engine
        self.clock: Clock = SystemClock()
        self.recovery_seconds = 0.0
        self.lost_at_open: Sequence[Job] = ()
        self.figures = None

    def summary(self, _settings: Settings) -> str:
        """See ``Store.summary``."""
        return "(over its API)"

    def held_now(self) -> list[Job]:
        """Return none: others hold theirs."""
        return []

    async def held_by(self, _worker: str) -> list[Job]:
        """Return none: their leases run out."""
        return []

    def waits_for_disk(self) -> bool:
        """Return false: the disk is elsewhere."""
        return False

    def loops(self, _settings: Settings) -> list[Loop]:
        """Return none: the daemons of the store keep it."""
        return []

    def change(self, _settings: Settings) -> None:
        """Do nothing."""


async def open_store(settings: Settings, key: str | None = None) -> Store:
    """Own the directory, or connect to the server or the API, that the settings name."""
    if settings.remote:
        return RemoteStore(open_remote(settings, key))
    if not settings.on_server:
        return JournalStore(await own_journal(settings))
    clock = SystemClock()
    began_us = clock.now_us()
    server = await connect_postgres(settings)
    return ServerStore(server, (clock.now_us() - began_us) / MICROSECONDS)
