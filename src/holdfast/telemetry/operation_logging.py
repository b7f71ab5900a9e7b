"""Logs how stored operations start, pause and end, once for each in the process that sees it."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.engines.structured_log import StructuredLog
from holdfast.model.operation import Operation

log = StructuredLog("holdfast.operations")


class OperationLog:
    """Compares each operation with how it was when it was last seen here."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}

    @property
    def running(self) -> int:
        """How many operations had not ended when they were last listed."""
        return len(self._states)

    def started(self, operation: Operation) -> None:
        """Log the start of an operation."""
        if operation.id not in self._states and not operation.ended:
            log.emit(
                "operation.started",
                operation=operation.id,
                action=operation.action.name,
                user=operation.by,
                why=operation.why,
                count=operation.matched,
            )
            self._states[operation.id] = operation.state

    def listed(self, running: Iterable[Operation]) -> None:
        """Remember the operations that run; the others have ended elsewhere."""
        self._states = {operation.id: operation.state for operation in running}

    def seen(self, operation: Operation) -> None:
        """Log what has changed since the operation was last seen."""
        before, state = self._states.get(operation.id), operation.state
        if before is None or before == state:
            return
        if operation.ended:
            del self._states[operation.id]
        else:
            self._states[operation.id] = state
        if operation.ended or state == "paused":
            log.emit(
                f"operation.{state}",
                operation=operation.id,
                action=operation.action.name,
                user=operation.by,
                acted=operation.acted,
                skipped=sum(operation.skipped.values()),
                failed_again=operation.outcomes.failed,
                why=operation.note or None,
            )
