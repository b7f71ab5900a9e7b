"""How an event is stored: columns to search by, a body, its CRC."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from zlib import crc32

import msgspec

from holdfast.model.errors import CorruptEvents
from holdfast.model.event import Event

_ENCODER = msgspec.json.Encoder()
_EVENTS = msgspec.json.Decoder(Event)
_ENVELOPE = msgspec.json.Decoder(list[tuple[int, int, str]])
_COLUMNS = attrgetter(
    "position",
    "id",
    "tenant",
    "scope",
    "event_type",
    "key",
    "entity_type",
    "entity_id",
    "actor_type",
    "actor_id",
    "request_id",
    "correlation_id",
    "occurred_at_us",
    "fanout_version",
)


def row_values(events: Sequence[Event]) -> list[str | int]:
    """Return the rows of these events as one flat list."""
    lines = _ENCODER.encode_lines(events).removesuffix(b"\n")
    values: list[str | int] = []
    for event, body, text in zip(
        events, lines.split(b"\n"), lines.decode().split("\n"), strict=True
    ):
        values += (*_COLUMNS(event), crc32(body), text)
    return values


def columns_of(event: Event) -> list[object]:
    """Return the columns of an event, without its body."""
    return list(_COLUMNS(event))


def read_rows(found: bytes, file: str) -> list[Event]:
    """Return the events that a statement found, by position; raise ``CorruptEvents``."""
    try:
        rows = _ENVELOPE.decode(found)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptEvents(file, "", f"it is not valid text ({error})") from None
    rows.sort()
    return [read_body(position, crc, body.encode(), file) for position, crc, body in rows]


def read_body(position: int, crc: int, body: bytes, file: str) -> Event:
    """Return the body of one row, decoded; raise ``CorruptEvents``."""
    if crc32(body) != crc:
        raise CorruptEvents(file, str(position), "its checksum is wrong")
    try:
        event = _EVENTS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptEvents(file, str(position), str(error)) from None
    if event.position != position:
        raise CorruptEvents(file, str(position), f"it is the event of {event.position}")
    return event
