"""Tokens of an identity provider (OpenID Connect) in place of keys: the extra ``oidc``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import jwt
import msgspec

from holdfast.engines.clock import monotonic as system_monotonic
from holdfast.model.api_key import ApiKey
from holdfast.model.errors import InvalidInput
from holdfast.settings import Settings
from holdfast.settings.oidc_values import roles_of_values

from .authentication import unauthenticated
from .jwks import KeySet, VerificationKey
from .problems import RequestRefused

LEEWAY_SECONDS = 30
"""How far the clock of the issuer may be from ours."""
MAX_TOKEN_BYTES = 16_384
EVERYTHING = "*"
_BAD_TOKEN = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)
"""What PyJWT raises for hostile tokens; the last three for numbers and depths that it lets pass."""

Claims = Mapping[str, object]


class TokenVerifier:
    """Checks tokens, and says what they grant."""

    def __init__(
        self, settings: Settings, monotonic: Callable[[], float] = system_monotonic
    ) -> None:
        """Raise ``InvalidInput`` if the keys are in a file that has none."""
        self._issuer = settings.api_oidc_issuer or ""
        self._audience = settings.api_oidc_audience or ""
        self._roles = roles_of_values(settings.api_oidc_roles or "")
        self._roles_claim = settings.api_oidc_roles_claim
        self._tenants_claim = settings.api_oidc_tenants_claim
        self._scopes_claim = settings.api_oidc_scopes_claim
        self._keys = KeySet(settings.api_oidc_jwks or "", monotonic)

    async def key(self, token: str) -> ApiKey:
        """Return what a token grants, as a key would; raise ``RequestRefused``."""
        if len(token) > MAX_TOKEN_BYTES:
            raise unauthenticated(f"this token has more than {MAX_TOKEN_BYTES:,} characters")
        try:
            header = jwt.get_unverified_header(token)
        except _BAD_TOKEN:
            raise unauthenticated("this token is not valid: it is no JSON Web Token") from None
        key_id = header.get("kid")
        if not isinstance(key_id, str) or "crit" in header:
            raise unauthenticated("this token is not valid: its header has no kid, or a crit")
        key = await self._keys.find(key_id)
        if key is None:
            raise unauthenticated("this token is not valid: the issuer has no such key")
        return self._granted(self._claims(token, key))

    def _claims(self, token: str, key: VerificationKey) -> Claims:
        try:
            found = jwt.decode(
                token,
                key.key.key,
                algorithms=list(key.algorithms),
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise unauthenticated("this token has expired: get another one") from None
        except _BAD_TOKEN as error:
            raise unauthenticated(f"this token is not valid ({type(error).__name__})") from None
        return msgspec.convert(found, dict[str, object])

    def _granted(self, claims: Claims) -> ApiKey:
        """Return the roles and the reach of a token; what it does not say, it does not grant."""
        subject = str(claims["sub"])
        roles = {
            self._roles[one] for one in _values(claims, self._roles_claim) if one in self._roles
        }
        if not roles:
            raise _forbidden(f"{self._roles_claim!r} has no value that gives a role here")
        tenants = _reach(claims, self._tenants_claim)
        scopes = () if self._scopes_claim is None else _reach(claims, self._scopes_claim)
        granted = ApiKey(
            id=f"oidc:{hashlib.sha256(subject.encode()).hexdigest()[:16]}",
            name=f"{subject}@{urlsplit(self._issuer).hostname}",
            roles=tuple(sorted(roles)),
            tenants=tenants,
            scopes=scopes,
            created_at_us=0,
            created_by=self._issuer,
        )
        try:
            granted.check()
        except InvalidInput as error:
            raise _forbidden(f"what its claims say cannot be used: {error}") from None
        return granted


def _reach(claims: Claims, name: str) -> tuple[str, ...]:
    """Return the tenants or scopes of a claim; none, which is everything, only if it says so."""
    values = _values(claims, name)
    if not values:
        raise _forbidden(f"it has no {name!r}: a list of texts, or {EVERYTHING!r} for all")
    return () if EVERYTHING in values else values


def _values(claims: Claims, name: str) -> tuple[str, ...]:
    """Return the texts of a claim: by its name, or by a path such as ``realm_access.roles``."""
    found: object = claims.get(name)
    if found is None:
        found = claims
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return (found,)
    texts = found if isinstance(found, list) else []
    return tuple(texts) if all(isinstance(one, str) for one in texts) else ()


def _forbidden(problem: str) -> RequestRefused:
    return RequestRefused("forbidden", f"this token is valid and grants nothing here: {problem}")
