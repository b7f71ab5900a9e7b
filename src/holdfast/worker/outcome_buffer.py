"""Outcomes on their way to the engine."""

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

PATIENCE_SECONDS = 0.5
"""How long to wait before the engine, which is away, is asked again."""
_GRACE_SECONDS = 1.0
"""How long what is being settled is waited for at the end, at least."""


class OutcomeBuffer:
    """What is done and not recorded yet. It goes with a claim, or by itself while a claim waits."""

    def __init__(self, engine: Engine, worker: str, stir: Callable[[], None]) -> None:
        """Take the engine, and whom to tell that outcomes went, or could not."""
        self.refused = 0
        """How many outcomes came too late."""
        self._engine = engine
        self._worker = worker
        self._stir = stir
        self._outcomes: list[Outcome] = []
        self._task: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        """Whether there is anything that nobody has taken yet."""
        return bool(self._outcomes)

    @property
    def under_way(self) -> bool:
        """Whether outcomes go out by themselves at this moment."""
        return self._task is not None

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Take these in."""
        self._outcomes += outcomes

    def take(self) -> list[Outcome]:
        """Hand over all that there is, to go with a claim."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def put_back(self, outcomes: list[Outcome]) -> None:
        """Take back what could not be settled: it goes first."""
        self._outcomes = outcomes + self._outcomes

    def count(self, settled: Iterable[LeaseLost | None]) -> None:
        """Take note of what the engine answered."""
        for refusal in settled:
            if refusal is not None:
                self.refused += 1
                log.emit(
                    "worker.late_outcome_refused",
                    job=refusal.job_id,
                    worker=self._worker,
                    error=refusal,
                )

    def begin(self) -> None:
        """Settle what there is, and what comes meanwhile, in a task of its own."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._meanwhile())

    async def _meanwhile(self) -> None:
        try:
            await self.quietly()
        finally:
            self._task = None
            self._stir()

    async def quietly(self) -> None:
        """Settle until nothing is left; if that fails it is said, and what is left stays here."""
        try:
            while self._outcomes:
                await self.all()
        except Exception as error:  # noqa: BLE001 - said, and tried again
            self._say_unsettled(error)

    async def by(self, give_up: float) -> None:
        """Settle what is left, trying until this time of the loop if the engine is away."""
        loop = asyncio.get_running_loop()
        if self._task is not None:
            left = max(give_up - loop.time(), _GRACE_SECONDS)
            await asyncio.wait([self._task], timeout=left)
        while self._outcomes:
            try:
                await self.all()
            except HoldfastError as error:
                left = give_up - loop.time()
                if left <= 0 or not isinstance(error, Unavailable | StorageFull):
                    self._say_unsettled(error)
                    return
                await asyncio.sleep(min(PATIENCE_SECONDS, left))

    async def all(self) -> None:
        """Settle what there is; what is refused together goes in halves."""
        most = len(self._outcomes)
        while self._outcomes:
            outcomes, self._outcomes = self._outcomes[:most], self._outcomes[most:]
            try:
                self.count(await self._engine.settle(outcomes))
            except (Unavailable, StorageError, EngineClosed):
                self.put_back(outcomes)
                raise
            except HoldfastError as error:
                most = len(outcomes) // 2
                if most:
                    self.put_back(outcomes)
                else:
                    most = 1
                    # Its lease will run out: it counts as lost.
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

    def _say_unsettled(self, error: Exception) -> None:
        log.emit(
            "worker.settle_failed", worker=self._worker, count=len(self._outcomes), error=error
        )
