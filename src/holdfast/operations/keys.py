"""Keys: made, listed, rotated, revoked, and checked when somebody calls with one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from secrets import token_bytes

import msgspec
from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.model.api_key import (
    KIND,
    USE_KIND,
    ApiKey,
    KeySecret,
    new_key_text,
    read_key_text,
    secret_hash,
)
from holdfast.model.audit import Attribution
from holdfast.model.errors import AccessDenied, ChangedMeanwhile, InvalidInput, UnknownKey
from holdfast.model.job import MICROSECONDS
from holdfast.model.permissions import Permission, granted, roles_of
from holdfast.model.principal import Principal
from holdfast.model.record import Record

from .attribution import Author, entry_of
from .views import date_of

DEFAULT_OVERLAP_SECONDS = 24 * 3_600.0
MAX_OVERLAP_SECONDS = 7 * 24 * 3_600.0
_USE_EVERY_US = 60 * MICROSECONDS


class KeyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A key as somebody asks for it."""

    name: str
    roles: Sequence[str]
    tenants: Sequence[str] = ()
    scopes: Sequence[str] = ()
    expires_at_us: int = 0
    requests_per_minute: int = 0


class KeyUse(msgspec.Struct, frozen=True):
    """When a key was used last, and from where."""

    at_us: int = 0
    address: str = ""
    deprecated_calls: int = 0


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A key as people see it: never its secret."""

    id: str
    name: str
    roles: list[str]
    tenants: list[str]
    scopes: list[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    requests_per_minute: int
    """0: as many as the server allows."""
    last_used_at: datetime | None
    last_used_from: str
    deprecated_calls: int
    """How many calls went to a version of the API that will end."""
    old_secret_until: datetime | None
    """Until when the secret before the newest one still counts."""
    state: str
    """``valid`` or ``expired``."""

    @classmethod
    def of(cls, key: ApiKey, use: KeyUse, now_us: int) -> KeyView:
        """Return the view of a key."""
        old = [one.expires_at_us for one in key.secrets[1:] if one.valid(now_us)]
        return cls(
            id=key.id,
            name=key.name,
            roles=[role.value for role in key.roles],
            tenants=list(key.tenants),
            scopes=list(key.scopes),
            created_at=date_of(key.created_at_us),
            created_by=key.created_by,
            expires_at=date_of(key.expires_at_us) if key.expires_at_us else None,
            requests_per_minute=key.requests_per_minute,
            last_used_at=date_of(use.at_us) if use.at_us else None,
            last_used_from=use.address,
            deprecated_calls=use.deprecated_calls,
            old_secret_until=date_of(max(old)) if old else None,
            state="expired" if key.expired(now_us) else "valid",
        )


class NewKey(msgspec.Struct, frozen=True):
    """A key with its text, which nobody can see again."""

    key: KeyView
    text: str


class KeyOperations:
    """What people do with keys, on any engine."""

    def __init__(self, engine: Engine, principal: Principal) -> None:
        """``engine`` is the store itself: what may be done with keys is decided here."""
        self._engine = engine
        self._principal = principal

    async def create(self, request: KeyRequest, who: Author) -> NewKey:
        """Make a key; its roles and its reach must be within those of who makes it."""
        self._principal.require(Permission.KEY_MANAGE)
        now_us = await self._engine.now_us()
        if 0 < request.expires_at_us <= now_us:
            raise InvalidInput("expires_at", "it lies in the past")
        text = new_key_text(token_bytes)
        key = ApiKey(
            id=text.id,
            name=request.name,
            roles=roles_of(request.roles),
            tenants=tuple(request.tenants),
            scopes=tuple(request.scopes),
            secrets=(KeySecret(secret_hash(text.secret), now_us),),
            created_at_us=now_us,
            created_by=who.by,
            expires_at_us=request.expires_at_us,
            requests_per_minute=request.requests_per_minute,
        )
        key.check()
        _check_within(key, self._principal)
        if any(one.name == key.name and _meet(one, key) for one in await self._keys()):
            raise InvalidInput("name", f"there is a key {key.name!r} already: rotate or revoke it")
        await self._store(key, None, "key.create", who)
        return NewKey(KeyView.of(key, KeyUse(), now_us), str(text))

    async def all(self) -> list[KeyView]:
        """Return the keys within the reach of who asks, by name."""
        self._principal.require(Permission.KEY_MANAGE)
        now_us = await self._engine.now_us()
        uses = {
            one.name: msgspec.json.decode(one.value, type=KeyUse)
            for one in await self._engine.records(USE_KIND)
        }
        keys = [one for one in await self._keys() if _within(one, self._principal)]
        keys.sort(key=lambda key: (key.name, key.id))
        return [KeyView.of(one, uses.get(one.id, KeyUse()), now_us) for one in keys]

    async def show(self, name: str) -> KeyView:
        """Return the key of this name or id, or raise ``UnknownKey``."""
        key_id = (await self._named(name)).id
        return next(one for one in await self.all() if one.id == key_id)

    async def rotate(self, name: str, who: Author, overlap_seconds: float) -> NewKey:
        """Give a key a new secret; the one before it counts for so much longer."""
        self._principal.require(Permission.KEY_MANAGE)
        if not 0 <= overlap_seconds <= MAX_OVERLAP_SECONDS:
            most = int(MAX_OVERLAP_SECONDS / 3_600)
            raise InvalidInput("overlap_seconds", f"at most {most} hours")
        now_us = await self._engine.now_us()
        before = await self._named(name)
        text = new_key_text(token_bytes, before.id)
        until_us = now_us + int(overlap_seconds * MICROSECONDS)
        last = before.secrets[0]
        old = [replace(last, expires_at_us=until_us)] if overlap_seconds else []
        secrets = (KeySecret(secret_hash(text.secret), now_us), *old)
        key = replace(before, secrets=secrets)
        await self._store(key, before, "key.rotate", who)
        return NewKey(KeyView.of(key, KeyUse(), now_us), str(text))

    async def revoke(self, name: str, who: Author) -> KeyView:
        """Remove a key: from now on it counts no longer."""
        self._principal.require(Permission.KEY_MANAGE)
        before = await self._named(name)
        entry = entry_of("key.revoke", KIND, before.id, who, {"name": before.name})
        attribution = Attribution(who.by, who.why, (entry,))
        await self._engine.set_record(
            KIND, before.id, None, attribution, expected=_record_of(before)
        )
        return KeyView.of(before, KeyUse(), await self._engine.now_us())

    async def find(self, text: str) -> ApiKey | None:
        """Return the key with this text, if it counts now."""
        parts = read_key_text(text)
        if parts is None:
            return None
        found = await self._engine.records(KIND, [parts.id])
        if not found:
            return None
        key = _key_of(found[0])
        now_us = await self._engine.now_us() if key.ends else 0
        return key if key.accepts(parts.secret, now_us) else None

    async def exist(self) -> bool:
        """Whether there is a key."""
        return bool(await self._engine.records(KIND))

    async def used(self, key: ApiKey, address: str, deprecated_calls: int = 0) -> bool:
        """Store that a key was used, at most once a minute; return whether it is stored."""
        now_us = await self._engine.now_us()
        found = await self._engine.records(USE_KIND, [key.id])
        before = found[0] if found else None
        use = KeyUse()
        if before is not None:
            use = msgspec.json.decode(before.value, type=KeyUse)
            if now_us - use.at_us < _USE_EVERY_US:
                return False
        calls = use.deprecated_calls + deprecated_calls
        value = msgspec.json.encode(KeyUse(now_us, address, calls)).decode()
        after = Record(USE_KIND, key.id, value)
        who = Attribution(key.name, "a key was used")
        try:
            await self._engine.set_record(USE_KIND, key.id, after, who, expected=before)
        except ChangedMeanwhile:
            return False  # another process has stored it
        return True

    async def _keys(self) -> list[ApiKey]:
        return [_key_of(one) for one in await self._engine.records(KIND)]

    async def _named(self, name: str) -> ApiKey:
        """Return the key of this name or id; one out of reach counts as unknown."""
        keys = [one for one in await self._keys() if _within(one, self._principal)]
        found = [one for one in keys if name in (one.name, one.id)]
        if len(found) > 1:
            ids = ", ".join(one.id for one in found)
            raise InvalidInput("name", f"several keys are named {name!r}: give the id, {ids}")
        if not found:
            raise UnknownKey(name, [one.name for one in keys])
        return found[0]

    async def _store(self, key: ApiKey, before: ApiKey | None, action: str, who: Author) -> None:
        changes: dict[str, object] = {
            "name": key.name,
            "roles": [role.value for role in key.roles],
            "tenants": list(key.tenants),
            "scopes": list(key.scopes),
        }
        if key.requests_per_minute:
            changes["requests_per_minute"] = key.requests_per_minute
        entry = entry_of(action, KIND, key.id, who, changes)
        attribution = Attribution(who.by, who.why, (entry,))
        expected = None if before is None else _record_of(before)
        await self._engine.set_record(KIND, key.id, _record_of(key), attribution, expected=expected)


def _record_of(key: ApiKey) -> Record:
    return Record(KIND, key.id, msgspec.json.encode(key).decode())


def _key_of(record: Record) -> ApiKey:
    return msgspec.json.decode(record.value, type=ApiKey)


def _meet(one: ApiKey, other: ApiKey) -> bool:
    """Whether there is a tenant that both reach: there their names must tell them apart."""
    return not one.tenants or not other.tenants or not set(one.tenants).isdisjoint(other.tenants)


def _within(key: ApiKey, principal: Principal) -> bool:
    """Whether everything that the key reaches is within the reach of somebody."""
    reach = principal.caller
    if reach.tenant is None:
        return True
    if key.tenants != (reach.tenant,):
        return False
    if not reach.scopes:
        return True
    return bool(key.scopes) and all(reach.can_access(reach.tenant, one) for one in key.scopes)


def _check_within(key: ApiKey, principal: Principal) -> None:
    """Raise ``AccessDenied`` if a key could do more than who makes it."""
    if not _within(key, principal):
        raise AccessDenied("key", key.name)
    more = granted(key.roles) - granted(principal.roles) - {Permission.JOB_CLAIM}
    if more:
        raise AccessDenied("roles", ", ".join(role.value for role in key.roles))
