"""Conflicts with other transactions: how long a verb is tried again."""

from __future__ import annotations

from psycopg import errors as pg

from holdfast.engines.clock import monotonic
from holdfast.engines.postgres.errors import lock_held
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.errors import Unavailable

MAX_TRIES = 20
"""How often a verb is tried when it conflicts with other transactions."""


class Conflicts:
    """The conflicts of one call."""

    def __init__(self, url: str, options: PostgresOptions) -> None:
        self._url = url
        self._tries = 0
        self._wait_until = monotonic() + options.statement_timeout_seconds

    def add(self, error: Exception) -> None:
        """Count a conflict; raise ``Unavailable`` if it was one too many.

        A lock is waited for no longer than a statement may take, all tries together.
        """
        self._tries += 1
        held = isinstance(error, pg.LockNotAvailable)
        if self._tries < MAX_TRIES and not (held and monotonic() >= self._wait_until):
            return
        if held:
            raise lock_held(self._url) from error
        raise Unavailable(
            f"conflicts with other transactions, {self._tries} times: try again"
        ) from error
