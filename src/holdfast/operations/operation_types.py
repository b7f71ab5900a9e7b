"""What an operation is asked with and answered with, and the entry that it leaves in the audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.policy import Rate
from holdfast.model.search import EVERYTHING, Filter

from .views import JobView, ProcessSlots, RunningAttempt

CHUNK = 1_000
"""How many jobs one commit of a long operation changes."""
NAMED_IN_AUDIT = 100


class Author(msgspec.Struct, frozen=True):
    """Who does it, and why."""

    by: str
    why: str


class ReplayPace(msgspec.Struct, frozen=True):
    """How many in one commit at most, and how long to wait before the next."""

    at_once: int = CHUNK
    pause_seconds: float = 0.0

    @classmethod
    def of(cls, rate: Rate) -> ReplayPace:
        """Return a pace that keeps to this rate: about a commit each second."""
        each_seconds = rate.per_seconds / rate.count
        at_once = min(CHUNK, max(1, round(1 / each_seconds)))
        return cls(at_once, at_once * each_seconds)


class OperationResult(msgspec.Struct, frozen=True):
    """What came of an operation: how many were changed, and how many left as they were."""

    done: int
    kept: int = 0
    ids: list[str] = []
    """The first of those that were changed."""


class OperationPreview(msgspec.Struct, frozen=True):
    """What an operation would change."""

    would: int
    kept: int
    jobs: list[JobView]
    """The first of them."""


class WorkerControl(Protocol):
    """Those who run jobs here, if any do."""

    @property
    def slots(self) -> Mapping[str, int]:
        """How many slots there are in each process, by the queues that they serve."""

    @property
    def processes(self) -> Mapping[str, ProcessSlots | None]:
        """The slots of each process by its number; None is one that has not said anything yet."""

    @property
    def draining(self) -> bool:
        """Whether no more is claimed."""

    def running(self) -> list[RunningAttempt]:
        """Return what is under way."""

    def check_resize(self, slots: int, queue: str = "") -> None:
        """Raise ``InvalidInput`` if there cannot be this many slots."""

    def resize(self, slots: int, queue: str = "") -> None:
        """Have this many slots in each process."""

    def drain(self) -> None:
        """Claim no more."""

    def resume(self) -> None:
        """Claim again."""


def attribution_of(
    action: str,
    kind: str,
    wanted: Filter,
    who: Author,
    changes: Mapping[str, object] | None = None,
) -> Attribution:
    """Return who and why with an entry that says which jobs a filter names."""
    said = {
        field: msgspec.to_builtins(value)
        for field in Filter.__struct_fields__
        if (value := getattr(wanted, field)) != getattr(EVERYTHING, field) and field != "ids"
    }
    if len(wanted.ids) > 1:
        said["ids"] = list(wanted.ids[:NAMED_IN_AUDIT])
        said["ids_count"] = len(wanted.ids)
    one = wanted.ids[0] if len(wanted.ids) == 1 else ""
    entry = entry_of(action, kind, one, who, {**said, **(changes or {})}, wanted.tenant or "")
    return Attribution(who.by, who.why, (entry,))


def entry_of(
    action: str, kind: str, name: str, who: Author, changes: Mapping[str, object], tenant: str = ""
) -> AuditEntry:
    """Return an entry of the audit."""
    text = msgspec.json.encode(changes).decode()
    return AuditEntry(action, kind, name, who.by, text, who.why, tenant)
