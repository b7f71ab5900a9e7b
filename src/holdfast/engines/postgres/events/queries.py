"""Reading events, and checking that each has its jobs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, execute
from holdfast.engines.postgres.rows import reach
from holdfast.model.access import Caller
from holdfast.model.errors import InvalidInput
from holdfast.model.event import Event
from holdfast.model.event_search import EventFilter

from . import rows


def find_events(
    wanted: EventFilter, after: int | None, limit: int, caller: Caller, *, newest: bool
) -> SansIO[list[Event]]:
    """Return the first events beyond this position."""
    statement = f"find_events position {'DESC' if newest else 'ASC'}"
    found = yield from execute(
        statement, **rows.conditions(wanted), **reach(caller), after=after, limit=limit
    )
    return [rows.event_of(row) for row in found]


def count_events(wanted: EventFilter, caller: Caller) -> SansIO[int]:
    """Count the events that a filter finds."""
    [[count]] = yield from execute("count_events", **rows.conditions(wanted), **reach(caller))
    return int(count)


class MissingJob(NamedTuple):
    """A job that an event should have, and has not."""

    tenant: str
    event_id: str
    subscription: str


class JobAudit(NamedTuple):
    """Jobs that are missing; ``mark`` is where the next audit goes on, ``events`` were checked."""

    missing: Sequence[MissingJob]
    events: int
    mark: str


def check_mark(mark: str) -> None:
    """Raise ``InvalidInput`` if this is not the mark of an audit."""
    if not re.fullmatch("[0-9]{1,19}", str(mark)) or type(mark) is not str:
        raise InvalidInput("mark", f"{mark!r} is not from an audit")


def missing_jobs(mark: str, limit: int, context: CallContext) -> SansIO[JobAudit]:
    """Compare events with their jobs; see ``PostgresEngine.missing_jobs``."""
    found = yield from execute(
        "find_missing_jobs",
        mark=mark or None,
        limit=limit,
        now_us=context.now_us,
        remember_us=context.remember_us,
    )
    [new_mark, events] = found[0][:2]
    missing = [MissingJob(*row[2:]) for row in found if row[2] is not None]
    # A list that was cut begins again at the old mark.
    return JobAudit(missing, events, mark if len(missing) == limit else new_mark)
