"""Which topics have changed; see ``model.change_feed``."""

from __future__ import annotations

from holdfast.engines.postgres.connection.sansio import SansIO, execute
from holdfast.model.change_feed import MAX_TOPICS, ChangeMarks, TopicMark

_FEED = "postgresql"
"""Marks are made from what is stored: those of any process compare."""


def changes() -> SansIO[ChangeMarks]:
    """Return a mark for every topic."""
    found = yield from execute("list_changes", limit=MAX_TOPICS)
    return ChangeMarks(_FEED, [TopicMark(*row) for row in found])
