"""The errors: a stable code each, and all of them in the tree that the module draws."""

import inspect
import re

import pytest

from holdfast.model import errors
from holdfast.model.errors import (
    AccessDenied,
    ChangedMeanwhile,
    CorruptDump,
    CorruptHistory,
    CorruptLog,
    DuplicateId,
    HistoryMissing,
    HoldfastError,
    IllegalTransition,
    InvalidInput,
    LeaseLost,
    PayloadInvalid,
    StaleVersion,
    TooLarge,
    UnknownDependency,
    UnknownFormat,
    WorkerIdInUse,
)

CODES = {
    "HoldfastError": "error",
    "InvalidInput": "invalid_input",
    "PayloadInvalid": "payload_invalid",
    "UnknownDependency": "unknown_dependency",
    "UnknownEventType": "unknown_event_type",
    "EventInvalid": "event_invalid",
    "TooLarge": "too_large",
    "AccessDenied": "access_denied",
    "Forbidden": "forbidden",
    "UnknownKey": "unknown_key",
    "DuplicateId": "duplicate_id",
    "EventConflict": "event_conflict",
    "LeaseLost": "lease_lost",
    "IllegalTransition": "illegal_transition",
    "StaleVersion": "stale_version",
    "ChangedMeanwhile": "changed_meanwhile",
    "WorkerIdInUse": "worker_id_in_use",
    "StorageError": "storage",
    "StorageFull": "storage_full",
    "DurabilityLost": "durability_lost",
    "CorruptLog": "corrupt_log",
    "CorruptHistory": "corrupt_history",
    "HistoryMissing": "history_missing",
    "CorruptEvents": "corrupt_events",
    "EventsMissing": "events_missing",
    "UnknownFormat": "unknown_format",
    "CorruptDump": "corrupt_dump",
    "AuditAltered": "audit_altered",
    "StoreMoved": "store_moved",
    "StoreNotOurs": "store_not_ours",
    "DirectoryInUse": "directory_in_use",
    "Unavailable": "unavailable",
    "NoOwner": "no_owner",
    "KeyRefused": "key_refused",
    "UnknownTask": "unknown_task",
    "JobNotFound": "job_not_found",
    "EventNotFound": "event_not_found",
    "UnknownSchedule": "unknown_schedule",
    "PlanOutdated": "plan_outdated",
    "UnknownOperation": "unknown_operation",
    "UnknownGroup": "unknown_group",
    "RebuildRunning": "rebuild_running",
    "UnknownProjection": "unknown_projection",
    "UnknownPage": "unknown_page",
    "UnknownQueue": "unknown_queue",
    "JobFailed": "job_failed",
    "NoResult": "no_result",
    "ResultTimeout": "result_timeout",
    "WrongLoop": "wrong_loop",
    "EngineClosed": "engine_closed",
    "InvariantViolation": "invariant_violation",
}
"""Interfaces map these to exit codes and problem types: never change one."""


def family(root: type[HoldfastError]) -> list[type[HoldfastError]]:
    return [root, *(kin for child in root.__subclasses__() for kin in family(child))]


FAMILY = [error for error in family(HoldfastError) if error.__module__.startswith("holdfast.")]


def drawn() -> dict[str, tuple[str | None, str]]:
    """What the tree in the docstring says: each name with its parent and its gloss."""
    found: dict[str, tuple[str | None, str]] = {"HoldfastError": (None, "")}
    path = ["HoldfastError"]
    for line in inspect.cleandoc(errors.__doc__ or "").splitlines():
        branch = re.fullmatch(r"([│ ]*)[├└]── (\w+) +(\S.*)", line)
        if branch is not None:
            depth = len(branch[1]) // 4 + 1
            path[depth:] = [branch[2]]
            found[branch[2]] = (path[depth - 1], branch[3])
    return found


def test_every_error_has_its_listed_code() -> None:
    assert {error.__name__: error.code for error in FAMILY} == CODES


def test_no_two_errors_share_a_code_and_none_inherits_it() -> None:
    assert len(set(CODES.values())) == len(CODES)
    assert all("code" in vars(error) for error in FAMILY)


def test_codes_are_words_in_snake_case() -> None:
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in CODES.values())


def test_all_errors_live_in_one_module() -> None:
    assert {error.__module__ for error in FAMILY} == {"holdfast.model.errors"}


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    parents = {error.__name__: error.__base__ for error in FAMILY}
    in_code = {name: base.__name__ for name, base in parents.items() if base is not None}
    assert {name: parent for name, (parent, _) in drawn().items() if parent} | {
        "HoldfastError": "Exception"
    } == in_code


@pytest.mark.parametrize("error", FAMILY)
def test_every_error_says_what_it_means_in_a_docstring_of_its_own(
    error: type[HoldfastError],
) -> None:
    own = vars(error)["__doc__"]
    assert own
    assert own.splitlines()[0].endswith((".", ":"))


@pytest.mark.parametrize(
    ("error", "says", "fields"),
    [
        (
            InvalidInput("queue", "is empty"),
            ["queue: is empty"],
            {"field": "queue", "problem": "is empty"},
        ),
        (
            PayloadInvalid("payload", "a list"),
            ["payload: a list"],
            {"field": "payload", "problem": "a list"},
        ),
        (
            TooLarge("payload", 300_000, 262_144, "store it"),
            ["payload: 300,000 bytes", "262,144", "store it"],
            {"field": "payload", "size": 300_000, "limit": 262_144},
        ),
        (
            UnknownDependency("b", "a"),
            [
                "depends_on: job 'b'",
                "'a'",
                "does not exist in its tenant",
                "enqueue that one first",
            ],
            {"field": "depends_on", "job_id": "b", "dependency": "a"},
        ),
        (
            StaleVersion("j1", 2, 3),
            ["job 'j1' is at version 3, not 2"],
            {"job_id": "j1", "expected": 2, "version": 3},
        ),
        (
            ChangedMeanwhile("queue", "mail"),
            ["queue 'mail' was changed concurrently", "read it again"],
            {"what": "queue", "name": "mail"},
        ),
        (
            WorkerIdInUse("a", "east", 7),
            ["worker_id 'a' is in use", "process 7 on east", "give this one another worker_id"],
            {"name": "a", "host": "east", "pid": 7},
        ),
        (
            AccessDenied("tenant", "acme"),
            ["tenant 'acme'"],
            {"field": "tenant", "value": "acme"},
        ),
        (
            LeaseLost("j1", 7),
            ["token 7", "'j1'"],
            {"job_id": "j1", "token": 7},
        ),
        (
            IllegalTransition("j1", "dead", "claim"),
            ["job 'j1' is dead: it cannot claim"],
            {"job_id": "j1", "state": "dead", "move": "claim"},
        ),
        (
            CorruptLog("1.log", 512, 9, "bad checksum"),
            ["1.log", "byte 512", "seq 9", "bad checksum", "Nothing was changed"],
            {"file": "1.log", "offset": 512, "seq": 9, "problem": "bad checksum"},
        ),
        (
            CorruptHistory("cold.sqlite", "dead", "7", "its checksum is wrong"),
            [
                "cold.sqlite is damaged in table dead row 7: its checksum",
                "`holdfast journal verify`",
            ],
            {"file": "cold.sqlite", "table": "dead", "row": "7"},
        ),
        (
            HistoryMissing("cold.sqlite", None, 9),
            ["cold.sqlite is missing", "up to seq 9", "--history anew"],
            {"file": "cold.sqlite", "found_seq": None, "expected_seq": 9},
        ),
        (
            CorruptDump("a.dump", "its hash is wrong"),
            ["a.dump is not a complete dump: its hash is wrong", "Nothing was loaded"],
            {"file": "a.dump", "problem": "its hash is wrong"},
        ),
        (
            UnknownFormat("1.log", "version", 9, 1),
            ["1.log has version 9", "up to 1"],
            {"file": "1.log", "found": 9, "known": 1},
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_says_what_happened_and_keeps_the_facts(
    error: HoldfastError, says: list[str], fields: dict[str, object]
) -> None:
    assert [text for text in says if text not in str(error)] == []
    assert {name: getattr(error, name) for name in fields} == fields


def test_duplicates_are_named_up_to_five() -> None:
    five = DuplicateId(["a", "b", "c", "d", "e"])
    assert "'a', 'b', 'c', 'd', 'e' exists" in str(five)
    seven = DuplicateId(["a", "b", "c", "d", "e", "f", "g"])
    assert "'e' and 2 more" in str(seven)
    assert "'f'" not in str(seven)
    assert len(seven.ids) == 7
