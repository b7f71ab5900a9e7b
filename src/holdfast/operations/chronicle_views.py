"""Entries of the chronicle as people see them, and the place of a page among them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

import msgspec

from holdfast.engines.read_models.query import Comparison, Condition
from holdfast.model.access import Caller
from holdfast.model.bigrams import query_phrases
from holdfast.model.catalog import Catalog
from holdfast.model.errors import InvalidInput
from holdfast.model.event_schema import CHANGE_FIELDS
from holdfast.model.event_search import EventFilter
from holdfast.model.job import MICROSECONDS
from holdfast.model.read_model import Row

_MAX_SEARCH = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EQUAL = (
    *("tenant", "entity_type", "entity_id", "actor_type", "actor_id"),
    *("request_id", "correlation_id"),
)


class ChronicleFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries; a condition that is empty or None holds for all."""

    event_types: tuple[str, ...] = ()
    tenant: str | None = None
    scope: str | None = None
    """Of this scope or below it."""
    entity_type: str | None = None
    entity_id: str | None = None
    actor_type: str | None = None
    actor_id: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    occurred_from_us: int | None = None
    occurred_to_us: int | None = None
    search: str = ""

    @classmethod
    def of(cls, wanted: EventFilter, search: str = "") -> ChronicleFilter:
        """Return the filter for the entries of these events, with these words."""
        shared = set(cls.__struct_fields__) & set(EventFilter.__struct_fields__)
        make: Callable[..., ChronicleFilter] = cls
        return make(search=search, **{name: getattr(wanted, name) for name in shared})

    def conditions(self, caller: Caller) -> tuple[Condition, ...]:
        """Return the conditions on columns, within the reach of the caller."""
        found = [
            Condition(name, Comparison.EQUAL, value)
            for name in _EQUAL
            if (value := getattr(self, name)) is not None
        ]
        if self.event_types:
            found.append(Condition("event_type", Comparison.ONE_OF, self.event_types))
        if self.scope is not None:
            found.append(Condition("scope", Comparison.WITHIN, self.scope))
        for moment_us, comparison in (
            (self.occurred_from_us, Comparison.AT_LEAST),
            (self.occurred_to_us, Comparison.AT_MOST),
        ):
            if moment_us is not None:
                found.append(Condition("occurred_at", comparison, exact_date(moment_us)))
        if caller.tenant is not None:
            found.append(Condition("tenant", Comparison.EQUAL, caller.tenant))
        if caller.scopes:
            found.append(Condition("scope", Comparison.WITHIN, caller.scopes))
        return tuple(found)


EVERY_ENTRY = ChronicleFilter()


def check_search(text: str) -> str:
    """Return a text to look for, or raise ``InvalidInput`` if it has no word."""
    whole = text.encode("utf-8", "replace").decode() == text  # a terminal may send anything
    if not whole or len(text) > _MAX_SEARCH or not query_phrases(text):
        problem = f"give words to look for, of up to {_MAX_SEARCH:,} characters"
        raise InvalidInput("text", problem)
    return text


class EntryView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry in the words of the columns; sensitive values are hidden, unless asked for."""

    id: str
    occurred_at: datetime
    text: str
    event_type: str
    version: int
    entity_type: str
    entity_id: str
    actor_type: str
    actor_id: str
    created_at: datetime
    tenant: str
    payload: object
    actor_user_id: str | None = None
    actor_name: str = ""
    scope: str = ""
    before: object = None
    after: object = None
    diff: object = None
    reason: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    trace_id: str | None = None
    device: str | None = None
    client: str | None = None
    ip: str | None = None
    supersedes: str | None = None

    @classmethod
    def of(cls, row: Row, catalog: Catalog, *, reveal: bool = False) -> EntryView:
        """Return an entry for people."""
        shown: dict[str, object] = dict(row)
        event_type = catalog.types.get(str(row["event_type"]))
        if event_type is not None and not reveal:
            for part in ("payload", *CHANGE_FIELDS):
                shown[part] = _masked(shown[part], event_type.sensitive)
        return msgspec.convert(shown, cls)


class EntryPage(msgspec.Struct, frozen=True):
    """Some entries in order, cursors for those after and before them, and what to know of them."""

    entries: list[EntryView]
    next: str = ""
    previous: str = ""
    notices: list[str] = []


class CountView(msgspec.Struct, frozen=True):
    """How many entries a day, an actor, an entity or a type has."""

    name: str
    count: int


class Place(msgspec.Struct, frozen=True):
    """The entry that a page begins after, and whether it goes back towards the first page."""

    occurred_at_us: int
    id: str
    back: bool

    def cursor(self, wanted: ChronicleFilter, *, newest: bool) -> str:
        """Return it as an opaque text that belongs to this filter and order."""
        raw = msgspec.msgpack.encode((_digest(wanted, newest=newest), self))
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    @classmethod
    def of(cls, cursor: str, wanted: ChronicleFilter, *, newest: bool) -> Place | None:
        """Return the place of a cursor; None for the first page."""
        if not cursor:
            return None
        try:
            raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
            digest, place = msgspec.msgpack.decode(raw, type=tuple[bytes, Place])
        except (TypeError, ValueError, binascii.Error, msgspec.MsgspecError):
            problem = f"{cursor[:60]!r} is not from a page of the chronicle"
            raise InvalidInput("cursor", problem) from None
        if digest != _digest(wanted, newest=newest):
            raise InvalidInput(
                "cursor",
                "it is from a list with another filter or order: repeat the call that gave it, or "
                "start without a cursor",
            )
        return place

    @property
    def key(self) -> tuple[datetime, str]:
        """The values of the columns that entries are ordered by."""
        return exact_date(self.occurred_at_us), self.id


def place_after(entry: EntryView, *, back: bool = False) -> Place:
    """Return the place after, or before, an entry."""
    return Place((entry.occurred_at - _EPOCH) // _MICROSECOND, entry.id, back)


def exact_date(moment_us: int) -> datetime:
    """Return a time in microseconds as a date, to the microsecond."""
    seconds, rest = divmod(moment_us, MICROSECONDS)
    return _EPOCH + timedelta(seconds=seconds, microseconds=rest)


def _digest(wanted: ChronicleFilter, *, newest: bool) -> bytes:
    spared = msgspec.structs.replace(wanted, occurred_from_us=None, occurred_to_us=None)
    text = repr((newest, spared)).encode("utf-8", "backslashreplace")
    return blake2b(text, digest_size=6).digest()


def _masked(value: object, sensitive: tuple[str, ...]) -> object:
    """Return a JSON value without these fields, by their paths."""
    if not isinstance(value, Mapping):
        return value
    inner: dict[str, list[str]] = {}
    for path in sensitive:
        first, _dot, rest = path.partition(".")
        inner.setdefault(first, []).append(rest)
    return {
        name: one
        if name not in inner
        else "***"
        if "" in inner[name]
        else _masked(one, tuple(inner[name]))
        for name, one in value.items()
    }
