"""``/events`` and ``/catalog``: append events, look at them, correct one; their types."""

from __future__ import annotations

from urllib.parse import quote

from msgspec.structs import replace

from holdfast.model.errors import EventInvalid, InvalidInput
from holdfast.model.event import MAX_APPEND, EventReceipt, check_event_id
from holdfast.model.event_type import EventType
from holdfast.model.payload_paths import Assignment
from holdfast.model.permissions import Permission
from holdfast.operations.event_inputs import placed
from holdfast.operations.event_views import EventTypeView
from holdfast.operations.events import EventOperations

from .call import Answer, ApiCall, Route, invalid
from .event_bodies import (
    EVENT_EXAMPLE,
    KEY_ACTOR,
    AppendedEvent,
    EventBatchBody,
    EventCorrectionBody,
    NewEventBody,
    ShownEvent,
    refused,
)
from .event_filters import EVENT_FILTERS, event_filter_of_call
from .exports import EXPORT_MEDIA
from .jobs import with_payload
from .lists import LIST_PARAMETERS, ListPage, ListSource, PageRequest, answer_list
from .problems import RequestRefused
from .streaming import StreamedAnswer

_ORDERS = {"-recorded": True, "recorded": False}


def event_operations(call: ApiCall) -> EventOperations:
    """Return what the caller may do with events, by the catalog of this server."""
    return EventOperations(call.operations.engine, call.declared.catalog)


def _location(call: ApiCall, event_id: str) -> str:
    return f"/v2/tenants/{quote(call.tenant, safe='')}/events/{event_id}"


async def _append(call: ApiCall, bodies: list[NewEventBody], *, single: bool) -> list[EventReceipt]:
    catalog, by = call.declared.catalog, call.principal.name

    try:
        events = placed(bodies, lambda body: body.checked(catalog, call.tenant, by))
        return await event_operations(call).append(events)
    except InvalidInput as error:
        raise refused(error, single=single) from None


async def append_event(call: ApiCall) -> Answer:
    """Append one event; one that is there already with the same content is the answer."""
    (receipt,) = await _append(call, [call.body(NewEventBody)], single=True)
    return Answer(
        data=_appended(call, receipt),
        status=201 if receipt.created else 200,
        meta={"existing": not receipt.created},
        headers={"location": _location(call, receipt.id)},
    )


async def append_events(call: ApiCall) -> Answer:
    """Append up to a thousand events in one commit: all, or none."""
    bodies = call.body(EventBatchBody).events
    if len(bodies) > MAX_APPEND:
        raise RequestRefused("too-large", f"at most {MAX_APPEND:,} events in one batch")
    receipts = await _append(call, bodies, single=False)
    return Answer(data=[_appended(call, one) for one in receipts])


async def list_events(call: ApiCall) -> Answer | StreamedAnswer:
    """List events in the order in which they were recorded, the newest first."""
    payload = await with_payload(call)
    order = call.value("order", "-recorded")
    if order not in _ORDERS:
        text = "it is recorded or -recorded; /v2/chronicle lists by when it happened"
        raise invalid("order", text)
    wanted = await event_filter_of_call(call)
    readable, catalog = call.principal.may(Permission.PAYLOAD_READ), call.declared.catalog

    async def fetch(asked: PageRequest) -> ListPage:
        page = await call.operations.engine.find_events(
            wanted, cursor=asked.cursor, limit=asked.limit, newest=_ORDERS[order]
        )
        found = [
            ShownEvent.of(one, catalog, readable=readable, payload=payload) for one in page.events
        ]
        return ListPage(found, page.cursor)

    return await answer_list(call, ListSource(name="events", kind=ShownEvent, fetch=fetch))


async def show_event(call: ApiCall) -> Answer:
    """Return one event."""
    payload = await with_payload(call)
    event = await event_operations(call).stored(event_id_of(call), call.tenant)
    readable, catalog = call.principal.may(Permission.PAYLOAD_READ), call.declared.catalog
    return Answer(data=ShownEvent.of(event, catalog, readable=readable, payload=payload))


async def correct_event(call: ApiCall) -> Answer:
    """Append an event that supersedes another one; that one stays as it is."""
    asked = call.body(EventCorrectionBody)
    who = call.author(asked.why)
    changes = (
        *(Assignment(path, bytes(value)) for path, value in asked.set.items()),
        *map(Assignment, asked.unset),
    )
    if not changes:
        raise invalid("set", "give something to change, such as payload.title")
    event_id = event_id_of(call)
    try:
        receipt = await event_operations(call).correct(
            event_id, changes, who, call.tenant, actor_type=KEY_ACTOR
        )
    except EventInvalid as error:
        raise refused(error, single=True) from None
    return Answer(
        data=_appended(call, receipt),
        status=201 if receipt.created else 200,
        meta={"existing": not receipt.created},
        headers={"location": _location(call, receipt.id)},
    )


async def list_types(call: ApiCall) -> Answer:
    """List the event types that this server knows: those that can be appended here."""
    types = call.declared.catalog.types
    return Answer(data=[_shown_type(types[name]) for name in sorted(types)])


async def show_type(call: ApiCall) -> Answer:
    """Return one event type, with the JSON Schema of its data."""
    found = call.declared.catalog.types.get(call.path["id"])
    if found is None:
        text = "this server knows no such event type: see GET /v2/catalog"
        raise RequestRefused("not-found", text)
    return Answer(data=_shown_type(found))


def _shown_type(found: EventType) -> EventTypeView:
    # Where it is declared is a path of the server's machine.
    return replace(EventTypeView.of(found), source="")


def event_id_of(call: ApiCall) -> str:
    """Return the id that the path names; what cannot be one is not there."""
    try:
        return check_event_id(call.path["id"])
    except InvalidInput:
        raise RequestRefused("not-found", "the id of an event is a UUID") from None


def _appended(call: ApiCall, receipt: EventReceipt) -> AppendedEvent:
    return AppendedEvent(receipt.id, call.tenant, receipt.position, not receipt.created)


ROUTES = (
    Route(
        operation_id="appendEvent",
        method="POST",
        path="/events",
        handle=append_event,
        permission=Permission.EVENT_APPEND,
        summary="Append an event",
        body=NewEventBody,
        example=EVENT_EXAMPLE,
        answers=AppendedEvent,
        statuses=(201, 200),
    ),
    Route(
        operation_id="appendEvents",
        method="POST",
        path="/events:batch",
        handle=append_events,
        permission=Permission.EVENT_APPEND,
        summary="Append events, all or none",
        body=EventBatchBody,
        example={"events": [EVENT_EXAMPLE]},
        answers=list[AppendedEvent],
    ),
    Route(
        operation_id="listEvents",
        method="GET",
        path="/events",
        handle=list_events,
        permission=Permission.JOB_READ,
        summary="List events as they were recorded",
        parameters=(*EVENT_FILTERS, *LIST_PARAMETERS, "order", "include"),
        media=EXPORT_MEDIA,
        answers=list[ShownEvent],
    ),
    Route(
        operation_id="getEvent",
        method="GET",
        path="/events/{id}",
        handle=show_event,
        permission=Permission.JOB_READ,
        summary="Return an event",
        parameters=("include",),
        answers=ShownEvent,
    ),
    Route(
        operation_id="correctEvent",
        method="POST",
        path="/events/{id}/correct",
        handle=correct_event,
        permission=Permission.EVENT_CORRECT,
        summary="Append an event that supersedes another one",
        body=EventCorrectionBody,
        example={"why": "a typing error", "set": {"payload.title": "Emma"}},
        answers=AppendedEvent,
        statuses=(201, 200),
    ),
    Route(
        operation_id="listEventTypes",
        method="GET",
        path="/catalog",
        handle=list_types,
        permission=Permission.JOB_READ,
        summary="List the event types that this server knows",
        answers=list[EventTypeView],
    ),
    Route(
        operation_id="getEventType",
        method="GET",
        path="/catalog/{id}",
        handle=show_type,
        permission=Permission.JOB_READ,
        summary="Return an event type with its JSON Schema",
        answers=EventTypeView,
    ),
)
