"""The operations that a store in one process remembers."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from .job import Job
from .operation import MAX_ENDED, Operation, ended_member, older


class OperationLedger:
    """The operations that a store in this process remembers; jobs that end are counted."""

    def __init__(self) -> None:
        self._operations: dict[str, Operation] = {}

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations.values())

    def __len__(self) -> int:
        return len(self._operations)

    def get(self, operation_id: str) -> Operation | None:
        """Return the operation of this id."""
        return self._operations.get(operation_id)

    def put(self, operation: Operation) -> None:
        """Set an operation; those that ended too long ago are forgotten."""
        is_new = operation.id not in self._operations
        self._operations[operation.id] = operation
        if is_new and len(self._operations) > MAX_ENDED:
            ended = [one for one in self if one.ended]
            ended.sort(key=lambda one: (one.ended_at_us, one.id), reverse=True)
            for one in ended[MAX_ENDED:]:
                del self._operations[one.id]

    def count(self, before: Job | None, after: Job | None) -> None:
        """Count the end of a job that an operation replayed."""
        if before is None or before.replays is None:
            return  # this is for every effect on every job
        found = ended_member(before, after)
        if found is not None and (operation := self._operations.get(found[0])) is not None:
            outcomes = operation.outcomes.plus(found[1])
            self._operations[operation.id] = replace(operation, outcomes=outcomes)

    def older(self, operation: Operation) -> list[Operation]:
        """Return those that started before this one and have not ended, the oldest first."""
        return older(self, operation)
