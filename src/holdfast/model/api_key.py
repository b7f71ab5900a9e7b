"""Keys that prove who calls over a network: their text, and what is stored of them.

A key is ``hf_k_<id>_<secret><checksum>``. The checksum tells a typing error from a wrong key
without a look at the store, and lets scanners find keys in files. Only a hash of the secret is
stored: 256 random bits need no slow one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import zlib
from collections.abc import Callable

import msgspec

from .errors import InvalidInput
from .job import Whole, check_id, check_name, check_scope, check_size
from .permissions import Role

KIND = "key"
"""The kind of its record."""
USE_KIND = "key_use"
"""The kind of the record that says when it was used last."""
MAX_TENANTS = 100
MAX_SCOPES = 100
MAX_RATE = 100_000_000
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH, _SECRET_LENGTH, _CHECKSUM_LENGTH = 12, 43, 6
_ID_BYTES, _SECRET_BYTES = 8, 32
_PATTERN = re.compile(rf"hf_k_([0-9A-Za-z]{{{_ID_LENGTH}}})_([0-9A-Za-z]{{{_SECRET_LENGTH + 6}}})")


def is_stored(key_id: str) -> bool:
    """Whether this is the id of a key in the store, not of a token that others have signed."""
    return key_id.isalnum()


class KeySecret(msgspec.Struct, frozen=True, omit_defaults=True):
    """A secret of a key: while a key is rotated it has two."""

    sha256: str
    created_at_us: Whole
    expires_at_us: Whole = 0
    """0: with its key."""

    def valid(self, now_us: int) -> bool:
        """Whether it still counts."""
        return not 0 < self.expires_at_us <= now_us


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of a key. New fields get defaults."""

    id: str
    name: str
    roles: tuple[Role, ...]
    tenants: tuple[str, ...] = ()
    """The tenants that it reaches; none: every tenant."""
    scopes: tuple[str, ...] = ()
    """The scopes inside; none: every scope."""
    secrets: tuple[KeySecret, ...] = ()
    """The newest first."""
    created_at_us: Whole
    created_by: str
    expires_at_us: Whole = 0
    """0: never."""
    requests_per_minute: Whole = 0
    """0: as many as the server allows a key."""

    def check(self) -> None:
        """Raise ``InvalidInput`` if a field is invalid."""
        check_id(self.name, "name")
        if not self.roles:
            raise InvalidInput("roles", f"give one or more of {', '.join(Role)}")
        if len(self.tenants) > MAX_TENANTS or len(self.scopes) > MAX_SCOPES:
            raise InvalidInput("tenants", f"at most {MAX_TENANTS} tenants, {MAX_SCOPES} scopes")
        check_size("requests_per_minute", self.requests_per_minute, 0, MAX_RATE)
        for tenant in self.tenants:
            check_name("tenant", tenant)
        for scope in self.scopes:
            check_scope(scope)
        if self.scopes and len(self.tenants) != 1:
            raise InvalidInput("scopes", "a key with scopes reaches exactly one tenant: name it")

    @property
    def ends(self) -> bool:
        """Whether it, or one of its secrets, counts until some time only."""
        return self.expires_at_us > 0 or any(one.expires_at_us for one in self.secrets)

    def expired(self, now_us: int) -> bool:
        """Whether it counts no longer."""
        return 0 < self.expires_at_us <= now_us

    def accepts(self, secret: str, now_us: int) -> bool:
        """Whether this is one of its secrets, and both still count."""
        if self.expired(now_us):
            return False
        found = secret_hash(secret)
        matches = [hmac.compare_digest(one.sha256, found) for one in self.secrets]
        return any(
            same and one.valid(now_us) for same, one in zip(matches, self.secrets, strict=True)
        )


class KeyText(msgspec.Struct, frozen=True):
    """The parts of the text of a key."""

    id: str
    secret: str

    def __str__(self) -> str:
        """Return the text as a person keeps it: it is shown once."""
        return f"hf_k_{self.id}_{self.secret}{_checksum(self.id, self.secret)}"

    def __repr__(self) -> str:
        """Return what may be logged: never the secret."""
        return f"KeyText({self.id})"


def new_key_text(random_bytes: Callable[[int], bytes], key_id: str = "") -> KeyText:
    """Make a key, or a new secret for one."""
    made = key_id or _base62(random_bytes(_ID_BYTES), _ID_LENGTH)
    return KeyText(made, _base62(random_bytes(_SECRET_BYTES), _SECRET_LENGTH))


def read_key_text(text: str) -> KeyText | None:
    """Return the parts of a key, or None if this is none, or has a typing error in it."""
    found = _PATTERN.fullmatch(text)
    if found is None:
        return None
    key = KeyText(found[1], found[2][:_SECRET_LENGTH])
    return key if found[2][_SECRET_LENGTH:] == _checksum(key.id, key.secret) else None


def secret_hash(secret: str) -> str:
    """Return what is stored of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _checksum(key_id: str, secret: str) -> str:
    crc = zlib.crc32(f"{key_id}_{secret}".encode())
    return _base62(crc.to_bytes(4, "big"), _CHECKSUM_LENGTH)


def _base62(data: bytes, length: int) -> str:
    number, digits = int.from_bytes(data, "big"), ""
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
