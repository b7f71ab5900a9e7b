"""``/keys``: make, list, rotate and revoke keys, within one's own reach and roles."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote

import msgspec

from holdfast.model.errors import AccessDenied
from holdfast.model.job import MAX_TIME_US, MICROSECONDS
from holdfast.model.permissions import Permission
from holdfast.operations.event_inputs import time_us
from holdfast.operations.keys import DEFAULT_OVERLAP_SECONDS, KeyRequest, KeyView, NewKey

from .call import Answer, ApiCall, Route, invalid
from .problems import RequestRefused


class NewKeyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A key to make."""

    name: str
    roles: list[str]
    why: str
    tenants: list[str] | None = None
    """The tenants that it reaches; left out: those of the key that makes it."""
    scopes: list[str] | None = None
    """The scopes inside; left out: those of the key that makes it."""
    expires_at: datetime | None = None
    expires_seconds: float | None = None


class KeyRotationBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a key gets a new secret, and for how long the old one still counts."""

    why: str
    overlap_seconds: float = DEFAULT_OVERLAP_SECONDS


async def create_key(call: ApiCall) -> Answer:
    """Make a key; its text is shown only in this answer."""
    asked = call.body(NewKeyBody)
    who = call.author(asked.why)
    reach = call.principal.caller
    own = () if reach.tenant is None else (reach.tenant,)
    request = KeyRequest(
        name=asked.name,
        roles=asked.roles,
        tenants=own if asked.tenants is None else asked.tenants,
        scopes=reach.scopes if asked.scopes is None else asked.scopes,
        expires_at_us=await _expiry_us(call, asked),
    )
    try:
        made = await call.operations.keys.create(request, who)
    except AccessDenied:
        await call.denied(Permission.KEY_MANAGE)
        text = "a key makes keys only within its own tenants, scopes and roles"
        extra = {"required_permission": Permission.KEY_MANAGE.value}
        raise RequestRefused("forbidden", text, extra=extra) from None
    place = "" if reach.tenant is None else f"/tenants/{quote(reach.tenant, safe='')}"
    return Answer(data=made, status=201, headers={"location": f"/v2{place}/keys/{made.key.id}"})


async def _expiry_us(call: ApiCall, asked: NewKeyBody) -> int:
    if asked.expires_at is not None and asked.expires_seconds is not None:
        raise invalid("expires_seconds", "give this or expires_at, not both")
    if asked.expires_at is not None:
        return max(1, time_us(asked.expires_at))
    if asked.expires_seconds is None:
        return 0
    now_us = await call.operations.engine.now_us()
    if not 0 < asked.expires_seconds < (MAX_TIME_US - now_us) / MICROSECONDS:
        raise invalid("expires_seconds", "give more than 0 seconds, and not more than there are")
    return now_us + int(asked.expires_seconds * MICROSECONDS)


async def list_keys(call: ApiCall) -> Answer:
    """List the keys within reach, by name; never their secrets."""
    return Answer(data=await call.operations.keys.all())


async def show_key(call: ApiCall) -> Answer:
    """Return a key: what it may do, when it expires, and when it was used last."""
    return Answer(data=await call.operations.keys.show(call.path["id"]))


async def rotate_key(call: ApiCall) -> Answer:
    """Give a key a new secret; its text is shown only in this answer."""
    asked = call.body(KeyRotationBody)
    who = call.author(asked.why)
    made = await call.operations.keys.rotate(call.path["id"], who, asked.overlap_seconds)
    return Answer(data=made)


async def revoke_key(call: ApiCall) -> Answer:
    """Remove a key: from now on it counts no longer."""
    who = call.author(call.value("why"))
    return Answer(data=await call.operations.keys.revoke(call.path["id"], who))


ROUTES = (
    Route(
        operation_id="createKey",
        method="POST",
        path="/keys",
        handle=create_key,
        permission=Permission.KEY_MANAGE,
        summary="Make a key; its text is shown once",
        body=NewKeyBody,
        example={"name": "shop", "roles": ["producer"], "why": "the shop calls the API"},
        answers=NewKey,
        statuses=(201,),
        takes_key=False,
    ),
    Route(
        operation_id="listKeys",
        method="GET",
        path="/keys",
        handle=list_keys,
        permission=Permission.KEY_MANAGE,
        summary="List keys",
        answers=list[KeyView],
    ),
    Route(
        operation_id="getKey",
        method="GET",
        path="/keys/{id}",
        handle=show_key,
        permission=Permission.KEY_MANAGE,
        summary="Return a key by its id or name",
        answers=KeyView,
    ),
    Route(
        operation_id="rotateKey",
        method="POST",
        path="/keys/{id}/rotate",
        handle=rotate_key,
        permission=Permission.KEY_MANAGE,
        summary="Give a key a new secret; its text is shown once",
        body=KeyRotationBody,
        example={"why": "it was in a log", "overlap_seconds": 3600},
        answers=NewKey,
        takes_key=False,
    ),
    Route(
        operation_id="revokeKey",
        method="DELETE",
        path="/keys/{id}",
        handle=revoke_key,
        permission=Permission.KEY_MANAGE,
        summary="Revoke a key",
        parameters=("why",),
        answers=KeyView,
        takes_key=False,
    ),
)
