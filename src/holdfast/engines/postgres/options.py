"""Settings of the PostgreSQL engine."""

from __future__ import annotations

from holdfast.engines.contract import EngineOptions
from holdfast.model.errors import InvalidInput
from holdfast.model.job import check_seconds, check_size
from holdfast.model.schema_name import DEFAULT_SCHEMA, check_schema

from .errors import check_url

MOST_CONNECTIONS = 1_000


class PostgresOptions(EngineOptions, frozen=True, kw_only=True):
    """Those of every engine, and how to use the server."""

    schema: str = DEFAULT_SCHEMA
    max_connections: int = 8
    """The most that one process opens, besides one that listens."""
    statement_timeout_seconds: float = 30.0
    """How long a statement may take before it is given up."""
    patience_seconds: float = 5.0
    """How long a call is tried again while the server cannot be reached."""
    poll_interval_seconds: float = 1.0
    """How often who waits for work looks for it without being told."""
    listen: bool = True
    """Whether to be told of new work by NOTIFY; without, only polling finds it."""
    listen_url: str | None = None
    """Where to listen, if notifications do not come through where everything else goes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_schema("schema", self.schema)
        check_size("max_connections", self.max_connections, 1, MOST_CONNECTIONS)
        for field in ("statement_timeout_seconds", "patience_seconds", "poll_interval_seconds"):
            check_seconds(field, getattr(self, field), 86_400)
        if type(self.listen) is not bool:
            raise InvalidInput("listen", f"{self.listen!r} is not true or false")
        if self.listen_url is not None:
            check_url(self.listen_url, "listen_url")
