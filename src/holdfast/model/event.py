"""An event: a fact, as a caller appends it (``NewEvent``) and as it is stored (``Event``).

Events are the source of truth: one that is stored never changes. A correction is a new event that
names in ``supersedes`` the one that it replaces.
"""

from __future__ import annotations

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
_NAMES = ("event_type", "entity_type", "entity_id", "tenant", "actor_type", "actor_id")
_TEXTS = (
    "actor_name",
    "request_id",
    "device",
    "client",
    "ip",
    "reason",
    "correlation_id",
    "causation_id",
    "trace_id",
    "imported_by",
)


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
    position: int
    created: bool = True
    """False: the same event was there already, and nothing was done."""


def accept_event(
    new: NewEvent, event_id: str, now_us: int, position: int, fanout_version: int
) -> Event:
    """Return the event under an id that was checked before, or raise ``InvalidInput``."""
    values = {name: check_name(name, getattr(new, name)) for name in _NAMES}
    texts = {name: _check_text(name, getattr(new, name)) for name in _TEXTS}
    event_type, entity_type, entity_id, tenant, actor_type, actor_id = values.values()
    if type(new.version) is not int or not 1 <= new.version <= 1_000_000:
        raise InvalidInput("version", f"{new.version!r} is not a whole number from 1 to 1,000,000")
    payload = encode_payload(new.payload)
    before, after, diff = (
        _encode_json(name, getattr(new, name)) for name in ("before", "after", "diff")
    )
    size = len(payload) + sum(len(part) for part in (before, after, diff) if part is not None)
    if size > MAX_EVENT_BYTES:
        raise TooLarge("event", size, MAX_EVENT_BYTES, "store it elsewhere and append a reference")
    occurred_at_us = now_us if new.occurred_at_us is None else new.occurred_at_us
    if type(occurred_at_us) is not int or not 0 <= occurred_at_us <= MAX_TIME_US:
        raise InvalidInput("occurred_at_us", f"{occurred_at_us!r} is not a time in microseconds")
    key = default_key(entity_type, entity_id) if new.key is None else check_name("key", new.key)
    return Event(
        id=event_id,
        event_type=event_type,
        version=new.version,
        tenant=tenant,
        scope=check_scope(new.scope) if new.scope else "",
        key=key,
        entity_type=entity_type,
        entity_id=entity_id,
        actor_type=actor_type,
        actor_id=actor_id,
        payload=payload,
        before=before,
        after=after,
        diff=diff,
        occurred_at_us=occurred_at_us,
        created_at_us=now_us,
        position=position,
        fanout_version=fanout_version,
        supersedes=None if new.supersedes is None else check_event_id(new.supersedes, "supersedes"),
        **texts,
    )


def default_key(entity_type: str, entity_id: str) -> str:
    """Return the key of an event that names none: long ones are cut, and stay in order."""
    return check_name("key", f"{entity_type}:{entity_id}"[:255])


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


def _encode_json(field: str, value: Json | None) -> bytes | None:
    if value is None:
        return None
    try:
        if type(value) is bytes:
            msgspec.json.decode(value)
            return value
        return bytes(memoryview(_ENCODE(value)))
    except BAD_PAYLOAD as error:
        reason = f"not JSON ({str(error) or type(error).__name__})"
        raise PayloadInvalid(field, reason) from None


def _check_text(field: str, value: str) -> str:
    if value == "":
        return value
    if type(value) is not str or len(value) > TEXT_LIMIT or "\x00" in value:
        raise InvalidInput(
            field, f"{repr(value)[:60]} is not text of up to {TEXT_LIMIT:,} characters"
        )
    return value if field in ("reason", "actor_name") else check_id(value, field)
