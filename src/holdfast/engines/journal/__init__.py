"""The journal: the embedded engine. State in memory, every change in an append-only log.

engine           ties the parts together, and keeps the contract
wal/             frames, segments, group commit, recovery; ``wal.disk`` alone touches files
state/           what is in memory, folded from effects, with an index per question
snapshots/       the state as one file, written by another process
history/         finished jobs, attempts, notes and the audit in SQLite, fed from the log
readonly_engine  an engine that only reads, while no process owns the directory
doctor           verify, dump and salvage a directory that no process has open
"""
