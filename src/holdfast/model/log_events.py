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

from .log_event import SUM_AFTER, SUM_SECONDS, Level, LogEvent

__all__ = ["EVENTS", "SUM_AFTER", "SUM_SECONDS", "Level", "LogEvent"]


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

JOB_FIELDS = ("job", "task", "queue", "attempt", "tenant", "worker")
"""What an event of a job that somebody holds has in it."""
_FAILED = (*JOB_FIELDS, "error_reason", "failure_class")

_ALL = (
    # --- jobs ------------------------------------------------------------------------------
    LogEvent(
        name="job.enqueued",
        level="debug",
        fields=("job", "task", "queue", "tenant"),
        meaning="A job was taken in.",
        action="Nothing.",
    ),
    LogEvent(
        name="job.dispatched",
        level="debug",
        fields=JOB_FIELDS,
        meaning="A worker holds the job under a lease.",
        action="Nothing.",
    ),
    LogEvent(
        name="job.settled",
        level="debug",
        fields=(*JOB_FIELDS, "outcome", "seconds"),
        meaning="An attempt ended and its outcome was recorded.",
        action="Nothing.",
    ),
    LogEvent(
        name="job.failed",
        level="warning",
        fields=(*_FAILED, "outcome"),
        meaning="An attempt failed, as the worker that ran it sees it.",
        action="One that is tried again needs nothing. Many with one error_reason: see whether "
        "what the task depends on works.",
        summed=True,
    ),
    LogEvent(
        name="job.dead",
        level="warning",
        fields=(*_FAILED, "losses"),
        meaning="A job failed for good and is a dead letter now.",
        action="Look at it with `holdfast dead show`, mend the cause, replay it.",
        summed=True,
    ),
    LogEvent(
        name="job.lease_lost",
        level="warning",
        fields=(*JOB_FIELDS, "error_reason", "losses", "state"),
        meaning="Nobody renewed the lease in time, or the job was held too long, or an operator "
        "ended its lease: it runs again, alone after two losses, or is dead or cancelled.",
        action="See whether its worker died, hung or was cut off. If the task simply takes longer, "
        "raise max_processing_seconds or let it extend its lease.",
        summed=True,
    ),
    LogEvent(
        name="task.result_dropped",
        level="warning",
        fields=("task", "job", "queue", "tenant", "bytes", "error"),
        meaning="The task is done, but what it returned is too large or not JSON and is not kept.",
        action="Have the task return less, or a reference to where the result is.",
        summed=True,
    ),
    LogEvent(
        name="task.verdict_failed",
        level="warning",
        fields=("task", "job", "queue", "tenant", "error"),
        meaning="The application's own classifier, retry policy or exception could not be used; "
        "the failure counts as unexpected.",
        action="Mend the rule or the exception that the trace names.",
        summed=True,
    ),
    # --- worker ----------------------------------------------------------------------------
    LogEvent(
        name="worker.heartbeat_failed",
        level="warning",
        fields=("worker", "running", "error"),
        meaning="Leases could not be renewed for now; attempts go on until theirs run out.",
        action="See why the store does not answer: the disk, or the owner's process.",
        summed=True,
    ),
    LogEvent(
        name="worker.claim_failed",
        level="warning",
        fields=("worker", "error"),
        meaning="No work could be claimed; it is tried again.",
        action="See why the store does not answer: the disk, or the owner's process.",
        summed=True,
    ),
    LogEvent(
        name="worker.stopped_claiming",
        level="error",
        fields=("worker", "error"),
        meaning="The store has stopped or is closed: this worker takes no more work.",
        action="If nobody stopped it, see the error of the store before this line.",
    ),
    LogEvent(
        name="worker.settle_failed",
        level="warning",
        fields=("worker", "count", "error"),
        meaning="Outcomes could not be recorded; they are kept and sent again, until the worker "
        "stops. Leases may run out meanwhile.",
        action="See why the store does not answer: the disk, or the owner's process.",
        summed=True,
    ),
    LogEvent(
        name="worker.outcome_dropped",
        level="error",
        fields=("job", "tenant", "worker", "error"),
        meaning="The store refuses this outcome itself; the job's lease will run out, and it runs "
        "again.",
        action="The error says what is wrong with it. Without a reason in the task: report a bug.",
    ),
    LogEvent(
        name="worker.late_outcome_refused",
        level="warning",
        fields=("job", "worker", "error"),
        meaning="An attempt ended after its lease: its outcome does not count, somebody else has "
        "the job.",
        action="Now and then after a pause is normal. Often: leases are too short, or the event "
        "loop is blocked.",
        summed=True,
    ),
    LogEvent(
        name="worker.slot_failed",
        level="error",
        fields=(*JOB_FIELDS, "error"),
        meaning="A bug in Holdfast: the attempt was not concluded, and its lease will run out.",
        action="Report it, with the trace.",
    ),
    LogEvent(
        name="worker.task_abandoned",
        level="warning",
        fields=JOB_FIELDS,
        meaning="An attempt was told to end and did not: it goes on without its slot, its outcome "
        "no longer counts.",
        action="Let the task heed cancellation, or declare it with run_in='process', where a "
        "time-out can kill it.",
        summed=True,
    ),
    LogEvent(
        name="worker.process_started",
        level="info",
        fields=("worker", "pid"),
        meaning="One more worker process is up.",
        action="Nothing.",
    ),
    LogEvent(
        name="worker.process_not_started",
        level="error",
        fields=("worker", "error"),
        meaning="The system would not start a worker process. It is tried again, twice a second.",
        action="Look at the limits that the error is about: open files, processes, memory.",
        summed=True,
    ),
    LogEvent(
        name="worker.process_ended",
        level="warning",
        fields=("worker", "pid", "code"),
        meaning="A worker process ended by itself: its jobs count as lost, and another one starts.",
        action="See what it wrote before its end; -9 is often the system's lack of memory.",
    ),
    LogEvent(
        name="worker.process_failed",
        level="error",
        fields=("worker", "error"),
        meaning="A worker process could not begin, or failed: the application cannot be imported "
        "there, or a start hook failed. Another one starts.",
        action="Mend what the error or the trace names.",
        summed=True,
    ),
    # --- loops -----------------------------------------------------------------------------
    LogEvent(
        name="loop.clock_leapt",
        level="warning",
        fields=("seconds",),
        meaning="The clock was set forward, or the machine slept: leases are renewed, and for the "
        "time of a lease nobody's is taken.",
        action="Nothing once. Again and again: mend the machine's time keeping.",
    ),
    LogEvent(
        name="loop.step_failed",
        level="warning",
        fields=("loop", "error"),
        meaning="Periodic work failed and is tried again.",
        action="See why the store does not answer; with a trace, report a bug.",
        summed=True,
    ),
    LogEvent(
        name="schedule.left_out",
        level="info",
        fields=("job",),
        meaning="A tick was left out: its schedule is paused, was skipped, or was not known yet.",
        action="Nothing; `holdfast schedules resume` if it should run again.",
    ),
    LogEvent(
        name="schedule.overlap",
        level="info",
        fields=("job", "unfinished"),
        meaning="A scheduled job was left out because the one before it is not finished.",
        action="If it happens often, the schedule is denser than the work is quick.",
        summed=True,
    ),
    # --- journal and history ---------------------------------------------------------------
    LogEvent(
        name="journal.opened",
        level="info",
        fields=("directory", "sync", "jobs", "last_seq", "seconds"),
        meaning="The store was recovered and is owned by this process.",
        action="Nothing.",
    ),
    LogEvent(
        name="journal.torn_tail_cut",
        level="warning",
        fields=("file", "offset", "bytes"),
        meaning="The last record was cut off in the midst of writing, by a crash or a power cut: "
        "it is kept aside. Nobody had been told that it was durable.",
        action="Nothing after a crash. Without one, have the disk looked at.",
    ),
    LogEvent(
        name="journal.snapshot_damaged",
        level="warning",
        fields=("error",),
        meaning="A snapshot cannot be read: the one before it is used, and nothing is lost.",
        action="Have the disk looked at: it has altered a file.",
    ),
    LogEvent(
        name="journal.snapshot_written",
        level="info",
        fields=("file", "bytes"),
        meaning="A snapshot is in place, and what it makes needless is gone.",
        action="Nothing.",
    ),
    LogEvent(
        name="journal.compaction_failed",
        level="warning",
        fields=("error",),
        meaning="No snapshot could be written; the log is whole without it and grows.",
        action="Make room on the disk; with a trace, report a bug.",
    ),
    LogEvent(
        name="journal.forgetting_failed",
        level="warning",
        fields=("error",),
        meaning="Jobs that finished long ago could not be let go of; it is tried again.",
        action="See whether the disk is full or the file of history cannot be written.",
    ),
    LogEvent(
        name="journal.migrated",
        level="info",
        fields=("file", "from_schema", "to_schema"),
        meaning="A file of an earlier version was read and is written anew in time.",
        action="Nothing. An older Holdfast cannot read what is written from now on.",
    ),
    LogEvent(
        name="history.begun_anew",
        level="warning",
        fields=("set_aside", "last_seq", "error"),
        meaning="The file of finished work was damaged or missing, and history=anew: a new one was "
        "begun. Unfinished work is whole.",
        action="Keep the file that was set aside if finished work matters; set history to required "
        "again.",
    ),
    LogEvent(
        name="history.failed",
        level="error",
        fields=("unfed", "error"),
        meaning="Finished work cannot be written to history. It is safe in the log and tried "
        "again; after most_unkept of it no more is claimed.",
        action="Make room on the disk, or mend what the error names.",
    ),
    LogEvent(
        name="history.recovered",
        level="info",
        fields=("file",),
        meaning="History takes in finished work again.",
        action="Nothing.",
    ),
    LogEvent(
        name="history.unfiltered",
        level="warning",
        fields=("error",),
        meaning="The names of finished jobs could not be read into memory: to look them up takes "
        "longer.",
        action="See whether the file of history can be read.",
    ),
    # --- PostgreSQL ------------------------------------------------------------------------
    LogEvent(
        name="postgres.not_notified",
        level="warning",
        fields=("store", "seconds", "error"),
        meaning="New work is not told of: the connection that listens cannot be made, or hears "
        "nothing, as through a pooler in transaction mode (PgBouncer). Work is still found, by "
        "looking every so many seconds.",
        action="Give listen_url the address of the server itself, past the pooler; or set wake "
        "to poll if looking is enough.",
    ),
    LogEvent(
        name="postgres.notified",
        level="info",
        fields=("store",),
        meaning="New work is told of at once again.",
        action="Nothing.",
    ),
    # --- daemon ----------------------------------------------------------------------------
    LogEvent(
        name="daemon.started",
        level="info",
        fields=("version", "pid", "store", "worker", "slots", "metrics"),
        meaning="Everything is up: work is claimed and commands are answered.",
        action="Nothing.",
    ),
    LogEvent(
        name="daemon.draining",
        level="info",
        fields=("running", "seconds"),
        meaning="It was told to stop: nothing more is claimed, and what runs may end within "
        "so many seconds.",
        action="Nothing.",
    ),
    LogEvent(
        name="daemon.closing",
        level="info",
        meaning="The worker has stopped; everything is made durable and closed.",
        action="Nothing.",
    ),
    LogEvent(
        name="daemon.stopped",
        level="info",
        fields=("code",),
        meaning="The last line of an orderly end.",
        action="Nothing.",
    ),
    LogEvent(
        name="daemon.store_failed",
        level="error",
        fields=("error",),
        meaning="The disk could not be written: the daemon stops with exit code 1, and nothing is "
        "tried again. What was acknowledged is on the disk.",
        action="Mend the disk, then start again.",
    ),
    LogEvent(
        name="daemon.reloaded",
        level="info",
        fields=("changed", "needs_restart"),
        meaning="Settings were read again, and those that can change while running hold now.",
        action="Restart when it suits you, if something needs it.",
    ),
    LogEvent(
        name="daemon.settings_doubtful",
        level="warning",
        fields=("warning",),
        meaning="Settings were read again, and something in them may not be what was meant.",
        action="See whether it is.",
    ),
    LogEvent(
        name="daemon.reload_refused",
        level="warning",
        fields=("error",),
        meaning="Settings were read again and are wrong: all stays as it was.",
        action="Correct the setting that is named, and reload again.",
    ),
    LogEvent(
        name="daemon.hook_failed",
        level="error",
        fields=("error",),
        meaning="A stop hook of the application failed; the stop goes on.",
        action="Mend the hook that the trace names.",
    ),
    # --- requests --------------------------------------------------------------------------
    LogEvent(
        name="http.failed",
        level="error",
        fields=("route", "request_id", "error"),
        meaning="A bug in Holdfast: a request was answered with 500.",
        action="Report it, with the trace.",
        summed=True,
    ),
    LogEvent(
        name="engine.failed",
        level="error",
        fields=("verb", "error"),
        meaning="A bug in Holdfast: a verb of the engine failed for a client, which was told so.",
        action="Report it, with the trace.",
        summed=True,
    ),
    # --- operators -------------------------------------------------------------------------
    LogEvent(
        name="audit.operation",
        level="info",
        fields=(
            *("action", "resource", "user", "why", "count", "kept", "more"),
            *("queue", "job", "tenant"),
        ),
        meaning="An operator changed work or what governs it; committed with its audit entries.",
        action="Nothing. A filter's operation has a count, an edit its job, a policy its queue.",
    ),
    LogEvent(
        name="audit.entry",
        level="info",
        fields=("action", "resource", "user", "why", "tenant"),
        meaning="An entry was added to the audit by itself, such as a denial.",
        action="Many denials of one user: find out what they are after.",
    ),
    # --- the log itself --------------------------------------------------------------------
    LogEvent(
        name="log.summed",
        level="warning",
        fields=("of", "count", "seconds", "queue", "error_reason", "job"),
        meaning="So many more lines of one event were left out; the job is the last one's.",
        action="What the event itself asks for.",
    ),
)

EVENTS: Mapping[str, LogEvent] = {event.name: event for event in _ALL}
