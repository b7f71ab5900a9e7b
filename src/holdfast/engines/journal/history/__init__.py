"""The journal's cold store: finished work and history in one SQLite file, fed from the log.

``statements`` (the SQL) ← ``rows`` (what is stored) ← ``changes`` (what a batch changes) and
``ledger`` (what is counted) ← ``writing``; ``conditions`` ← ``reading``; ``opening``; all of them
← ``store`` (synchronous) ← ``past`` (on the event loop). ``checking`` recounts everything.
"""

from .check import verify
from .database import set_aside
from .feed import HistoryFeed
from .store import SqliteHistory

__all__ = ["HistoryFeed", "SqliteHistory", "set_aside", "verify"]
