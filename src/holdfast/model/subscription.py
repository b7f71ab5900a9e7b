"""A subscription: each event that it wants becomes a job in its queue, in the same commit."""

from __future__ import annotations

import msgspec

from .errors import InvalidInput
from .event import Event
from .job import MAX_ATTEMPTS, NAME_LIMIT, Job, NewJob, Ties, Whole, check_name
from .retry import DEFAULT_MAX_ATTEMPTS

MAX_SUBSCRIPTIONS = 100
MAX_EVENT_TYPES = 1_000
MAX_NAME = NAME_LIMIT - 37
"""The ids of its jobs have a colon and a UUID after the name."""


class Subscription(msgspec.Struct, frozen=True, array_like=True):
    """Which events become jobs, and of which queue and task. New fields go at the end."""

    name: str
    queue: str
    task: str
    event_types: tuple[str, ...] = ()
    """Of these types; none: of all."""
    max_attempts: Whole = DEFAULT_MAX_ATTEMPTS
    since_version: Whole = 0
    """The fan-out version at which it began, assigned by the engine: events of this version or a
    later one have a job, and earlier ones have none."""

    def wants(self, event_type: str) -> bool:
        """Whether events of this type become jobs."""
        return not self.event_types or event_type in self.event_types

    def check(self) -> None:
        """Raise ``InvalidInput`` naming the bad field."""
        for field in ("name", "queue", "task"):
            check_name(field, getattr(self, field))
        if len(self.name) > MAX_NAME:
            raise InvalidInput("name", f"{self.name[:60]!r}… has more than {MAX_NAME} characters")
        types: object = self.event_types
        if not isinstance(types, tuple) or len(self.event_types) > MAX_EVENT_TYPES:
            raise InvalidInput("event_types", f"give at most {MAX_EVENT_TYPES:,} names")
        for event_type in self.event_types:
            check_name("event_types", event_type)
        if type(self.max_attempts) is not int or not 1 <= self.max_attempts <= MAX_ATTEMPTS:
            problem = f"{self.max_attempts!r} is not a whole number from 1 to {MAX_ATTEMPTS:,}"
            raise InvalidInput("max_attempts", problem)


def job_id(subscription: str, event_id: str) -> str:
    """Return the id of the job that a subscription has for an event."""
    return f"{subscription}:{event_id}"


def job_of(event: Event, subscription: Subscription) -> NewJob:
    """Return the job for an event: it refers to the event, and is in order within its key."""
    return NewJob(
        id=job_id(subscription.name, event.id),
        task=subscription.task,
        queue=subscription.queue,
        payload=_payload(event),
        tenant=event.tenant,
        scope=event.scope,
        key=event.key,
        max_attempts=subscription.max_attempts,
    )


def admitted_job(
    event: Event, subscription: Subscription, now_us: int, seq: int, created_at_us: int
) -> Job:
    """Return ``admit(job_of(event, subscription), …)``.

    Everything in it was checked with the event and the subscription: it is not checked again.
    """
    return Job(
        job_id(subscription.name, event.id),
        event.tenant,
        event.scope,
        subscription.queue,
        subscription.task,
        _payload(event),
        0,
        subscription.max_attempts,
        created_at_us,
        now_us,
        seq,
        ties=Ties(event.key, seq),
    )


def _payload(event: Event) -> bytes:
    return b'{"event_id":"%s"}' % event.id.encode()
