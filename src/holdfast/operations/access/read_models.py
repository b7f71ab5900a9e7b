"""Read models within the reach of somebody: rows are read, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from holdfast.engines.read_models.contract import (
    Apply,
    Fill,
    FillPosition,
    JobName,
    OnSettled,
    ReadModelStore,
    TableDigest,
)
from holdfast.engines.read_models.query import Aggregate, Comparison, Condition, RowQuery
from holdfast.model.errors import AccessDenied, LeaseLost
from holdfast.model.outcome import Outcome
from holdfast.model.permissions import Permission
from holdfast.model.principal import Principal
from holdfast.model.read_model import ReadModel, Row
from holdfast.projections.chronicle import ENTRIES

DATA_COLUMNS = ("text", "payload", "before", "after", "diff")
"""What an entry of the chronicle has of the data of its event."""


def confined(table: ReadModel, query: RowQuery, principal: Principal) -> RowQuery:
    """Return the query within the reach of somebody: of their tenant and scopes only.

    Raise ``AccessDenied`` if the table does not say which rows these are.
    """
    reach = principal.caller
    conditions = list(query.conditions)
    for column, limited in (("tenant", reach.tenant is not None), ("scope", bool(reach.scopes))):
        if limited and column not in table.columns:
            raise AccessDenied("table", table.name)
    if reach.tenant is not None:
        conditions.append(Condition("tenant", Comparison.EQUAL, reach.tenant))
    if reach.scopes:
        conditions.append(Condition("scope", Comparison.WITHIN, reach.scopes))
    return replace(query, conditions=tuple(conditions))


class ConfinedReadModels:
    """Tables by generation, as somebody may see them; see ``ReadModelStore``.

    Only who may rebuild projections, and reaches everything, may change them.
    """

    def __init__(self, store: ReadModelStore, principal: Principal) -> None:
        self._store = store
        self._principal = principal

    @property
    def on_settled(self) -> OnSettled:
        """See ``ReadModelStore.on_settled``."""
        return self._changing().on_settled

    @on_settled.setter
    def on_settled(self, called: OnSettled) -> None:
        self._changing().on_settled = called

    async def create(self, table: ReadModel, generation: int) -> None:
        """See ``ReadModelStore.create``."""
        await self._changing().create(table, generation)

    async def drop(self, table: ReadModel, generation: int) -> None:
        """See ``ReadModelStore.drop``."""
        await self._changing().drop(table, generation)

    async def generations(self, table: ReadModel) -> list[int]:
        """See ``ReadModelStore.generations``."""
        self._principal.require(Permission.JOB_READ)
        return await self._store.generations(table)

    async def truncate(self, table: ReadModel, generation: int, position: FillPosition) -> None:
        """See ``ReadModelStore.truncate``."""
        await self._changing().truncate(table, generation, position)

    async def publish(self, table: ReadModel, generation: int) -> None:
        """See ``ReadModelStore.publish``."""
        await self._changing().publish(table, generation)

    async def publish_outbox(self, projection: str) -> None:
        """See ``ReadModelStore.publish_outbox``."""
        await self._changing().publish_outbox(projection)

    async def apply(
        self, table: ReadModel, generation: int, apply: Apply, outcomes: Sequence[Outcome]
    ) -> list[LeaseLost | None]:
        """See ``ReadModelStore.apply``."""
        return await self._changing().apply(table, generation, apply, outcomes)

    async def fill(
        self, table: ReadModel, generation: int, fill: Fill, *, expected: FillPosition | None
    ) -> None:
        """See ``ReadModelStore.fill``."""
        await self._changing().fill(table, generation, fill, expected=expected)

    async def covered(
        self, table: ReadModel, generation: int, jobs: Collection[JobName]
    ) -> set[JobName]:
        """See ``ReadModelStore.covered``."""
        return await self._changing().covered(table, generation, jobs)

    async def position(self, table: ReadModel, generation: int) -> FillPosition | None:
        """See ``ReadModelStore.position``."""
        self._principal.require(Permission.JOB_READ)
        return await self._store.position(table, generation)

    async def digest(self, table: ReadModel, generation: int) -> TableDigest:
        """See ``ReadModelStore.digest``."""
        return await self._changing().digest(table, generation)

    async def select(self, table: ReadModel, generation: int, query: RowQuery) -> list[Row]:
        """See ``ReadModelStore.select``."""
        hidden = self._hidden(table, query)
        found = confined(table, query, self._principal)
        rows = await self._store.select(table, generation, found)
        return [_without(row, hidden) for row in rows] if hidden else rows

    async def aggregate(
        self, table: ReadModel, generation: int, query: RowQuery, by: Aggregate
    ) -> list[Row]:
        """See ``ReadModelStore.aggregate``."""
        self._hidden(table, query)
        found = confined(table, query, self._principal)
        return await self._store.aggregate(table, generation, found, by)

    def _hidden(self, table: ReadModel, query: RowQuery) -> Sequence[str]:
        """Return the columns that may not be seen, or raise ``Forbidden``.

        Rows are made of the data of events. Of these only the chronicle is known to have the rest
        in columns of its own.
        """
        self._principal.require(Permission.JOB_READ)
        if self._principal.may(Permission.PAYLOAD_READ):
            return ()
        asked = {*(one.column for one in query.conditions), *query.order}
        if table != ENTRIES or query.search or asked.intersection(DATA_COLUMNS):
            self._principal.require(Permission.PAYLOAD_READ)
        return DATA_COLUMNS

    def _changing(self) -> ReadModelStore:
        """Return the store for somebody who may change it."""
        self._principal.require(Permission.PROJECTION_REBUILD)
        if not self._principal.caller.unlimited:
            raise AccessDenied("read models", "of all tenants")
        return self._store


def _without(row: Row, columns: Sequence[str]) -> Row:
    """Return an entry of the chronicle without these columns; its text says what it is about."""
    about = f"{row['event_type']} {row['entity_type']} {row['entity_id']}"
    return {**row, **dict.fromkeys(columns), "text": about}
