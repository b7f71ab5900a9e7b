"""``/events:ingest``: events as NDJSON, a line each."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.errors import InvalidInput
from holdfast.model.event import NewEvent
from holdfast.model.permissions import Permission

from .call import ApiCall, Route, decoded
from .event_bodies import EVENT_EXAMPLE, NewEventBody, refused
from .events import event_operations
from .ingest import INGEST_PARAMETERS, NDJSON, IngestTarget, StoredLine, answer_ingest
from .streaming import StreamedAnswer


async def ingest_events(call: ApiCall) -> StreamedAnswer:
    """Append an event for each line; one with an id that is there with the same content is left."""
    catalog, by = call.declared.catalog, call.principal.name

    def parse(text: bytes) -> NewEvent:
        body = decoded(text, NewEventBody)
        try:
            return body.checked(catalog, call.tenant, by)
        except InvalidInput as error:
            raise refused(error, single=True) from None

    def check(_event: NewEvent) -> None:
        """What can be told of one event alone, ``parse`` has."""

    async def store(events: Sequence[NewEvent]) -> list[StoredLine]:
        try:
            receipts = await event_operations(call).append(events)
        except InvalidInput as error:
            raise (refused(error, single=True) if len(events) == 1 else error) from None
        return [StoredLine(one.id, not one.created) for one in receipts]

    return await answer_ingest(call, IngestTarget(parse, check, store))


ROUTES = (
    Route(
        operation_id="ingestEvents",
        method="POST",
        path="/events:ingest",
        handle=ingest_events,
        permission=Permission.EVENT_APPEND,
        summary="Append events from NDJSON, committed as they come",
        parameters=INGEST_PARAMETERS,
        body=NewEventBody,
        example=EVENT_EXAMPLE,
        streams_body=True,
        takes_key=False,
        media=(NDJSON,),
        envelope=False,
    ),
)
