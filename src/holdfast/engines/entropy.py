"""Random bytes for ids and salts, fetched from the system in large pieces.

Each fetch releases the interpreter lock, which costs a busy event loop more than the bytes do.
"""

from __future__ import annotations

import os
import threading
from secrets import token_bytes

_PIECE_BYTES = 8_192


class RandomPool:
    """A pool of random bytes; no two calls, in any process, get the same ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = b""
        self._used = 0
        if hasattr(os, "register_at_fork"):
            # A forked child would return the same bytes as its parent.
            os.register_at_fork(after_in_child=self.clear)

    def __call__(self, count: int) -> bytes:
        """Return this many random bytes."""
        with self._lock:
            end = self._used + count
            if end > len(self._pool):
                if count > _PIECE_BYTES:
                    return token_bytes(count)
                self._pool, self._used, end = token_bytes(_PIECE_BYTES), 0, count
            taken = self._pool[self._used : end]
            self._used = end
            return taken

    def clear(self) -> None:
        """Drop what is left."""
        self._lock = threading.Lock()
        self._pool, self._used = b"", 0


random_bytes = RandomPool()
"""The pool of this process."""
