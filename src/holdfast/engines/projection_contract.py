"""The part of the engine contract that projections stand on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from holdfast.engines.read_models.contract import ReadModelStore
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import Attribution
from holdfast.model.projection import ProjectionState


class ProjectionEngine(Protocol):
    """Tables of read models, and what is stored about projections."""

    @property
    def read_models(self) -> ReadModelStore:
        """The tables that projections fill."""

    async def projections(self) -> Mapping[str, ProjectionState]:
        """Return what is stored about projections, by name."""

    async def set_projection(
        self,
        state: ProjectionState,
        attribution: Attribution,
        *,
        expected: ProjectionState | None,
        caller: Caller = SYSTEM,
    ) -> None:
        """Store what is known about a projection.

        Raise ``ChangedMeanwhile`` if it is not ``expected``, None: there must be none;
        ``AccessDenied`` if the reach of the caller is limited.
        """

    async def fanout_settled(self, version: int) -> bool:
        """Whether no transaction is open that may still append by older subscriptions.

        Then every event of a fan-out version below this one can be seen.
        """
