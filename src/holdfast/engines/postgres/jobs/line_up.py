"""Lining up: keyed jobs that came in a transaction of the caller's become claimable afterwards.

Who makes the head of a key claimable holds the lock of that key, as every settle does. A
transaction of the caller's may stay open for long, so it must not have that lock: it leaves a mark,
and the first claim after its commit does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, Statement, execute, execute_all

from .unit_of_work import Key, key_columns, lock_keys, promote_key_heads

KEYS_AT_ONCE = 1_000
"""How many keys are lined up in one transaction: each is a lock."""


class LinedUp(NamedTuple):
    """How many marks were taken, and of which queues."""

    marks: int
    queues: list[str]


def lock_order(keys: Sequence[Key]) -> list[Statement]:
    """Return the statements that keep other transactions of callers from adding to these keys."""
    if not keys:
        return []
    return [Statement("lock_keys", {"names": ["/".join(("enqueue", *key)) for key in keys]})]


def mark_fresh(keys: Sequence[Key]) -> list[Statement]:
    """Return the statements that have these keys lined up after the commit."""
    return [Statement("mark_fresh_keys", key_columns(keys))] if keys else []


def line_up(queues: Sequence[str] | None, after: int, context: CallContext) -> SansIO[LinedUp]:
    """Make the heads of some fresh keys beyond a place claimable; others take others."""
    wanted = None if queues is None else list(queues)
    found = yield from execute("take_fresh_keys", queues=wanted, after=after, limit=KEYS_AT_ONCE)
    keys: list[Key] = list(dict.fromkeys((tenant, queue, key) for tenant, queue, key in found))
    changed = sorted({queue for _tenant, queue, _key in keys})
    if keys:
        yield from execute_all(
            *lock_keys(keys),
            *promote_key_heads(keys),
            Statement("promote_unordered", key_columns(keys)),
            context.notify(changed),
        )
    return LinedUp(len(found), changed)
