"""Reading the tables of projections from an application."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .binding import Binding, EngineCall
from .engines.contract import Engine
from .model.errors import UnknownProjection
from .model.read_model import Row, Value
from .projections.declaration import Projection
from .projections.registry import declared
from .projections.rows import read_rows, row_query
from .settings import Settings
from .worker.registry import Registry


class RowReader:
    """Reads rows of the projections of an application, of its files, and of the chronicle."""

    def __init__(
        self, registry: Registry, settings: Callable[[], Settings], binding: Binding
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._binding = binding
        self._known: Mapping[str, Projection] | None = None

    async def rows(
        self,
        projection: str,
        where: Mapping[str, Value] | None,
        *,
        search: str,
        order: str,
        limit: int,
    ) -> list[Row]:
        """Return rows of the live generation; see ``Holdfast.rows``."""
        found = self._find(projection)
        return await self._binding.call(self._reading(found, where, search, order, limit))

    def rows_sync(
        self,
        projection: str,
        where: Mapping[str, Value] | None,
        *,
        search: str,
        order: str,
        limit: int,
    ) -> list[Row]:
        """See ``rows``; for synchronous code."""
        found = self._find(projection)
        return self._binding.call_sync(self._reading(found, where, search, order, limit))

    def _find(self, name: str) -> Projection:
        found = self._registry.projections.get(name)
        if found is None:
            if self._known is None:  # files are read once
                self._known = declared(self._registry, self._settings())
            found = self._known.get(name)
        if found is None:
            raise UnknownProjection(name, {*self._registry.projections, *(self._known or {})})
        return found

    @staticmethod
    def _reading(
        projection: Projection,
        where: Mapping[str, Value] | None,
        search: str,
        order: str,
        limit: int,
    ) -> EngineCall[list[Row]]:
        query = row_query(projection.table, where, search=search, order=order, limit=limit)

        async def read(engine: Engine) -> list[Row]:
            return await read_rows(engine, projection, query) or []

        return read
