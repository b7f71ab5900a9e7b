"""The limits of a queue, which operators change at run time."""

from __future__ import annotations

import re

import msgspec

from .durations import seconds_of
from .errors import InvalidInput
from .job import FORGETTABLE, MAX_TIME_US, MICROSECONDS, Job, Whole, check_seconds, check_size

_RATE_UNITS = {"s": 1.0, "second": 1.0, "m": 60.0, "minute": 60.0, "h": 3_600.0, "hour": 3_600.0}


class Rate(msgspec.Struct, frozen=True, array_like=True):
    """At most ``count`` claims in ``per_seconds``; a burst of ``count`` after a pause."""

    count: int
    per_seconds: float

    @property
    def interval_us(self) -> int:
        """The interval between evenly spaced claims."""
        return max(1, int(self.per_seconds * MICROSECONDS / self.count))


def rate_of(field: str, text: str) -> Rate:
    """Parse a rate such as ``10/m``, ``5/s`` or ``100/15m``."""
    found = re.fullmatch(r"\s*([0-9]{1,9})\s*/\s*(\S{1,20})\s*", text)
    if found is None:
        raise InvalidInput(field, f"{text[:40]!r} is not a rate such as 10/m, 5/s or 100/15m")
    count, unit = int(found[1]), found[2]
    seconds = _RATE_UNITS.get(unit) or seconds_of(field, unit)
    if not count or not seconds:
        raise InvalidInput(field, f"{text[:40]!r} allows nothing: pause it instead")
    return Rate(count, seconds)


class QueuePolicy(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The limits of one queue. The default has none, and keeps keys in order."""

    paused: bool = False
    max_in_flight: Whole | None = None
    max_per_tenant: Whole | None = None
    max_per_key: Whole | None = None
    rate: Rate | None = None
    fair: bool = False
    """Whether tenants take turns, one job each, with priorities inside a tenant."""
    ordered: bool = True
    """Whether jobs of one key wait for each other, and for a dead one among them."""
    outage_until_us: Whole = 0
    """Not used any more: outages have records of their own (``model.outage``)."""
    keep_payload: bool | None = None
    """Whether finished jobs keep their payload; None: as the store's setting says."""

    def check(self) -> None:
        """Raise ``InvalidInput`` if a field is invalid."""
        for field in ("paused", "fair", "ordered"):
            if type(getattr(self, field)) is not bool:
                raise InvalidInput(field, f"{getattr(self, field)!r} is not true or false")
        if self.keep_payload is not None and type(self.keep_payload) is not bool:
            raise InvalidInput("keep_payload", f"{self.keep_payload!r} is not true, false or none")
        for field in ("max_in_flight", "max_per_tenant", "max_per_key"):
            if getattr(self, field) is not None:
                check_size(field, getattr(self, field), 1, 1_000_000)
        check_size("outage_until_us", self.outage_until_us, 0)
        if self.rate is not None:
            if type(self.rate) is not Rate:
                raise InvalidInput("rate", f"a {type(self.rate).__name__} is not a Rate")
            check_size("rate", self.rate.count, 1, 1_000_000)
            check_seconds("rate", self.rate.per_seconds)

    @property
    def limits_claims(self) -> bool:
        """Whether anything but the order of keys decides what may be claimed."""
        return self.paused or self.fair or self.rate is not None or self.limits_flight

    def drops_payload(self, job: Job, *, keep: bool) -> bool:
        """Whether this job, of this queue, is finished and loses its payload.

        ``keep`` is the setting of the store.
        """
        kept = keep if self.keep_payload is None else self.keep_payload
        return not kept and job.state in FORGETTABLE

    @property
    def limits_flight(self) -> bool:
        """Whether the end of one job can let another one run, apart from keys."""
        return (
            self.max_in_flight is not None
            or self.max_per_tenant is not None
            or self.max_per_key is not None
        )

    def room(self, in_flight: int, spent_until_us: int, now_us: int) -> int | None:
        """Return how many more jobs may be claimed now; None is any number.

        ``spent_until_us`` is up to when claims have used the rate: see ``spend``.
        """
        if self.paused:
            return 0
        most: int | None = None
        if self.max_in_flight is not None:
            most = max(0, self.max_in_flight - in_flight)
        if self.rate is not None:
            ahead_us = max(spent_until_us - now_us, 0)
            allowed = self.rate.count - -(-ahead_us // self.rate.interval_us)
            most = max(0, allowed) if most is None else min(most, max(0, allowed))
        return most

    def spend(self, spent_until_us: int, at_us: int) -> int:
        """Return up to when the rate is used after a claim at this time."""
        if self.rate is None:
            return 0
        return min(max(spent_until_us, at_us) + self.rate.interval_us, MAX_TIME_US)

    def opens_at_us(self, spent_until_us: int, now_us: int) -> int | None:
        """Return when the passing of time alone allows more claims, or None."""
        if self.rate is None or self.paused:
            return None
        # One interval before all is spent there is room for one more.
        free_us = spent_until_us - (self.rate.count - 1) * self.rate.interval_us
        return free_us if free_us > now_us else None


DEFAULT_POLICY = QueuePolicy()
