"""When a daemon has a server counted, and what of it is shown and logged."""

import asyncio

from holdfast.daemon.daemon_store import StatsLoop
from holdfast.engines.contract import Counts
from holdfast.engines.histogram import Histogram
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.queue_stats import QueueStats, StoreMetrics, StoreStats
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.job import MICROSECONDS
from holdfast.telemetry.audit_logging import AuditLogLoop
from holdfast.telemetry.counters import Metrics
from holdfast.telemetry.exposition import exposition
from holdfast.testing import VirtualClock


class Server:
    """Takes so long to count."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.counted = 0

    async def refresh_stats(self) -> float:
        self.counted += 1
        return self.seconds


def test_a_daemon_that_starts_counts_at_once():
    server = Server(0.001)
    loop = StatsLoop(server)  # type: ignore[arg-type]
    next_us = asyncio.run(loop.step(0))
    assert (server.counted, next_us) == (1, 5 * MICROSECONDS)


def test_until_the_first_count_no_gauge_of_the_store_is_shown():
    metrics = Metrics()
    metrics.add_queues(["mail"])
    stats = StoreStats()
    metrics.store = lambda: StoreMetrics(stats, Histogram(()), Histogram(()))
    assert b"queue_dead_letters{" not in exposition(metrics, "1")[1], "0 would be a guess"
    stats = StoreStats(1, {"mail": QueueStats(Counts(dead=3))})
    assert b'queue_dead_letters{queue="mail"} 3.0' in exposition(metrics, "1")[1]


async def test_every_entry_of_the_audit_is_logged_by_one_daemon_once(server18, caplog):
    caplog.set_level("INFO")
    entry = AuditEntry("queue.policy", "queue", "mail", "ann", reason="too loud")
    note = AuditEntry("job.note", "job", "j1", "ann", reason="only for those who see the job")
    clock = VirtualClock()
    with server18.fresh() as url:
        engines = [await PostgresEngine.open(url, clock=clock) for _ in range(2)]
        cli, loops = engines[0], [AuditLogLoop(one.take_unlogged_audit) for one in engines]
        try:
            await cli.audit([entry])
            await cli.set_flag("f", Attribution("bob", "try it", (note,)), on=True)
            for _time in range(3):
                for loop in loops:
                    await loop.step(clock.now_us())
                clock.advance(AuditLogLoop.interval_seconds)
        finally:
            for engine in engines:
                await engine.close()
    logged = [one.getMessage() for one in caplog.records if one.name == "holdfast.audit"]
    assert len(logged) == 2
    assert "queue.policy" in logged[0]
    assert "too loud" in logged[0]
    assert "only for those" not in logged[1]


def test_where_counting_takes_long_it_is_done_less_often():
    loop = StatsLoop(Server(1.0))  # type: ignore[arg-type]
    asyncio.run(loop.step(0))
    assert asyncio.run(loop.step(0)) == 20 * MICROSECONDS
