"""How much a key and a tenant may ask for: requests per minute.

A token bucket for each key and each tenant, in this process: a full one holds the requests of a
minute. The headers are those of draft-ietf-httpapi-ratelimit-headers.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.engines.clock import monotonic as system_monotonic
from holdfast.model.access import DEFAULT_TENANT
from holdfast.model.api_key import read_key_text
from holdfast.model.principal import Principal

from .problems import RequestRefused

WINDOW_SECONDS = 60
MAX_BUCKETS = 20_000
DEFAULT_KEY_RATE = 60_000
DEFAULT_TENANT_RATE = 120_000


class LimitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Requests per minute, and unfinished jobs; 0: no limit."""

    key_rate: int = DEFAULT_KEY_RATE
    """For a key that has no rate of its own."""
    tenant_rate: int = DEFAULT_TENANT_RATE
    max_jobs: int = 0
    """How many unfinished jobs a tenant may have."""


class Bucket:
    """The requests that are left of a minute's quota; it fills up evenly."""

    __slots__ = ("_at", "_tokens", "name", "quota")

    def __init__(self, name: str, quota: int, now: float) -> None:
        self.name = name
        self.quota = quota
        self._tokens = float(quota)
        self._at = now

    def fill(self, quota: int, now: float) -> None:
        """Add what came since the last look; the quota may be another one by now."""
        self.quota = quota
        came = (now - self._at) * quota / WINDOW_SECONDS
        self._tokens, self._at = min(float(quota), self._tokens + came), now

    def add(self, count: int) -> None:
        """Take one request, or give it back."""
        self._tokens = min(float(self.quota), self._tokens + count)

    @property
    def empty(self) -> bool:
        """Whether no request is left."""
        return self._tokens < 1

    @property
    def policy(self) -> str:
        """Its part of ``RateLimit-Policy``."""
        return f'"{self.name}";q={self.quota};w={WINDOW_SECONDS}'

    @property
    def state(self) -> str:
        """Its part of ``RateLimit``: what is left, and when it is full again."""
        full = math.ceil((self.quota - self._tokens) * WINDOW_SECONDS / self.quota)
        return f'"{self.name}";r={max(0, int(self._tokens))};t={full}'

    @property
    def retry_seconds(self) -> int:
        """When the next request fits."""
        return max(1, math.ceil((1 - self._tokens) * WINDOW_SECONDS / self.quota))


class RequestLimits:
    """Counts the requests of keys and tenants."""

    def __init__(
        self, options: LimitOptions, monotonic: Callable[[], float] = system_monotonic
    ) -> None:
        self._options = options
        self._monotonic = monotonic
        self._buckets: OrderedDict[tuple[str, str], Bucket] = OrderedDict()

    def check_key(self, authorization: str | None) -> None:
        """Refuse the next request of a key that has none left, before the store is asked."""
        parts = read_key_text((authorization or "").partition(" ")[2].strip())
        bucket = None if parts is None else self._buckets.get(("key", parts.id))
        if bucket is not None:
            bucket.fill(bucket.quota, self._monotonic())
            _refuse_if_empty([bucket])

    def admit(self, principal: Principal) -> Sequence[Bucket]:
        """Take a request from the buckets of its key and its tenant; refuse it if one is empty."""
        tenant = principal.caller.tenant or DEFAULT_TENANT
        asked = (
            ("key", principal.key_id, principal.requests_per_minute or self._options.key_rate),
            ("tenant", tenant, self._options.tenant_rate),
        )
        buckets = [self._bucket(kind, name, quota) for kind, name, quota in asked if quota]
        _refuse_if_empty(buckets)
        for bucket in buckets:
            bucket.add(-1)
        return buckets

    def _bucket(self, kind: str, name: str, quota: int) -> Bucket:
        now = self._monotonic()
        bucket = self._buckets.pop((kind, name), None) or Bucket(kind, quota, now)
        bucket.fill(quota, now)
        self._buckets[kind, name] = bucket
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)  # the one that was used longest ago is full by now
        return bucket


def give_back(buckets: Sequence[Bucket]) -> None:
    """Return a request that cost nothing."""
    for bucket in buckets:
        bucket.add(1)


def limit_headers(buckets: Sequence[Bucket]) -> dict[str, str]:
    """Return the headers that say what is left."""
    if not buckets:
        return {}
    return {
        "ratelimit-policy": ", ".join(one.policy for one in buckets),
        "ratelimit": ", ".join(one.state for one in buckets),
    }


def quota_exceeded(
    detail: str, policies: Sequence[str], headers: Mapping[str, str]
) -> RequestRefused:
    """Return the refusal of a request that is over a limit."""
    extra = {"violated-policies": list(policies)}
    return RequestRefused("quota-exceeded", detail, headers=headers, extra=extra)


def _refuse_if_empty(buckets: Sequence[Bucket]) -> None:
    empty = [one for one in buckets if one.empty]
    if empty:
        names = " and ".join(f"{one.quota:,} requests a minute of the {one.name}" for one in empty)
        retry = max(one.retry_seconds for one in empty)
        headers = {**limit_headers(buckets), "retry-after": str(retry)}
        raise quota_exceeded(f"over {names}", [one.name for one in empty], headers)
