"""A PostgreSQL of one's own that keeps its word when the power fails, and databases on it."""

import contextlib
from collections.abc import Iterator
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast.engines.postgres.schema.migrate import migrate
from tests.engines.postgres.servers import Databases, Server

SETTINGS = (
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "shared_buffers=256MB",
    "max_wal_size=4GB",
    "min_wal_size=2GB",
)
"""Durable; no checkpoint in the middle of a short measurement; and log files are used again, as on
any server that has run for a while: to make a new one takes 50 ms, every 16 MB."""
_LOG_MB = 2_048


class Durable:
    """A running server."""

    def __init__(self, running: Server) -> None:
        self._ours = Databases(running.url, "ours")
        migrate(self._ours.url(self._ours.template))
        self._empty = Databases(running.url, "peer")

    def close(self) -> None:
        """Let go of the server."""
        self._ours.close()
        self._empty.close()

    def with_our_tables(self) -> contextlib.AbstractContextManager[str]:
        """Make a database for Holdfast; yield its URL; drop it."""
        return _by_url(self._ours)

    def empty(self) -> contextlib.AbstractContextManager[str]:
        """Make an empty database; yield its URL; drop it."""
        return _by_url(self._empty)


@contextlib.contextmanager
def durable() -> Iterator[Durable]:
    """Run a server on the disk that temporary files are on."""
    running = Server(18, SETTINGS)
    try:
        running.start()
        with psycopg.connect(running.url) as connection:
            for setting in SETTINGS[:3]:
                name, value = setting.split("=")
                row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
                assert row == (value,), (setting, row)
            connection.execute(
                "SELECT count(pg_logical_emit_message(false, 'bench', repeat('-', 1 << 20)))"
                " FROM generate_series(1, %s)",
                [_LOG_MB],
            )
            connection.execute("CHECKPOINT")
        made = Durable(running)
        yield made
        made.close()
    finally:
        running.remove()


@contextlib.contextmanager
def _by_url(databases: Databases) -> Iterator[str]:
    with databases.fresh() as told:
        parts = conninfo_to_dict(told)
        host = quote(str(parts["host"]), safe="")
        yield f"postgresql://{parts['user']}@/{parts['dbname']}?host={host}"
