"""From the key or the token of a request to who makes it."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.engines.clock import monotonic as system_monotonic
from holdfast.engines.contract import Engine
from holdfast.http.credential_files import TokenFile
from holdfast.model.access import Caller
from holdfast.model.api_key import ApiKey, read_key_text
from holdfast.model.principal import Principal, local_principal
from holdfast.operations.keys import KeyOperations

from .problems import RequestRefused

if TYPE_CHECKING:
    from .oidc import TokenVerifier

_USE_EVERY_SECONDS = 60.0
_MOST_USES = 10_000
_CHALLENGE = {"www-authenticate": 'Bearer realm="holdfast"'}


class Authenticator:
    """Knows who has a key."""

    def __init__(
        self,
        engine: Engine,
        tokens: TokenVerifier | None = None,
        monotonic: Callable[[], float] = system_monotonic,
    ) -> None:
        """``tokens`` checks what an identity provider has signed; None: only keys count."""
        self._tokens = tokens
        self._keys = KeyOperations(engine, local_principal("holdfast"))
        self._monotonic = monotonic
        self._used: dict[str, float] = {}
        self._deprecated_calls: Counter[str] = Counter()
        """Those that are not stored yet."""

    async def principal(
        self,
        authorization: str | None,
        tenant: str | None,
        address: str,
        request_id: str,
        *,
        deprecated: bool = False,
    ) -> Principal:
        """Return who sends this header, with the reach of this call.

        ``tenant`` is the one that the path names; calls to a ``deprecated`` version are counted
        with the use of the key. Raise ``RequestRefused``.
        """
        scheme, _space, text = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not text.strip():
            raise unauthenticated("send `Authorization: Bearer KEY`")
        text = text.strip()
        if self._tokens is not None and text.count(".") == 2:  # no key has a dot
            key = await self._tokens.key(text)
        else:
            key = await self._stored_key(text, address, deprecated=deprecated)
        return Principal(
            name=key.name,
            roles=key.roles,
            caller=_reach(key, tenant),
            key_id=key.id,
            request_id=request_id,
            requests_per_minute=key.requests_per_minute,
        )

    async def _stored_key(self, text: str, address: str, *, deprecated: bool) -> ApiKey:
        if read_key_text(text) is None:  # its checksum is wrong: the store is not asked
            raise unauthenticated("this key is not valid: it is mistyped")
        key = await self._keys.find(text)
        if key is None:
            raise unauthenticated("this key is not valid: it is mistyped, revoked or expired")
        if deprecated:
            self._deprecated_calls[key.id] += 1
        await self._record_use(key, address)
        return key

    async def _record_use(self, key: ApiKey, address: str) -> None:
        now = self._monotonic()
        if now - self._used.get(key.id, -_USE_EVERY_SECONDS) < _USE_EVERY_SECONDS:
            return
        if len(self._used) >= _MOST_USES:
            self._used.clear()
        self._used[key.id] = now
        if await self._keys.used(key, address, self._deprecated_calls[key.id]):
            del self._deprecated_calls[key.id]


def unauthenticated(detail: str) -> RequestRefused:
    """Return the refusal of a request without a valid key or token."""
    return RequestRefused("unauthenticated", detail, headers=_CHALLENGE)


def has_token(authorization: str | None, file: TokenFile | None) -> bool:
    """Whether this header has the token of a file."""
    scheme, _space, text = (authorization or "").partition(" ")
    if file is None or scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(text.strip().encode("utf-8", "replace"), file.token())


def _reach(key: ApiKey, tenant: str | None) -> Caller:
    """Return the reach of a call: that of the key, within the tenant that the path names."""
    if tenant is not None:
        if key.tenants and tenant not in key.tenants:
            text = "there is no such thing within the reach of this key"
            raise RequestRefused("not-found", text)
        return Caller(tenant, key.scopes)
    if len(key.tenants) > 1:
        text = "this key reaches several tenants: name one, /v2/tenants/TENANT/…"
        raise RequestRefused("tenant-required", text)
    return Caller(key.tenants[0], key.scopes) if key.tenants else Caller()
