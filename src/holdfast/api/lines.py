"""Lines of a body while it arrives, in batches: bounded in length, number and time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

import msgspec

from .streaming import BodyStream

MAX_LINE_BYTES = 1 << 20
MAX_LINES = 1_000_000
_MARK = b"\xef\xbb\xbf"
"""The byte order mark."""


class Line(msgspec.Struct, frozen=True):
    """A line that is not empty, and its number from 1; None: it is too long."""

    number: int
    text: bytes | None


class LineReader:
    """Reads lines. One that is too long is not kept, whatever its length."""

    def __init__(self, stream: BodyStream) -> None:
        self._stream = stream
        self._lines: deque[Line] = deque()
        self._rest = b""
        self._skipping = self._ended = False
        self.count = 0
        """Of the lines so far, the empty ones too."""

    async def batch(self, most: int, seconds: float) -> list[Line]:
        """Return the next lines: so many, or those that come within so much time of the first.

        At the end, and after ``MAX_LINES``, there are none. Raise as ``BodyStream.read`` does.
        """
        while not (self._lines or self._complete):
            await self._read()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self._lines) < most and not self._complete:
                    await self._read()
        return [self._lines.popleft() for _line in range(min(most, len(self._lines)))]

    @property
    def _complete(self) -> bool:
        """Whether no more is read: empty lines count too, or they would never end."""
        return self._ended or self.count >= MAX_LINES

    async def _read(self) -> None:
        part = await self._stream.read()
        if not part:
            self._ended = True
            if self._rest or self._skipping:
                self._take(self._rest)
            self._rest = b""
            return
        *whole, self._rest = (self._rest + part).split(b"\n")
        for text in whole:
            self._take(text)
        if len(self._rest) > MAX_LINE_BYTES:
            self._skipping, self._rest = True, b""

    def _take(self, text: bytes) -> None:
        self.count += 1
        if self.count == 1:
            text = text.removeprefix(_MARK)
        if self._skipping or len(text) > MAX_LINE_BYTES:
            self._skipping = False
            self._lines.append(Line(self.count, None))
        elif text := text.strip():
            self._lines.append(Line(self.count, text))
