"""The PostgreSQL engine: see ``engine``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from holdfast.engines.clock import Clock
from holdfast.engines.dump import DumpRecord

from .dumping import records
from .governed import Operating
from .loading import refuse_half_loaded
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
        try:
            await refuse_half_loaded(engine._database)
        except BaseException:
            await engine.close()
            raise
        return engine

    @property
    def options(self) -> PostgresOptions:
        """How it was opened."""
        return self._options

    def dump(self) -> AsyncIterator[Sequence[DumpRecord]]:
        """See ``Engine.dump``."""
        self._database.check_open()
        return records(self._database, self._on(), self.capabilities.name)
