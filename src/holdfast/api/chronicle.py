"""``/chronicle``: what happened, for people: list, search, show and count its entries."""

from __future__ import annotations

from datetime import datetime
from typing import get_args

import msgspec

from holdfast.model.catalog import Catalog
from holdfast.model.errors import InvalidInput
from holdfast.model.permissions import Permission
from holdfast.operations.chronicle import ChronicleOperations, StatsBy
from holdfast.operations.chronicle_views import (
    ChronicleFilter,
    CountView,
    EntryView,
    check_search,
)

from .call import Answer, ApiCall, Route, invalid
from .event_bodies import DATA, HIDDEN
from .event_filters import ENTRY_FILTERS, event_filter_of_call
from .events import event_id_of
from .exports import EXPORT_MEDIA
from .jobs import with_payload
from .lists import DEFAULT_LIMIT, LIST_PARAMETERS, ListPage, ListSource, PageRequest, answer_list
from .problems import RequestRefused
from .streaming import StreamedAnswer

_ORDERS = {"-occurred": True, "occurred": False}
_GROUPS: tuple[StatsBy, ...] = get_args(StatsBy)
_MAX_GROUPS = 998


class ShownEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry as the API shows it: its data only if it is asked for, and may be seen.

    Sensitive values are hidden.
    """

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
    payload: object = None
    before: object = None
    after: object = None
    diff: object = None
    actor_user_id: str | None = None
    actor_name: str = ""
    scope: str = ""
    reason: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    trace_id: str | None = None
    device: str | None = None
    client: str | None = None
    ip: str | None = None
    supersedes: str | None = None
    problem: str = ""
    """Why it is shown without its data."""

    @classmethod
    def of(cls, entry: EntryView, catalog: Catalog, *, payload: bool) -> ShownEntry:
        """Return an entry."""
        fields = msgspec.structs.asdict(entry)
        known = entry.event_type in catalog.types
        if not payload or not known:
            for name in DATA:
                del fields[name]
        return cls(**fields, problem=HIDDEN if payload and not known else "")


def _operations(call: ApiCall) -> ChronicleOperations:
    return ChronicleOperations(call.operations.engine, call.declared.catalog)


async def _filter(call: ApiCall) -> ChronicleFilter:
    search = call.value("search")
    if search:
        await call.require(Permission.PAYLOAD_READ)  # it would tell what may not be seen
        try:
            check_search(search)
        except InvalidInput as error:
            raise invalid("search", error.problem) from None
    return ChronicleFilter.of(await event_filter_of_call(call), search)


async def list_entries(call: ApiCall) -> Answer | StreamedAnswer:
    """List entries by when it happened, the newest first, with cursors both ways."""
    payload = await with_payload(call)
    order = call.value("order", "-occurred")
    if order not in _ORDERS:
        raise invalid("order", "it is occurred or -occurred; /v2/events lists as recorded")
    wanted, catalog = await _filter(call), call.declared.catalog

    async def fetch(asked: PageRequest) -> ListPage:
        page = await _operations(call).page(
            wanted, cursor=asked.cursor, limit=asked.limit, newest=_ORDERS[order]
        )
        found = [ShownEntry.of(one, catalog, payload=payload) for one in page.entries]
        return ListPage(found, page.next, page.previous, {"notices": page.notices})

    return await answer_list(call, ListSource(name="chronicle", kind=ShownEntry, fetch=fetch))


async def show_entry(call: ApiCall) -> Answer:
    """Return the entry of an event."""
    payload = await with_payload(call)
    event_id = event_id_of(call)
    try:
        entry = await _operations(call).show(event_id, call.tenant)
    except InvalidInput as error:
        raise RequestRefused("not-found", error.problem) from None
    return Answer(data=ShownEntry.of(entry, call.declared.catalog, payload=payload))


async def count_entries(call: ApiCall) -> Answer:
    """Count entries by day, actor, entity or type."""
    by = call.value("by", "day")
    if by not in _GROUPS:
        raise invalid("by", f"it is {', '.join(_GROUPS)}")
    limit = call.number("limit", DEFAULT_LIMIT, 1, _MAX_GROUPS)
    chronicle = _operations(call)
    found = await chronicle.stats(by, await _filter(call), limit=limit)
    return Answer(data=found, meta={"notices": await chronicle.notices()})


ROUTES = (
    Route(
        operation_id="listEntries",
        method="GET",
        path="/chronicle",
        handle=list_entries,
        permission=Permission.JOB_READ,
        summary="List or search entries of the chronicle",
        parameters=(*ENTRY_FILTERS, "search", *LIST_PARAMETERS, "order", "include"),
        media=EXPORT_MEDIA,
        answers=list[ShownEntry],
    ),
    Route(
        operation_id="countEntries",
        method="GET",
        path="/chronicle:stats",
        handle=count_entries,
        permission=Permission.JOB_READ,
        summary="Count entries by day, actor, entity or type",
        parameters=(*ENTRY_FILTERS, "search", "by", "limit"),
        answers=list[CountView],
    ),
    Route(
        operation_id="getEntry",
        method="GET",
        path="/chronicle/{id}",
        handle=show_entry,
        permission=Permission.JOB_READ,
        summary="Return an entry of the chronicle",
        parameters=("include",),
        answers=ShownEntry,
    ),
)
