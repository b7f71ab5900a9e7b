"""The journal: the embedded engine. State in memory, every change in an append-only log.

frames      how bytes are laid out and checked
disk        the only module that touches the operating system's files
segments    the log as a row of preallocated files
commit      group commit: one flush in the air, answers when it lands
lanes       pending jobs in order
state       everything that is kept, folded from effects
snapshot    the state as one file
recovery    from files to state, and the verdict on damage
compaction  a new snapshot, made by another process
doctor      verify, dump, salvage
engine      ties them together
"""

from .engine import JournalEngine, JournalOptions

__all__ = ["JournalEngine", "JournalOptions"]
