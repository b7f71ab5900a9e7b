"""The filter of events and of entries of the chronicle, from the query of a URL."""

from __future__ import annotations

from holdfast.model.errors import InvalidInput
from holdfast.model.event_search import EventFilter
from holdfast.operations.named_event_filter import NAMES, SEVERAL, event_filter_of

from .call import ApiCall, invalid

EVENT_FILTERS = tuple(NAMES)
"""The names of ``holdfast events list``."""
ENTRY_FILTERS = tuple(name for name in NAMES if name not in ("id", "key"))
"""Those of ``holdfast chronicle list``."""


async def event_filter_of_call(call: ApiCall) -> EventFilter:
    """Return the filter that the query asks for."""
    given: dict[str, object] = {
        field: call.values(name) if field in SEVERAL else call.value(name) or None
        for name, field in NAMES.items()
    }
    try:
        return event_filter_of(given, await call.operations.engine.now_us())
    except InvalidInput as error:
        names = {field: name for name, field in NAMES.items()}
        raise invalid(names.get(error.field, error.field), error.problem) from None
