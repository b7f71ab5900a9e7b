"""The mark that a move leaves in the old directory: it is not used any more, and says why."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from holdfast.model.errors import StorageError, StoreMoved
from holdfast.settings import Settings

_REPLACE = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
TOMBSTONE = "MOVED"
"""The name of the file. Who wants to use the old directory nevertheless removes it."""


class Tombstone(msgspec.Struct, frozen=True):
    """Where everything went, and when."""

    moved_to: str
    at: datetime


def leave_tombstone(source: Settings, target: Settings) -> None:
    """Mark a directory as moved; a server gets no mark."""
    if source.directory is None:
        return
    place = str(Path(target.directory).absolute()) if target.directory else target.store_shown
    file = Path(source.directory) / TOMBSTONE
    content = msgspec.json.encode(Tombstone(place, datetime.now(UTC)))
    try:
        fd = os.open(file, _REPLACE, 0o600)
        with os.fdopen(fd, "wb") as out:
            out.write(content + b"\n")
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise StorageError(
            f"everything was moved to {place}, but {file} cannot be written ({error}): do not use "
            f"{source.store_shown} any more"
        ) from error


def refuse_moved(settings: Settings) -> None:
    """Raise ``StoreMoved`` if the directory of these settings was moved."""
    if settings.directory is None:
        return
    file = Path(settings.directory) / TOMBSTONE
    try:
        content = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error}") from error
    try:
        tombstone = msgspec.json.decode(content, type=Tombstone)
        place, when = tombstone.moved_to, f" on {tombstone.at:%Y-%m-%d %H:%M} UTC"
    except (msgspec.MsgspecError, UnicodeDecodeError):
        place, when = "another store", ""
    raise StoreMoved(settings.store_shown, place, when, str(file))
