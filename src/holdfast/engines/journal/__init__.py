"""The journal: the embedded engine. State in memory, every change in an append-only log.

frames      how bytes are laid out and checked
disk        the only module that touches the operating system's files
segments    the log as a row of preallocated files
commit      group commit: one flush in the air, answers when it lands
lanes       pending jobs in order
ties        what holds jobs up: keys, and jobs that wait for others
gates       what the policies of queues let through
index       what is in memory, folded from effects
state       the questions asked of it
cold        finished work and history, in SQLite
snapshot    the state as one file
recovery    from files to state, and the verdict on damage
opening     a directory made ready to go on
compaction  a new snapshot, made by another process
doctor      verify, dump, salvage
engine      ties them together
reader      an engine that only looks, while nobody owns the directory
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import JournalEngine
    from .options import History, JournalOptions

__all__ = ["History", "JournalEngine", "JournalOptions"]

_HOMES = {"History": "options", "JournalEngine": "engine", "JournalOptions": "options"}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is: whoever reads one file needs not all of this."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
