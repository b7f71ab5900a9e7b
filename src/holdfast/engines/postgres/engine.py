"""The PostgreSQL engine: the same promises, kept by a server that many machines share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from holdfast.engines.clock import Clock
from holdfast.engines.dump.format import DumpRecord

from .admin.verbs import Operating
from .dump import records
from .maintenance.verbs import Upkeep
from .options import PostgresOptions
from .restore.restore import refuse_half_loaded


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
