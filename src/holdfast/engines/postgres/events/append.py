"""Append: events and their jobs in one statement, under a lock for each key.

The lock keeps the order of a key until the end of the transaction, which may be the caller's, and
open for long. It is none that a claim or a settle takes: the jobs are lined up after the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.engines.argument_checks import check_access
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, Statement, execute, execute_all
from holdfast.engines.postgres.rows import reach
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.errors import DuplicateId, EventConflict, Unavailable
from holdfast.model.event import (
    Event,
    EventReceipt,
    NewEvent,
    accept_event,
    check_event_id,
    same_event,
)

from . import rows

Name = tuple[str, str]
"""An event's tenant and id."""


class Appended(NamedTuple):
    """The receipts, the queues that may have new jobs, and how many these are."""

    receipts: list[EventReceipt]
    queues: list[str]
    jobs: int


class AppendRequest:
    """One call of append, checked; the ids stay the same however often it is tried."""

    def __init__(
        self, news: Sequence[NewEvent], caller: Caller, ids: Sequence[str], now_us: int
    ) -> None:
        """Take as many fresh ids as there are events. Raise what is wrong with one."""
        fresh = iter(ids)
        self.names: list[Name] = []
        """The name of each event of the call."""
        self.events: dict[Name, Event] = {}
        """The events, each once."""
        self._timed: set[Name] = set()
        self._sent: set[tuple[Name, int]] = set()
        for new in news:
            event_id = next(fresh) if new.id is None else check_event_id(new.id)
            event = accept_event(new, event_id, now_us, 0, 0)
            if not caller.unlimited:
                check_access(event.tenant, event.scope, caller)
            name = event.tenant, event_id
            timed = new.occurred_at_us is not None
            first = self.events.setdefault(name, event)
            if first is event:
                self._timed |= {name} if timed else set()
            elif not same_event(first, event, with_time=timed):
                raise EventConflict(event_id)
            self.names.append(name)

    def statements(self, context: CallContext) -> list[Statement]:
        """Return the statements that lock the keys and store what is new."""
        events = list(self.events.values())
        locks = {f"append/{event.tenant}/{event.key}" for event in events}
        times = [
            event.occurred_at_us if name in self._timed else None
            for name, event in self.events.items()
        ]
        stored = {
            **rows.columns(events),
            "occurred_at_us": times,
            "now_us": context.now_us,
            "created_us": context.created_us,
        }
        notified = {
            "event_types": sorted({event.event_type for event in events}),
            "at_commit": context.joined,
            "channel": context.channel,
            "now_us": context.now_us,
        }
        return [
            Statement("lock_keys", {"names": sorted(locks)}),
            Statement("append_events", stored),
            Statement("notify_subscribers", notified),
        ]

    def sent(self, positions: dict[Name, int]) -> None:
        """Remember positions that a try has stored: its reply may be lost."""
        self._sent.update(positions.items())

    def receipts(self, positions: dict[Name, int], known: dict[Name, Event]) -> list[EventReceipt]:
        """Return the answer; raise ``EventConflict`` if a known event says something else."""
        for name, event in self.events.items():
            stored = known.get(name)
            if stored is not None and not same_event(stored, event, with_time=name in self._timed):
                raise EventConflict(event.id)
        receipts: list[EventReceipt] = []
        seen: set[Name] = set()
        for name in self.names:
            before = known.get(name)
            position = positions[name] if before is None else before.position
            created = name not in seen and (before is None or (name, position) in self._sent)
            receipts.append(EventReceipt(name[1], position, created))
            seen.add(name)
        return receipts


def append(request: AppendRequest, context: CallContext) -> SansIO[Appended]:
    """Store events and their jobs; see ``Engine.append``."""
    if not request.events:
        return Appended([], [], 0)
    [_locks, stored, queues] = yield from execute_all(*request.statements(context))
    positions = {(tenant, event_id): position for tenant, event_id, position, *_jobs in stored}
    known: dict[Name, Event] = {}
    if len(positions) < len(request.events):
        known = yield from get_events([one for one in request.events if one not in positions])
        if len(positions) + len(known) < len(request.events):
            raise Unavailable("an event was deleted while it was appended again: try again")
    receipts = request.receipts(positions, known)
    if stored and (taken := stored[0][4]) is not None:
        raise DuplicateId(sorted(taken))  # of jobs that somebody gave these ids
    request.sent(positions)
    jobs = stored[0][3] if stored else 0
    return Appended(receipts, [queue for queue, _sent in queues] if jobs else [], jobs)


def get_events(names: Sequence[Name], caller: Caller = SYSTEM) -> SansIO[dict[Name, Event]]:
    """Return those of these events that exist and that the caller reaches."""
    found = yield from execute("get_events", **rows.names(names), **reach(caller))
    events = map(rows.event_of, found)
    return {(event.tenant, event.id): event for event in events}
