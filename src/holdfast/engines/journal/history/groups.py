"""Groups of dead letters: from the counts that the store keeps, or counted from its rows."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from holdfast.model.failure import FailureClass
from holdfast.model.failure_groups import sorted_groups, trend_of, trend_since_us
from holdfast.model.group_life import GroupKey, group_id
from holdfast.model.search import HOUR_US, FailureGroup

from .rows import original
from .statements import Value, as_json, ask, composed, statement
from .where_clause import WhereClause


class _StoredGroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The counts of one kind and shape."""

    kind: int
    shape: int
    queue: str
    task: str
    error_reason: str
    status: int
    fingerprint: str
    failure_class: FailureClass
    count: int
    first_at_us: int
    last_at_us: int
    tenants: int
    scopes: int
    hours: list[tuple[int, int]]


class _CountedPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The rows of one group, tenant, scope and hour."""

    queue: str
    task: str
    error_reason: str
    status: int
    fingerprint: str
    failure_class: FailureClass
    tenant: str
    scope: str
    hour_us: int
    count: int
    first_at_us: int
    last_at_us: int


_STORED = msgspec.json.Decoder(list[_StoredGroup])
_COUNTED = msgspec.json.Decoder(list[_CountedPart])
_SCOPES = msgspec.json.Decoder(list[tuple[str, str]])


def stored_groups(
    connection: sqlite3.Connection, conditions: WhereClause, now_us: int
) -> list[FailureGroup]:
    """Return whole groups, from the counts that are kept: no row of the dead is read."""
    values = {**conditions.values, "since_us": trend_since_us(now_us)}
    found = _STORED.decode(ask(connection, composed("find_groups", conditions.where), values))
    alike: defaultdict[GroupKey, list[_StoredGroup]] = defaultdict(list)
    for one in found:
        alike[_key(one)].append(one)
    groups: list[FailureGroup] = []
    for key, some in alike.items():
        tenants, scopes = some[0].tenants, some[0].scopes
        if len(some) > 1:  # of several classes: one tenant may be hit by each
            hit = _scopes_hit(connection, some)
            tenants, scopes = len({tenant for tenant, _scope in hit}), len(hit)
        hours = [hour for one in some for hour in one.hours]
        groups.append(_group(key, some, tenants, scopes, trend_of(hours, now_us)))
    return sorted_groups(groups)


def counted_groups(
    connection: sqlite3.Connection, conditions: WhereClause, now_us: int
) -> list[FailureGroup]:
    """Return groups of the rows that meet these conditions, counted now."""
    values = {**conditions.values, "hour_us": HOUR_US}
    sql = composed("find_groups_by_row", conditions.where)
    alike: defaultdict[GroupKey, list[_CountedPart]] = defaultdict(list)
    for part in _COUNTED.decode(ask(connection, sql, values)):
        alike[_key(part)].append(part)
    return sorted_groups(
        _group(
            key,
            parts,
            len({part.tenant for part in parts}),
            len({(part.tenant, part.scope) for part in parts}),
            trend_of([(part.hour_us, part.count) for part in parts], now_us),
        )
        for key, parts in alike.items()
    )


def _scopes_hit(
    connection: sqlite3.Connection, some: Sequence[_StoredGroup]
) -> set[tuple[str, str]]:
    values: dict[str, Value | bytes] = {
        "kinds": as_json([one.kind for one in some]),
        "shape": some[0].shape,
    }
    return set(_SCOPES.decode(ask(connection, statement("find_group_scopes"), values)))


def _key(one: _StoredGroup | _CountedPart) -> GroupKey:
    reason, shape = original(one.error_reason), original(one.fingerprint)
    return GroupKey(one.queue, one.task, reason, one.status, shape)


def _group(
    key: GroupKey,
    parts: Sequence[_StoredGroup] | Sequence[_CountedPart],
    tenants: int,
    scopes: int,
    trend: tuple[int, ...],
) -> FailureGroup:
    return FailureGroup(
        id=group_id(key),
        queue=key.queue,
        task=key.task,
        error_reason=key.error_reason,
        status=key.status or None,
        failure_class=min(part.failure_class for part in parts),
        fingerprint=key.fingerprint,
        count=sum(part.count for part in parts),
        first_at_us=min(part.first_at_us for part in parts),
        last_at_us=max(part.last_at_us for part in parts),
        tenants=tenants,
        scopes=scopes,
        trend=trend,
    )
