"""Lags and rebuilds of projections in the metrics."""

from holdfast.engines.contract import Counts
from holdfast.engines.histogram import Histogram
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.queue_stats import QueueStats, StoreMetrics, StoreStats
from holdfast.model.catalog import Catalog
from holdfast.model.event import NewEvent
from holdfast.model.projection import RebuildMode
from holdfast.operations.attribution import Author
from holdfast.operations.projections import ProjectionOperations
from holdfast.projections import chronicle
from holdfast.projections.registry import event_reader
from holdfast.telemetry.counters import Metrics
from holdfast.telemetry.exposition import exposition
from holdfast.telemetry.instrumented import InstrumentedEngine

WHO = Author("ops", "a test")


def samples(metrics: Metrics) -> dict[str, float]:
    _kind, text = exposition(metrics)
    lines = [line for line in text.decode().splitlines() if line.startswith("holdfast_projection")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def test_rebuilds_and_lags_of_the_live_generation_are_shown():
    metrics = Metrics()
    engine = InstrumentedEngine(MemoryEngine(), metrics)
    known = {"chronicle": chronicle.PROJECTION}
    projections = ProjectionOperations(engine, known, event_reader(Catalog()))
    for _time in range(2):
        rebuild = await projections.start("chronicle", RebuildMode.GENERATION, WHO)
        await projections.drive("chronicle", rebuild.id)
    rebuild = await projections.start("chronicle", RebuildMode.TRUNCATE, WHO)
    await projections.cancel("chronicle", WHO)
    await projections.drive("chronicle", rebuild.id)
    await engine.append([NewEvent(event_type="t", entity_type="b", entity_id="1", actor_id="a")])
    stats = QueueStats(
        counts=Counts(pending=5, in_flight=1, dead=1), held=2, oldest_due_us=3_000_000
    )
    survey = StoreStats(now_us=10_000_000, queues={"chronicle.g3": stats, "chronicle": stats})
    metrics.store = lambda: StoreMetrics(survey, Histogram((1.0,)), Histogram((1.0,)))
    metrics.lag_slos = {"chronicle": 60.0}
    found = samples(metrics)
    label = '{projection="chronicle"}'
    assert found[f"holdfast_projection_lag_events{label}"] == 4
    assert found[f"holdfast_projection_lag_seconds{label}"] == 7
    assert found[f"holdfast_projection_lag_slo_seconds{label}"] == 60
    assert found[f"holdfast_projection_incomplete{label}"] == 0
    ended = "holdfast_projection_rebuilds_total"
    assert found[f'{ended}{{outcome="done",projection="chronicle"}}'] == 2
    assert found[f'{ended}{{outcome="cancelled",projection="chronicle"}}'] == 1
    assert found[f"holdfast_projection_rebuild_seconds_count{label}"] == 3
