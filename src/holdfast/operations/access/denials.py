"""Denials in the audit: one entry a minute for each credential and permission."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.engines.clock import monotonic as system_monotonic
from holdfast.engines.contract import Engine
from holdfast.model.permissions import Permission
from holdfast.model.principal import Principal
from holdfast.operations.attribution import Author, entry_of

EVERY_SECONDS = 60.0
_MOST = 10_000


class DenialLog:
    """Writes what was refused into the audit, and no more often than is useful."""

    def __init__(self, engine: Engine, monotonic: Callable[[], float] = system_monotonic) -> None:
        self._engine = engine
        self._monotonic = monotonic
        self._written: dict[tuple[str, str, Permission], float] = {}

    async def denied(self, principal: Principal, permission: Permission) -> None:
        """Take that somebody was refused this."""
        now = self._monotonic()
        name = principal.key_id, principal.name, permission
        if now - self._written.get(name, -EVERY_SECONDS) < EVERY_SECONDS:
            return
        if len(self._written) >= _MOST:
            self._written.clear()
        self._written[name] = now
        changes: dict[str, object] = {
            "permission": permission.value,
            "roles": [role.value for role in principal.roles],
            "key": principal.key_id,
            "request_id": principal.request_id,
        }
        who = Author(principal.name, "")
        tenant = principal.caller.tenant or ""
        entry = entry_of("access.denied", "permission", permission.value, who, changes, tenant)
        await self._engine.audit([entry])
