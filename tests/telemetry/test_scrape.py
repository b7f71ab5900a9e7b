"""Each metric of a real daemon, over HTTP, after a run that exercises it, with the right value."""

from __future__ import annotations

import pytest

from holdfast.engines.contract import Engine
from holdfast.model.audit import Attribution
from holdfast.model.errors import LeaseLost
from holdfast.model.job import Job, NewJob, State
from holdfast.model.outcome import completed
from holdfast.model.policy import QueuePolicy
from holdfast.telemetry.metrics import METRICS
from tests.e2e.rig import Daemon, Rig, until

from .watching import Scrape, run, scrape

OPS = Attribution("ops", "a test")
SETTINGS = {
    "lease_seconds": 3_000,  # nothing but this test ends a lease
    "max_processing_seconds": 3_000,
    "reclaim_interval_seconds": 1_000,
    "base_backoff_seconds": 0.01,
    "worker_count": 12,
}
Q7 = [
    *(
        f"queue_jobs_{event}_total"
        for event in ("created", "dispatched", "completed", "retried", "dead", "timeout")
    ),
    "queue_job_duration_seconds",
    "queue_recovery_seconds",
    "queue_depth",
    "queue_active_claims",
]
F12 = [
    "outbox_lag",
    "outbox_oldest_age_seconds",
    "outbox_inflight",
    "retry_scheduled_total",
    "terminal_failed_total",
    "stuck_processing_events",
]


async def claimed(engine: Engine, queue: str, lease_seconds: float) -> Job:
    """Hold a job as a worker of another machine would."""
    await engine.enqueue([NewJob(task="elsewhere", queue=queue)])
    claim = await engine.claim(queues=[queue], worker="far/away", lease_seconds=lease_seconds)
    return claim.jobs[0]


def work(rig: Rig) -> None:
    """Have jobs end in every way: 3 completed, 1 retried, 5 dead of which 3 timed out."""
    rig.enqueue("works", ["w1", "w2", "w3"], queue="mail")
    rig.enqueue("fails", ["f"], queue="mail", max_attempts=2)
    rig.enqueue("dies", ["d"], queue="mail")
    rig.enqueue("hangs", ["h"], queue="mail", max_attempts=1)
    gate = b'{"gate":"%s"}' % str(rig.gate).encode()
    rig.enqueue("blocks", ["b"], queue="mail", max_attempts=1, payload=gate)
    rig.enqueue("computes", ["c"], queue="mail", max_attempts=1)
    rig.enqueue("waits", ["in-flight"], queue="mail", payload=gate)
    rig.wait_for(["w1", "w2", "w3"], State.COMPLETED)
    rig.wait_for(["f", "d", "h", "b", "c"], State.DEAD)


async def hold_up(engine: Engine) -> None:
    """Leave jobs in every way in which they wait."""
    nobody = "elsewhere"
    await engine.enqueue(
        [
            NewJob(task=nobody, queue="lag", id="p1"),
            NewJob(task=nobody, queue="lag", id="p2"),
            NewJob(task=nobody, queue="lag", depends_on=("p1",)),
            NewJob(task=nobody, queue="later", delay_seconds=3_600),
            NewJob(task="dies_in_line", queue="keys", key="k", id="k1"),
            NewJob(task="works", queue="keys", key="k", id="k2"),
            NewJob(task="works", queue="keys", key="k", id="k3"),
        ]
    )
    await engine.set_policy("idle", QueuePolicy(paused=True), OPS)
    await engine.enqueue([NewJob(task=nobody, queue="down", id="waits")])
    await engine.set_outage("down", OPS, on=True)


async def let_leases_go(engine: Engine) -> None:
    """Lose a lease, answer too late, and let another lease run out unseen."""
    lost = await claimed(engine, "remote", 300)
    await engine.reclaim(forced=[lost])
    (answer,) = await engine.settle([completed(lost)])
    assert isinstance(answer, LeaseLost)
    (renewal,) = await engine.extend([lost], lease_seconds=5)
    assert isinstance(renewal, LeaseLost)
    await claimed(engine, "stuck", 0.05)


@pytest.fixture
def busy(rig: Rig) -> Daemon:
    """A daemon that has seen everything."""
    daemon = run(rig, **SETTINGS).ready()
    work(rig)
    rig.ask(hold_up)
    rig.wait_for(["k1"], State.DEAD)
    rig.ask(let_leases_go)
    return daemon


def test_every_metric_has_the_right_value_in_a_real_scrape(busy: Daemon):
    def seen() -> Scrape | None:
        found = scrape(busy)
        stuck = found("stuck_processing_events", queue="stuck")
        return found if stuck and found("outbox_oldest_age_seconds", queue="lag") else None

    got = until(seen, "the lease has run out, and time has passed")
    assert got is not None
    assert set(METRICS) <= got.names
    for name, metric in METRICS.items():
        assert got.families[metric.family].documentation == metric.help, name
    _check_jobs(got)
    _check_store(got)
    _check_processes(got)


def _check_jobs(got: Scrape) -> None:
    counted = {"created": 9, "dispatched": 10, "completed": 3, "retried": 1, "dead": 5}
    counted |= {"timeout": 3, "lost": 0, "cancelled": 0, "released": 0}
    for event, value in counted.items():
        assert got(f"queue_jobs_{event}_total", queue="mail") == value, event
    assert got("queue_job_duration_seconds_count", queue="mail") == 9
    assert got("queue_job_duration_seconds_bucket", queue="mail", le="0.1") >= 3
    assert got("queue_job_duration_seconds_sum", queue="mail") >= 0.6, "three time-outs of 0.2 s"
    assert got("retry_scheduled_total", queue="mail") == 1
    reasons = {"timeout": 3, "business_error": 1, "unexpected": 1}
    for reason, value in reasons.items():
        assert got("terminal_failed_total", queue="mail", error_reason=reason) == value
    failed = {"queue": "mail", "task": "fails", "error_reason": "unexpected"}
    assert got("queue_attempts_failed_total", **failed) == 2
    assert got("queue_jobs_lost_total", queue="remote") == 1
    assert got("queue_jobs_timeout_total", queue="remote") == 0, "a person ended that lease"
    for verb in ("settle", "extend"):
        assert got("holdfast_late_acks_refused_total", verb=verb) == 1
    assert got("holdfast_claims_total", result="jobs") >= 3


def _check_store(got: Scrape) -> None:
    assert got("queue_depth", queue="lag") == 3
    assert got("outbox_lag", queue="lag") == 2
    assert got("queue_blocked_jobs", queue="lag") == 1
    assert 0 < got("outbox_oldest_age_seconds", queue="lag") < 120
    assert (got("outbox_lag", queue="later"), got("queue_scheduled_jobs", queue="later")) == (0, 1)
    assert got("outbox_oldest_age_seconds", queue="later") == 0
    assert (got("queue_held_jobs", queue="keys"), got("queue_dead_letters", queue="keys")) == (2, 1)
    assert got("queue_dead_letters", queue="mail") == 5
    for name in ("queue_active_claims", "outbox_inflight"):
        assert got(name, queue="mail") == 1
        assert got(name, queue="stuck") == 1
    assert got("stuck_processing_events", queue="mail") == 0
    assert (got("queue_paused", queue="idle"), got("queue_paused", queue="mail")) == (1, 0)
    assert (got("queue_outage", queue="down"), got("queue_outage", queue="mail")) == (1, 0)
    assert 0 < got("queue_recovery_seconds") < 30
    assert got("holdfast_history_failing") == 0
    assert got("holdfast_history_backlog") >= 0
    assert got("holdfast_fsync_seconds_count") > 10
    assert got("holdfast_fsync_seconds_sum") > 0
    assert got("holdfast_commit_batch_records_sum") >= got("holdfast_commit_batch_records_count")


def _check_processes(got: Scrape) -> None:
    one = {"process": "1"}
    assert got("holdfast_worker_slots", **one) == 12
    assert got("holdfast_worker_slots_busy", **one) == 1
    assert got("holdfast_abandoned_threads", **one) == 1
    assert got("holdfast_abandoned_tasks", **one) == 0
    assert got("holdfast_child_kills_total", **one) == 1
    assert 0 <= got("holdfast_event_loop_lag_seconds", **one) < 30
    ((name, labels),) = [key for key in got.values if key[0] == "holdfast_build_info"]
    assert dict(labels)["version"]
    assert got.values[name, labels] == 1


def test_the_names_that_were_asked_for_are_in_the_catalogue():
    assert set(Q7 + F12) <= set(METRICS)


def test_worker_processes_are_watched_through_their_owner(rig: Rig):
    daemon = run(rig, processes=2, worker_count=3, base_backoff_seconds=0.01).ready()
    gate = b'{"gate":"%s"}' % str(rig.gate).encode()
    ids = [f"w{number}" for number in range(6)]
    rig.enqueue("waits", ids, queue="mail", payload=gate)

    def all_busy() -> Scrape | None:
        got = scrape(daemon)
        found = [got.values.get(("holdfast_worker_slots_busy", _process(n))) for n in "12"]
        return got if found == [3, 3] else None

    got = until(all_busy, "both processes are at work")
    assert got is not None
    assert [got("holdfast_worker_slots", process=number) for number in "12"] == [3, 3]
    rig.gate.touch()
    rig.wait_for(ids, State.COMPLETED)

    def all_counted() -> Scrape | None:
        got = scrape(daemon)  # an answer is shared by those who ask within half a second
        return got if got("queue_jobs_completed_total", queue="mail") == 6 else None

    got = until(all_counted, "whoever ran them, they are counted")
    assert got is not None
    assert got("queue_jobs_dispatched_total", queue="mail") == 6


def _process(number: str) -> frozenset[tuple[str, str]]:
    return frozenset({("process", number)})
