"""What is counted after each kind of outcome, and how Prometheus reads it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.engines.contract import OWN_SLOT_PREFIX, Counts, Renewal
from holdfast.engines.histogram import Histogram
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.queue_stats import QueueStats, StoreMetrics, StoreStats
from holdfast.model import outcome as outcomes
from holdfast.model.actions import CancelJobs
from holdfast.model.audit import Attribution
from holdfast.model.errors import DuplicateId
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import Job, NewJob
from holdfast.model.outcome import Outcome
from holdfast.model.search import Filter
from holdfast.telemetry.counters import JOB_COUNTERS, Metrics, ProcessMetrics
from holdfast.telemetry.exposition import exposition
from holdfast.telemetry.instrumented import InstrumentedEngine
from holdfast.telemetry.metrics import DURATION_BOUNDS, MAX_NAMES, MAX_SERIES, METRICS
from holdfast.testing import SimDisk, VirtualClock
from tests.worker.conftest import fail_on_asyncio_errors  # noqa: F401 - for all tests here

TIMEOUT = Failure.of("timeout", "slow")
ODD = Failure.of("unexpected", "odd")


class Counted:
    """A counting engine, and a look at its counters."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.metrics = Metrics()
        self.engine = InstrumentedEngine(MemoryEngine(clock=self.clock), self.metrics)

    def counters(self, queue: str = "default") -> dict[str, int]:
        numbers = self.metrics.queue(queue)
        return {name: getattr(numbers, name) for name in JOB_COUNTERS if getattr(numbers, name)}

    async def claimed(self, **fields: Any) -> Job:
        await self.engine.enqueue([NewJob(task="t", **fields)])
        (job,) = (await self.engine.claim(queues=["default", "mail"], worker="w")).jobs
        return job


def run(scenario: Callable[[Counted], Awaitable[None]]) -> None:
    asyncio.run(scenario(Counted()))  # type: ignore[arg-type]


ENDS: list[tuple[str, Callable[[Job], Outcome], dict[str, Any], set[str]]] = [
    ("completed", outcomes.completed, {}, {"completed"}),
    ("cancelled", outcomes.cancelled, {}, {"cancelled"}),
    ("released", outcomes.release, {}, {"released"}),
    ("snoozed", lambda job: outcomes.snooze(job, 5), {}, {"released"}),
    ("retried", lambda job: outcomes.retry(job, ODD), {}, {"retried"}),
    ("timed out", lambda job: outcomes.retry(job, TIMEOUT), {}, {"retried", "timeout"}),
    ("its last try", lambda job: outcomes.retry(job, ODD), {"max_attempts": 1}, {"dead"}),
    (
        "its last time-out",
        lambda job: outcomes.retry(job, TIMEOUT),
        {"max_attempts": 1},
        {"dead", "timeout"},
    ),
    ("dead", lambda job: outcomes.dead(job, ODD), {}, {"dead"}),
    ("lost", lambda job: outcomes.lost(job, "SIGKILL"), {}, {"retried", "lost"}),
    ("lost for good", lambda job: outcomes.lost(job, "9"), {"max_attempts": 1}, {"dead", "lost"}),
]


@pytest.mark.parametrize("fused", [False, True], ids=["settle", "claim"])
@pytest.mark.parametrize(("name", "end", "fields", "counted"), ENDS, ids=[e[0] for e in ENDS])
def test_each_outcome_counts_once(fused, name, end, fields, counted):
    async def scenario(counter: Counted) -> None:
        job = await counter.claimed(queue="mail", **fields)
        assert counter.counters("mail") == {"created": 1, "dispatched": 1}
        if fused:
            await counter.engine.claim(queues=["none"], worker="w", settle=[end(job)])
        else:
            await counter.engine.settle([end(job)])
        expected = {"created": 1, "dispatched": 1, **dict.fromkeys(counted, 1)}
        assert counter.counters("mail") == expected
        assert counter.counters() == {}
        assert sum(counter.metrics.queue("mail").durations.buckets) == 1
        assert counter.engine.held_by("w") == []

    run(scenario)


def test_an_outcome_that_is_refused_counts_nothing():
    async def scenario(counter: Counted) -> None:
        job = await counter.claimed()
        await counter.engine.settle([outcomes.completed(job)])
        before = counter.counters()
        await counter.engine.settle([outcomes.completed(job)])
        await counter.engine.settle([outcomes.retry(job, ODD)])
        assert counter.counters() == before
        assert counter.engine.leases_refused == 2
        assert counter.metrics.late == {"settle": 2, "extend": 0}
        await counter.engine.extend([job], lease_seconds=5)
        assert counter.metrics.late == {"settle": 2, "extend": 1}

    run(scenario)


def test_only_jobs_that_are_new_are_counted_as_created():
    async def scenario(counter: Counted) -> None:
        new = NewJob(task="t", id="j")
        await counter.engine.enqueue([new])
        with pytest.raises(DuplicateId):
            await counter.engine.enqueue([new, NewJob(task="t")])
        await counter.engine.enqueue([new, NewJob(task="t")], on_duplicate="skip")
        unique = NewJob(task="t", unique="u")
        await counter.engine.enqueue([unique, unique])
        assert counter.counters() == {"created": 3}

    run(scenario)


def test_leases_that_run_out_and_jobs_that_expire_are_counted():
    async def scenario(counter: Counted) -> None:
        await counter.claimed(max_attempts=2)
        counter.clock.advance(31)
        await counter.engine.reclaim()
        assert counter.counters() == {
            "created": 1,
            "dispatched": 1,
            "timeout": 1,
            "lost": 1,
            "retried": 1,
        }
        (job,) = (await counter.engine.claim(queues=["default"], worker="w")).jobs
        assert counter.engine.held_by("w") == [job]
        await counter.engine.reclaim(forced=[job])
        assert counter.engine.held_by("w") == []
        assert counter.counters() == {
            "created": 1,
            "dispatched": 2,
            "timeout": 1,  # a lease that somebody ended did not run out
            "lost": 2,
            "retried": 1,
            "dead": 1,
        }
        assert counter.metrics.terminal == {("default", "stuck"): 1}
        assert counter.metrics.failed == {
            ("default", "t", "worker_lost"): 1,
            ("default", "t", "stuck"): 1,
        }
        await counter.engine.enqueue([NewJob(task="t", expires_seconds=5)])
        counter.clock.advance(6)
        await counter.engine.reclaim()
        assert counter.counters()["dead"] == 2
        assert counter.counters()["timeout"] == 1
        assert counter.metrics.terminal["default", "expired"] == 1

    run(scenario)


def test_a_job_that_was_asked_to_stop_counts_as_cancelled_whatever_its_outcome():
    async def scenario(counter: Counted) -> None:
        job = await counter.claimed(id="j")
        await counter.engine.enqueue([NewJob(task="t", id="waiting")])
        wanted = Filter(ids=("j", "waiting"))
        await counter.engine.operate(CancelJobs(), wanted, Attribution("ops", "no longer wanted"))
        assert counter.counters()["cancelled"] == 1
        await counter.engine.settle([outcomes.retry(job, ODD)])
        assert counter.counters() == {"created": 2, "dispatched": 1, "cancelled": 2}
        assert (await counter.engine.counts())["default"].cancelled == 2

    run(scenario)


async def test_leases_from_before_a_restart_are_counted_and_those_that_ended_with_it():
    disk, clock = SimDisk(), VirtualClock()
    options = JournalOptions(inline=True, segment_bytes=1 << 16)
    engine = await JournalEngine.open(disk, clock=clock, options=options)
    await engine.enqueue([NewJob(task="t", queue="mail") for _ in range(3)])
    claim = await engine.claim(queues=["mail"], worker="far/away", limit=2, lease_seconds=90)
    await engine.claim(queues=["mail"], worker=f"{OWN_SLOT_PREFIX}w", lease_seconds=90)
    disk = disk.crash()
    clock.advance(4)
    again = await JournalEngine.open(disk, clock=clock, options=options)
    metrics = Metrics()
    watched = InstrumentedEngine(again, metrics, again.held_now(), clock.now_us())
    watched.count_lost(again.lost_at_open)
    numbers = metrics.queue("mail")
    assert (numbers.lost, numbers.retried, numbers.timeout) == (1, 1, 0)
    assert [job.id for job in watched.held_by("far/away")] == [job.id for job in claim.jobs]
    one, other = claim.jobs
    await watched.settle([outcomes.completed(one), outcomes.dead(other, ODD)])
    assert (numbers.completed, numbers.dead) == (1, 1)
    assert metrics.terminal == {("mail", "unexpected"): 1}
    assert 4 <= numbers.durations.total / 2 < 5
    await again.close()


def test_every_verb_is_passed_on():
    async def scenario(counter: Counted) -> None:
        engine = counter.engine
        assert engine.capabilities.name == "memory"
        job = await counter.claimed(id="j")
        renewed = Renewal(job.lease_until_us + 30_000_000)
        assert await engine.extend([job], lease_seconds=60) == [renewed]
        assert await engine.get(["j", "k"]) == [
            (await engine.engine.get(["j"]))[0],
            None,
        ]
        assert await engine.counts() == {"default": Counts(in_flight=1)}
        assert await engine.validate() == []
        await engine.close()

    run(scenario)


# --- exposition --------------------------------------------------------------------------------


def scrape(metrics: Metrics) -> dict[str, Any]:
    kind, text = exposition(metrics, "1.2.3")
    assert kind.startswith("text/plain")
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def figures(**queues: QueueStats) -> StoreMetrics:
    return StoreMetrics(
        survey=StoreStats(10_000_000, queues),
        fsync_seconds=Histogram((0.1, 1.0)),
        batch_records=Histogram((1, 10)),
        recovery_seconds=0.25,
    )


def samples(family: Any) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): (
            sample.value
        )
        for sample in family.samples
    }


def test_the_names_are_those_that_dashboards_know():
    metrics = Metrics()
    for counter in JOB_COUNTERS:
        setattr(metrics.queue("mail"), counter, 2)
    mail = QueueStats(
        Counts(pending=3, blocked=1, in_flight=2, dead=9),
        scheduled=1,
        held=4,
        oldest_due_us=7_500_000,
        stuck=1,
        outage=True,
    )
    metrics.store = lambda: figures(mail=mail)
    families = scrape(metrics)
    for event in ("created", "dispatched", "completed", "retried", "dead", "timeout"):
        assert samples(families[f"queue_jobs_{event}"]) == {
            (f"queue_jobs_{event}_total", "queue=mail"): 2
        }
    assert samples(families["retry_scheduled"]) == {("retry_scheduled_total", "queue=mail"): 2}
    gauges = {
        "queue_depth": 4,
        "queue_active_claims": 2,
        "queue_scheduled_jobs": 1,
        "queue_blocked_jobs": 1,
        "queue_held_jobs": 4,
        "queue_dead_letters": 9,
        "queue_paused": 0,
        "queue_outage": 1,
        "outbox_lag": 2,
        "outbox_oldest_age_seconds": 2.5,
        "outbox_inflight": 2,
        "stuck_processing_events": 1,
    }
    for name, value in gauges.items():
        assert samples(families[name]) == {(name, "queue=mail"): value}
    assert samples(families["queue_recovery_seconds"]) == {("queue_recovery_seconds",): 0.25}


def test_every_family_of_the_catalogue_is_there_and_says_what_it_is():
    metrics = Metrics()
    metrics.store = figures
    metrics.processes = lambda: {"1": ProcessMetrics(slots=8)}
    families = scrape(metrics)
    assert set(families) == {metric.family for metric in METRICS.values()}
    for metric in METRICS.values():
        family = families[metric.family]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert re.fullmatch(r"[A-Z0-9].*\.", metric.help), metric.name
        assert (metric.kind == "counter") == metric.name.endswith("_total")


def test_labels_are_those_of_the_catalogue():
    metrics = Metrics()
    metrics.job_died("mail", "timeout")
    metrics.attempt_failed("mail", "t", "timeout")
    metrics.processes = lambda: {"1": ProcessMetrics()}
    metrics.store = lambda: figures(mail=QueueStats())
    families = scrape(metrics)
    for metric in METRICS.values():
        for sample in families[metric.family].samples:
            assert set(sample.labels) - {"le"} == set(metric.labels), metric.name


def test_ten_thousand_names_make_a_bounded_number_of_series(caplog):
    metrics = Metrics()
    metrics.add_queues(["mine"])

    async def scenario() -> None:
        options = JournalOptions(inline=True, segment_bytes=16 << 20)
        engine = InstrumentedEngine(await JournalEngine.open(SimDisk(), options=options), metrics)
        numbers = range(10_000)
        await engine.enqueue([NewJob(task=f"t{number}", queue=f"q{number}") for number in numbers])
        queues = [f"q{number}" for number in numbers]
        claim = await engine.claim(queues=queues, worker="w", limit=10_000)
        ends = [
            outcomes.dead(job, Failure(f"r{job.queue}", FailureClass.UNKNOWN)) for job in claim.jobs
        ]
        await engine.settle(ends)
        await engine.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    surveys = {f"q{number}": QueueStats(Counts(pending=1)) for number in range(10_000)}
    metrics.store = lambda: figures(**surveys)
    families = scrape(metrics)
    for name, metric in METRICS.items():
        assert len(families[metric.family].samples) <= 1_001 * 15, name
    created = samples(families["queue_jobs_created"])
    assert len(created) == MAX_NAMES + 1
    assert created["queue_jobs_created_total", "queue=mine"] == 0, "declared ones keep their name"
    assert created["queue_jobs_created_total", "queue=q7"] == 1
    assert sum(created.values()) == 10_000
    assert created["queue_jobs_created_total", "queue=other"] == 10_000 - (MAX_NAMES - 1)
    depth = samples(families["queue_depth"])
    assert depth["queue_depth", "queue=other"] == 10_000 - (MAX_NAMES - 1)
    assert sum(depth.values()) == 10_000
    for family in ("terminal_failed", "queue_attempts_failed"):
        found = samples(families[family])
        assert sum(found.values()) == 10_000
        assert len(found) <= MAX_SERIES + 1


def test_the_histogram_is_cumulative_and_has_the_buckets_that_were_asked_for():
    metrics = Metrics()
    for seconds in (0.001, 0.1, 0.2, 1.0, 4.9, 1_000.0):
        metrics.queue("mail").durations.observe(seconds)
    found = samples(scrape(metrics)["queue_job_duration_seconds"])
    name = "queue_job_duration_seconds_bucket"
    at = {bound: found[name, f"le={bound}", "queue=mail"] for bound in (0.1, 0.5, 1.0, 2.0, 5.0)}
    assert at == {0.1: 2, 0.5: 3, 1.0: 4, 2.0: 4, 5.0: 5}
    assert found[name, "le=+Inf", "queue=mail"] == 6
    assert found["queue_job_duration_seconds_count", "queue=mail"] == 6
    assert found["queue_job_duration_seconds_sum", "queue=mail"] == pytest.approx(1_006.201)
    assert {0.1, 0.5, 1.0, 2.0, 5.0} <= set(DURATION_BOUNDS)


def test_a_queue_of_any_name_can_be_read():
    name = 'odd "name" \\ with everything'
    metrics = Metrics()
    metrics.queue(name).created += 1
    (sample,) = scrape(metrics)["queue_jobs_created"].samples
    assert sample.labels == {"queue": name}
