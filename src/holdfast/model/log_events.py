"""The catalogue of log events: every line that Holdfast itself logs is described here.

Names are stable, as are the names of their fields: alarms and searches may rest on both. A record
never has a payload, a result, the text of a task's exception or a local variable in it: those are
kept with the job, where access to them is governed. What code of the application raised is shown by
its type and where that happened; its own words are shown only if they are Holdfast's.

*Floods*: what happens to each of many jobs at once must not drown everything else. Events of single
jobs that went well are on ``debug``; of a ``summed`` event the first ``SUM_AFTER`` in
``SUM_SECONDS`` of each queue and error_reason are written, the others are counted, and one
``log.summed`` says how many there were. Metrics count them all.

The last words of a process whose event loop hangs, and those of one that cannot start, are plain
text on standard error: the first may be unable to log, the second has no log yet.
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
    """One kind of line: when it is written, what is in it, and what to do about it."""

    name: str
    level: Level
    fields: tuple[str, ...]
    meaning: str
    action: str
    summed: bool
    """Whether many of them at once are summed up."""


FIELDS: Mapping[str, str] = {
    "action": "what an operator did, as the audit calls it: job.replay, queue.policy, …",
    "attempt": "which run of the job it was: 1 for the first",
    "bytes": "a size in bytes",
    "changed": "the settings that hold from now on",
    "code": "the exit code of a process; negative is the number of the signal that ended it",
    "count": "how many",
    "directory": "where the store is",
    "error": "what went wrong, in words or by its type",
    "error_reason": "why a job failed, as in the dead letters",
    "failure_class": "transient, deterministic or unknown",
    "file": "the file that it is about, relative to the store",
    "from_schema": "the version in which something was written",
    "job": "the job's id",
    "jobs": "how many unfinished jobs there are",
    "kept": "how many jobs an operation left as they were",
    "last_seq": "the number of the last record in the log",
    "loop": "which periodic work",
    "losses": "how often the job's lease has ended without a word",
    "metrics": "where metrics are served",
    "more": "whether an operation has more to do: call it again",
    "needs_restart": "settings that differ and are read at start only",
    "of": "the event that was summed up",
    "offset": "where in the file",
    "outcome": "how the attempt ended: completed, retry, dead, …",
    "pid": "the id of a process",
    "queue": "the job's queue",
    "request_id": "the request, as its answer names it too",
    "resource": "what an audit entry is about: its type and id",
    "route": "the method and path that were asked for",
    "running": "how many attempts are under way",
    "seconds": "how long",
    "set_aside": "the name under which a damaged file is kept",
    "slots": "how many jobs run at once",
    "state": "the state that the job is in now",
    "store": "where work is kept, without any password",
    "sync": "when acknowledged work is on stable storage",
    "task": "the job's task",
    "tenant": "the job's tenant",
    "to_schema": "the version as which it was read",
    "trace": "where an unforeseen exception came from: files, lines and functions, no values",
    "unfed": "how many finished jobs history has not taken in yet",
    "unfinished": "the job that is not finished yet",
    "user": "who did it",
    "verb": "the verb of the engine",
    "version": "Holdfast's version",
    "warning": "what may not be meant, in words",
    "why": "the reason that the operator gave",
    "worker": "the name of the worker",
}
"""Every field that an event may have. ``trace`` comes with an unforeseen ``error`` by itself."""

_JOB = "job task queue attempt tenant worker"
_FAILED = f"{_JOB} error_reason failure_class"

JOB_FIELDS = tuple(_JOB.split())
"""What an event of a job that somebody holds has in it."""


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
    _debug("job.enqueued", "job task queue tenant", "A job was taken in."),
    _debug("job.dispatched", _JOB, "A worker holds the job under a lease."),
    _debug(
        "job.settled",
        f"{_JOB} outcome seconds",
        "An attempt ended and its outcome was recorded.",
    ),
    _warning_summed(
        "job.failed",
        f"{_FAILED} outcome",
        "An attempt failed, as the worker that ran it sees it.",
        "One that is tried again needs nothing. Many with one error_reason: see whether what the "
        "task depends on works.",
    ),
    _warning_summed(
        "job.dead",
        f"{_FAILED} losses",
        "A job failed for good and is a dead letter now.",
        "Look at it with `holdfast dead show`, mend the cause, replay it.",
    ),
    _warning_summed(
        "job.lease_lost",
        f"{_JOB} error_reason losses state",
        "Nobody renewed the lease in time, or the job was held too long, or an operator ended its "
        "lease: it runs again, alone after two losses, or is dead or cancelled.",
        "See whether its worker died, hung or was cut off. If the task simply takes longer, raise "
        "max_processing_seconds or let it extend its lease.",
    ),
    _warning_summed(
        "task.result_dropped",
        "task job queue tenant bytes error",
        "The task is done, but what it returned is too large or not JSON and is not kept.",
        "Have the task return less, or a reference to where the result is.",
    ),
    _warning_summed(
        "task.verdict_failed",
        "task job queue tenant error",
        "The application's own classifier, retry policy or exception could not be used; the "
        "failure counts as unexpected.",
        "Mend the rule or the exception that the trace names.",
    ),
    # --- worker --------------------------------------------------------------------------
    _warning_summed(
        "worker.heartbeat_failed",
        "worker running error",
        "Leases could not be renewed for now; attempts go on until theirs run out.",
        "See why the store does not answer: the disk, or the owner's process.",
    ),
    _warning_summed(
        "worker.claim_failed",
        "worker error",
        "No work could be claimed; it is tried again.",
        "See why the store does not answer: the disk, or the owner's process.",
    ),
    _error(
        "worker.stopped_claiming",
        "worker error",
        "The store has stopped or is closed: this worker takes no more work.",
        "If nobody stopped it, see the error of the store before this line.",
    ),
    _warning_summed(
        "worker.settle_failed",
        "worker count error",
        "Outcomes could not be recorded; they are kept and sent again, until the worker stops. "
        "Leases may run out meanwhile.",
        "See why the store does not answer: the disk, or the owner's process.",
    ),
    _error(
        "worker.outcome_dropped",
        "job tenant worker error",
        "The store refuses this outcome itself; the job's lease will run out, and it runs again.",
        "The error says what is wrong with it. Without a reason in the task: report a bug.",
    ),
    _warning_summed(
        "worker.late_outcome_refused",
        "job worker error",
        "An attempt ended after its lease: its outcome does not count, somebody else has the job.",
        "Now and then after a pause is normal. Often: leases are too short, or the event loop is "
        "blocked.",
    ),
    _error(
        "worker.slot_failed",
        f"{_JOB} error",
        "A bug in Holdfast: the attempt was not concluded, and its lease will run out.",
        "Report it, with the trace.",
    ),
    _warning_summed(
        "worker.task_abandoned",
        _JOB,
        "An attempt was told to end and did not: it goes on without its slot, its outcome no "
        "longer counts.",
        "Let the task heed cancellation, or declare it with run_in='process', where a time-out can "
        "kill it.",
    ),
    _info("worker.process_started", "worker pid", "One more worker process is up."),
    _error_summed(
        "worker.process_not_started",
        "worker error",
        "The system would not start a worker process. It is tried again, twice a second.",
        "Look at the limits that the error is about: open files, processes, memory.",
    ),
    _warning(
        "worker.process_ended",
        "worker pid code",
        "A worker process ended by itself: its jobs count as lost, and another one starts.",
        "See what it wrote before its end; -9 is often the system's lack of memory.",
    ),
    _error_summed(
        "worker.process_failed",
        "worker error",
        "A worker process could not begin, or failed: the application cannot be imported there, or "
        "a start hook failed. Another one starts.",
        "Mend what the error or the trace names.",
    ),
    # --- loops ---------------------------------------------------------------------------
    _warning(
        "loop.clock_leapt",
        "seconds",
        "The clock was set forward, or the machine slept: leases are renewed, and for the time of "
        "a lease nobody's is taken.",
        "Nothing once. Again and again: mend the machine's time keeping.",
    ),
    _warning_summed(
        "loop.step_failed",
        "loop error",
        "Periodic work failed and is tried again.",
        "See why the store does not answer; with a trace, report a bug.",
    ),
    _info(
        "schedule.left_out",
        "job",
        "A tick was left out: its schedule is paused, was skipped, or was not known yet.",
        "Nothing; `holdfast schedules resume` if it should run again.",
    ),
    _info_summed(
        "schedule.overlap",
        "job unfinished",
        "A scheduled job was left out because the one before it is not finished.",
        "If it happens often, the schedule is denser than the work is quick.",
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
        "The last record was cut off in the midst of writing, by a crash or a power cut: it is "
        "kept aside. Nobody had been told that it was durable.",
        "Nothing after a crash. Without one, have the disk looked at.",
    ),
    _warning(
        "journal.snapshot_damaged",
        "error",
        "A snapshot cannot be read: the one before it is used, and nothing is lost.",
        "Have the disk looked at: it has altered a file.",
    ),
    _info(
        "journal.snapshot_written",
        "file bytes",
        "A snapshot is in place, and what it makes needless is gone.",
    ),
    _warning(
        "journal.compaction_failed",
        "error",
        "No snapshot could be written; the log is whole without it and grows.",
        "Make room on the disk; with a trace, report a bug.",
    ),
    _warning(
        "journal.forgetting_failed",
        "error",
        "Jobs that finished long ago could not be let go of; it is tried again.",
        "See whether the disk is full or the file of history cannot be written.",
    ),
    _info(
        "journal.migrated",
        "file from_schema to_schema",
        "A file of an earlier version was read and is written anew in time.",
        "Nothing. An older Holdfast cannot read what is written from now on.",
    ),
    _warning(
        "history.begun_anew",
        "set_aside last_seq error",
        "The file of finished work was damaged or missing, and history=anew: a new one was begun. "
        "Unfinished work is whole.",
        "Keep the file that was set aside if finished work matters; set history to required again.",
    ),
    _error(
        "history.failed",
        "unfed error",
        "Finished work cannot be written to history. It is safe in the log and tried again; after "
        "most_unkept of it no more is claimed.",
        "Make room on the disk, or mend what the error names.",
    ),
    _info("history.recovered", "file", "History takes in finished work again."),
    _warning(
        "history.unfiltered",
        "error",
        "The names of finished jobs could not be read into memory: to look them up takes longer.",
        "See whether the file of history can be read.",
    ),
    # --- PostgreSQL ----------------------------------------------------------------------
    _warning(
        "postgres.not_notified",
        "store seconds error",
        "New work is not told of: the connection that listens cannot be made, or hears nothing, as "
        "through a pooler in transaction mode (PgBouncer). Work is still found, by looking every "
        "so many seconds.",
        "Give listen_url the address of the server itself, past the pooler; or set wake to poll if "
        "looking is enough.",
    ),
    _info("postgres.notified", "store", "New work is told of at once again."),
    # --- daemon --------------------------------------------------------------------------
    _info(
        "daemon.started",
        "version pid store worker slots metrics",
        "Everything is up: work is claimed and commands are answered.",
    ),
    _info(
        "daemon.draining",
        "running seconds",
        "It was told to stop: nothing more is claimed, and what runs may end within so many "
        "seconds.",
    ),
    _info("daemon.closing", "", "The worker has stopped; everything is made durable and closed."),
    _info("daemon.stopped", "code", "The last line of an orderly end."),
    _error(
        "daemon.store_failed",
        "error",
        "The disk could not be written: the daemon stops with exit code 1, and nothing is tried "
        "again. What was acknowledged is on the disk.",
        "Mend the disk, then start again.",
    ),
    _info(
        "daemon.reloaded",
        "changed needs_restart",
        "Settings were read again, and those that can change while running hold now.",
        "Restart when it suits you, if something needs it.",
    ),
    _warning(
        "daemon.settings_doubtful",
        "warning",
        "Settings were read again, and something in them may not be what was meant.",
        "See whether it is.",
    ),
    _warning(
        "daemon.reload_refused",
        "error",
        "Settings were read again and are wrong: all stays as it was.",
        "Correct the setting that is named, and reload again.",
    ),
    _error(
        "daemon.hook_failed",
        "error",
        "A stop hook of the application failed; the stop goes on.",
        "Mend the hook that the trace names.",
    ),
    # --- requests ------------------------------------------------------------------------
    _error_summed(
        "http.failed",
        "route request_id error",
        "A bug in Holdfast: a request was answered with 500.",
        "Report it, with the trace.",
    ),
    _error_summed(
        "engine.failed",
        "verb error",
        "A bug in Holdfast: a verb of the engine failed for a client, which was told so.",
        "Report it, with the trace.",
    ),
    # --- operators -----------------------------------------------------------------------
    _info(
        "audit.operation",
        "action resource user why count kept more queue job tenant",
        "An operator changed work or what governs it; committed with its audit entries.",
        "Nothing. A filter's operation has a count, an edit its job, a policy its queue.",
    ),
    _info(
        "audit.entry",
        "action resource user why tenant",
        "An entry was added to the audit by itself, such as a denial.",
        "Many denials of one user: find out what they are after.",
    ),
    # --- the log itself ------------------------------------------------------------------
    _warning(
        "log.summed",
        "of count seconds queue error_reason job",
        "So many more lines of one event were left out; the job is the last one's.",
        "What the event itself asks for.",
    ),
)

EVENTS: Mapping[str, LogEvent] = {event.name: event for event in _ALL}
