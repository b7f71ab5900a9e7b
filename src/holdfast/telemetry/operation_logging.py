"""Logs how stored operations start, pause and end, once for each in the process that sees it."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.engines.structured_log import StructuredLog
from holdfast.model.operation import Operation, Phase

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
        name, acted, why = operation.action.name, operation.acted, operation.note or None
        skipped, failed = sum(operation.skipped.values()), operation.outcomes.failed
        if operation.phase is Phase.COMPLETED:
            log.emit(
                "operation.completed",
                operation=operation.id,
                action=name,
                acted=acted,
                skipped=skipped,
                failed_again=failed,
                why=why,
            )
        elif operation.phase is Phase.ABORTED:
            log.emit(
                "operation.aborted",
                operation=operation.id,
                action=name,
                acted=acted,
                skipped=skipped,
                failed_again=failed,
                why=why,
            )
        elif operation.paused:
            log.emit("operation.paused", operation=operation.id, action=name, acted=acted, why=why)
