"""The tenant and the scopes inside it that a caller may access.

A scope is a containment path inside a tenant (``library:42/book:7``): access to ``library:42``
includes everything below it, and nothing beside it.
"""

from __future__ import annotations

import msgspec

DEFAULT_TENANT = "default"


class Caller(msgspec.Struct, frozen=True):
    """What a caller may access. ``tenant=None``: every tenant; no scopes: every scope."""

    tenant: str | None = None
    scopes: tuple[str, ...] = ()

    @property
    def unlimited(self) -> bool:
        """Whether this caller may access everything."""
        return self.tenant is None and not self.scopes

    def can_access(self, tenant: str, scope: str) -> bool:
        """Whether the caller may access jobs of this tenant and scope."""
        if self.tenant is not None and tenant != self.tenant:
            return False
        return not self.scopes or any(_contains(held, scope) for held in self.scopes)


SYSTEM = Caller()


def _contains(held: str, scope: str) -> bool:
    return scope == held or scope.startswith(held + "/")
