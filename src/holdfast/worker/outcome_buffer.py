"""Outcomes that wait to be sent to the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from holdfast.engines.contract import Engine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import (
    EngineClosed,
    HoldfastError,
    LeaseLost,
    StorageError,
    StorageFull,
    Unavailable,
)
from holdfast.model.outcome import Outcome

log = StructuredLog("holdfast.worker")

RETRY_SECONDS = 0.5
"""How long to wait before calling an unavailable engine again."""
_GRACE_SECONDS = 1.0
"""The least time that the last flush gets when the worker stops."""


class OutcomeBuffer:
    """Outcomes that are not recorded yet. They go with a claim, or alone while a claim waits."""

    def __init__(self, engine: Engine, worker: str, on_flush: Callable[[], None]) -> None:
        """Take the engine; ``on_flush`` is called after each flush, failed or not."""
        self.refused = 0
        """How many outcomes were refused because their lease was lost."""
        self._engine = engine
        self._worker = worker
        self._on_flush = on_flush
        self._outcomes: list[Outcome] = []
        self._task: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        """Whether there are outcomes to send."""
        return bool(self._outcomes)

    @property
    def flushing(self) -> bool:
        """Whether a flush started by ``start_flush`` is running."""
        return self._task is not None

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Add these outcomes."""
        self._outcomes += outcomes

    def take(self) -> list[Outcome]:
        """Remove and return all outcomes, to be sent with a claim."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def put_back(self, outcomes: list[Outcome]) -> None:
        """Return outcomes that could not be sent: they go first."""
        self._outcomes = outcomes + self._outcomes

    def count_refused(self, settled: Iterable[LeaseLost | None]) -> None:
        """Count and log the outcomes that the engine refused."""
        for refusal in settled:
            if refusal is not None:
                self.refused += 1
                log.emit(
                    "worker.late_outcome_refused",
                    job=refusal.job_id,
                    worker=self._worker,
                    error=refusal,
                )

    def start_flush(self) -> None:
        """Settle everything, in a task of its own."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run_flush())

    async def _run_flush(self) -> None:
        try:
            await self.try_flush()
        finally:
            self._task = None
            self._on_flush()

    async def try_flush(self) -> None:
        """Settle everything; log a failure and keep the outcomes that are left."""
        try:
            while self._outcomes:
                await self.flush()
        except Exception as error:  # noqa: BLE001 - logged, and retried
            self._log_failure(error)

    async def flush_until(self, give_up: float) -> None:
        """Settle everything; while the engine is unavailable retry until this loop time."""
        loop = asyncio.get_running_loop()
        if self._task is not None:
            left = max(give_up - loop.time(), _GRACE_SECONDS)
            await asyncio.wait([self._task], timeout=left)
        while self._outcomes:
            try:
                await self.flush()
            except HoldfastError as error:
                left = give_up - loop.time()
                if left <= 0 or not isinstance(error, Unavailable | StorageFull):
                    self._log_failure(error)
                    return
                await asyncio.sleep(min(RETRY_SECONDS, left))

    async def flush(self) -> None:
        """Settle everything; split a batch in halves if it is refused as a whole."""
        most = len(self._outcomes)
        while self._outcomes:
            outcomes, self._outcomes = self._outcomes[:most], self._outcomes[most:]
            try:
                self.count_refused(await self._engine.settle(outcomes))
            except (Unavailable, StorageError, EngineClosed):
                self.put_back(outcomes)
                raise
            except HoldfastError as error:
                most = len(outcomes) // 2
                if most:
                    self.put_back(outcomes)
                else:
                    most = 1
                    # Its lease will end, and the job counts as lost.
                    log.emit(
                        "worker.outcome_dropped",
                        job=outcomes[0].id,
                        tenant=outcomes[0].tenant,
                        worker=self._worker,
                        error=error,
                    )
            except Exception:
                self.put_back(outcomes)
                raise

    def _log_failure(self, error: Exception) -> None:
        log.emit(
            "worker.settle_failed", worker=self._worker, count=len(self._outcomes), error=error
        )
