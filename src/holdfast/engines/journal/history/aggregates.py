"""Counts in the store: tallies, kinds, and groups of dead letters.

They are updated by differences in the same transaction, so that reading them never scans every
job. ``AggregateChanges`` holds the differences of one batch; ``write`` stores them.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.model.job import MAX_TIME_US, Job, State
from holdfast.model.search import HOUR_US

from .rows import Kind, kind_of, shape_of
from .statements import as_json, ask, run, statement

MOST_REMEMBERED = 20_000
GroupNumbers = tuple[int, int]
"""Kind and shape."""

_PAIRS = msgspec.json.Decoder(list[tuple[int, int]])
_LEFT = msgspec.json.Decoder(list[tuple[int, str, str, str, str, int, int, int, str]])


class RemovedDeadJob(NamedTuple):
    """A row that leaves the dead table, with everything that is counted of it."""

    seq: int
    tenant: str
    scope: str
    queue: str
    state: str
    kind: int
    shape: int
    finished_at_us: int
    failure_class: str


def read_left(found: bytes) -> list[RemovedDeadJob]:
    """Return the rows that a statement found."""
    return [RemovedDeadJob(*row) for row in _LEFT.decode(found)]


class InternedNames:
    """The numbers of kinds and shapes, cached."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, int] = {}
        self._shapes: dict[str, int] = {}

    def forget(self) -> None:
        """Clear the cache: its numbers may come from a transaction that was rolled back."""
        self._kinds.clear()
        self._shapes.clear()

    def of(self, connection: sqlite3.Connection, jobs: Sequence[Job]) -> list[tuple[Job, int, int]]:
        """Return each job with its kind and its shape, new ones with new numbers."""
        if len(self._kinds) + len(self._shapes) > MOST_REMEMBERED:
            self.forget()
        named = [(job, kind_of(job), shape_of(job)) for job in jobs]
        kinds = list(dict.fromkeys(kind for _, kind, _ in named if kind not in self._kinds))
        if kinds:
            self._kinds.update(zip(kinds, _numbered(connection, "kinds", kinds), strict=True))
        shapes = list(dict.fromkeys(shape for *_, shape in named if shape not in self._shapes))
        if shapes:
            self._shapes.update(zip(shapes, _numbered(connection, "shapes", shapes), strict=True))
        return [(job, self._kinds[kind], self._shapes[shape]) for job, kind, shape in named]


def _numbered(
    connection: sqlite3.Connection, table: str, names: list[Kind] | list[str]
) -> list[int]:
    """Return the numbers of these, in order; new ones get a number."""
    values = {table: as_json(names)}
    run(connection, f"intern_{table}", values)
    found = ask(connection, statement(f"look_up_{table}"), values)
    return [number for _at, number in sorted(_PAIRS.decode(found))]


class _GroupChange:
    __slots__ = ("count", "first_at_us", "last_at_us", "left")

    def __init__(self) -> None:
        self.count = 0
        self.first_at_us = MAX_TIME_US
        self.last_at_us = 0
        self.left = False


class AggregateChanges:
    """The differences that one batch makes."""

    def __init__(self) -> None:
        self.tallies: Counter[tuple[str, str, str]] = Counter()
        self._kinds: Counter[int] = Counter()
        self._groups: dict[GroupNumbers, _GroupChange] = {}
        self._tenants: Counter[tuple[int, int, str]] = Counter()
        self._scopes: Counter[tuple[int, int, str, str]] = Counter()
        self._hours: Counter[tuple[int, int, int]] = Counter()

    def enter(self, job: Job, kind: int, shape: int) -> None:
        """Count a job that enters the dead table."""
        self.tallies[job.tenant, job.queue, job.state] += 1
        self._kinds[kind] += 1
        if job.state is State.DEAD and job.failure is not None:
            group = self._group(kind, shape, job.finished_at_us, job.tenant, job.scope, 1)
            group.first_at_us = min(group.first_at_us, job.finished_at_us)
            group.last_at_us = max(group.last_at_us, job.finished_at_us)

    def leave(self, left: RemovedDeadJob) -> None:
        """Count a job that leaves it."""
        self.tallies[left.tenant, left.queue, left.state] -= 1
        self._kinds[left.kind] -= 1
        if left.state == State.DEAD and left.failure_class:
            at_us = left.finished_at_us
            self._group(left.kind, left.shape, at_us, left.tenant, left.scope, -1).left = True

    def _group(
        self, kind: int, shape: int, at_us: int, tenant: str, scope: str, by: int
    ) -> _GroupChange:
        numbers = kind, shape
        group = self._groups.get(numbers)
        if group is None:
            group = self._groups[numbers] = _GroupChange()
        group.count += by
        self._tenants[*numbers, tenant] += by
        self._scopes[*numbers, tenant, scope] += by
        self._hours[*numbers, at_us // HOUR_US * HOUR_US] += by
        return group

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the differences, in the open transaction."""
        write_tallies(connection, self.tallies)
        kinds = [change for change in self._kinds.items() if change[1]]
        if kinds:
            run(connection, "count_kinds", {"changes": as_json(kinds)})
        if not self._groups:
            return
        tenants = _write_hits(connection, "group_tenants", self._tenants)
        scopes = _write_hits(connection, "group_scopes", self._scopes)
        changes = [
            (
                *group,
                change.count,
                change.first_at_us,
                change.last_at_us,
                tenants[group],
                scopes[group],
            )
            for group, change in self._groups.items()
        ]
        run(connection, "count_groups", {"changes": as_json(changes)})
        hours = [(*hour, by) for hour, by in self._hours.items() if by]
        run(connection, "count_group_hours", {"changes": as_json(hours)})
        left = [group for group, change in self._groups.items() if change.left]
        if left:
            values = {"groups": as_json(left)}
            empty = ask(connection, statement("look_up_empty_groups"), values)
            if empty != b"[]":
                for table in ("groups", "group_tenants", "group_scopes"):
                    run(connection, f"drop_{table}", {"groups": empty})
            run(connection, "bound_groups", values)
            run(connection, "drop_empty_group_hours", values)


def write_tallies(
    connection: sqlite3.Connection, tallies: Mapping[tuple[str, str, str], int]
) -> None:
    """Write the differences of the tallies."""
    changes = [(*key, count) for key, count in tallies.items() if count]
    if changes:
        run(connection, "count_tallies", {"changes": as_json(changes)})
        if any(change[-1] < 0 for change in changes):
            run(connection, "drop_empty_tallies")


def _write_hits(
    connection: sqlite3.Connection,
    table: str,
    hits: Mapping[tuple[int, int, str], int] | Mapping[tuple[int, int, str, str], int],
) -> Counter[GroupNumbers]:
    """Write which tenants or scopes each group affects; return how many more than before."""
    changed = [(hit, by) for hit, by in hits.items() if by]
    found = ask(
        connection,
        statement(f"look_up_{table}"),
        {"hits": as_json([hit for hit, _by in changed])},
    )
    before = dict(_PAIRS.decode(found))
    more: Counter[GroupNumbers] = Counter()
    rows: list[tuple[object, ...]] = []
    for at, (hit, by) in enumerate(changed):
        was = before.get(at, 0)
        now = was + by
        more[hit[:2]] += (now > 0) - (was > 0)
        rows.append((*hit, now))
    run(connection, f"write_{table}", {"rows": as_json(rows)})
    return more
