"""Tenants: those that keys name, and how much each has.

There is no list of tenants in a store: a tenant is there from its first job or event. So one that
no key names can be looked at by its name, and is not listed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.engines.contract import Counts, Engine
from holdfast.model.access import DEFAULT_TENANT, Caller
from holdfast.model.errors import AccessDenied
from holdfast.model.event_search import EventFilter
from holdfast.model.job import check_name
from holdfast.model.permissions import Permission
from holdfast.model.principal import Principal

from .keys import KeyOperations, KeyView


class TenantView(msgspec.Struct, frozen=True):
    """A tenant: its keys, and its jobs by state."""

    tenant: str
    keys: int
    """How many keys reach it, of those that may be seen."""
    queues: int
    """How many queues have jobs of it."""
    jobs: Counts


class TenantDetails(msgspec.Struct, frozen=True):
    """A tenant with the number of its events."""

    tenant: str
    keys: int
    queues: int
    jobs: Counts
    events: int


class TenantOperations:
    """What people ask about tenants, within their reach."""

    def __init__(self, engine: Engine, keys: KeyOperations, principal: Principal) -> None:
        self._engine = engine
        self._keys = keys
        self._principal = principal

    async def page(self, after: str, limit: int) -> tuple[list[TenantView], bool]:
        """Return the tenants after this name, and whether there are more."""
        self._principal.require(Permission.TENANT_MANAGE)
        keys = await self._keys.all()
        reach = self._principal.caller.tenant
        names = {name for key in keys for name in key.tenants} | {reach or DEFAULT_TENANT}
        rest = sorted(name for name in names if name > after)
        return [await self._view(name, keys) for name in rest[:limit]], len(rest) > limit

    async def show(self, tenant: str) -> TenantDetails:
        """Return one tenant; raise ``AccessDenied`` if it is out of reach."""
        self._principal.require(Permission.TENANT_MANAGE)
        check_name("tenant", tenant)
        if self._principal.caller.tenant not in (None, tenant):
            raise AccessDenied("tenant", tenant)
        view = await self._view(tenant, await self._keys.all())
        wanted = EventFilter(tenant=tenant)
        events = await self._engine.count_events(wanted)
        return TenantDetails(**msgspec.structs.asdict(view), events=events)

    async def _view(self, tenant: str, keys: Sequence[KeyView]) -> TenantView:
        found = await self._engine.counts(caller=Caller(tenant, self._principal.caller.scopes))
        return TenantView(
            tenant=tenant,
            keys=sum(not key.tenants or tenant in key.tenants for key in keys),
            queues=len(found),
            jobs=_sum(list(found.values())),
        )


def _sum(counts: Sequence[Counts]) -> Counts:
    return Counts(
        **{name: sum(getattr(one, name) for one in counts) for name in Counts.__struct_fields__}
    )
