"""The catalogue of metrics: names, kinds, labels, and what they mean to whoever is on call.

Importing this has no effect; ``counting`` keeps the numbers, ``exposition`` shows them. Labels are
bounded: beyond ``MOST_NAMES`` values of one label the others are ``other`` together, and beyond
``MOST_SERIES`` combinations too. ``process`` is 1 for the process that owns the store, and 2, 3, …
for its worker processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram"]

OTHER = "other"
MOST_NAMES = 200
MOST_SERIES = 1_000

DURATION_BOUNDS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


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

_ALL = (
    # --- what happened to jobs ---------------------------------------------------------------
    Metric("queue_jobs_created_total", "counter", "Jobs taken in.", _QUEUE),
    Metric(
        "queue_jobs_dispatched_total",
        "counter",
        "Jobs handed to a worker, each attempt anew. Worry when it stands still while outbox_lag "
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
        "Attempts that failed or were lost, and whose job is queued again. A rate that rises "
        "says that something the tasks depend on is unwell.",
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
        "Attempts that ran into their time-out or let their lease run out. Worry when it rises: "
        "tasks hang, or take longer than they are allowed.",
        _QUEUE,
    ),
    Metric(
        "queue_jobs_released_total",
        "counter",
        "Attempts handed back without being charged: by a stop, a snooze or a claim that nobody "
        "waited for.",
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
        "Attempts that ended without a word: a process died, or nobody renewed the lease. Worry "
        "when it is not zero: something kills or starves workers.",
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
        "Attempts that failed, by task and error_reason, whatever came of their job. The place to "
        "see which task fails of what.",
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
        "Jobs that failed for good, by error_reason. A surge of one reason is one cause: mend it, "
        "then replay that reason.",
        ("queue", "error_reason"),
    ),
    Metric(
        "holdfast_claims_total",
        "counter",
        "Calls that asked for work, by whether they got any (jobs) or not (empty).",
        ("result",),
    ),
    Metric(
        "holdfast_late_acks_refused_total",
        "counter",
        "Outcomes (settle) and renewals (extend) refused because the lease was no longer theirs, "
        "whoever sent them. Now and then is normal; a steady rate means leases that are too short, "
        "blocked event loops or paused machines, and work done twice.",
        ("verb",),
    ),
    # --- what the store holds ----------------------------------------------------------------
    Metric(
        "queue_depth",
        "gauge",
        "Jobs that are not done and that nobody holds: pending, scheduled and blocked ones.",
        _QUEUE,
    ),
    Metric("queue_active_claims", "gauge", "Jobs that a worker holds.", _QUEUE),
    Metric(
        "queue_scheduled_jobs",
        "gauge",
        "Pending jobs that are for later: delayed ones, and retries that wait.",
        _QUEUE,
    ),
    Metric(
        "queue_blocked_jobs",
        "gauge",
        "Jobs that wait for other jobs or for a person to confirm them.",
        _QUEUE,
    ),
    Metric(
        "queue_held_jobs",
        "gauge",
        "Jobs behind a dead one of their key: they wait until a person replays or archives that "
        "one. Worry when it is not zero for long.",
        _QUEUE,
    ),
    Metric(
        "queue_dead_letters",
        "gauge",
        "Dead jobs that are kept: each waits for a person to replay, archive or purge it.",
        _QUEUE,
    ),
    Metric(
        "queue_paused",
        "gauge",
        "1 if an operator has paused the queue: nothing is handed out.",
        _QUEUE,
    ),
    Metric(
        "queue_outage",
        "gauge",
        "1 while the queue lets one job through at a time, because what it depends on is down.",
        _QUEUE,
    ),
    Metric(
        "outbox_lag",
        "gauge",
        "Jobs that are due and that nobody holds, those behind others of their key included. Worry "
        "when it keeps growing: add slots, or see why workers do not take them.",
        _QUEUE,
    ),
    Metric(
        "outbox_oldest_age_seconds",
        "gauge",
        "For how long the job that has waited longest has been due; jobs behind others of their "
        "key left out. The number to hold against what you have promised.",
        _QUEUE,
    ),
    Metric("outbox_inflight", "gauge", "Jobs under way; the same as queue_active_claims.", _QUEUE),
    Metric(
        "stuck_processing_events",
        "gauge",
        "Jobs whose lease has run out and was not ended yet. Worry when it stays above zero: the "
        "loop that ends leases does not run.",
        _QUEUE,
    ),
    Metric(
        "queue_recovery_seconds",
        "gauge",
        "How long the last start took to recover the store.",
    ),
    Metric(
        "holdfast_history_backlog",
        "gauge",
        "Ends of jobs that are safe in the log and not in history yet. Normal up to some ten "
        "thousand under load; at 100,000 no more is claimed until history has caught up.",
    ),
    Metric(
        "holdfast_history_failing",
        "gauge",
        "1 while history cannot be written; work goes on until the backlog is full. The log event "
        "history.failed says why.",
    ),
    Metric(
        "holdfast_fsync_seconds",
        "histogram",
        "How long the disk took to make a batch durable: every answer waits for it. Worry when it "
        "is often above 0.1.",
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
        "How many of the slots have a job. All of them for long, while outbox_lag grows: too few.",
        _PROCESS,
    ),
    Metric(
        "holdfast_abandoned_threads",
        "gauge",
        "Threads still held by attempts that timed out. Worry when it grows: each is memory and a "
        "task that never ends. Give such tasks run_in='process'.",
        _PROCESS,
    ),
    Metric(
        "holdfast_abandoned_tasks",
        "gauge",
        "Coroutines that did not heed their cancellation and go on without a slot. Worry when it "
        "grows.",
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
        "Always 1; its labels say what runs.",
        ("version", "python"),
    ),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
