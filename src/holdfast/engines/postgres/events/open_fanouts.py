"""Transactions that may still commit an event of an earlier version of the subscriptions.

An append uses the subscriptions of its snapshot. So a transaction that began before a subscription
may commit an event without a job for it much later. What is filled from the stored events is
complete only when no such transaction is left.
"""

from __future__ import annotations

from holdfast.engines.postgres.connection.sansio import SansIO, execute


def open_fanouts(version: int) -> SansIO[list[str]]:
    """Return what is still open that may use a version before this one, a sentence each.

    First nobody may have a snapshot from before it. Who had one, and stored something, has a
    transaction id by then; so afterwards all transactions with an earlier id must have ended. Each
    statement looks with a snapshot of its own, in this order.
    """
    yield from execute("lock_keys", names=[f"fanout/{version}"])
    found = yield from execute("find_fanout_mark", version=version)
    if not found:
        return []  # they have ended already
    [[_made_by, ends_at]] = found
    if ends_at is None:
        snapshots = yield from execute("find_old_snapshots", version=version)
        if snapshots:
            return [text for (text,) in snapshots]
        yield from execute("end_fanout_mark", version=version)
    transactions = yield from execute("find_old_transactions", version=version)
    if not transactions:
        yield from execute("drop_fanout_mark", version=version)
    return [text for (text,) in transactions]
