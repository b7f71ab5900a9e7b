"""The secret that signs cursors: made once, kept in the store, the same for every process."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from secrets import token_bytes

import msgspec

from holdfast.engines.contract import Engine
from holdfast.model.audit import Attribution
from holdfast.model.errors import ChangedMeanwhile
from holdfast.model.record import Record

_KIND = "cursor_secret"
_NAME = "current"
_SECRET_BYTES = 32
_SIGNATURE_BYTES = 16


class _Stored(msgspec.Struct, frozen=True):
    secret: str
    """In hexadecimal digits."""


class CursorSecret:
    """Signs what a cursor says, so that no other list takes it, and nobody makes one."""

    def __init__(self, engine: Engine) -> None:
        """``engine`` is the store itself: nobody else reads the secret."""
        self._engine = engine
        self._secret = b""

    async def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        if not self._secret:
            self._secret = await self._stored()
        return hmac.new(self._secret, message, hashlib.sha256).digest()[:_SIGNATURE_BYTES]

    async def _stored(self) -> bytes:
        found = await self._engine.records(_KIND, [_NAME])
        if not found:
            made = _Stored(token_bytes(_SECRET_BYTES).hex())
            record = Record(_KIND, _NAME, msgspec.json.encode(made).decode())
            who = Attribution("holdfast", "lists need a secret for their cursors")
            # Another process may have made one at the same moment: that is taken.
            with contextlib.suppress(ChangedMeanwhile):
                await self._engine.set_record(_KIND, _NAME, record, who, expected=None)
            found = await self._engine.records(_KIND, [_NAME])
        return bytes.fromhex(msgspec.json.decode(found[0].value, type=_Stored).secret)
