"""The catalogue of metrics: names, kinds, labels, and what they mean for the person on call.

``counters`` keeps the numbers, ``exposition`` renders them. Labels are bounded: beyond
``MAX_NAMES`` values of one label the others share ``other``, as do combinations beyond
``MAX_SERIES``. ``process`` is 1 for the process that owns the store, and 2, 3, …
for its worker processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram"]

OTHER = "other"
MAX_NAMES = 200
MAX_SERIES = 1_000

DURATION_BOUNDS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
REBUILD_BOUNDS = (1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0)


class Metric(msgspec.Struct, frozen=True):
    """One family of samples, under the name that queries and alerts use."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """The name without the suffix that counters get by themselves."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name


_QUEUE = ("queue",)
_PROCESS = ("process",)
_PROJECTION = ("projection",)

_SAME_EVERYWHERE = (
    " It is of the store: every daemon of one server shows the same, so take the max, not the sum."
)


def _store_gauge(name: str, meaning: str) -> Metric:
    return Metric(name, "gauge", meaning + _SAME_EVERYWHERE, _QUEUE)


_ALL = (
    Metric(
        "holdfast_events_appended_total",
        "counter",
        "Events stored; one that was there already does not count. Their jobs are in the depth of "
        "the queues of their subscriptions.",
    ),
    # --- what happened to jobs ---------------------------------------------------------------
    Metric("queue_jobs_created_total", "counter", "Jobs enqueued.", _QUEUE),
    Metric(
        "queue_jobs_dispatched_total",
        "counter",
        "Jobs claimed by workers, counting every attempt. Worry when it stops while outbox_lag "
        "grows: no worker serves the queue, or it is paused.",
        _QUEUE,
    ),
    Metric(
        "queue_jobs_completed_total",
        "counter",
        "Jobs whose completion was recorded. Worry when it falls behind created for long.",
        _QUEUE,
    ),
    Metric(
        "queue_jobs_retried_total",
        "counter",
        "Attempts that failed or were lost, and whose job is queued again. A rising rate "
        "means that something the tasks depend on has a problem.",
        _QUEUE,
    ),
    Metric(
        "queue_jobs_dead_total",
        "counter",
        "Jobs that failed for good. Each waits for a person: see terminal_failed_total for why.",
        _QUEUE,
    ),
    Metric(
        "queue_jobs_timeout_total",
        "counter",
        "Attempts that timed out or whose lease expired. Worry when it rises: tasks hang, or take "
        "longer than allowed.",
        _QUEUE,
    ),
    Metric(
        "queue_jobs_released_total",
        "counter",
        "Attempts released without being charged: by a stop, a snooze or an abandoned claim.",
        _QUEUE,
    ),
    Metric(
        "queue_jobs_cancelled_total",
        "counter",
        "Jobs cancelled by their task or by an operator, without those that waited for them.",
        _QUEUE,
    ),
    Metric(
        "queue_jobs_lost_total",
        "counter",
        "Attempts that ended without an outcome: a process died, or the lease was not renewed. "
        "Worry when it is not zero: something kills or starves workers.",
        _QUEUE,
    ),
    Metric(
        "queue_job_duration_seconds",
        "histogram",
        "How long attempts took from claim to outcome, however they ended.",
        _QUEUE,
    ),
    Metric(
        "queue_attempts_failed_total",
        "counter",
        "Attempts that failed, by task and error_reason. It shows which task fails, and why.",
        ("queue", "task", "error_reason"),
    ),
    Metric(
        "retry_scheduled_total",
        "counter",
        "Retries that were scheduled; the same as queue_jobs_retried_total.",
        _QUEUE,
    ),
    Metric(
        "terminal_failed_total",
        "counter",
        "Jobs that failed for good, by error_reason. A surge of one reason has one cause: fix it, "
        "then replay that reason.",
        ("queue", "error_reason"),
    ),
    Metric(
        "holdfast_claims_total",
        "counter",
        "Claims, by whether they got jobs (jobs) or not (empty).",
        ("result",),
    ),
    Metric(
        "holdfast_late_acks_refused_total",
        "counter",
        "Outcomes (settle) and renewals (extend) refused because their lease was lost. A few are "
        "normal; a steady rate means leases that are too short, blocked event loops or paused "
        "machines, and jobs that run twice.",
        ("verb",),
    ),
    # --- stored operations -------------------------------------------------------------------
    Metric(
        "holdfast_operation_members_total",
        "counter",
        "Jobs that stored operations acted on, by action such as replay or archive.",
        ("action",),
    ),
    Metric(
        "holdfast_operations_running",
        "gauge",
        "Stored operations that have not ended, paused ones included." + _SAME_EVERYWHERE,
    ),
    # --- projections -------------------------------------------------------------------------
    Metric(
        "holdfast_projection_lag_events",
        "gauge",
        "Events that the generation which readers see has not applied, without those behind a "
        "failed one of their key." + _SAME_EVERYWHERE,
        _PROJECTION,
    ),
    Metric(
        "holdfast_projection_lag_seconds",
        "gauge",
        "For how long the oldest of these that could be applied has waited. Compare it with "
        "holdfast_projection_lag_slo_seconds." + _SAME_EVERYWHERE,
        _PROJECTION,
    ),
    Metric(
        "holdfast_projection_lag_slo_seconds",
        "gauge",
        "How far a projection may be behind, as it is declared (lag_slo_seconds).",
        _PROJECTION,
    ),
    Metric(
        "holdfast_projection_incomplete",
        "gauge",
        "1 while the generation that readers see lacks entries: it is being rebuilt in place, or "
        "that was cancelled." + _SAME_EVERYWHERE,
        _PROJECTION,
    ),
    Metric(
        "holdfast_projection_rebuilds_total",
        "counter",
        "Rebuilds that ended in this daemon, by outcome: done, cancelled, or failed at an event "
        "and can be resumed. Worry about failed.",
        ("projection", "outcome"),
    ),
    Metric(
        "holdfast_projection_rebuild_seconds",
        "histogram",
        "How long rebuilds took until they ended, or failed.",
        _PROJECTION,
    ),
    # --- what the store holds ----------------------------------------------------------------
    _store_gauge(
        "queue_depth", "Unfinished jobs that are not running: pending, scheduled and blocked ones."
    ),
    _store_gauge("queue_active_claims", "Jobs claimed by a worker."),
    _store_gauge(
        "queue_scheduled_jobs", "Pending jobs that are not due yet: delayed ones, and retries."
    ),
    _store_gauge(
        "queue_blocked_jobs", "Jobs that wait for other jobs or for a person to confirm them."
    ),
    _store_gauge(
        "queue_held_jobs",
        "Jobs behind a dead one of their key: they wait until a person replays or archives it. "
        "Worry when it is not zero for long.",
    ),
    _store_gauge(
        "queue_dead_letters", "Dead jobs: each waits for a person to replay, archive or purge it."
    ),
    _store_gauge("queue_paused", "1 if an operator has paused the queue."),
    _store_gauge(
        "queue_outage",
        "1 while claims from the queue are held back, because what it depends on is out or "
        "recovering.",
    ),
    _store_gauge(
        "outbox_lag",
        "Due jobs that are not running, including those behind others of their key. Worry when it "
        "keeps growing: add slots, or find out why workers do not claim them.",
    ),
    _store_gauge(
        "outbox_oldest_age_seconds",
        "For how long the oldest due job has waited, without jobs behind others of their key. "
        "Compare it with your service level.",
    ),
    _store_gauge("outbox_inflight", "Running jobs; the same as queue_active_claims."),
    _store_gauge(
        "stuck_processing_events",
        "Jobs whose lease expired and is not reclaimed yet. Worry when it stays above zero: the "
        "lease loop does not run.",
    ),
    Metric(
        "holdfast_outage_seconds",
        "gauge",
        "For how long a dependency has been out or recovering; absent while it works."
        + _SAME_EVERYWHERE,
        ("dependency",),
    ),
    Metric(
        "queue_recovery_seconds",
        "gauge",
        "How long the last start took to recover the store.",
    ),
    Metric(
        "holdfast_history_backlog",
        "gauge",
        "Finished jobs that are in the log but not in history yet. Tens of thousands are normal "
        "under load; at 100,000 claims stop until history has caught up.",
    ),
    Metric(
        "holdfast_history_failing",
        "gauge",
        "1 while history cannot be written; jobs run until the backlog is full. See the log event "
        "history.failed.",
    ),
    Metric(
        "holdfast_fsync_seconds",
        "histogram",
        "How long the disk took to sync a batch: every response waits for it. Worry when it is "
        "often above 0.1.",
    ),
    Metric(
        "holdfast_commit_batch_records",
        "histogram",
        "How many records shared one flush. It grows with load, and throughput with it.",
    ),
    # --- the processes -----------------------------------------------------------------------
    Metric("holdfast_worker_slots", "gauge", "How many jobs the process runs at once.", _PROCESS),
    Metric(
        "holdfast_worker_slots_busy",
        "gauge",
        "How many slots run a job. All of them for long, while outbox_lag grows: too few slots.",
        _PROCESS,
    ),
    Metric(
        "holdfast_abandoned_threads",
        "gauge",
        "Threads still held by attempts that timed out. Worry when it grows: each is memory and a "
        "task that never ends. Declare such tasks with run_in='process'.",
        _PROCESS,
    ),
    Metric(
        "holdfast_abandoned_tasks",
        "gauge",
        "Coroutines that ignore their cancellation and run on without a slot. Worry when it grows.",
        _PROCESS,
    ),
    Metric(
        "holdfast_child_kills_total",
        "counter",
        "Child processes killed because their job timed out, was stopped or lost its lease.",
        _PROCESS,
    ),
    Metric(
        "holdfast_event_loop_lag_seconds",
        "gauge",
        "How late the event loop was at worst in the last 15 to 30 seconds. Above a third of "
        "lease_seconds, leases are in danger: an async task blocks the loop.",
        _PROCESS,
    ),
    Metric(
        "holdfast_build_info",
        "gauge",
        "Always 1; its labels name the versions.",
        ("version", "python"),
    ),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
