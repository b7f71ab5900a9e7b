"""The catalogue of log events: every line that Holdfast itself logs.

The names of events and of their fields are stable: alerts and searches may rely on both. A record
never contains a payload, a result, the text of a task's exception or a local variable: those are
stored with the job, where access is controlled. An exception of the application is logged by its
type and origin; its text is logged only if the exception is Holdfast's own.

*Floods*: an event of each of many jobs must not hide everything else. Successful single jobs are
logged at ``debug``. Of a ``summed`` event the first ``SUM_AFTER`` in ``SUM_SECONDS`` per queue and
error_reason are written; the others are counted, and one ``log.summed`` gives their number. Metrics
count them all.

A process whose event loop hangs, or that cannot start, writes plain text to standard error: the
first may be unable to log, the second has no log yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import msgspec

Level = Literal["debug", "info", "warning", "error"]

SUM_AFTER = 10
SUM_SECONDS = 10.0


class LogEvent(msgspec.Struct, frozen=True):
    """One kind of log line: when it is written, its fields, and what to do about it."""

    name: str
    level: Level
    fields: tuple[str, ...]
    meaning: str
    action: str
    summed: bool
    """Whether a flood of them is summed up."""


FIELDS: Mapping[str, str] = {
    "acted": "how many jobs an operation has changed so far",
    "action": "what an operator did, as the audit calls it: job.replay, queue.policy, …",
    "address": "where it listens",
    "attempt": "which run of the job it was: 1 for the first",
    "bytes": "a size in bytes",
    "changed": "the settings that changed",
    "code": "the exit code of a process; negative is the number of the signal that ended it",
    "count": "how many",
    "dependency": "what the jobs of some queues need: see `holdfast outages list`",
    "directory": "the directory of the store",
    "error": "what went wrong: a message, or the type of an exception",
    "error_reason": "why a job failed, as in the dead letters",
    "failed_again": "how many replayed jobs failed again",
    "failure_class": "transient, deterministic or unknown",
    "file": "the file, relative to the store",
    "from_schema": "the version in which the file was written",
    "job": "the job's id",
    "jobs": "how many unfinished jobs there are",
    "kept": "how many jobs an operation left unchanged",
    "last_seq": "the number of the last record in the log",
    "loop": "which periodic loop",
    "losses": "how often the job's lease has ended without an outcome",
    "max_bytes": "the setting max_history_bytes",
    "metrics": "where metrics are served",
    "mode": "how a projection is rebuilt: generation, truncate or emit",
    "needs_restart": "settings that changed and need a restart",
    "number": "the number of an entry of the audit",
    "of": "the event that was summed up",
    "offset": "the position in the file",
    "operation": "the id of a stored operation",
    "outcome": "how the attempt ended: completed, retry, dead, …",
    "pid": "the id of a process",
    "probes": "how many probes there were",
    "projection": "the name of a projection",
    "queue": "the job's queue",
    "rebuild": "the id of a rebuild",
    "request_id": "the id of the request, also in its response",
    "resource": "the resource of an audit entry: its type and id",
    "route": "the method and path of the request",
    "running": "how many attempts are running",
    "seconds": "how long",
    "set_aside": "the name under which a damaged file is kept",
    "skipped": "how many jobs an operation left as they were",
    "slots": "how many jobs run at once",
    "state": "the new state of the job",
    "store": "the store, without its password",
    "sync": "when acknowledged jobs are on stable storage",
    "task": "the job's task",
    "tenant": "the job's tenant",
    "text": "what another library said",
    "to_schema": "the version as which it was read",
    "trace": "the origin of an unexpected exception, or where a blocked loop is: files, lines and "
    "functions, no values",
    "unfed": "how many finished jobs are not in history yet",
    "unfinished": "the id of the unfinished job",
    "user": "who did it",
    "verb": "the verb of the engine",
    "version": "Holdfast's version",
    "warning": "what is probably a mistake",
    "why": "the reason that the operator gave",
    "worker": "the name of the worker",
}
"""Every field of any event. ``trace`` is added to an unexpected ``error``."""

_JOB = "job task queue attempt tenant worker"
_FAILED = f"{_JOB} error_reason failure_class"

JOB_FIELDS = tuple(_JOB.split())
"""The fields of every event about a job in flight."""


def _event(
    level: Level,
    name: str,
    fields: str,
    meaning: str,
    action: str = "Nothing.",
    *,
    summed: bool = False,
) -> LogEvent:
    return LogEvent(name, level, tuple(fields.split()), meaning, action, summed)


_debug = partial(_event, "debug")
_info, _info_summed = partial(_event, "info"), partial(_event, "info", summed=True)
_warning, _warning_summed = partial(_event, "warning"), partial(_event, "warning", summed=True)
_error, _error_summed = partial(_event, "error"), partial(_event, "error", summed=True)

_ALL = (
    # --- jobs ----------------------------------------------------------------------------
    _debug("job.enqueued", "job task queue tenant", "A job was enqueued."),
    _debug("job.dispatched", _JOB, "A worker holds the job under a lease."),
    _debug(
        "job.settled",
        f"{_JOB} outcome seconds",
        "An attempt ended and its outcome was recorded.",
    ),
    _warning_summed(
        "job.failed",
        f"{_FAILED} outcome",
        "An attempt failed, and the job runs again. The last one of a job is logged as job.dead.",
        "Nothing for a retry. Many with one error_reason: check what the task depends on.",
    ),
    _warning_summed(
        "job.dead",
        f"{_FAILED} losses",
        "A job failed for good and is a dead letter now.",
        "See `holdfast dead show`, fix the cause, replay it.",
    ),
    _warning_summed(
        "job.lease_lost",
        f"{_JOB} error_reason losses state",
        "The lease was not renewed in time, the job took too long, or an operator ended the lease: "
        "it runs again, alone after two losses, or is dead or cancelled.",
        "Check whether its worker died, hung or lost its connection. If the task needs longer, "
        "raise max_processing_seconds.",
    ),
    _warning_summed(
        "task.result_dropped",
        "task job queue tenant bytes error",
        "The task is done, but its result is too large or not JSON and is not stored.",
        "Return less, or a reference to the result.",
    ),
    _warning_summed(
        "task.verdict_failed",
        "task job queue tenant error",
        "The application's own classifier, retry policy or exception could not be used; the "
        "failure counts as unexpected.",
        "Fix the rule or the exception in the trace.",
    ),
    # --- worker --------------------------------------------------------------------------
    _warning_summed(
        "worker.child_not_started",
        "task job queue tenant error",
        "The system could not start a process for a job. The job is tried again in five seconds, "
        "and no attempt is charged.",
        "Raise the limit of open files (ulimit -n), of processes (ulimit -u) or of memory.",
    ),
    _warning_summed(
        "worker.waits_for_thread",
        _JOB,
        "An earlier run of this job timed out and its thread still runs. The job waits for it in "
        "its slot, at most for three quarters of its cap on processing, and is then tried later.",
        "Make the task end by itself, with timeouts of its own, or declare it with "
        'run_in="process": then a timeout ends it.',
    ),
    _warning_summed(
        "worker.heartbeat_failed",
        "worker running error",
        "Leases could not be renewed; attempts continue until theirs end.",
        "Check why the store does not answer: the disk, or the owner's process.",
    ),
    _warning_summed(
        "worker.claim_failed",
        "worker error",
        "A claim failed; it is retried.",
        "Check why the store does not answer: the disk, or the owner's process.",
    ),
    _error(
        "worker.stopped_claiming",
        "worker error",
        "The store has stopped or is closed: this worker claims no more jobs.",
        "Unless it was stopped on purpose, see the store's error before this line.",
    ),
    _warning_summed(
        "worker.settle_failed",
        "worker count error",
        "Outcomes could not be recorded; they are sent again until the worker stops. Their leases "
        "may end before.",
        "Check why the store does not answer: the disk, or the owner's process.",
    ),
    _error(
        "worker.outcome_dropped",
        "job tenant worker error",
        "The store refuses this outcome; the job's lease will end, and it runs again.",
        "See the error. If the task is not the cause: report a bug.",
    ),
    _warning_summed(
        "worker.late_outcome_refused",
        "job worker error",
        "An attempt ended after its lease: its outcome is refused.",
        "Nothing if rare. Often: leases are too short, or the event loop is blocked.",
    ),
    _error(
        "worker.slot_failed",
        f"{_JOB} error",
        "A bug in Holdfast: the attempt has no outcome, and its lease will end.",
        "Report it, with the trace.",
    ),
    _warning_summed(
        "worker.task_abandoned",
        _JOB,
        "An attempt ignored its cancellation: it runs on without a slot, and its outcome does not "
        "count.",
        "Make the task react to cancellation, or declare it with run_in='process', where a timeout "
        "kills it.",
    ),
    _warning_summed(
        "worker.loop_blocked",
        f"{_JOB} seconds trace",
        "The event loop has not moved for a second or more; the trace says where it is. No job is "
        "named if the loop is blocked by something else than a task.",
        "Use async calls in the task, or make it a plain function: it then runs in a thread. "
        "After stall_seconds the process restarts.",
    ),
    _info("worker.process_started", "worker pid", "A worker process started."),
    _error_summed(
        "worker.process_not_started",
        "worker error",
        "The system could not start a worker process. It is retried twice a second.",
        "Check the limit in the error: open files, processes, memory.",
    ),
    _warning(
        "worker.process_ended",
        "worker pid code",
        "A worker process exited: its jobs count as lost, and another one starts.",
        "See what it wrote before; -9 often means that the system ran out of memory.",
    ),
    _error_summed(
        "worker.process_failed",
        "worker error",
        "A worker process failed: the application cannot be imported there, or a start hook "
        "failed. Another one starts.",
        "Fix the cause in the error or the trace.",
    ),
    # --- loops ---------------------------------------------------------------------------
    _warning(
        "loop.clock_leapt",
        "seconds",
        "The clock was set forward, or the machine slept: leases are renewed, and nothing is "
        "reclaimed for the length of a lease.",
        "Nothing once. Repeatedly: fix the machine's time service.",
    ),
    _warning_summed(
        "loop.step_failed",
        "loop error",
        "A periodic loop failed and is retried.",
        "Check why the store does not answer; with a trace, report a bug.",
    ),
    _info(
        "schedule.left_out",
        "job",
        "A tick was skipped: its schedule is paused, skipped, or was not known yet.",
        "Nothing; `holdfast schedules resume` to run it again.",
    ),
    _info_summed(
        "schedule.overlap",
        "job unfinished",
        "A tick was skipped because the job of an earlier one is not finished.",
        "Often: the schedule is too frequent for the duration of the job.",
    ),
    # --- outages -------------------------------------------------------------------------
    _warning(
        "outage.started",
        "dependency user error_reason",
        "A dependency does not work, as workers have noticed or a user says: its jobs wait, and "
        "one at a time probes it.",
        "See `holdfast outages list`, and check the dependency. Nothing is lost meanwhile.",
    ),
    _info(
        "outage.probe_failed",
        "dependency error_reason seconds probes",
        "A probe failed: the next one follows after this time. It cost its job no attempt.",
    ),
    _warning(
        "outage.health_check_failed",
        "dependency error",
        "The health check of the application raised: the dependency is still out.",
    ),
    _info(
        "outage.recovering",
        "dependency seconds probes",
        "A probe succeeded after this time: claims grow step by step.",
    ),
    _info(
        "outage.ended",
        "dependency user seconds probes",
        "The outage is over after this time, by itself or because a user ended it.",
    ),
    # --- journal and history -------------------------------------------------------------
    _info(
        "journal.opened",
        "directory sync jobs last_seq seconds",
        "The store was recovered and is owned by this process.",
    ),
    _warning(
        "journal.torn_tail_cut",
        "file offset bytes",
        "A crash or a power cut interrupted the write of the last record, which was never "
        "acknowledged: it is set aside.",
        "Nothing after a crash. Without one, check the disk.",
    ),
    _warning(
        "journal.snapshot_damaged",
        "error",
        "A snapshot cannot be read: the previous one is used, and nothing is lost.",
        "Check the disk: it has altered a file.",
    ),
    _info(
        "journal.snapshot_written",
        "file bytes",
        "A snapshot was written, and older files that it replaces were deleted.",
    ),
    _warning(
        "journal.compaction_failed",
        "error",
        "A snapshot could not be written; the log is complete without it, but grows.",
        "Free disk space; with a trace, report a bug.",
    ),
    _warning(
        "journal.directory_mended",
        "directory",
        "Other users could write in a directory of the store; it has mode 0700 now.",
        "Look who could write there before, and whether all files in it are yours.",
    ),
    _warning(
        "journal.forgetting_failed",
        "error",
        "Old finished jobs could not be deleted; it is retried.",
        "Check whether the disk is full or the history file cannot be written.",
    ),
    _info(
        "journal.migrated",
        "file from_schema to_schema",
        "A file of an older version was read; the owner of the store writes it back at once.",
        "Nothing. An older Holdfast cannot read what is written from now on.",
    ),
    _warning(
        "history.begun_anew",
        "set_aside last_seq error",
        "The history file was damaged or missing, and history=anew: a new one was started. "
        "Unfinished jobs are complete.",
        "Keep the old file if finished jobs matter; set history to required again.",
    ),
    _error(
        "history.failed",
        "unfed error",
        "Finished jobs cannot be written to history. They are safe in the log and it is retried; "
        "with most_unkept of them no more jobs are claimed.",
        "Free disk space, or fix the cause in the error.",
    ),
    _info("history.recovered", "file", "Finished jobs are written to history again."),
    _info(
        "history.bounded",
        "jobs max_bytes",
        "Finished jobs took more than max_history_bytes: so many of those that finished first were "
        "forgotten before remember_seconds.",
    ),
    _warning(
        "history.unfiltered",
        "error",
        "The ids of finished jobs could not be read into memory: lookups are slower.",
        "Check whether the history file can be read.",
    ),
    _error(
        "events.failed",
        "unfed error",
        "Events cannot be written to their file. They are safe in the log and it is retried; with "
        "max_events_backlog_bytes of them appends wait.",
        "Free disk space, or fix the cause in the error.",
    ),
    _info("events.recovered", "file", "Events are written to their file again."),
    _warning(
        "events.unfiltered",
        "error",
        "The ids of events could not be read into memory: appends are slower.",
        "Check whether events.sqlite can be read.",
    ),
    _warning(
        "samples.discarded",
        "file error",
        "The file of samples could not be read, and was deleted: the pictures of the last two days "
        "begin anew. No job is touched.",
        "Nothing. If it happens again, check the disk.",
    ),
    _warning(
        "samples.failed",
        "file error",
        "Samples could not be written or read; they are missing for that time. No job is touched.",
        "Free disk space, or fix the cause in the error.",
    ),
    # --- PostgreSQL ----------------------------------------------------------------------
    _warning_summed(
        "postgres.driver",
        "text",
        "A message of the driver, psycopg, or of its connection pool: a connection failed, or was "
        "closed. Calls are tried again while there is hope.",
        "Check the server and the network between, as the text says.",
    ),
    _warning(
        "postgres.not_notified",
        "store seconds error",
        "Notifications of new jobs do not arrive: the listening connection failed, or goes through "
        "a pooler in transaction mode (PgBouncer). Jobs are still found, by polling.",
        "Set listen_url to the server itself, not the pooler; or set wake to poll.",
    ),
    _info("postgres.notified", "store", "Notifications of new jobs arrive again."),
    # --- daemon --------------------------------------------------------------------------
    _info(
        "daemon.started",
        "version pid store worker slots metrics",
        "The daemon is up: it claims jobs and answers commands.",
    ),
    _info(
        "daemon.draining",
        "running seconds",
        "The daemon stops: it claims no more jobs, and running ones have this many seconds to end.",
    ),
    _info("daemon.closing", "", "The worker has stopped; the store is flushed and closed."),
    _info("daemon.stopped", "code", "The last line of a clean stop."),
    _error(
        "daemon.store_failed",
        "error",
        "A write to the disk failed: the daemon stops with exit code 1, without a retry. "
        "Acknowledged jobs are on the disk.",
        "Fix the disk, then start again.",
    ),
    _info(
        "daemon.reloaded",
        "changed needs_restart",
        "Settings were reloaded; those that can change at run time are in effect.",
        "Restart later if needs_restart is not empty.",
    ),
    _warning(
        "daemon.settings_doubtful",
        "warning",
        "Settings were reloaded, and one of them is probably a mistake.",
        "Check the setting.",
    ),
    _warning(
        "daemon.reload_refused",
        "error",
        "A reload found wrong settings: nothing was changed.",
        "Correct the setting in the error, and reload again.",
    ),
    _error(
        "daemon.hook_failed",
        "error",
        "A stop hook of the application failed; the stop continues.",
        "Fix the hook in the trace.",
    ),
    # --- the HTTP API --------------------------------------------------------------------
    _info("api.started", "address store", "The HTTP API of a store is served."),
    _info(
        "api.draining",
        "seconds",
        "The server was asked to stop: requests in progress have this long.",
    ),
    _info("api.stopped", "", "The server of the HTTP API has stopped."),
    _info("api.process_started", "pid address", "The process beside the daemon serves the API."),
    _error_summed(
        "api.process_not_started",
        "error",
        "The system could not start the process of the API. It is tried again, ever less often.",
        "Check the limit in the error: open files, processes, memory.",
    ),
    _warning(
        "api.process_ended",
        "pid code",
        "The process of the API exited: another one starts. Jobs go on; who connects waits.",
        "See what it wrote before; -9 often means that the system ran out of memory.",
    ),
    _error_summed(
        "api.token_keys_not_read",
        "error",
        "The keys of the issuer of tokens could not be read. Those of before go on counting.",
        "Look whether this machine reaches the address of api_oidc_jwks and trusts it.",
    ),
    # --- requests ------------------------------------------------------------------------
    _error_summed(
        "http.failed",
        "route request_id error",
        "A bug in Holdfast: a request was answered with 500.",
        "Report it, with the trace.",
    ),
    _warning_summed(
        "http.accept_failed",
        "error",
        "A connection could not be accepted: the process has no file descriptor left.",
        "Raise the limit of open files (ulimit -n, LimitNOFILE), or find what keeps them open.",
    ),
    _info(
        "http.certificate_loaded",
        "file",
        "The certificate of the metrics server has changed, and is used from now on.",
    ),
    _warning_summed(
        "http.certificate_refused",
        "error",
        "The certificate of the metrics server has changed and cannot be used: the last one is.",
        "Mend the files that metrics_cert_file and metrics_key_file name.",
    ),
    _warning_summed(
        "http.token_refused",
        "error",
        "The token of the metrics server has changed and cannot be used: the last one is.",
        "Mend the file that metrics_token_file names.",
    ),
    _error_summed(
        "engine.failed",
        "verb error",
        "A bug in Holdfast: a call of a client failed in the engine.",
        "Report it, with the trace.",
    ),
    # --- the fleet -----------------------------------------------------------------------
    _info(
        "daemon.command",
        "action user why",
        "This daemon did what an operator sent to it.",
    ),
    _warning(
        "daemon.command_refused",
        "action user why error",
        "This daemon could not do what an operator sent to it; the operator was told.",
        "See the error; with a trace, report a bug.",
    ),
    _info(
        "worker.took_over",
        "worker pid count",
        "The earlier life of this worker is certainly gone: its leases were ended at once.",
        "Nothing after a restart. Without one, find out why the process of that pid ended.",
    ),
    _error(
        "daemon.worker_id_taken",
        "worker error",
        "This daemon fell silent for so long that another one took its worker_id: it stops.",
        "Give each daemon a worker_id of its own; find out what held this one up.",
    ),
    # --- operators -----------------------------------------------------------------------
    _info(
        "audit.entry",
        "number action resource user why count kept tenant",
        "A person changed something, or was denied: the audit has this entry. The process that "
        "owns the store logs it; on PostgreSQL one of the daemons does, whoever made it.",
        "Nothing; `holdfast audit show NUMBER` tells all of it. Many denials of one user: find out "
        "why.",
    ),
    # --- stored operations ---------------------------------------------------------------
    _info(
        "operation.started",
        "operation action user why count",
        "A stored operation on this many jobs began; they may not all have been counted.",
        "Nothing. `holdfast operations show` tells how far it is.",
    ),
    _info(
        "auto_replay.started",
        "operation why",
        "Transient dead letters go back by themselves: what they need works again.",
        "Nothing. `holdfast operations show` tells how far it is; the flag `auto_replay` stops it.",
    ),
    _warning(
        "auto_replay.refused",
        "operation error",
        "An auto-replay could not be started; it is tried again.",
        "See the error; too many operations may run: `holdfast operations list --running`.",
    ),
    _info(
        "operation.completed",
        "operation action acted skipped failed_again why",
        "A stored operation has acted on all of its jobs and, if it waits for outcomes, has them.",
    ),
    _warning(
        "operation.aborted",
        "operation action acted skipped failed_again why",
        "A stored operation was ended early: by a person, or because too many jobs failed again.",
        "See why in `holdfast operations show`; what was not acted on is as it was.",
    ),
    _warning(
        "operation.paused",
        "operation action acted why",
        "A stored operation waits for a person: one paused it, or no canary has finished.",
        "`holdfast operations resume` or `abort`.",
    ),
    _warning_summed(
        "operation.step_failed",
        "operation action error",
        "A step of a stored operation failed; it is tried again, and the others go on.",
        "If it goes on: see the error, and `holdfast operations show`.",
    ),
    _info(
        "projection.rebuild_started",
        "projection rebuild mode user why",
        "A rebuild of a projection was stored.",
        "Nothing. `holdfast projections show` tells how far it is.",
    ),
    _info(
        "projection.rebuild_ended",
        "projection rebuild outcome seconds count why",
        "A rebuild is done, was cancelled, or has stopped at an error and can be resumed.",
        "If it failed: see why, then `holdfast rebuild NAME --resume`.",
    ),
    _warning_summed(
        "projection.rebuild_step_failed",
        "projection error",
        "A step of a rebuild failed; it is tried again, and readers see what they saw before.",
        "If it goes on: see the error, and `holdfast projections show`.",
    ),
    # --- the log itself ------------------------------------------------------------------
    _warning(
        "log.summed",
        "of count seconds queue error_reason job",
        "This many lines of one event were left out; the job is that of the last one.",
        "See the event itself.",
    ),
)

EVENTS: Mapping[str, LogEvent] = {event.name: event for event in _ALL}
