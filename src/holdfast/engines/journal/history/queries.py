"""Queries on the store: pages, groups and histories.

Every statement returns one JSON text, see ``statements.ask``, and runs inside a read transaction,
so that a job that moves from one table to another meanwhile is seen once.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import NamedTuple

import msgspec

from holdfast.model.access import Caller
from holdfast.model.failure_groups import group_dead_jobs
from holdfast.model.history import AttemptRecord, Note, completing_attempt
from holdfast.model.job import Job, State
from holdfast.model.search import MAX_PAGE, FailureGroup, Filter, Order, Place, place_of

from .database import has_more_orders
from .groups import counted_groups, stored_groups
from .rows import (
    ATTEMPTS,
    DEAD,
    DEAD_BODIES,
    DONE,
    DONE_BODIES,
    NOTES,
    BodyReader,
    only,
    storable,
)
from .statements import Value, ask, bound, composed, statement
from .where_clause import (
    WhereClause,
    on_dead,
    on_done,
    on_kinds,
    only_storable,
)

MERGE_MOST = 50_000
"""How many rows may be merged, kind by kind, to find the first few of all."""
SORT_MOST = 10_000
"""How many rows may be sorted rather than looking for them among all, in the wanted order."""
MOSTLY = 4
"""Search a text in every row if an index would still visit at least one row in so many. By number
of attempts, read all rows of a tenant unless it has at least one in so many."""

_IN_ORDER = {
    Order.FINISHED: "find_dead_by_finish",
    Order.LAST_FINISHED: "find_dead_by_finish",
    Order.ATTEMPTS: "find_dead_by_attempt",
}
BY_CREATION = frozenset({Order.CREATED, Order.NEWEST})

_COUNTS = msgspec.json.Decoder(list[tuple[int, int]])


class ReadSnapshot(NamedTuple):
    """A connection in a read transaction, the file's name, and what is forgotten."""

    connection: sqlite3.Connection
    file: str
    forget_before_us: int


class PageQuery(NamedTuple):
    """The query of a page."""

    filter: Filter
    caller: Caller
    limit: int
    order: Order


def find(source: ReadSnapshot, wanted: PageQuery, after: Place | None) -> list[Job]:
    """Return the first matching jobs after this place, or the last before it."""
    storable_part = only_storable(wanted.filter, wanted.caller)
    if storable_part is None:
        return []
    wanted = wanted._replace(filter=storable_part)
    found: list[Job] = []
    done = on_done(wanted.filter, wanted.caller, source.forget_before_us)
    if done is not None:
        name = _statement_for_done(wanted, done)
        found += _page(source, wanted, after, name, done, DONE_BODIES)
    dead = on_dead(wanted.filter, wanted.caller, _shape(source, wanted.filter))
    if dead is not None:
        path = _statement_for_dead(source, wanted, dead)
        if path is not None:
            found += _page(source, wanted, after, path, dead, DEAD_BODIES)
    return _sorted(found, wanted.order)[: wanted.limit]


def _page(
    source: ReadSnapshot,
    wanted: PageQuery,
    after: Place | None,
    path: str,
    conditions: WhereClause,
    bodies: BodyReader[Job],
) -> list[Job]:
    found: list[Job] = []
    limit, order = wanted.limit if conditions.exact else MAX_PAGE, wanted.order
    while True:
        further = conditions.after(after, order)
        sql = composed(path, further.where, order.field, "DESC" if order.descending else "ASC")
        answer = ask(source.connection, sql, {**further.values, "limit": limit})
        jobs = _sorted(only(bodies.read(answer, source.file)), order)
        found += jobs if conditions.exact else filter(wanted.filter.matches, jobs)
        if conditions.exact or len(jobs) < limit or len(found) >= wanted.limit:
            return found
        after = place_of(jobs[-1], order)


def _sorted(jobs: list[Job], order: Order) -> list[Job]:
    return sorted(jobs, key=partial(place_of, order=order), reverse=order.descending)


def _shape(source: ReadSnapshot, wanted: Filter) -> int | None:
    if wanted.fingerprint is None:
        return None
    values = {"fingerprint": storable(wanted.fingerprint)}
    rows: list[tuple[int]] = source.connection.execute(statement("find_shape"), values).fetchall()
    return rows[0][0] if rows else None


def _statement_for_done(wanted: PageQuery, conditions: WhereClause) -> str:
    if wanted.filter.ids:
        return "find_done_by_name"
    if conditions.values.get("state") is State.CANCELLED:
        return "find_done_cancelled"
    return "find_done_by_place" if wanted.order in BY_CREATION else "find_done_by_row"


def _statement_for_dead(
    source: ReadSnapshot, wanted: PageQuery, conditions: WhereClause
) -> str | None:
    """Choose a statement for the dead table, and complete the conditions; None if none matches.

    The choice is between all rows in order, those of one tenant in order, the first few of each
    kind, those of some ids, and every row of the table in any order. In an order that is not by
    creation: all rows in that order, or a few that are sorted.
    """
    tenant = wanted.caller.tenant or wanted.filter.tenant
    in_all, of_tenant = source.connection.execute(
        statement("count_rows"), {"tenant": tenant}
    ).fetchall()[0]
    fewest = of_tenant if tenant is not None else in_all
    path = "find_dead_by_place" if tenant is None else "find_dead_by_tenant"
    if wanted.order not in BY_CREATION and (tenant is None or of_tenant > SORT_MOST):
        indexed = has_more_orders(source.connection)
        path = _IN_ORDER[wanted.order] if indexed else "find_dead_by_text"
        if path == "find_dead_by_attempt" and tenant and of_tenant * MOSTLY <= in_all:
            path = "find_dead_by_attempt_of_tenant"
    asked = on_kinds(wanted.filter)
    kinds: list[tuple[int, int]] = []
    if asked is not None:
        found = ask(source.connection, composed("find_kinds", asked.where), asked.values)
        kinds = _COUNTS.decode(found)
        if not kinds:
            return None
        of_kinds = sum(count for _kind, count in kinds)
        merged = sum(min(count, wanted.limit) for _kind, count in kinds)
        few = wanted.order in BY_CREATION or of_kinds <= SORT_MOST
        if few and of_kinds <= fewest and merged <= MERGE_MOST:
            fewest, path = of_kinds, "find_dead_by_kind"
    if wanted.filter.ids:
        path = "find_dead_by_name"
    elif wanted.filter.text and fewest * MOSTLY >= in_all:
        path = "find_dead_by_text"
    if kinds:
        # By kind, the statement itself selects them.
        numbers = [kind for kind, _count in kinds]
        conditions.add_kinds(numbers, bound_only=path == "find_dead_by_kind")
    return path


def count(source: ReadSnapshot, wanted: Filter, caller: Caller, most: int) -> int:
    """Count the matching jobs, up to this many."""
    storable_part = only_storable(wanted, caller)
    if storable_part is None:
        return 0
    wanted = storable_part
    found = 0
    done = on_done(wanted, caller, source.forget_before_us)
    dead = on_dead(wanted, caller, _shape(source, wanted))
    if dead is not None:
        asked = on_kinds(wanted)
        if asked is not None:
            kinds = ask(source.connection, composed("find_kinds", asked.where), asked.values)
            dead.add_kinds([kind for kind, _count in _COUNTS.decode(kinds)])
    for states, table, conditions in ((DEAD, "dead", dead), (DONE, "done", done)):
        if conditions is None or found >= most:
            continue
        if not conditions.exact:
            listed = tuple(state for state in wanted.states or State if state in states)
            of_table = msgspec.structs.replace(wanted, states=listed)
            found += _count_by_page(source, of_table, caller, most - found)
            continue
        indexed = _index_to_count(source, wanted, caller, conditions) if table == "dead" else ""
        sql = composed(f"count_matching_{table}", conditions.where, indexed=indexed)
        values = bound({**conditions.values, "limit": most - found})
        found += source.connection.execute(sql, values).fetchall()[0][0]
    return found


def _index_to_count(
    source: ReadSnapshot, wanted: Filter, caller: Caller, conditions: WhereClause
) -> str:
    """Return the clause for the index that has fewest entries to look at, and all that is asked."""
    if wanted.ids:
        return "INDEXED BY dead_by_name"
    if wanted.text:
        return "NOT INDEXED"
    if "kinds" in conditions.values:
        return "INDEXED BY dead_by_kind"
    if caller.tenant or wanted.tenant:
        return "INDEXED BY dead_by_tenant"
    by_creation = wanted.created_from_us is not None or wanted.created_to_us is not None
    if by_creation or not has_more_orders(source.connection):
        return "INDEXED BY dead_by_place"
    return "INDEXED BY dead_by_finish"


def _count_by_page(source: ReadSnapshot, wanted: Filter, caller: Caller, most: int) -> int:
    found = 0
    after: Place | None = None
    while found < most:
        page = find(source, PageQuery(wanted, caller, MAX_PAGE, Order.CREATED), after)
        found += len(page)
        if len(page) < MAX_PAGE:
            break
        after = place_of(page[-1])
    return min(found, most)


def groups(source: ReadSnapshot, wanted: Filter, caller: Caller, now_us: int) -> list[FailureGroup]:
    """Return the dead letters in groups at this time, largest first."""
    storable_part = only_storable(wanted, caller)
    if storable_part is None or (wanted.states and State.DEAD not in wanted.states):
        return []
    wanted = storable_part
    shape = _shape(source, wanted)
    conditions = on_dead(wanted, caller, shape)
    if conditions is None:
        return []
    if not conditions.exact:
        return group_dead_jobs(_every_dead(source, wanted, caller), now_us)
    asked = on_kinds(wanted)
    if _selects_whole_groups(wanted, caller):
        whole = asked or WhereClause()
        if shape is not None:
            whole.add("group_shape", shape, "shape")
        return stored_groups(source.connection, whole, now_us)
    if asked is not None:
        found = ask(source.connection, composed("find_kinds", asked.where), asked.values)
        conditions.add_kinds([kind for kind, _count in _COUNTS.decode(found)])
    return counted_groups(source.connection, conditions, now_us)


def _selects_whole_groups(wanted: Filter, caller: Caller) -> bool:
    """Whether the filter uses only what all members of a group have in common."""
    common = Filter(
        queues=wanted.queues,
        tasks=wanted.tasks,
        error_reasons=wanted.error_reasons,
        classes=wanted.classes,
        statuses=wanted.statuses,
        fingerprint=wanted.fingerprint,
        states=wanted.states,
    )
    return caller.unlimited and wanted == common


def _every_dead(source: ReadSnapshot, wanted: Filter, caller: Caller) -> list[Job]:
    """Return every matching dead job, a page at a time."""
    dead = msgspec.structs.replace(wanted, states=(State.DEAD,))
    found: list[Job] = []
    while True:
        after = place_of(found[-1]) if found else None
        page = find(source, PageQuery(dead, caller, MAX_PAGE, Order.CREATED), after)
        found += page
        if len(page) < MAX_PAGE:
            return found


def history(
    connection: sqlite3.Connection, file: str, job: Job
) -> tuple[list[AttemptRecord], list[Note]]:
    """Return the attempts and notes of a job, oldest first."""
    values: dict[str, Value | bytes] = {
        "tenant": job.tenant,
        "id": job.id,
        "created_at_us": job.created_at_us,
    }
    attempts = only(ATTEMPTS.read(ask(connection, statement("read_attempts"), values), file))
    notes = only(NOTES.read(ask(connection, statement("read_notes"), values), file))
    # The completing attempt has no row: everything about it is in the job.
    last = completing_attempt(job)
    if last is not None:
        attempts.append(last)
    return attempts, notes
