"""Subscriptions: stored with the version of the fan-out at which they began."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from holdfast.engines.postgres.admin.audit import add_audit
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.connection.sansio import SansIO, execute, execute_all
from holdfast.model.audit import Attribution
from holdfast.model.audit_changes import subscription_facts, with_facts
from holdfast.model.errors import InvalidInput
from holdfast.model.subscription import MAX_SUBSCRIPTIONS, Subscription

from . import rows


def subscriptions() -> SansIO[Mapping[str, Subscription]]:
    """Return the subscriptions, by name."""
    found = yield from execute("list_subscriptions")
    return {row[0]: rows.subscription_of(row) for row in found}


def set_subscription(
    name: str,
    subscription: Subscription | None,
    attribution: Attribution,
    context: CallContext,
) -> SansIO[Subscription | None]:
    """Store a subscription, or change it; None removes it. Return it as it is now."""
    yield from execute("lock_keys", names=["subscriptions"])
    [[[now_us]]] = yield from execute_all(context.now())
    held = yield from subscriptions()
    current = held.get(name)
    if subscription is None:
        yield from execute("drop_subscription", name=name)
    else:
        if current is None and len(held) >= MAX_SUBSCRIPTIONS:
            problem = f"there are {MAX_SUBSCRIPTIONS} subscriptions already: remove one first"
            raise InvalidInput("name", problem)
        if current is not None and current.event_types == subscription.event_types:
            since = current.since_version
        else:
            [[since]] = yield from execute("next_fanout")
        subscription = replace(subscription, since_version=since)
        yield from execute_all(rows.put_subscription(subscription))
    audit = with_facts(attribution.audit, subscription_facts(current, subscription))
    yield from add_audit(audit, now_us)
    return subscription
