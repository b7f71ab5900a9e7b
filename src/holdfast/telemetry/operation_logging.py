"""Logs how stored operations start, pause and end, once for each in the process that sees it."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.engines.contract import Engine
from holdfast.engines.forwarding import ForwardingEngine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import Attribution
from holdfast.model.operation import NewOperation, Operation, OperationChange, OperationStep, Phase

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


class OperationLoggingEngine(ForwardingEngine):
    """Forwards every verb, and logs what it sees of operations."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.operation_log = OperationLog()

    async def start_operation(
        self, new: NewOperation, attribution: Attribution, *, caller: Caller = SYSTEM
    ) -> Operation:
        """See ``Engine.start_operation``."""
        operation = await self.engine.start_operation(new, attribution, caller=caller)
        self.operation_log.started(operation)
        return operation

    async def advance_operation(self, operation_id: str) -> OperationStep:
        """See ``Engine.advance_operation``."""
        step = await self.engine.advance_operation(operation_id)
        self.operation_log.seen(step.operation)
        return step

    async def operations(
        self, *, running: bool = False, limit: int = 100, caller: Caller = SYSTEM
    ) -> list[Operation]:
        """See ``Engine.operations``."""
        found = await self.engine.operations(running=running, limit=limit, caller=caller)
        if running and caller.unlimited and len(found) < limit:
            self.operation_log.listed(found)
        return found

    async def change_operation(
        self,
        operation_id: str,
        change: OperationChange,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> Operation:
        """See ``Engine.change_operation``."""
        operation = await self.engine.change_operation(
            operation_id, change, attribution, caller=caller
        )
        self.operation_log.seen(operation)
        return operation
