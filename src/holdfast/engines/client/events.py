"""Events as a client sends them: checked, encoded, and with an id before the first try."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from holdfast.model.event import EventReceipt, NewEvent, accept_event, check_event_id
from holdfast.model.ids import RANDOM_BYTES, uuid7s


def events_to_send(
    news: Sequence[NewEvent], now_us: int, random_bytes: Callable[[int], bytes]
) -> list[NewEvent]:
    """Return the events with an id each and their bodies as JSON, or raise ``InvalidInput``."""
    nameless = sum(new.id is None for new in news)
    fresh_ids = iter(uuid7s(now_us, random_bytes(RANDOM_BYTES * nameless)))
    sent: list[NewEvent] = []
    for new in news:
        event_id = next(fresh_ids) if new.id is None else check_event_id(new.id)
        # A message would turn an Enum or a UUID into text: what is not valid must not be sent.
        event = accept_event(new, event_id, now_us, 0, 0)
        sent.append(
            replace(
                new,
                id=event_id,
                payload=event.payload,
                before=event.before,
                after=event.after,
                diff=event.diff,
            )
        )
    return sent


def receipts_of_repeat(
    news: Sequence[NewEvent], receipts: Sequence[EventReceipt]
) -> list[EventReceipt]:
    """Return the receipts of a call that was repeated, because its first reply was lost.

    Nobody else can have used an id that was made for this call: its event is a new one.
    """
    return [
        replace(receipt, created=True) if new.id is None else receipt
        for new, receipt in zip(news, receipts, strict=True)
    ]
