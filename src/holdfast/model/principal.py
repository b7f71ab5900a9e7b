"""On whose behalf a call is made: who it is, what it may do, and within which reach."""

from __future__ import annotations

import msgspec

from .access import SYSTEM, Caller
from .errors import AccessDenied, Forbidden
from .permissions import Permission, Role, granted


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a call. A role never widens the reach."""

    name: str
    """As the audit shows it: the login name, or the name of the key."""
    roles: tuple[Role, ...]
    caller: Caller = SYSTEM
    """The reach of this call: one tenant, or all; and scopes inside."""
    key_id: str = ""
    """The key that it was proved by; empty on this machine."""
    request_id: str = ""
    requests_per_minute: int = 0
    """0: as many as the server allows."""

    def may(self, permission: Permission) -> bool:
        """Whether one of the roles grants this."""
        return permission in granted(self.roles)

    @property
    def unrestricted(self) -> bool:
        """Whether neither a role nor the reach limits it: it may do what the store can."""
        return self.caller.unlimited and granted(self.roles) == frozenset(Permission)

    def require(self, permission: Permission) -> None:
        """Raise ``Forbidden`` unless one of the roles grants this."""
        if not self.may(permission):
            raise Forbidden(permission.value, [role.value for role in self.roles])

    def require_everything(self, permission: Permission) -> None:
        """Raise ``AccessDenied`` unless the reach is unlimited."""
        if not self.caller.unlimited:
            raise AccessDenied("everything", permission.value)


def local_principal(name: str) -> Principal:
    """Return somebody on this machine who may open the store: everything is theirs anyway."""
    return Principal(name=name, roles=(Role.ADMIN,))
