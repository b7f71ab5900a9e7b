"""Every error that Holdfast raises on purpose.

HoldfastError
├── InvalidInput            a field of the call is wrong; nothing was changed
│   ├── PayloadInvalid      the payload is not a JSON object
│   ├── UnknownDependency   a job that this one would wait for does not exist
│   └── TooLarge            the field, or the whole call, is over a limit
├── AccessDenied            the caller's tenant or scopes do not reach this
├── DuplicateId             a job of this id exists, or finished not long ago
├── LeaseLost               the token is not the job's current one
├── IllegalTransition       the state machine has no such move
├── StaleVersion            somebody else changed the job meanwhile
├── ChangedMeanwhile        somebody else changed the policy or schedule meanwhile
├── StorageError            the place where work is kept
│   ├── StorageFull         no room: enqueue is refused, work under way goes on
│   ├── DurabilityLost      a write or sync failed: the engine has stopped
│   ├── CorruptLog          stored bytes are damaged, with file, offset and seq
│   ├── CorruptHistory      finished work on disk is damaged, with file, table and row
│   ├── HistoryMissing      finished work that must be on disk is not there
│   ├── UnknownFormat       written by a version that this one cannot read
│   ├── CorruptDump         a dump was altered or cut short
│   └── DirectoryInUse      another process owns the directory
├── Unavailable             nobody there to answer; try again later
│   └── NoOwner             no process owns the store: start one
├── UnknownTask             no task of this name is registered here
├── JobNotFound             there is no such job, or not within reach
├── UnknownSchedule         no schedule of this name is known
├── JobFailed               the awaited job is dead, or was cancelled
├── ResultTimeout           the awaited job has not finished in time
├── WrongLoop               called from a place that would wait for itself
├── EngineClosed            the engine was closed
└── InvariantViolation      a bug in Holdfast: please report it

``code`` is stable: interfaces map it to exit codes and problem types.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from .redaction import without_passwords


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
    """The payload is not a JSON object."""

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


class DuplicateId(HoldfastError):
    """A job of this id exists, or finished not long ago."""

    code = "duplicate_id"

    def __init__(self, ids: list[str]) -> None:
        named = ", ".join(repr(job_id) for job_id in ids[:5])
        more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
        super().__init__(
            f"a job with id {named}{more} exists or finished not long ago; nothing was enqueued: "
            'choose another id, or skip duplicates (on_duplicate="skip", --skip-duplicates)'
        )
        self.ids = ids


class LeaseLost(HoldfastError):
    """The token is not the job's current one: somebody else has the job, or it is finished."""

    code = "lease_lost"

    def __init__(self, job_id: str, token: int) -> None:
        super().__init__(
            f"token {token} no longer holds job {job_id!r}: its lease ended and the outcome was "
            "not recorded; stop working on it"
        )
        self.job_id = job_id
        self.token = token


class IllegalTransition(HoldfastError):
    """The state machine has no such move."""

    code = "illegal_transition"

    def __init__(self, job_id: str, state: str, move: str) -> None:
        super().__init__(f"job {job_id!r} is {state}: it cannot {move}")
        self.job_id = job_id
        self.state = state
        self.move = move


class ChangedMeanwhile(HoldfastError):
    """Somebody else changed what governs work since the caller looked."""

    code = "changed_meanwhile"

    def __init__(self, what: str, name: str) -> None:
        super().__init__(
            f"{what} {name!r} was changed by somebody else meanwhile: look at it again and decide "
            "anew"
        )
        self.what = what
        self.name = name


class StaleVersion(HoldfastError):
    """Somebody else changed the job meanwhile."""

    code = "stale_version"

    def __init__(self, job_id: str, expected: int, version: int) -> None:
        super().__init__(
            f"job {job_id!r} is at version {version}, not {expected}: somebody changed it. Look at "
            "it again and decide anew"
        )
        self.job_id = job_id
        self.expected = expected
        self.version = version


class StorageError(HoldfastError):
    """The place where work is kept cannot do what was asked."""

    code = "storage"


class StorageFull(StorageError):
    """No room: enqueue is refused, work under way goes on."""

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
            "copy out what is whole"
        )
        self.file = file
        self.offset = offset
        self.seq = seq
        self.problem = problem


class CorruptHistory(StorageError):
    """Finished work, or what happened to it, is damaged where it is kept."""

    code = "corrupt_history"

    def __init__(self, file: str, table: str, row: str, problem: str) -> None:
        where = f" in table {table}" if table else ""
        where += f" row {row}" if row else ""
        super().__init__(
            f"{file} is damaged{where}: {problem}. Unfinished work is not touched by this. Restore "
            "the file from a backup, run `holdfast journal verify` to see the extent, or begin "
            "anew without it (`holdfast run --history anew`; it is set aside)"
        )
        self.file = file
        self.table = table
        self.row = row
        self.problem = problem


class HistoryMissing(StorageError):
    """Finished work that must be on disk is not there."""

    code = "history_missing"

    def __init__(self, file: str, found_seq: int | None, expected_seq: int) -> None:
        found = "is missing" if found_seq is None else f"ends at seq {found_seq:,}"
        super().__init__(
            f"{file} {found}, but the log relies on it for everything up to seq {expected_seq:,}. "
            "Nothing was changed. Put the file back from where it went or from a backup, or begin "
            "anew (`holdfast run --history anew`): dead letters and finished jobs up to there are "
            "lost then"
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
            f"{file} is no whole dump: {problem}. Nothing was loaded: take another copy of it, or "
            "dump again"
        )
        self.file = file
        self.problem = problem


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
    """Nobody was there to answer."""

    code = "unavailable"


class NoOwner(Unavailable):
    """No process owns the store."""

    code = "no_owner"


class UnknownTask(HoldfastError):
    """No task of this name is registered here."""

    code = "unknown_task"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"no task is named {name!r}; known are: {names}")
        self.name = name


class JobNotFound(HoldfastError):
    """There is no such job, or not within the caller's reach."""

    code = "job_not_found"

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"there is no job {job_id!r}: it never was, or it finished longer ago than finished "
            "jobs are kept"
        )
        self.job_id = job_id


class UnknownSchedule(HoldfastError):
    """No schedule of this name is known."""

    code = "unknown_schedule"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        names = ", ".join(sorted(known)) or "none: they are known once an application is run"
        super().__init__(f"no schedule is named {name!r}; known are: {names}")
        self.name = name


class JobFailed(HoldfastError):
    """The awaited job will have no result."""

    code = "job_failed"

    def __init__(self, job_id: str, state: str, error_reason: str, message: str) -> None:
        super().__init__(f"job {job_id!r} is {state}: {message or error_reason}")
        self.job_id = job_id
        self.state = state
        self.error_reason = error_reason


class ResultTimeout(HoldfastError):
    """The awaited job has not finished in time; it goes on."""

    code = "result_timeout"


class WrongLoop(HoldfastError):
    """Called from a place that would wait for itself."""

    code = "wrong_loop"
