"""Small things that services on top of a store keep in it, such as keys, sessions and quotas.

What a record means is the business of whoever keeps it: engines store its value as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .errors import InvalidInput
from .job import MAX_TIME_US, Whole, check_id, check_name, check_size

MAX_VALUE_BYTES = 16 * 1024
MAX_RECORDS = 10_000
"""Of one kind."""
MAX_ONCE = 100_000
"""Of those that are committed with a change: beyond that an engine in memory drops the oldest."""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A JSON object under a name. Names of different kinds are apart."""

    kind: str
    name: str
    value: str
    expires_at_us: Whole = 0
    """From then on it counts as gone, and a dump leaves it out; 0: it stays."""

    def check(self) -> None:
        """Raise ``InvalidInput`` if a field is invalid."""
        check_record_names(self.kind, [self.name])
        check_size("expires_at_us", self.expires_at_us, 0, MAX_TIME_US)
        if type(self.value) is not str or len(self.value.encode()) > MAX_VALUE_BYTES:
            raise InvalidInput("value", f"give a text of at most {MAX_VALUE_BYTES:,} bytes")
        try:
            msgspec.json.decode(self.value, type=dict[str, object])
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidInput("value", f"not a JSON object ({error})") from None

    def expired(self, now_us: int) -> bool:
        """Whether it counts as gone."""
        return 0 < self.expires_at_us <= now_us


def check_record_names(kind: str, names: Sequence[str]) -> None:
    """Raise ``InvalidInput`` if records can't have this kind and these names."""
    check_name("kind", kind)
    for name in names:
        check_id(name, "name")


def check_record(kind: str, name: str, record: Record | None) -> None:
    """Raise ``InvalidInput`` if this is not a record of this kind and name, or None."""
    check_record_names(kind, [name])
    if record is None:
        return
    if type(record) is not Record or (record.kind, record.name) != (kind, name):
        raise InvalidInput("record", f"{record!r} is not a record {kind} {name!r}")
    record.check()


def check_once(record: Record | None) -> None:
    """Raise ``InvalidInput`` if this cannot be committed with a change: such a record expires."""
    if record is None:
        return
    if type(record) is not Record:
        raise InvalidInput("once", f"a {type(record).__name__} is not a Record")
    record.check()
    if not record.expires_at_us:
        raise InvalidInput("once", "give it a time at which it expires")
