"""An event: a fact, as a caller appends it (``NewEvent``) and as it is stored (``Event``).

Events are the source of truth: one that is stored never changes. A correction is a new event that
names in ``supersedes`` the one that it replaces.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from .access import DEFAULT_TENANT
from .errors import InvalidInput, PayloadInvalid, TooLarge
from .job import (
    BAD_PAYLOAD,
    MAX_TIME_US,
    Whole,
    check_id,
    check_name,
    check_scope,
    encode_payload,
)

MAX_APPEND = 1_000
"""The most events that one commit takes."""
MAX_EVENT_BYTES = 256 * 1024
"""The most that payload, before, after and diff of one event take together."""
TEXT_LIMIT = 2_000
SYSTEM_ACTOR = "system"
USER_ACTOR = "user"

Json = Mapping[str, object] | Sequence[object] | bytes
"""A JSON value, or one that is encoded."""
Version = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENCODE = msgspec.json.Encoder().encode


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a caller appends.

    ``id`` is a UUID, unique within its tenant; None asks for a UUIDv7. ``occurred_at_us`` is the
    time of the business, None: now. Events of one (tenant, ``key``) are projected in their order;
    None is ``entity_type:entity_id``.
    """

    event_type: str
    entity_type: str
    entity_id: str
    actor_id: str
    actor_type: str = USER_ACTOR
    actor_name: str = ""
    id: str | None = None
    version: int = 1
    payload: Mapping[str, object] | bytes = b"{}"
    before: Json | None = None
    after: Json | None = None
    diff: Json | None = None
    tenant: str = DEFAULT_TENANT
    scope: str = ""
    key: str | None = None
    occurred_at_us: int | None = None
    request_id: str = ""
    device: str = ""
    client: str = ""
    ip: str = ""
    reason: str = ""
    correlation_id: str = ""
    causation_id: str = ""
    trace_id: str = ""
    supersedes: str | None = None
    imported_by: str = ""
    """Who brought it in from a file."""


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event as stored. New fields go at the end: older records lack them.

    Of two events of one key the later one has the higher ``position``; positions of different keys
    say nothing about which was committed first. ``fanout_version`` is the version of the
    subscriptions that it was given to: it has a job for each that matched then.
    """

    id: str
    event_type: str
    version: Version
    tenant: str
    scope: str
    key: str
    entity_type: str
    entity_id: str
    actor_type: str
    actor_id: str
    actor_name: str
    payload: bytes
    before: bytes | None
    after: bytes | None
    diff: bytes | None
    occurred_at_us: Whole
    created_at_us: Whole
    position: Whole
    fanout_version: Whole = 0
    request_id: str = ""
    device: str = ""
    client: str = ""
    ip: str = ""
    reason: str = ""
    correlation_id: str = ""
    causation_id: str = ""
    trace_id: str = ""
    supersedes: str | None = None
    imported_by: str = ""

    @property
    def actor_user_id(self) -> str | None:
        """The user who acted, if it was one."""
        return self.actor_id if self.actor_type == USER_ACTOR else None


class EventReceipt(msgspec.Struct, frozen=True, gc=False):
    """The answer for one appended event."""

    id: str
    """The id of the event."""
    position: int
    """Its position: of two events of one key the later one has the higher."""
    created: bool = True
    """False: the same event was there already, and nothing was done."""


def accept_event(
    new: NewEvent, event_id: str, now_us: int, position: int, fanout_version: int
) -> Event:
    """Return the event under an id that was checked before, or raise ``InvalidInput``."""
    if type(new.version) is not int or not 1 <= new.version <= 1_000_000:
        raise InvalidInput("version", f"{new.version!r} is not a whole number from 1 to 1,000,000")
    entity_type = check_name("entity_type", new.entity_type)
    entity_id = check_id(new.entity_id, "entity_id")
    payload, before, after, diff = _encode_bodies(new)
    occurred_at_us = now_us if new.occurred_at_us is None else new.occurred_at_us
    if type(occurred_at_us) is not int or not 0 <= occurred_at_us <= MAX_TIME_US:
        raise InvalidInput("occurred_at_us", f"{occurred_at_us!r} is not a time in microseconds")
    return Event(
        event_id,
        check_name("event_type", new.event_type),
        new.version,
        check_name("tenant", new.tenant),
        check_scope(new.scope) if new.scope != "" else "",
        default_key(entity_type, entity_id) if new.key is None else check_id(new.key, "key"),
        entity_type,
        entity_id,
        check_name("actor_type", new.actor_type),
        check_name("actor_id", new.actor_id),
        "" if new.actor_name == "" else _check_text("actor_name", new.actor_name),
        payload,
        before,
        after,
        diff,
        occurred_at_us,
        now_us,
        position,
        fanout_version,
        "" if new.request_id == "" else check_id(new.request_id, "request_id"),
        "" if new.device == "" else check_id(new.device, "device"),
        "" if new.client == "" else check_id(new.client, "client"),
        "" if new.ip == "" else check_id(new.ip, "ip"),
        "" if new.reason == "" else _check_text("reason", new.reason),
        "" if new.correlation_id == "" else check_id(new.correlation_id, "correlation_id"),
        "" if new.causation_id == "" else check_id(new.causation_id, "causation_id"),
        "" if new.trace_id == "" else check_id(new.trace_id, "trace_id"),
        None if new.supersedes is None else check_event_id(new.supersedes, "supersedes"),
        "" if new.imported_by == "" else check_id(new.imported_by, "imported_by"),
    )


def _encode_bodies(new: NewEvent) -> tuple[bytes, bytes | None, bytes | None, bytes | None]:
    """Return payload, before, after and diff as JSON."""
    payload = encode_payload(new.payload)
    before = after = diff = None
    size = len(payload)
    if new.before is not None:
        before = _encode_json("before", new.before)
        size += len(before)
    if new.after is not None:
        after = _encode_json("after", new.after)
        size += len(after)
    if new.diff is not None:
        diff = _encode_json("diff", new.diff)
        size += len(diff)
    if size > MAX_EVENT_BYTES:
        raise TooLarge("event", size, MAX_EVENT_BYTES, "store it elsewhere and append a reference")
    return payload, before, after, diff


def default_key(entity_type: str, entity_id: str) -> str:
    """Return the key of an event that names none: long ones are cut, and stay in order."""
    return f"{entity_type}:{entity_id}"[:255]


def is_event_id(value: str) -> bool:
    """Whether this is a UUID in lower case."""
    return _UUID.fullmatch(value) is not None


def check_event_id(value: str, field: str = "id") -> str:
    """Return the id in lower case, or raise ``InvalidInput``: it must be a UUID."""
    found = value.lower() if type(value) is str else ""
    if not is_event_id(found):
        raise InvalidInput(field, f"{repr(value)[:60]} is not a UUID")
    return found


def same_event(stored: Event, again: Event, *, with_time: bool) -> bool:
    """Whether an event says the same as the stored one of its id.

    ``with_time``: the caller gave the time at which it occurred; otherwise that is not compared.
    Who imported it is not part of what it says.
    """
    return (
        msgspec.structs.replace(
            again,
            occurred_at_us=again.occurred_at_us if with_time else stored.occurred_at_us,
            created_at_us=stored.created_at_us,
            position=stored.position,
            fanout_version=stored.fanout_version,
            imported_by=stored.imported_by,
        )
        == stored
    )


def _encode_json(field: str, value: Json) -> bytes:
    try:
        if type(value) is bytes:
            msgspec.json.decode(value)
            return value
        return bytes(memoryview(_ENCODE(value)))
    except BAD_PAYLOAD as error:
        reason = f"not JSON ({str(error) or type(error).__name__})"
        raise PayloadInvalid(field, reason) from None


def _check_text(field: str, value: str) -> str:
    """Return a text of several lines, or raise ``InvalidInput``."""
    if type(value) is str and len(value) <= TEXT_LIMIT and "\x00" not in value:
        if value.isascii():
            return value
        with contextlib.suppress(UnicodeEncodeError):  # of an unpaired surrogate
            value.encode()
            return value
    problem = f"{repr(value)[:60]} is not text of up to {TEXT_LIMIT:,} characters"
    raise InvalidInput(field, problem)
