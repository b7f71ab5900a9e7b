"""Every error that Holdfast raises on purpose.

HoldfastError
├── InvalidInput            a field of the call is wrong; nothing was changed
│   ├── PayloadInvalid      the payload is not a JSON object, or not what the task takes
│   ├── UnknownDependency   a job that this one would wait for does not exist
│   ├── UnknownEventType    the catalog has no event type of this name
│   ├── EventInvalid        an event is not what the catalog says of its type
│   └── TooLarge            the field, or the whole call, is over a limit
├── AccessDenied            the caller's tenant or scopes do not reach this
├── Forbidden               no role of the caller allows this
├── DuplicateId             a job with this id exists, or finished recently
├── EventConflict           the id of an event was used before, with other content
├── LeaseLost               the token is not the job's current one
├── IllegalTransition       the state machine has no such transition
├── StaleVersion            the job was changed concurrently
├── ChangedMeanwhile        the policy or schedule was changed concurrently
├── WorkerIdInUse           a live process has this worker_id
├── StorageError            the store has a problem
│   ├── StorageFull         no space, or no file: enqueue is refused, running jobs continue
│   ├── DurabilityLost      a write or sync failed: the engine has stopped
│   ├── CorruptLog          stored bytes are damaged, with file, offset and seq
│   ├── CorruptHistory      stored finished jobs are damaged, with file, table and row
│   ├── HistoryMissing      the history file is missing or too old
│   ├── CorruptEvents       stored events are damaged, with file and position
│   ├── EventsMissing       the file of the events is missing or too old
│   ├── UnknownFormat       written by a version that this one cannot read
│   ├── CorruptDump         a dump was altered or cut short
│   ├── AuditAltered        an entry of the audit cannot be read
│   ├── StoreMoved          everything in the directory was moved elsewhere
│   ├── StoreNotOurs        a file, directory or socket of the store is another user's
│   └── DirectoryInUse      another process owns the directory
├── Unavailable             no answer; try again later
│   └── NoOwner             no process owns the store: start one
├── KeyRefused              the server of the store does not accept the key
├── UnknownTask             no task with this name is registered here
├── JobNotFound             there is no such job, or the caller may not see it
├── EventNotFound           there is no such event, or the caller may not see it
├── UnknownSchedule         no schedule with this name is known
├── UnknownQueue            no queue with this name is known
├── PlanOutdated            more or fewer jobs match than the plan of an operation counted
├── UnknownOperation        no operation with this id is remembered
├── UnknownGroup            no group of failures has this id
├── UnknownKey              no key of this name or id is within reach
├── UnknownProjection       no projection of this name is declared
├── RebuildRunning          the projection is being rebuilt already
├── UnknownPage             the runbook has no page of this name
├── JobFailed               the awaited job is dead, or was cancelled
├── NoResult                the awaited job is completed, but its result was not kept
├── ResultTimeout           the awaited job has not finished in time
├── WrongLoop               the call would make the event loop wait for itself
├── EngineClosed            the engine was closed
└── InvariantViolation      a bug in Holdfast: please report it

``code`` is stable: interfaces map it to exit codes and problem types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from .redaction import without_passwords

_MOST_NAMES = 20


class HoldfastError(Exception):
    """The root of everything that Holdfast raises on purpose."""

    code: ClassVar[str] = "error"


class InvalidInput(HoldfastError):
    """A field of the call is wrong; nothing was changed."""

    code = "invalid_input"

    def __init__(self, field: str, problem: str) -> None:
        problem = without_passwords(problem)  # it may quote a setting
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class PayloadInvalid(InvalidInput):
    """The payload is not a JSON object, or not what the task takes."""

    code = "payload_invalid"


class UnknownDependency(InvalidInput):
    """A job that this one would wait for does not exist."""

    code = "unknown_dependency"

    def __init__(self, job_id: str, dependency: str) -> None:
        super().__init__(
            "depends_on",
            f"job {job_id!r} would wait for {dependency!r}, which does not exist in its tenant: "
            "enqueue that one first, or both in one call",
        )
        self.job_id = job_id
        self.dependency = dependency


class UnknownEventType(InvalidInput):
    """The catalog has no event type of this name; nothing was stored."""

    code = "unknown_event_type"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        import difflib  # noqa: PLC0415 - only for mistakes

        names = sorted(known)
        near = difflib.get_close_matches(str(name), names, 1)
        if near:
            advice = f"did you mean {near[0]!r}?"
        elif names:
            advice = f"there are {', '.join(names[:_MOST_NAMES])}"
        else:
            advice = "it is empty: set HOLDFAST_CATALOG to a catalog file, or name the --app"
        problem = f"{str(name)[:60]!r} is not in the catalog; {advice}"
        super().__init__("event_type", problem)
        self.name = name


class EventInvalid(InvalidInput):
    """An event is not what the catalog says of its type; nothing was stored."""

    code = "event_invalid"

    def __init__(self, event_type: str, field: str, problem: str) -> None:
        super().__init__(field, f"{problem} (event type {event_type})")
        self.event_type = event_type


class TooLarge(InvalidInput):
    """The field, or the whole call, is over a limit."""

    code = "too_large"

    def __init__(self, field: str, size: int, limit: int, advice: str) -> None:
        super().__init__(field, f"{size:,} bytes, and the limit is {limit:,}: {advice}")
        self.size = size
        self.limit = limit


class AccessDenied(HoldfastError):
    """The caller's tenant or scopes do not reach this."""

    code = "access_denied"

    def __init__(self, field: str, value: str) -> None:
        super().__init__(f"{field} {value!r} is outside what this caller may touch")
        self.field = field
        self.value = value


class Forbidden(HoldfastError):
    """No role of the caller allows this."""

    code = "forbidden"

    def __init__(self, permission: str, roles: Sequence[str]) -> None:
        held = ", ".join(roles) or "none"
        super().__init__(
            f"{permission} is not allowed: no role of the credential grants it (it has {held})"
        )
        self.permission = permission


class DuplicateId(HoldfastError):
    """A job with this id exists, or finished recently."""

    code = "duplicate_id"

    def __init__(self, ids: list[str]) -> None:
        named = ", ".join(repr(job_id) for job_id in ids[:5])
        more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
        super().__init__(
            f"a job with id {named}{more} exists or finished recently; nothing was enqueued: "
            'choose another id, or skip duplicates (on_duplicate="skip", --skip-duplicates)'
        )
        self.ids = ids


class EventConflict(HoldfastError):
    """The id of an event was used before, with other content."""

    code = "event_conflict"

    def __init__(self, event_id: str) -> None:
        super().__init__(
            f"event {event_id!r} exists already and says something else; nothing was stored: give "
            "the new event an id of its own, and name the old one in `supersedes` to correct it"
        )
        self.event_id = event_id


class LeaseLost(HoldfastError):
    """The token is not the job's current one: another worker has the job, or it is finished."""

    code = "lease_lost"

    def __init__(self, job_id: str, token: int) -> None:
        super().__init__(
            f"token {token} no longer holds job {job_id!r}: its lease ended and the outcome was "
            "not recorded; stop working on it"
        )
        self.job_id = job_id
        self.token = token


class IllegalTransition(HoldfastError):
    """The state machine has no such transition."""

    code = "illegal_transition"

    def __init__(self, job_id: str, state: str, move: str) -> None:
        super().__init__(f"job {job_id!r} is {state}: it cannot {move}")
        self.job_id = job_id
        self.state = state
        self.move = move


class ChangedMeanwhile(HoldfastError):
    """The policy, schedule or operation was changed since the caller read it."""

    code = "changed_meanwhile"

    def __init__(self, what: str, name: str) -> None:
        super().__init__(
            f"{what} {name!r} was changed concurrently: read it again and decide again"
        )
        self.what = what
        self.name = name


class StaleVersion(HoldfastError):
    """The job was changed since the caller read it."""

    code = "stale_version"

    def __init__(self, job_id: str, expected: int, version: int) -> None:
        super().__init__(
            f"job {job_id!r} is at version {version}, not {expected}: it was changed. Read it "
            "again and decide again"
        )
        self.job_id = job_id
        self.expected = expected
        self.version = version


class WorkerIdInUse(HoldfastError):
    """A live process has this worker_id."""

    code = "worker_id_in_use"

    def __init__(self, name: str, host: str, pid: int) -> None:
        super().__init__(
            f"worker_id {name!r} is in use: process {pid} on {host} runs under it; stop that one, "
            "or give this one another worker_id"
        )
        self.name = name
        self.host = host
        self.pid = pid


class StorageError(HoldfastError):
    """The store cannot do what was asked."""

    code = "storage"


class StorageFull(StorageError):
    """No space, or no file can be made: enqueue is refused, running jobs continue."""

    code = "storage_full"


class DurabilityLost(StorageError):
    """A write or sync failed: the engine has stopped and nothing is retried."""

    code = "durability_lost"


class CorruptLog(StorageError):
    """Stored bytes are damaged."""

    code = "corrupt_log"

    def __init__(self, file: str, offset: int, seq: int, problem: str) -> None:
        super().__init__(
            f"{file} is damaged at byte {offset} (near seq {seq}): {problem}. Nothing was changed. "
            "Restore the file from a backup, or run verify to see the extent and salvage to "
            "copy what is intact"
        )
        self.file = file
        self.offset = offset
        self.seq = seq
        self.problem = problem


class CorruptHistory(StorageError):
    """The stored history is damaged."""

    code = "corrupt_history"

    def __init__(self, file: str, table: str, row: str, problem: str) -> None:
        where = f" in table {table}" if table else ""
        where += f" row {row}" if row else ""
        super().__init__(
            f"{file} is damaged{where}: {problem}. Unfinished jobs are not affected. Restore "
            "the file from a backup, run `holdfast journal verify` to see the extent, or start "
            "without it (`holdfast run --history anew`; it is set aside)"
        )
        self.file = file
        self.table = table
        self.row = row
        self.problem = problem


class HistoryMissing(StorageError):
    """The history file is missing or too old."""

    code = "history_missing"

    def __init__(self, file: str, found_seq: int | None, expected_seq: int) -> None:
        found = "is missing" if found_seq is None else f"ends at seq {found_seq:,}"
        super().__init__(
            f"{file} {found}, but the log relies on it for everything up to seq {expected_seq:,}. "
            "Nothing was changed. Put the file back, restore it from a backup, or start without it "
            "(`holdfast run --history anew`): that loses dead letters and finished jobs up to there"
        )
        self.file = file
        self.found_seq = found_seq
        self.expected_seq = expected_seq


class CorruptEvents(StorageError):
    """Stored events are damaged."""

    code = "corrupt_events"

    def __init__(self, file: str, position: str, problem: str) -> None:
        where = f" at position {position}" if position else ""
        super().__init__(
            f"{file} is damaged{where}: {problem}. Nothing was changed, and no setting starts "
            "without it: events are stored nowhere else. Restore the file from a backup, run "
            "`holdfast journal verify` to see the extent, or copy what is whole with "
            "`holdfast journal salvage`"
        )
        self.file = file
        self.position = position
        self.problem = problem


class EventsMissing(StorageError):
    """The file of the events is missing or too old."""

    code = "events_missing"

    def __init__(self, file: str, found_seq: int | None, expected_seq: int) -> None:
        found = "is missing" if found_seq is None else f"ends at seq {found_seq:,}"
        super().__init__(
            f"{file} {found}, but the log relies on it for the events up to seq {expected_seq:,}. "
            "Nothing was changed. Put the file back, or restore it from a backup"
        )
        self.file = file
        self.found_seq = found_seq
        self.expected_seq = expected_seq


class UnknownFormat(StorageError):
    """Written by a version that this one cannot read."""

    code = "unknown_format"

    def __init__(self, file: str, what: str, found: int, known: int) -> None:
        super().__init__(
            f"{file} has {what} {found} and this version of Holdfast reads up to {known}: "
            "use the version that wrote it, or a newer one"
        )
        self.file = file
        self.found = found
        self.known = known


class CorruptDump(StorageError):
    """A dump was altered or cut short."""

    code = "corrupt_dump"

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(
            f"{file} is not a complete dump: {problem}. Nothing was loaded: use another copy, or "
            "dump again"
        )
        self.file = file
        self.problem = problem


class AuditAltered(StorageError):
    """An entry of the audit is not what was written: it cannot be read."""

    code = "audit_altered"

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(
            f"entry {number} of the audit was altered: it cannot be read ({problem}). "
            "`holdfast audit verify` shows up to where the audit is intact"
        )
        self.number = number
        self.problem = problem


class StoreMoved(StorageError):
    """Everything in this directory was moved to another store."""

    code = "store_moved"

    def __init__(self, store: str, place: str, when: str, file: str) -> None:
        super().__init__(store, place, when, file)
        self.store = store
        self.place = place
        self.when = when
        self.file = file

    def __str__(self) -> str:
        return (
            f"{self.store} was moved to {self.place}{self.when}: use that store. To use this old "
            f"copy in spite of that, remove {self.file}"
        )


class StoreNotOurs(StorageError):
    """A part of the store belongs to another user, or others can write in it."""

    code = "store_not_ours"

    def __init__(self, path: str, owner: str, problem: str, command: str) -> None:
        super().__init__(
            f"{path} belongs to {owner} {problem}. Who can write in a store can have jobs run, so "
            f"it is not used. Look at what is there, then mend it with `{command}`"
        )
        self.path = path
        self.owner = owner
        self.problem = problem
        self.command = command


class DirectoryInUse(StorageError):
    """Another process owns the directory."""

    code = "directory_in_use"


class EngineClosed(HoldfastError):
    """The engine was closed."""

    code = "engine_closed"


class InvariantViolation(HoldfastError):
    """A bug in Holdfast: please report it with this message."""

    code = "invariant_violation"


class Unavailable(HoldfastError):
    """There was no answer."""

    code = "unavailable"


class NoOwner(Unavailable):
    """No process owns the store."""

    code = "no_owner"


class KeyRefused(HoldfastError):
    """The server of the store does not accept the key that was sent."""

    code = "key_refused"


class UnknownTask(HoldfastError):
    """No task with this name is registered here."""

    code = "unknown_task"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"no task is named {name!r}; known: {names}")
        self.name = name


class JobNotFound(HoldfastError):
    """There is no such job, or the caller may not see it."""

    code = "job_not_found"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id!r}: it never existed, or its retention is over")
        self.job_id = job_id


class EventNotFound(HoldfastError):
    """There is no such event, or the caller may not see it."""

    code = "event_not_found"

    def __init__(self, event_id: str) -> None:
        super().__init__(f"there is no event {event_id!r}: see `holdfast events list`")
        self.event_id = event_id


class UnknownSchedule(HoldfastError):
    """No schedule with this name is known."""

    code = "unknown_schedule"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = ", ".join(sorted(known)) or "none: they appear once an application has run"
        super().__init__(f"no schedule is named {name!r}; known: {names}")
        self.name = name


class PlanOutdated(HoldfastError):
    """More or fewer jobs match than the plan of an operation counted; nothing was changed."""

    code = "plan_outdated"

    def __init__(self, expected: int, found: str) -> None:
        super().__init__(
            f"the plan counted {expected:,}, and now it would be {found}: make a new plan with "
            "--dry-run"
        )
        self.expected = expected
        self.found = found


class UnknownQueue(HoldfastError):
    """No queue with this name has jobs, limits or a task."""

    code = "unknown_queue"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        import difflib  # noqa: PLC0415 - only for mistakes

        names = sorted(known)
        near = difflib.get_close_matches(name, names, 1)
        others = f"known: {', '.join(names[:_MOST_NAMES])}."
        super().__init__(
            f"no queue is named {name!r}; {f'did you mean {near[0]!r}?' if near else others} "
            "For a queue whose first job comes later, add --new"
        )
        self.name = name


class UnknownOperation(HoldfastError):
    """No operation with this id is remembered."""

    code = "unknown_operation"

    def __init__(self, operation_id: str) -> None:
        super().__init__(
            f"no operation has the id {operation_id!r}: see `holdfast operations list`"
        )
        self.operation_id = operation_id


class UnknownGroup(HoldfastError):
    """No group of failures has this id."""

    code = "unknown_group"

    def __init__(self, group_id: str) -> None:
        super().__init__(
            f"no group of failures has the id {group_id[:40]!r}: it has no dead letters, and no "
            "person did anything with it. `holdfast dead groups` lists the groups"
        )
        self.group_id = group_id


class UnknownKey(HoldfastError):
    """No key of this name or id is within reach."""

    code = "unknown_key"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        listed = ", ".join(sorted(known)[:_MOST_NAMES]) or "none"
        super().__init__(f"no key {name!r}: there are {listed}")
        self.name = name


class UnknownProjection(HoldfastError):
    """No projection of this name is declared."""

    code = "unknown_projection"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        listed = ", ".join(sorted(known)[:_MOST_NAMES]) or "none"
        super().__init__(f"no projection {name!r} is declared here; known: {listed}")
        self.name = name


class RebuildRunning(HoldfastError):
    """The projection is being rebuilt already."""

    code = "rebuild_running"

    def __init__(self, projection: str, rebuild: str, phase: str) -> None:
        super().__init__(
            f"{projection} is being rebuilt already ({rebuild}, {phase}): wait for it, or resume "
            f"or cancel it (holdfast rebuild {projection} --resume, --cancel)"
        )
        self.projection = projection
        self.rebuild = rebuild


class UnknownPage(HoldfastError):
    """The runbook has no page of this name."""

    code = "unknown_page"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        import difflib  # noqa: PLC0415 - only for mistakes

        near = difflib.get_close_matches(name.lower(), list(known), 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        super().__init__(
            f"the runbook has no page {name[:60]!r}; {hint}`holdfast runbook` lists the pages"
        )
        self.name = name


class JobFailed(HoldfastError):
    """The awaited job will have no result."""

    code = "job_failed"

    def __init__(self, job_id: str, state: str, error_reason: str, message: str) -> None:
        super().__init__(f"job {job_id!r} is {state}: {message or error_reason}")
        self.job_id = job_id
        self.state = state
        self.error_reason = error_reason


class NoResult(HoldfastError):
    """The awaited job is completed, but its result could not be kept or read."""

    code = "no_result"

    def __init__(self, job_id: str, why: str) -> None:
        super().__init__(f"job {job_id!r} is completed and will not run again, but {why}")
        self.job_id = job_id
        self.why = why


class ResultTimeout(HoldfastError):
    """The awaited job has not finished in time; it continues."""

    code = "result_timeout"


class WrongLoop(HoldfastError):
    """The call would make the event loop wait for itself."""

    code = "wrong_loop"
