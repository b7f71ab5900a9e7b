"""Exit codes: what each means, and which error maps to which. Help and docs show these."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model import errors

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_REFUSED, EXIT_UNAVAILABLE = range(6)

MEANINGS: Mapping[int, str] = {
    EXIT_OK: "done",
    EXIT_FAILED: "a check failed, or a bug",
    EXIT_USAGE: "bad input: an option, a file or a setting; nothing was changed",
    EXIT_NOT_FOUND: "no such job, event, schedule, queue, operation or key",
    EXIT_REFUSED: "refused: a duplicate, a conflict, or the wrong state",
    EXIT_UNAVAILABLE: "the store or its owner is not available",
}

EXIT_CODES: Mapping[type[errors.HoldfastError], int] = {
    errors.HoldfastError: EXIT_FAILED,
    errors.InvalidInput: EXIT_USAGE,
    errors.PayloadInvalid: EXIT_USAGE,
    errors.UnknownDependency: EXIT_USAGE,
    errors.TooLarge: EXIT_USAGE,
    errors.UnknownEventType: EXIT_USAGE,
    errors.EventInvalid: EXIT_USAGE,
    errors.UnknownTask: EXIT_USAGE,
    errors.JobNotFound: EXIT_NOT_FOUND,
    errors.EventNotFound: EXIT_NOT_FOUND,
    errors.UnknownSchedule: EXIT_NOT_FOUND,
    errors.UnknownQueue: EXIT_NOT_FOUND,
    errors.UnknownOperation: EXIT_NOT_FOUND,
    errors.UnknownGroup: EXIT_NOT_FOUND,
    errors.UnknownPage: EXIT_NOT_FOUND,
    errors.UnknownKey: EXIT_NOT_FOUND,
    errors.UnknownProjection: EXIT_NOT_FOUND,
    errors.RebuildRunning: EXIT_REFUSED,
    errors.AccessDenied: EXIT_REFUSED,
    errors.Forbidden: EXIT_REFUSED,
    errors.DuplicateId: EXIT_REFUSED,
    errors.EventConflict: EXIT_REFUSED,
    errors.LeaseLost: EXIT_REFUSED,
    errors.IllegalTransition: EXIT_REFUSED,
    errors.StaleVersion: EXIT_REFUSED,
    errors.ChangedMeanwhile: EXIT_REFUSED,
    errors.PlanOutdated: EXIT_REFUSED,
    errors.WorkerIdInUse: EXIT_REFUSED,
    errors.StorageError: EXIT_UNAVAILABLE,
    errors.StorageFull: EXIT_UNAVAILABLE,
    errors.DurabilityLost: EXIT_UNAVAILABLE,
    errors.CorruptLog: EXIT_UNAVAILABLE,
    errors.CorruptHistory: EXIT_UNAVAILABLE,
    errors.HistoryMissing: EXIT_UNAVAILABLE,
    errors.CorruptEvents: EXIT_UNAVAILABLE,
    errors.EventsMissing: EXIT_UNAVAILABLE,
    errors.UnknownFormat: EXIT_UNAVAILABLE,
    errors.CorruptDump: EXIT_UNAVAILABLE,
    errors.AuditAltered: EXIT_UNAVAILABLE,
    errors.StoreMoved: EXIT_UNAVAILABLE,
    errors.StoreNotOurs: EXIT_UNAVAILABLE,
    errors.DirectoryInUse: EXIT_UNAVAILABLE,
    errors.Unavailable: EXIT_UNAVAILABLE,
    errors.NoOwner: EXIT_UNAVAILABLE,
    errors.KeyRefused: EXIT_UNAVAILABLE,
    errors.EngineClosed: EXIT_UNAVAILABLE,
    errors.ResultTimeout: EXIT_UNAVAILABLE,
    errors.JobFailed: EXIT_FAILED,
    errors.NoResult: EXIT_FAILED,
    errors.WrongLoop: EXIT_FAILED,
    errors.InvariantViolation: EXIT_FAILED,
}


def exit_code_of(code: str) -> int:
    """Return the exit code of an error by its code, as another process reports it."""
    found = [EXIT_CODES[kind] for kind in EXIT_CODES if kind.code == code]
    return found[0] if found else EXIT_FAILED


def exit_code(error: errors.HoldfastError) -> int:
    """Return the exit code of an error; unlisted classes use their parent's."""
    return next(EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES)
