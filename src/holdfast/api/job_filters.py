"""The filter of a list, from the query of its URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    named = {name: call.values(name) for name in FILTER_PARAMETERS}
    return await filter_of_names(call, named, await call.operations.engine.now_us())


async def filter_of_names(call: ApiCall, named: Mapping[str, Sequence[str]], now_us: int) -> Filter:
    """Return the filter of these conditions, by the names of the query; ages count from then."""

    def one_of(name: str) -> str:
        found = named.get(name, ())
        if len(found) > 1:
            raise invalid(name, "give it once")
        return found[0] if found else ""

    given: dict[str, object] = {
        field: tuple(named.get(name, ())) if field in SEVERAL else one_of(name) or None
        for name, field in NAMES.items()
    }
    try:
        wanted = filter_of(given, now_us)
        if text := one_of("q"):
            wanted = intersection(wanted, compile_filter(text, now_us))
    except InvalidInput as error:
        names = {field: name for name, field in NAMES.items()}
        raise invalid(names.get(error.field, error.field), error.problem) from None
    if group := one_of("group"):
        wanted = await call.operations.groups.narrow(wanted, group)
    return wanted
