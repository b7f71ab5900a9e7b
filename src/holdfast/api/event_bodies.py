"""Events as the API takes them and shows them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.model.catalog import Catalog
from holdfast.model.errors import InvalidInput, TooLarge
from holdfast.model.event import Event, NewEvent
from holdfast.operations.event_inputs import EventInput, check_envelope, new_event_of
from holdfast.operations.event_views import EventView

from .problems import FieldError, RequestRefused

KEY_ACTOR = "service"
"""The kind of actor that a key is."""
DATA = ("payload", "before", "after", "diff")
HIDDEN = "its type is not declared at this server, so which fields are sensitive is not known"
_NAMES = {"occurred_at_us": "occurred_at"}


class NewEventBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An event to append. Its actor is the key that appends it, whatever it says here."""

    event_type: str
    payload: dict[str, object] = {}
    before: dict[str, object] | list[object] | None = None
    after: dict[str, object] | list[object] | None = None
    diff: dict[str, object] | list[object] | None = None
    version: int | None = None
    """None: the current one."""
    entity_type: str = ""
    entity_id: str | int = ""
    actor_user_id: str | int | None = None
    actor_type: str | None = None
    actor_id: str | int | None = None
    actor_name: str = ""
    id: str | None = None
    """A UUID: an event that is sent again with its id is stored once."""
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

    def checked(self, catalog: Catalog, tenant: str, actor_id: str) -> NewEvent:
        """Return the event for the engine; raise ``InvalidInput`` naming what is wrong."""
        said = msgspec.structs.asdict(self)
        said |= {
            "tenant": tenant,
            "actor_user_id": None,
            "actor_type": KEY_ACTOR,
            "actor_id": actor_id,
            "actor_name": "",
        }
        new = catalog.check(new_event_of(msgspec.convert(said, EventInput), catalog))
        check_envelope(new)
        return new


EVENT_EXAMPLE = {
    "event_type": "book.added",
    "id": "00000000-0000-7000-8000-000000000001",
    "payload": {"book_id": "b1", "title": "Dune"},
}


class EventBatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events to append in one commit: all, or none."""

    events: list[NewEventBody]


class EventCorrectionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is wrong with an event, and why it is corrected."""

    why: str
    set: dict[str, msgspec.Raw] = {}
    """Values by path: ``payload.title``, ``after.pages``."""
    unset: list[str] = []
    """Paths to remove."""


class AppendedEvent(msgspec.Struct, frozen=True):
    """An event that was stored, or was there already."""

    id: str
    tenant: str
    position: int
    existing: bool


class ShownEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event as the API shows it: its data only if it is asked for, and may be seen.

    Sensitive values are hidden.
    """

    id: str
    event_type: str
    version: int
    text: str
    entity_type: str
    entity_id: str
    actor_type: str
    actor_id: str
    occurred_at: datetime
    created_at: datetime
    position: int
    tenant: str
    key: str
    payload: dict[str, object] | msgspec.UnsetType = msgspec.UNSET
    before: object = None
    after: object = None
    diff: object = None
    actor_user_id: str | None = None
    actor_name: str = ""
    scope: str = ""
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
    problem: str = ""
    """Why it is shown as it was stored, or without its data."""

    @classmethod
    def of(cls, event: Event, catalog: Catalog, *, readable: bool, payload: bool) -> ShownEvent:
        """Return an event; ``readable``: who asks may see the data of events."""
        view = EventView.of(event, catalog if readable else Catalog())
        fields = msgspec.structs.asdict(view)
        known = event.event_type in catalog.types
        if not readable:
            fields["problem"] = ""  # a text or an older version needs the data
        if not payload or not known:
            for name in DATA:
                del fields[name]
        if payload and not known:
            fields["problem"] = HIDDEN
        return cls(**fields)


def refused(error: InvalidInput, *, single: bool) -> RequestRefused | InvalidInput:
    """Return the refusal that points to the wrong field; ``single``: the call has one event."""
    if isinstance(error, TooLarge):
        return error
    place, colon, name = error.field.partition(": ")
    number = ""
    if colon and place.startswith("event ") and place[6:].isdigit():
        number = "" if single else f"/events/{int(place[6:]) - 1}"
    else:
        name = error.field
    name = _NAMES.get(name, name)
    path = name.replace(".", "/")
    if path.partition("/")[0] not in NewEventBody.__struct_fields__:
        path = f"payload/{path}"  # the catalog names fields of the data without it
    detail = f"{name}: {error.problem}" if single else f"{error.field}: {error.problem}"
    fields = [FieldError(f"{number}/{path}", error.code, error.problem)]
    return RequestRefused("invalid-input", detail, fields=fields)
