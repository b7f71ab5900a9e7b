"""Who asks: the tenant and the scopes inside it that a caller reaches.

A scope is a containment path inside a tenant (``library:42/book:7``): whoever reaches
``library:42`` reaches everything below it, and nothing beside it.
"""

from __future__ import annotations

import msgspec

DEFAULT_TENANT = "default"


class Caller(msgspec.Struct, frozen=True):
    """What a caller reaches. ``tenant=None`` is every tenant; no scopes is every scope."""

    tenant: str | None = None
    scopes: tuple[str, ...] = ()

    @property
    def unlimited(self) -> bool:
        """Whether this caller reaches everything."""
        return self.tenant is None and not self.scopes

    def reaches(self, tenant: str, scope: str) -> bool:
        """Whether work of this tenant and scope is within the caller's reach."""
        if self.tenant is not None and tenant != self.tenant:
            return False
        return not self.scopes or any(_contains(held, scope) for held in self.scopes)


SYSTEM = Caller()


def _contains(held: str, scope: str) -> bool:
    return scope == held or scope.startswith(held + "/")
