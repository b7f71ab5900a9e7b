"""Decides the verbs of the event log: appending, and subscriptions.

An append is one commit: the events, then a job for each subscription that wants one. So whoever
sees an event in the log sees its jobs too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from holdfast.engines.argument_checks import check_access
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import Attribution
from holdfast.model.audit_changes import subscription_facts, with_facts
from holdfast.model.effects import (
    Effect,
    Enqueued,
    EventAppended,
    ProjectionSet,
    SubscriptionSet,
)
from holdfast.model.errors import (
    ChangedMeanwhile,
    DuplicateId,
    EventConflict,
    InvalidInput,
    TooLarge,
)
from holdfast.model.event import (
    Event,
    EventReceipt,
    NewEvent,
    accept_event,
    check_event_id,
    same_event,
)
from holdfast.model.ids import RANDOM_BYTES, uuid7s
from holdfast.model.job import check_name
from holdfast.model.projection import ProjectionState
from holdfast.model.record import Record
from holdfast.model.subscription import MAX_SUBSCRIPTIONS, Subscription, admitted_job

from .core import EmbeddedCore
from .event_store import EventName, EventStore


class EventLog:
    """Each method decides on checked arguments and commits; the caller waits until durable."""

    def __init__(self, core: EmbeddedCore, events: EventStore) -> None:
        self._core = core
        self._state = core.state
        self._events = events

    def append(
        self, news: Sequence[NewEvent], caller: Caller, now_us: int, once: Record | None = None
    ) -> list[EventReceipt]:
        """Store these events and their jobs, all or none."""
        with_them = self._core.records.once(once, now_us)
        receipts, events = self._accepted(news, caller, now_us)
        effects: list[Effect] = [EventAppended(now_us, event) for event in events]
        named = {new.id.lower() for new in news if new.id is not None}
        effects += self._jobs(events, named, now_us)
        effects += with_them if events else []
        try:
            self._core.commit(effects, essential=False)
        except TooLarge as error:
            advice = "append them in several calls"
            raise TooLarge("events", error.size, error.limit, advice) from None
        return receipts

    def _accepted(
        self, news: Sequence[NewEvent], caller: Caller, now_us: int
    ) -> tuple[list[EventReceipt], list[Event]]:
        """Return a receipt for each, and those that are new.

        What the store has is compared last: what is wrong with the call itself comes first.
        """
        state = self._state
        fresh_ids = iter(uuid7s(now_us, self._core.random_bytes(RANDOM_BYTES * len(news))))
        given = [None if new.id is None else check_event_id(new.id) for new in news]
        names = [
            (check_name("tenant", new.tenant), event_id)
            for new, event_id in zip(news, given, strict=True)
            if event_id is not None
        ]
        known: dict[EventName, Event] = dict(self._events.known(names)) if names else {}
        sent: dict[EventName, Event] = {}
        receipts: list[EventReceipt] = []
        events: list[Event] = []
        conflicts: list[str] = []
        everything, version = caller.unlimited, state.fanout_version
        for new, given_id in zip(news, given, strict=True):
            event_id = given_id or next(fresh_ids)
            position = state.seq + len(events) + 1
            event = accept_event(new, event_id, now_us, position, version)
            if not everything:
                check_access(event.tenant, event.scope, caller)
            if given_id is None:
                events.append(event)
                receipts.append(EventReceipt(event_id, position))
                continue
            timed = new.occurred_at_us is not None
            name = event.tenant, event_id
            first = sent.setdefault(name, event)
            if first is not event and not same_event(first, event, with_time=timed):
                raise EventConflict(event_id)
            stored = known.get(name)
            created = stored is None and first is event
            if created:
                events.append(event)
            elif first is event and stored and not same_event(stored, event, with_time=timed):
                conflicts.append(event_id)
            receipts.append(EventReceipt(event_id, (stored or first).position, created))
        if conflicts:
            raise EventConflict(conflicts[0])
        return receipts, events

    def _jobs(self, events: Sequence[Event], named: Collection[str], now_us: int) -> list[Enqueued]:
        """Return the jobs of new events, in their order; of one, by subscriptions' names.

        ``named`` are the events whose id the caller gave: a job may have the id of theirs.
        """
        core, state = self._core, self._state
        subscriptions = [state.subscriptions[name] for name in sorted(state.subscriptions)]
        created_us = max(now_us, state.last_created_us + 1)
        seq = state.seq + len(events)
        jobs: list[Enqueued] = []
        for event in events:
            for subscription in subscriptions:
                if not subscription.wants(event.event_type):
                    continue
                number = len(jobs)
                job = admitted_job(
                    event, subscription, now_us, seq + number + 1, created_us + number
                )
                if event.id in named and core.find(job.tenant, job.id, SYSTEM) is not None:
                    raise DuplicateId([job.id])  # of a job that somebody gave this id
                jobs.append(Enqueued(now_us, job))
        return jobs

    def set_projection(
        self,
        after: ProjectionState,
        expected: ProjectionState | None,
        attribution: Attribution,
        now_us: int,
    ) -> None:
        """Store what is known about a projection."""
        if self._state.projections.get(after.name) != expected:
            raise ChangedMeanwhile("projection", after.name)
        audit = self._core.attributed(attribution, attribution.audit, now_us)
        self._core.commit([ProjectionSet(now_us, after.name, after), *audit])

    def set_subscription(
        self,
        name: str,
        subscription: Subscription | None,
        attribution: Attribution,
        now_us: int,
    ) -> Subscription | None:
        """Store a subscription, or change it; None removes it. Return it as it is now."""
        state = self._state
        current = state.subscriptions.get(name)
        version = state.fanout_version
        if subscription is not None:
            if current is None and len(state.subscriptions) >= MAX_SUBSCRIPTIONS:
                problem = f"there are {MAX_SUBSCRIPTIONS} subscriptions already: remove one first"
                raise InvalidInput("name", problem)
            if current is None or current.event_types != subscription.event_types:
                version += 1
                since = version
            else:
                since = current.since_version
            subscription = replace(subscription, since_version=since)
        audit = with_facts(attribution.audit, subscription_facts(current, subscription))
        effect = SubscriptionSet(now_us, name, subscription, version)
        self._core.commit([effect, *self._core.attributed(attribution, audit, now_us)])
        return subscription
