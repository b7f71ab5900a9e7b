"""Events, and what callers do with them in their own transactions."""

from typing import Any

import psycopg

from holdfast.engines.postgres import joined_verbs
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.model.audit import Attribution
from holdfast.model.event import EventReceipt, NewEvent
from holdfast.model.job import NewJob
from holdfast.model.subscription import Subscription

OPTIONS = PostgresOptions()
WHY = Attribution("ann", "a test")
CHRONICLE = Subscription("chronicle", "chronicle", "entry")


def new_event(key: str = "k", event_id: str | None = None, **fields: Any) -> NewEvent:
    known = {"event_type": "book.renamed", "entity_type": "book", "entity_id": "7"}
    return NewEvent(id=event_id, key=key, **{**known, "actor_id": "ann", **fields})


def append(connection: psycopg.Connection, *events: NewEvent) -> list[EventReceipt]:
    return joined_verbs.append_sync(connection, events, options=OPTIONS)


def enqueue(connection: psycopg.Connection, *keys: str) -> None:
    """Enqueue keyed jobs as they are, in the queue of the subscription."""
    jobs = [NewJob(task="entry", queue="chronicle", key=key) for key in keys]
    joined_verbs.enqueue_sync(connection, jobs, options=OPTIONS)


async def subscribe(engine: PostgresEngine, name: str = "chronicle") -> Subscription:
    made = Subscription(name, name, "entry")
    stored = await engine.set_subscription(name, made, WHY)
    assert stored is not None
    return stored


async def claimed_keys(engine: PostgresEngine, queue: str = "chronicle") -> list[str]:
    """Claim all there is; return the keys."""
    claim = await engine.claim(queues=[queue], worker="w", limit=100)
    return sorted(str(job.ties.key) for job in claim.jobs)
