"""Lists of any resource: pages both ways, cursors of one list alone, chosen fields, totals."""

from __future__ import annotations

import base64
import binascii
import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hmac import compare_digest
from urllib.parse import urlencode

import msgspec

from holdfast.model.search import MAX_COUNT, MAX_PAGE, Count

from .call import Answer, ApiCall, invalid
from .exports import EXPORT_PARAMETERS, JSON, Rows, export, format_of, page_limit
from .problems import RequestRefused
from .streaming import StreamedAnswer

LIST_PARAMETERS = ("cursor", "limit", "fields", *EXPORT_PARAMETERS)
"""What every list takes; one that can count takes ``count`` too."""
DEFAULT_LIMIT = 50
COUNT_CAP = 10_000
_NOT_OF_THE_FILTER = frozenset({*LIST_PARAMETERS, "count", "include"})
_COUNTS = ("none", "capped", "exact")
_MAX_CURSOR = 8_192
_SIGNATURE_BYTES = 16

Shown = dict[str, msgspec.Raw]


class PageRequest(msgspec.Struct, frozen=True):
    """Which page of a list: what the handler gave as a cursor, or the first one."""

    limit: int
    cursor: str = ""
    backwards: bool = False
    """The cursor is one that was given as ``previous``."""


class ListPage(msgspec.Struct, frozen=True):
    """A page in the order of the list, and the cursors of its neighbours as the handler knows them.

    An empty cursor: there is no such page, or the list does not go that way.
    """

    items: Sequence[object]
    next: str = ""
    previous: str = ""
    meta: Mapping[str, object] = {}
    """What ``meta`` says beside the cursors."""


class ListSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a list comes from."""

    name: str
    """Of the files that it is exported to."""
    kind: type[msgspec.Struct]
    """The type of its items: ``fields`` are theirs."""
    fetch: Callable[[PageRequest], Awaitable[ListPage]]
    count: Callable[[int], Awaitable[Count]] | None = None
    """Counts up to a cap."""
    windowed: bool = True
    """Whether a window of time narrows it, so that it may be counted to the end."""
    hidden: frozenset[str] = frozenset()
    """Fields that this caller does not get."""


class Total(msgspec.Struct, frozen=True):
    """How many there are; ``relation`` is ``equal`` or ``at_least``."""

    value: int
    relation: str


class _Sealed(msgspec.Struct, array_like=True, frozen=True):
    cursor: str
    backwards: bool


async def answer_list(call: ApiCall, source: ListSource) -> Answer | StreamedAnswer:
    """Answer with the page that the query asks for; in another format than JSON with all."""
    fields = chosen_fields(call, source)
    if format_of(call) != JSON:
        wanted = await page_request(call)
        left = wanted.limit if call.values("limit") else None
        rows = _rows(source, fields, wanted.cursor, left)
        return export(call, source.kind, source.name, fields, rows)
    total = await _total(call, source)
    wanted = await page_request(call)
    page = await source.fetch(wanted)
    meta = {**page.meta, **({} if total is None else {"total": total})}
    links: list[str] = []
    for name, relation, cursor, backwards in (
        ("next_cursor", "next", page.next, False),
        ("prev_cursor", "prev", page.previous, True),
    ):
        if cursor:
            meta[name] = sealed = await _seal(call, cursor, backwards=backwards)
            others = [(one, value) for one, value in call.query if one != "cursor"]
            links.append(f'<?{urlencode([*others, ("cursor", sealed)])}>; rel="{relation}"')
    return Answer(
        data=[shown_fields(item, fields) for item in page.items],
        meta=meta,
        headers={"link": ", ".join(links)} if links else {},
    )


async def _rows(source: ListSource, fields: Sequence[str], cursor: str, left: int | None) -> Rows:
    """Yield pages from this cursor to the end, or so many rows."""
    while left is None or left > 0:
        page = await source.fetch(PageRequest(page_limit(left), cursor))
        yield [shown_fields(item, fields) for item in page.items]
        left = None if left is None else left - len(page.items)
        cursor = page.next
        if not cursor:
            return


async def page_request(call: ApiCall) -> PageRequest:
    """Return the page that is asked for; raise ``RequestRefused`` for a cursor of another list."""
    limit = call.number("limit", DEFAULT_LIMIT, 1, MAX_PAGE)
    text = call.value("cursor")
    if not text:
        return PageRequest(limit)
    raw = _bytes_of(text)
    signature, message = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
    if not compare_digest(signature, await _signature(call, message)):
        detail = "it is not a cursor of this list with this filter and order: begin without one"
        raise RequestRefused("invalid-cursor", detail)
    found = msgspec.msgpack.decode(message, type=_Sealed)
    return PageRequest(limit, found.cursor, found.backwards)


def chosen_fields(call: ApiCall, source: ListSource) -> tuple[str, ...]:
    """Return the fields that each item is to show; raise ``RequestRefused`` for an unknown one."""
    known = [name for name in source.kind.__struct_encode_fields__ if name not in source.hidden]
    asked = [
        name.strip() for text in call.values("fields") for name in text.split(",") if name.strip()
    ]
    for name in asked:
        if name in source.hidden:
            raise invalid("fields", f"{name} is shown only with include=payload")
        if name not in known:
            near = difflib.get_close_matches(name[:100], known, 1)
            meant = f"; is {near[0]!r} meant?" if near else ""
            raise invalid("fields", f"{name[:100]!r} is not one of {', '.join(known)}{meant}")
    return tuple(dict.fromkeys(asked or known))


def shown_fields(item: object, fields: Sequence[str]) -> Shown:
    """Return an item with these fields alone, in their order; what it leaves out stays out."""
    found = msgspec.json.decode(msgspec.json.encode(item), type=Shown)
    return {name: found[name] for name in fields if name in found}


async def _total(call: ApiCall, source: ListSource) -> Total | None:
    asked = call.value("count", "none")
    if asked not in _COUNTS:
        raise invalid("count", f"it is {', '.join(_COUNTS)}")
    if asked == "none" or source.count is None:
        return None
    if asked == "exact" and not source.windowed:
        text = "count=exact needs a window of time: add since or created_since, or count=capped"
        raise RequestRefused("filter-too-broad", text)
    found = await source.count(COUNT_CAP if asked == "capped" else MAX_COUNT)
    return Total(found.value, "at_least" if found.capped else "equal")


def _bytes_of(cursor: str) -> bytes:
    """Return what a cursor encodes; nothing if it can't be one."""
    if len(cursor) > _MAX_CURSOR:
        return b""
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        return b""


async def _seal(call: ApiCall, cursor: str, *, backwards: bool) -> str:
    message = msgspec.msgpack.encode(_Sealed(cursor, backwards))
    sealed = await _signature(call, message) + message
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


async def _signature(call: ApiCall, message: bytes) -> bytes:
    """Sign what a cursor says, together with the list that it belongs to."""
    reach = call.principal.caller
    given = sorted(pair for pair in call.query if pair[0] not in _NOT_OF_THE_FILTER)
    place = call.operation_id, sorted(call.path.items()), reach.tenant, sorted(reach.scopes)
    # By repr: a parameter may have an unpaired surrogate, which no encoder takes.
    return await call.cursor_secret.sign(repr((place, given)).encode() + b"\0" + message)
