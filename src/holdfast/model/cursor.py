"""Cursors: where the next page of a list begins, bound to the filter and the order of the list."""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b

import msgspec

from .errors import InvalidInput
from .job import Job
from .search import EVERYTHING, TIMES, Filter, Order, Page, Place, place_of


def write_cursor(place: Place, wanted: Filter = EVERYTHING, order: Order = Order.CREATED) -> str:
    """Return the cursor of the page after this place, for this filter and order."""
    raw = msgspec.msgpack.encode((_digest(wanted, order), *place))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def read_cursor(
    cursor: str, wanted: Filter = EVERYTHING, order: Order = Order.CREATED
) -> Place | None:
    """Return the place of a cursor; None for the first page.

    Raise ``InvalidInput`` if it is from a page of another filter or order.
    """
    if cursor == "":
        return None
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        digest, number, tenant, job_id = _CURSORS.decode(raw)
    except (TypeError, ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidInput("cursor", f"{cursor!r} is not from a page of this engine") from None
    if digest != _digest(wanted, order):
        raise InvalidInput(
            "cursor",
            "it is from a list with another filter or order: repeat the call that gave it, or "
            "start without a cursor",
        )
    return number, tenant, job_id


def page_of(jobs: list[Job], limit: int, wanted: Filter, order: Order) -> Page:
    """Return a page of this many of these jobs, which are one more if there are more."""
    if len(jobs) <= limit:
        return Page(jobs)
    return Page(jobs[:limit], write_cursor(place_of(jobs[limit - 1], order), wanted, order))


def _digest(wanted: Filter, order: Order) -> bytes:
    """Return what a cursor knows of the filter and the order.

    Not the times: an age in a repeated command has become another time, and the place in the list
    is valid all the same.
    """
    spared = msgspec.structs.replace(
        _without_times(wanted), without=tuple(map(_without_times, wanted.without))
    )
    # By repr: a text may have an unpaired surrogate, which no encoder takes.
    return blake2b(repr((order.value, spared)).encode(), digest_size=6).digest()


def _without_times(wanted: Filter) -> Filter:
    return msgspec.structs.replace(wanted, **dict.fromkeys(TIMES))


_CURSORS: msgspec.msgpack.Decoder[tuple[bytes, int, str, str]] = msgspec.msgpack.Decoder(
    tuple[bytes, int, str, str]
)
