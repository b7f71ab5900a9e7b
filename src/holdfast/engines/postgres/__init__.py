"""The PostgreSQL engine: see ``engine``."""

from __future__ import annotations

from holdfast.engines.clock import Clock

from .governed import Operating
from .options import PostgresOptions
from .upkeep import Upkeep

__all__ = ["PostgresEngine", "PostgresOptions"]


class PostgresEngine(Upkeep, Operating):
    """Work kept by a PostgreSQL server. Open it with ``open``."""

    @classmethod
    async def open(
        cls, url: str, *, options: PostgresOptions | None = None, clock: Clock | None = None
    ) -> PostgresEngine:
        """Connect; raise ``Unavailable`` with what is wrong."""
        engine = cls(url, options, clock)
        await engine._database.open()
        return engine

    @property
    def options(self) -> PostgresOptions:
        """How it was opened."""
        return self._options
