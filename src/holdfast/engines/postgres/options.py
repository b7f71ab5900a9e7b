"""Settings of the PostgreSQL engine."""

from __future__ import annotations

from holdfast.engines.contract import EngineOptions
from holdfast.model.errors import InvalidInput
from holdfast.model.job import check_seconds, check_size
from holdfast.model.schema_name import DEFAULT_PROJECTION_SCHEMA, DEFAULT_SCHEMA, check_schema

from .errors import check_url

MAX_CONNECTIONS = 1_000


class PostgresOptions(EngineOptions, frozen=True, kw_only=True):
    """The options of every engine, and those of the connection to the server."""

    schema: str = DEFAULT_SCHEMA
    projection_schema: str = DEFAULT_PROJECTION_SCHEMA
    """Where the tables and views of projections are."""
    max_connections: int = 8
    """The most connections of one process, besides one that listens and four for read models."""
    statement_timeout_seconds: float = 30.0
    """How long a statement may take before it is cancelled."""
    patience_seconds: float = 5.0
    """How long a call is retried while the server cannot be reached."""
    poll_interval_seconds: float = 1.0
    """How often a waiting claim looks for work without a notification."""
    listen: bool = True
    """Whether to listen for notifications of new work; without, only polling finds it."""
    listen_url: str | None = None
    """Where to listen, if notifications do not come through the store's own URL."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_schema("schema", self.schema)
        check_schema("projection_schema", self.projection_schema)
        check_size("max_connections", self.max_connections, 1, MAX_CONNECTIONS)
        for field in ("statement_timeout_seconds", "patience_seconds", "poll_interval_seconds"):
            check_seconds(field, getattr(self, field), 86_400)
        if type(self.listen) is not bool:
            raise InvalidInput("listen", f"{self.listen!r} is not true or false")
        if self.listen_url is not None:
            check_url(self.listen_url, "listen_url")
