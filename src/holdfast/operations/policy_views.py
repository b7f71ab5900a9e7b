"""The limits of a queue, as people see them."""

from __future__ import annotations

import msgspec

from holdfast.model.policy import QueuePolicy

from .operation_views import rate_text


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a queue."""

    paused: bool
    max_in_flight: int | None
    max_per_tenant: int | None
    max_per_key: int | None
    rate: str | None
    """How many may start per time, such as ``10/m``."""
    fair: bool
    ordered: bool
    keep_payload: bool | None

    @classmethod
    def of(cls, policy: QueuePolicy) -> PolicyView:
        """Return a policy for people."""
        return cls(
            paused=policy.paused,
            max_in_flight=policy.max_in_flight,
            max_per_tenant=policy.max_per_tenant,
            max_per_key=policy.max_per_key,
            rate=rate_text(policy.rate),
            fair=policy.fair,
            ordered=policy.ordered,
            keep_payload=policy.keep_payload,
        )
