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
"""

from .engine import JournalEngine
from .options import History, JournalOptions

__all__ = ["History", "JournalEngine", "JournalOptions"]
