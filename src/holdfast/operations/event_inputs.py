"""Events as JSON envelopes, in the words of the columns: from a file, or from a mapping."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import IO, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.model.access import DEFAULT_TENANT
from holdfast.model.catalog import Catalog
from holdfast.model.errors import EventInvalid, InvalidInput
from holdfast.model.event import USER_ACTOR, NewEvent, accept_event, check_event_id
from holdfast.model.job import MICROSECONDS

T = TypeVar("T")

MAX_LINE_BYTES = 1 << 20
MAX_DOCUMENT_BYTES = 256 << 20
_PLACEHOLDER_ID = "00000000-0000-7000-8000-000000000000"
_NAMES = {"occurred_at_us": "occurred_at"}


class EventInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An event as a file has it. What a store assigns is ignored: ``created_at`` and others."""

    event_type: str
    version: int | None = None
    """None: the current one."""
    payload: dict[str, object] = {}
    before: dict[str, object] | list[object] | None = None
    after: dict[str, object] | list[object] | None = None
    diff: dict[str, object] | list[object] | None = None
    entity_type: str = ""
    entity_id: str | int = ""
    actor_user_id: str | int | None = None
    actor_type: str | None = None
    actor_id: str | int | None = None
    actor_name: str = ""
    id: str | None = None
    tenant: str = DEFAULT_TENANT
    scope: str = ""
    key: str | None = None
    occurred_at: datetime | None = None
    request_id: str = ""
    device: str = ""
    client: str = ""
    ip: str = ""
    reason: str = ""
    correlation_id: str = ""
    causation_id: str = ""
    trace_id: str = ""
    supersedes: str | None = None
    created_at: object = None
    position: object = None
    fanout_version: object = None
    imported_by: object = None
    text: object = None
    problem: object = None


_IGNORED = ("created_at", "position", "fanout_version", "imported_by", "text", "problem")


class PlacedEvent(msgspec.Struct, frozen=True):
    """An event of a file, checked, and where it stands."""

    place: str
    event: NewEvent


class EventFile:
    """Reads a file of events: a JSON array, one object, or an object per line.

    ``events`` yields events or the error of a bad one, and goes on after that.
    """

    def __init__(self, file: IO[bytes], catalog: Catalog, imported_by: str) -> None:
        self._file = file
        self._catalog = catalog
        self._imported_by = imported_by
        self._seen: Counter[bytes] = Counter()

    def events(self) -> Iterator[PlacedEvent | InvalidInput]:
        """Yield each event with its place, or what is wrong there."""
        for place, text in self._texts():
            try:
                if isinstance(text, InvalidInput):
                    raise text
                yield PlacedEvent(place, self._event(text))
            except InvalidInput as error:
                field = _NAMES.get(error.field, error.field)
                yield InvalidInput(f"{place}: {field}", error.problem)

    def _event(self, text: bytes) -> NewEvent:
        new = replace(
            new_event_of(decoded_input(text), self._catalog), imported_by=self._imported_by
        )
        new = self._catalog.check(new)
        if new.id is None:
            new = derived_id(new, self._seen)
        check_envelope(new)
        return new

    def _texts(self) -> Iterator[tuple[str, bytes | InvalidInput]]:
        number, lines = 0, False
        for line in iter(lambda: self._file.readline(MAX_LINE_BYTES + 1), b""):
            number += 1
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901 - the byte order mark
            text = line.strip()
            if not text:
                continue
            document = None if lines else self._document(text)
            if document is not None:
                yield from document
                return
            lines = True
            if len(line) > MAX_LINE_BYTES:
                problem = f"more than {MAX_LINE_BYTES:,} bytes"
                yield f"line {number}", InvalidInput("line", problem)
                return
            yield f"line {number}", text

    def _document(self, first: bytes) -> list[tuple[str, bytes]] | None:
        """Return the events of one JSON document; None if each line is one."""
        if not first.startswith(b"[") and (first.endswith(b"}") or not first.startswith(b"{")):
            return None
        rest = self._file.read(MAX_DOCUMENT_BYTES + 1)
        if len(rest) > MAX_DOCUMENT_BYTES:
            problem = f"one document of more than {MAX_DOCUMENT_BYTES:,} bytes: put one per line"
            raise InvalidInput("file", problem)
        try:
            if first.startswith(b"["):
                items = msgspec.json.decode(first + b"\n" + rest, type=list[msgspec.Raw])
                return [(f"event {place}", bytes(item)) for place, item in enumerate(items, 1)]
            msgspec.json.decode(first + b"\n" + rest)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidInput(
                "file", f"it is neither JSON nor an object per line: {error}"
            ) from None
        return [("event 1", first + b"\n" + rest)]


def decoded_input(text: bytes) -> EventInput:
    """Return the envelope of this JSON; raise ``InvalidInput`` naming the field."""
    try:
        return msgspec.json.decode(text, type=EventInput)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _input_error(error) from None


def converted_input(envelope: Mapping[str, object]) -> EventInput:
    """Return the envelope that a mapping is; raise ``InvalidInput`` naming the field."""
    try:
        return msgspec.convert(dict(envelope), EventInput)
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError) as error:
        raise _input_error(error) from None


def new_event_of(given: EventInput, catalog: Catalog) -> NewEvent:
    """Return the event that an envelope asks for, actor included; its data is not checked yet."""
    event_type = catalog.type_named(given.event_type)
    actor_type, actor_id = actor_of(given)
    return NewEvent(
        event_type=given.event_type,
        version=event_type.version if given.version is None else given.version,
        payload=given.payload,
        before=given.before,
        after=given.after,
        diff=given.diff,
        entity_type=given.entity_type,
        entity_id=str(given.entity_id),
        actor_type=actor_type,
        actor_id=actor_id,
        actor_name=given.actor_name,
        id=None if given.id is None else check_event_id(given.id),
        tenant=given.tenant,
        scope=given.scope,
        key=given.key,
        occurred_at_us=None if given.occurred_at is None else time_us(given.occurred_at),
        request_id=given.request_id,
        device=given.device,
        client=given.client,
        ip=given.ip,
        reason=given.reason,
        correlation_id=given.correlation_id,
        causation_id=given.causation_id,
        trace_id=given.trace_id,
        supersedes=given.supersedes,
    )


def actor_of(given: EventInput) -> tuple[str, str]:
    """Return the kind and id of the actor; raise ``EventInvalid`` if there is none."""
    user = given.actor_user_id
    if user is not None:
        if given.actor_type not in (None, USER_ACTOR) or given.actor_id not in (None, user):
            problem = "it contradicts actor_type and actor_id: give one or the other"
            raise EventInvalid(given.event_type, "actor_user_id", problem)
        return USER_ACTOR, str(user)
    if given.actor_id is None:
        problem = "who did it? Give actor_user_id, or actor_type and actor_id"
        raise EventInvalid(given.event_type, "actor_user_id", problem)
    return given.actor_type or USER_ACTOR, str(given.actor_id)


def check_envelope(new: NewEvent) -> None:
    """Raise ``InvalidInput`` as the engine would: only here the place of the event is known."""
    accept_event(new, new.id or _PLACEHOLDER_ID, 0, 0, 0)


def time_us(moment: datetime) -> int:
    """Return a time in microseconds; one without a zone is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * MICROSECONDS)


def placed(items: Iterable[T], make: Callable[[T], NewEvent]) -> list[NewEvent]:
    """Return the event of each item; an error names the place of the wrong one."""
    found: list[NewEvent] = []
    for place, item in enumerate(items, 1):
        try:
            found.append(make(item))
        except InvalidInput as error:
            error.field = f"event {place}: {error.field}"
            error.args = (f"event {place}: {error}",)
            raise
    return found


def _input_error(error: Exception) -> InvalidInput:
    text = str(error) or type(error).__name__
    problem, _, place = text.partition(" - at `$.")
    if place:
        return InvalidInput(place.rstrip("`"), problem)
    for words in ("Object missing required field `", "Object contains unknown field `"):
        if text.startswith(words):
            field = text.removeprefix(words).rstrip("`")
            if "missing" in words:
                return InvalidInput(field, "is required")
            known = ", ".join(one for one in EventInput.__struct_fields__ if one not in _IGNORED)
            return InvalidInput(field, f"is not part of an event; there are {known}")
    return InvalidInput("event", f"not an event in JSON ({text})")


def derived_id(new: NewEvent, seen: Counter[bytes] | None = None) -> NewEvent:
    """Return the event with an id made from what it says: the same when a file is read again.

    ``seen`` counts events that say the same: each has an id of its own.
    """
    said = replace(new, imported_by="", id=None)
    text = msgspec.json.encode(msgspec.structs.asdict(said), order="deterministic")
    digest = hashlib.sha256(text).digest()
    number = 1
    if seen is not None:
        seen[digest] += 1
        number = seen[digest]
    return replace(new, id=_uuid8(digest, number, new.occurred_at_us))


def _uuid8(digest: bytes, number: int, occurred_at_us: int | None) -> str:
    """Return a UUIDv8; it begins with the time of the event, if that is known, as a UUIDv7."""
    made = hashlib.sha256(digest + number.to_bytes(8, "big")).digest()
    milliseconds = (occurred_at_us or 0) // 1000 & 0xFFFF_FFFF_FFFF
    front = milliseconds.to_bytes(6, "big") if occurred_at_us is not None else made[16:22]
    raw = bytearray(front + made[:10])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
