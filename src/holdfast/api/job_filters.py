"""The filter of a list, from the query of its URL."""

from __future__ import annotations

from holdfast.model.errors import InvalidInput
from holdfast.model.filter_grammar import compile_filter
from holdfast.model.filter_intersection import intersection
from holdfast.model.search import Filter
from holdfast.operations.named_filter import NAMES, SEVERAL, filter_of

from .call import ApiCall, invalid

FILTER_PARAMETERS = (*NAMES, "group", "q")
"""The names of ``holdfast jobs list``; ``q`` is its ``--where``."""


async def filter_of_call(call: ApiCall) -> Filter:
    """Return the filter that the query asks for."""
    now_us = await call.operations.engine.now_us()
    given: dict[str, object] = {
        field: call.values(name) if field in SEVERAL else call.value(name) or None
        for name, field in NAMES.items()
    }
    try:
        wanted = filter_of(given, now_us)
        if text := call.value("q"):
            wanted = intersection(wanted, compile_filter(text, now_us))
    except InvalidInput as error:
        names = {field: name for name, field in NAMES.items()}
        raise invalid(names.get(error.field, error.field), error.problem) from None
    if group := call.value("group"):
        wanted = await call.operations.groups.narrow(wanted, group)
    return wanted
