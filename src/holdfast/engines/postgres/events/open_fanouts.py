"""Transactions that may still commit an event of an earlier version of the subscriptions.

An append uses the subscriptions of its snapshot. So a transaction that began before a subscription
may commit an event without a job for it much later. What is filled from the stored events is
complete only when no such transaction is left.
"""

from __future__ import annotations

from holdfast.engines.postgres.connection.sansio import SansIO, execute


def open_snapshots(version: int) -> SansIO[list[str]]:
    """Return who has a snapshot from before this version; the first step, in a transaction alone.

    If nobody has, everybody who had one and stored something has a transaction id by now, and the
    id of this transaction is higher: it is remembered.
    """
    yield from execute("lock_keys", names=[f"fanout/{version}"])
    found = yield from execute("find_fanout_mark", version=version)
    if not found or found[0][0] is not None:
        return []
    snapshots = yield from execute("find_old_snapshots", version=version)
    if not snapshots:
        yield from execute("end_fanout_mark", version=version)
    return [text for (text,) in snapshots]


def open_transactions(version: int) -> SansIO[list[str]]:
    """Return the transactions from before that moment; the second step, after its commit.

    Only then a snapshot lists all of them: it knows those below the highest that has ended.
    """
    found = yield from execute("find_old_transactions", version=version)
    if not found:
        yield from execute("drop_fanout_mark", version=version)
    return [text for (text,) in found]
