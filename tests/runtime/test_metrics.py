"""What is counted after each kind of outcome, and how Prometheus reads it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.engines.base import Counts, Renewal
from holdfast.engines.memory import MemoryEngine
from holdfast.model import outcome as outcomes
from holdfast.model.errors import DuplicateId
from holdfast.model.failure import Failure
from holdfast.model.job import Job, NewJob
from holdfast.model.outcome import Outcome
from holdfast.runtime.metrics import BUCKETS, COUNTERS, Metrics, exposition
from holdfast.runtime.observed import ObservedEngine
from holdfast.testing import VirtualClock

TIMEOUT = Failure.of("timeout", "slow")
ODD = Failure.of("unexpected", "odd")


class Counted:
    """A counting engine, and a look at its counters."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.metrics = Metrics()
        self.engine = ObservedEngine(MemoryEngine(clock=self.clock), self.metrics)

    def counters(self, queue: str = "default") -> dict[str, int]:
        return {
            name.removeprefix("queue_jobs_"): values[queue]
            for name, values in self.metrics.counters.items()
            if values[queue]
        }

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
    ("lost", lambda job: outcomes.lost(job, "SIGKILL"), {}, {"retried"}),
    ("lost for good", lambda job: outcomes.lost(job, "9"), {"max_attempts": 1}, {"dead"}),
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
        assert sum(counter.metrics.durations["mail"]) == 1
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
        assert counter.counters() == {"created": 1, "dispatched": 1, "timeout": 1, "retried": 1}
        (job,) = (await counter.engine.claim(queues=["default"], worker="w")).jobs
        assert counter.engine.held_by("w") == [job]
        await counter.engine.reclaim(forced=[job])
        assert counter.engine.held_by("w") == []
        assert counter.counters() == {
            "created": 1,
            "dispatched": 2,
            "timeout": 2,
            "retried": 1,
            "dead": 1,
        }
        await counter.engine.enqueue([NewJob(task="t", expires_seconds=5)])
        counter.clock.advance(6)
        await counter.engine.reclaim()
        assert counter.counters()["dead"] == 2
        assert counter.counters()["timeout"] == 2

    run(scenario)


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
    kind, text = exposition(metrics)
    assert kind.startswith("text/plain")
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def samples(family: Any) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): (
            sample.value
        )
        for sample in family.samples
    }


def test_the_names_are_those_that_dashboards_know():
    metrics = Metrics()
    for name in COUNTERS:
        metrics.count(name, "mail", 2)
    metrics.observe("mail", 0.3)
    metrics.counts = lambda: {"mail": Counts(pending=3, blocked=1, in_flight=2, dead=9)}
    metrics.gauge("queue_recovery_seconds", "How long the last recovery took.", lambda: 0.25)
    families = scrape(metrics)
    for event in ("created", "dispatched", "completed", "retried", "dead", "timeout"):
        assert samples(families[f"queue_jobs_{event}"]) == {
            (f"queue_jobs_{event}_total", "queue=mail"): 2
        }
    assert samples(families["queue_depth"]) == {("queue_depth", "queue=mail"): 4}
    assert samples(families["queue_active_claims"]) == {("queue_active_claims", "queue=mail"): 2}
    assert samples(families["queue_recovery_seconds"]) == {("queue_recovery_seconds",): 0.25}


def test_every_family_says_what_it_is():
    families = scrape(Metrics())
    assert set(COUNTERS) <= set(families)
    for family in families.values():
        assert re.fullmatch(r"[A-Z].*\.", family.documentation), family.name
    assert {family.type for family in families.values()} == {"counter", "gauge", "histogram"}


def test_the_histogram_is_cumulative_and_has_the_buckets_that_were_asked_for():
    metrics = Metrics()
    for seconds in (0.001, 0.1, 0.2, 1.0, 4.9, 1_000.0):
        metrics.observe("mail", seconds)
    found = samples(scrape(metrics)["queue_job_duration_seconds"])
    name = "queue_job_duration_seconds_bucket"
    at = {bound: found[name, f"le={bound}", "queue=mail"] for bound in (0.1, 0.5, 1.0, 2.0, 5.0)}
    assert at == {0.1: 2, 0.5: 3, 1.0: 4, 2.0: 4, 5.0: 5}
    assert found[name, "le=+Inf", "queue=mail"] == 6
    assert found["queue_job_duration_seconds_count", "queue=mail"] == 6
    assert found["queue_job_duration_seconds_sum", "queue=mail"] == pytest.approx(1_006.201)
    assert {0.1, 0.5, 1.0, 2.0, 5.0} <= set(BUCKETS)


def test_a_queue_of_any_name_can_be_read():
    name = 'odd "name" \\ with everything'
    metrics = Metrics()
    metrics.count("queue_jobs_created", name)
    (sample,) = scrape(metrics)["queue_jobs_created"].samples
    assert sample.labels == {"queue": name}
