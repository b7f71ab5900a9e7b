"""What the thread of an event loop does at this moment, as another thread sees it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Iterator
from types import FrameType

from .attempt import CURRENT, Attempt
from .executor import Executor

_MOST_FRAMES = 30


def attempt_in(frame: FrameType) -> Attempt | None:
    """Return the attempt whose code runs in this frame, or None.

    It is found by the context of what the loop runs, so also in a task that the attempt started.
    Other loops than asyncio's have no frames of their own: there it must run directly.
    """
    for one in _outwards(frame):
        if one.f_code is Executor.run.__code__:
            attempt: Attempt = one.f_locals["attempt"]
            return attempt
        if one.f_code is asyncio.Handle._run.__code__:  # noqa: SLF001 - see below
            context = one.f_locals["self"]._context  # noqa: SLF001 - not public in Python 3.11
            found: Attempt | None = context.get(CURRENT)
            return found
    return None


def waits_for_events(frame: FrameType) -> bool:
    """Whether the loop waits for something to do: nothing blocks it."""
    return frame.f_code.co_filename == selectors.__file__


def stack_text(frame: FrameType) -> str:
    """Return the place: files, lines and functions, the innermost last, without values."""
    frames = list(_outwards(frame))[:_MOST_FRAMES]
    lines = [f"  {one.f_code.co_filename}:{one.f_lineno} {one.f_code.co_name}" for one in frames]
    return "\n".join(["blocked in:", *reversed(lines)])


def _outwards(frame: FrameType) -> Iterator[FrameType]:
    current: FrameType | None = frame
    while current is not None:
        yield current
        current = current.f_back
