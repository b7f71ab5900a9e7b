"""The public keys of an identity provider (RFC 7517), from a file or an https address."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from holdfast.engines.clock import monotonic as system_monotonic
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import InvalidInput

from .problems import RequestRefused

log = StructuredLog("holdfast.api")

SETTING = "api_oidc_jwks"
REFETCH_SECONDS = 60.0
"""No more often than this are the keys read again, whatever tokens come."""
FRESH_SECONDS = 300.0
"""So long a key counts after its issuer has taken it back."""
_FETCH_SECONDS = 5.0
_MAX_BYTES = 1 << 20
_MIN_RSA_BITS = 2_048
_OF_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVES: Mapping[object, tuple[str, ...]] = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
    "Ed448": ("EdDSA",),
}


class VerificationKey(msgspec.Struct, frozen=True):
    """A public key, and the algorithms that it may be used with: never a symmetric one."""

    key: jwt.PyJWK
    algorithms: tuple[str, ...]


class _Document(msgspec.Struct):
    keys: list[dict[str, object]]


class KeySet:
    """Finds keys by their id; reads them again when there may be others."""

    def __init__(self, place: str, monotonic: Callable[[], float] = system_monotonic) -> None:
        """Raise ``InvalidInput`` if ``place`` is a file without keys; an address may fail now."""
        self._place = place
        self._monotonic = monotonic
        self._keys: Mapping[str, VerificationKey] = {}
        self._read_at = self._tried_at = monotonic() - FRESH_SECONDS
        self._reading: asyncio.Task[None] | None = None
        if not _is_address(place):
            self._keys = _load(place)
            self._read_at = monotonic()

    async def find(self, key_id: str) -> VerificationKey | None:
        """Return the key of this id, or None; raise ``RequestRefused`` if no keys are known."""
        known = self._keys.get(key_id)
        now = self._monotonic()
        stale = known is None or now - self._read_at >= FRESH_SECONDS
        if stale and self._reading is None and now - self._tried_at >= REFETCH_SECONDS:
            self._tried_at = now
            self._reading = asyncio.create_task(self._read())
        if known is not None:
            return known  # it does not wait for an issuer that is slow
        if self._reading is not None:
            await asyncio.shield(self._reading)
        if not self._keys:
            text = "the keys of the issuer of tokens cannot be read: the log of the server says why"
            raise RequestRefused(
                "unavailable", text, headers={"retry-after": str(int(REFETCH_SECONDS))}
            )
        return self._keys.get(key_id)

    async def _read(self) -> None:
        try:
            self._keys = await asyncio.to_thread(_load, self._place)
            self._read_at = self._monotonic()
        except InvalidInput as error:
            log.emit("api.token_keys_not_read", error=error)
        finally:
            self._reading = None


def _is_address(place: str) -> bool:
    return "://" in place


def _load(place: str) -> dict[str, VerificationKey]:
    """Return the keys by id; raise ``InvalidInput`` if there is none that can be used."""
    try:
        data = _fetch(place) if _is_address(place) else _read_file(place)
        document = msgspec.json.decode(data, type=_Document)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise InvalidInput(SETTING, f"{place} has no JSON Web Key Set ({error})") from None
    found: dict[str, VerificationKey] = {}
    for one in document.keys:
        key, name = _usable(one), one.get("kid")
        if key is not None and isinstance(name, str):
            found[name] = key
    if not found:
        problem = "has no public key for signatures (RSA of 2,048 bits, EC or EdDSA) with a kid"
        raise InvalidInput(SETTING, f"{place} {problem}")
    return found


def _read_file(place: str) -> bytes:
    with Path(place).open("rb") as file:
        return file.read(_MAX_BYTES)


def _fetch(address: str) -> bytes:
    """Return what is at an https address; a redirect is refused: it could leave https."""

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_given: object) -> None:
            return None

    secure = urllib.request.HTTPSHandler(context=ssl.create_default_context())
    opener = urllib.request.build_opener(secure, NoRedirect)
    give_up = system_monotonic() + _FETCH_SECONDS
    data = b""
    with opener.open(address, timeout=_FETCH_SECONDS) as answer:
        while (part := answer.read1(1 << 16)) and len(data) <= _MAX_BYTES:
            data += part
            if system_monotonic() > give_up:
                raise TimeoutError("it takes too long")
    return data


def _usable(jwk: dict[str, object]) -> VerificationKey | None:
    """Return a public key for signatures, or None for any other."""
    algorithms = _OF_RSA if jwk.get("kty") == "RSA" else _OF_CURVES.get(jwk.get("crv"), ())
    named = jwk.get("alg")
    if named is not None:
        algorithms = tuple(one for one in algorithms if one == named)
    if not algorithms or "d" in jwk or jwk.get("use", "sig") != "sig":
        return None
    try:
        key = jwt.PyJWK(jwk, algorithms[0])
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key.key, RSAPublicKey) and key.key.key_size < _MIN_RSA_BITS:
        return None
    return VerificationKey(key, algorithms)
