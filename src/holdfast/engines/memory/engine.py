"""The memory engine: the simplest implementation of the contract, and the oracle for the others.

Every query scans every job, so that it is obviously right. Nothing survives the process. It is
meant for tests, not for a backlog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from holdfast.engines.clock import Clock, SystemClock
from holdfast.engines.contract import Capabilities, EngineOptions
from holdfast.engines.dump.format import (
    DumpedAttempt,
    DumpedAudit,
    DumpedNote,
    DumpHead,
    DumpRecord,
)
from holdfast.engines.embedded.engine import EmbeddedEngine
from holdfast.engines.embedded.event_store import MemoryEvents
from holdfast.engines.embedded.memory_history import MemoryHistory
from holdfast.engines.entropy import random_bytes as pooled_bytes
from holdfast.model.effects import Effect
from holdfast.model.errors import DurabilityLost, InvalidInput

from .state import MemoryState


class MemoryEngine(EmbeddedEngine):
    """Keeps work in this process's memory, and nowhere else."""

    state_type: type[MemoryState] = MemoryState

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        options: EngineOptions | None = None,
        random_bytes: Callable[[int], bytes] = pooled_bytes,
    ) -> None:
        self._history = MemoryHistory()
        options = options or EngineOptions()
        events = MemoryEvents()
        self._state = self.state_type(self._history, events, options)
        super().__init__(
            Capabilities(name="memory", durable=False, shared=False),
            self._state,
            NullLog(),
            self._history,
            events,
            clock or SystemClock(),
            random_bytes,
            options,
        )

    def load(self, records: Iterable[DumpRecord]) -> None:
        """Load a dump; the engine must be new."""
        if self._state.seq:
            raise InvalidInput("engine", "a dump is loaded into an engine that is new")
        for record in records:
            if isinstance(record, DumpHead):
                self._core.token_offset = max(0, record.last_token - record.last_seq)
            if isinstance(record, DumpedAttempt | DumpedNote | DumpedAudit):
                self._history.load(record)
            self._state.load(record)


class NullLog:
    """Nothing is durable, so there is nothing to wait for."""

    def __init__(self) -> None:
        self._stopped: BaseException | None = None

    def add(
        self,
        effects: Sequence[Effect],  # noqa: ARG002 - the contract of a log
        first_seq: int,  # noqa: ARG002
        *,
        essential: bool,  # noqa: ARG002
    ) -> None:
        """Accept everything and store nothing."""
        if self._stopped is not None:
            raise DurabilityLost(f"the state is in doubt: {self._stopped}")

    def stop(self, error: BaseException) -> None:
        """Refuse everything from here on."""
        self._stopped = error

    @property
    def many_callers(self) -> bool:
        """Never: there are no flushes to share."""
        return False

    def durable_future(self, callers: int = 1) -> None:
        """Return None: there is nothing to wait for."""

    async def close(self) -> None:
        """Do nothing."""
