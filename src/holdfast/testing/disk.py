"""A simulated disk with faults.

It keeps unsynced writes apart from durable data. ``crash`` returns the disk as the next process
may find it: after a kill every write is there; after a power cut any sector of any unsynced write,
and any unsynced name, may be missing.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import itertools
import os
import random
import sqlite3
from collections.abc import Callable, Mapping
from copy import deepcopy

from holdfast.model.errors import DirectoryInUse

SECTOR = 512
DATABASE = "cold.sqlite"
EVENTS = "events.sqlite"
_DATABASE_NUMBERS = itertools.count(1)


class Fault(enum.StrEnum):
    """A fault of one call."""

    EIO = "eio"
    ENOSPC = "enospc"
    EMFILE = "emfile"
    """This process has too many files open."""
    ENFILE = "enfile"
    """The system has too many files open."""
    EACCES = "eacces"
    """This user may not do it."""
    SHORT = "short"
    """A write is only partly done."""
    KILL = "kill"
    """The process ends before the call; every later call fails too."""


_NUMBERS = {
    Fault.EIO: errno.EIO,
    Fault.ENOSPC: errno.ENOSPC,
    Fault.EMFILE: errno.EMFILE,
    Fault.ENFILE: errno.ENFILE,
    Fault.EACCES: errno.EACCES,
}


class SimKilled(OSError):
    """The process that used this disk was killed."""


class _File:
    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.unsynced: list[tuple[int, bytes | None]] = []
        """(offset, data) of a write; (size, None) of a change of the length."""

    def change(self, offset: int, data: bytes | None) -> None:
        """Write data at the offset, or, without data, change the length to it."""
        _change(self.content, offset, data)
        self.unsynced.append((offset, data))

    def sync(self) -> None:
        """Apply the unsynced changes, which is much less than a copy of the file."""
        for offset, data in self.unsynced:
            _change(self.durable, offset, data)
        self.unsynced.clear()


class SimDisk:
    """Satisfies ``holdfast.engines.journal.wal.disk.Disk``. Calls that change it are numbered."""

    def __init__(
        self,
        *,
        faults: dict[int, Fault] | None = None,
        open_faults: Mapping[int, Fault] | None = None,
        capacity_bytes: int | None = None,
        ignore_syncs: bool = False,
    ) -> None:
        """Create a disk with faults by call number, a capacity, and syncs that may do nothing.

        ``open_faults`` are by the number among the calls that open or create something.
        """
        self.root = "simdisk"
        self.snapshots = "simdisk/snapshots"
        self.calls = 0
        self.call_names: list[str] = []
        self.killed = False
        self.faults = dict(faults or {})
        self.opens = 0
        self.open_names: list[str] = []
        self.open_faults: Mapping[int, Fault] = open_faults or {}
        self.capacity_bytes = capacity_bytes
        self.ignore_syncs = ignore_syncs
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._unsynced_names: list[tuple[str, str, str | None, _File | None]] = []
        self._open: dict[int, _File] = {}
        self._next_fd = 3
        self._locked = False
        self._database = SimDatabase(self.root, self._call, self._opening)
        self._events = SimDatabase(self.root, self._call, self._opening, EVENTS)

    # --- the calls ---------------------------------------------------------------------------

    def lock(self) -> None:
        """Take the lock, or raise ``DirectoryInUse``."""
        if self._locked:
            raise DirectoryInUse(f"{self.root} is owned by another engine: close it first")
        self._locked = True

    def unlock(self) -> None:
        """Release the lock."""
        self._locked = False

    def names(self, place: str) -> list[str]:
        """Return the names in this place, sorted."""
        self._opening(f"names {place}")
        return sorted(name for name in self._names if name.startswith(place + "/"))

    def create(self, name: str) -> int:
        """Create an empty file, replacing an existing one, and open it."""
        self._opening(f"create {name}")
        self._call(f"create {name}")
        file = _File()
        self._names[name] = file
        self._unsynced_names.append(("create", name, None, file))
        return self._fd(file)

    def open(self, name: str) -> int:
        """Open an existing file."""
        self._check_alive()
        self._opening(f"open {name}")
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self._fd(self._names[name])

    def close(self, fd: int) -> None:
        """Close it."""
        del self._open[fd]

    def allocate(self, fd: int, size: int) -> None:
        """Make the file this long."""
        self._call("allocate")
        file = self._open[fd]
        used = sum(len(other.content) for other in self._names.values())
        if self.capacity_bytes is not None and used + size > self.capacity_bytes:
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
        size = max(size, len(file.content))
        file.change(size, None)

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """Write at the offset; return how many bytes were written."""
        short = self._call("write") is Fault.SHORT
        file = self._open[fd]
        if short:
            data = data[: max(1, len(data) // 2)]
        data = bytes(data)
        file.change(offset, data)
        return len(data)

    def sync(self, fd: int) -> None:
        """Make the file's content and length durable."""
        self._call("sync")
        if self.ignore_syncs:
            return
        self._open[fd].sync()

    def read(self, fd: int, offset: int, length: int) -> bytes:
        """Read at the offset."""
        self._check_alive()
        return bytes(self._open[fd].content[offset : offset + length])

    def size(self, fd: int) -> int:
        """Return the file's length."""
        return len(self._open[fd].content)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to this length."""
        self._call("truncate")
        self._open[fd].change(size, None)

    def rename(self, old: str, new: str) -> None:
        """Rename the file, replacing an existing one."""
        self._call(f"rename {old}")
        self._names[new] = self._names.pop(old)
        self._unsynced_names.append(("rename", old, new, None))

    def remove(self, name: str) -> None:
        """Remove the file."""
        self._call(f"remove {name}")
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        del self._names[name]
        self._unsynced_names.append(("remove", name, None, None))

    def sync_directory(self, place: str) -> None:
        """Make the names in this place durable."""
        self._call(f"sync_directory {place}")
        if self.ignore_syncs:
            return
        prefix = place + "/"
        for name in [name for name in self._durable_names if name.startswith(prefix)]:
            del self._durable_names[name]
        self._durable_names.update(
            {name: file for name, file in self._names.items() if name.startswith(prefix)}
        )
        self._unsynced_names = [
            change for change in self._unsynced_names if not change[1].startswith(prefix)
        ]

    def forget_cached(self, fd: int) -> None:
        """Do nothing: there is no cache."""

    samples = ":memory:"
    """The database of samples: expendable, so no crash is simulated on it."""
    read_models = None
    """Read models are in memory: they can be rebuilt from the events."""

    def database(self) -> SimDatabase:
        """Return the database of the history."""
        return self._database

    def events(self) -> SimDatabase:
        """Return the database of the events."""
        return self._events

    # --- for tests ---------------------------------------------------------------------------

    def crash(self, seed: int | None = None) -> SimDisk:
        """Return the disk as found after a kill, or, with a seed, after a power cut."""
        found = SimDisk(capacity_bytes=self.capacity_bytes, ignore_syncs=self.ignore_syncs)
        # A commit is atomic and durable when it returns.
        found._database.images |= self._database.images
        found._events.images |= self._events.images
        if seed is None:
            # The system lives on: unsynced data is visible, but still not durable.
            copies = {id(file): deepcopy(file) for file in self._files()}
            found._names = {name: copies[id(file)] for name, file in self._names.items()}
            found._durable_names = {n: copies[id(file)] for n, file in self._durable_names.items()}
            found._unsynced_names = [
                (what, name, new, None if file is None else copies[id(file)])
                for what, name, new, file in self._unsynced_names
            ]
            return found
        rng = random.Random(seed)
        for name, file in self._names_after_power_cut(rng).items():
            found.put(name, _after_power_cut(file, rng))
        return found

    def _files(self) -> list[_File]:
        created = [file for _what, _name, _new, file in self._unsynced_names if file is not None]
        return [*self._names.values(), *self._durable_names.values(), *created]

    def put(self, name: str, data: bytes) -> None:
        """Add a durable file, for example a golden or a damaged one."""
        file = _File()
        file.content, file.durable = bytearray(data), bytearray(data)
        self._names[name] = self._durable_names[name] = file

    def content(self, name: str) -> bytes:
        """Return the content of the file."""
        return bytes(self._names[name].content)

    def flip_bit(self, name: str, bit: int) -> None:
        """Flip one bit of a file; flip it again to repair it."""
        file = self._names[name]
        for content in (file.content, file.durable):
            if bit // 8 < len(content):
                content[bit // 8] ^= 1 << bit % 8

    def cut(self, name: str, length: int) -> None:
        """Cut a file to this length."""
        file = self._names[name]
        del file.content[length:], file.durable[length:]

    def _names_after_power_cut(self, rng: random.Random) -> dict[str, _File]:
        names = dict(self._durable_names)
        keep = rng.random()
        for what, name, new, file in self._unsynced_names:
            if rng.random() > keep:
                continue
            if what == "create" and file is not None:
                names[name] = file
            elif what == "rename" and new is not None and name in names:
                names[new] = names.pop(name)
            elif what == "remove":
                names.pop(name, None)
        return names

    def _fd(self, file: _File) -> int:
        self._next_fd += 1
        self._open[self._next_fd] = file
        return self._next_fd

    def _opening(self, name: str) -> None:
        """Count a call that needs a new file of the system, and let it fail if it is to."""
        self.opens += 1
        self.open_names.append(name)
        fault = self.open_faults.get(self.opens)
        if fault is not None:
            number = _NUMBERS[fault]
            raise OSError(number, os.strerror(number), name)

    def _check_alive(self) -> None:
        if self.killed:
            raise SimKilled("the process was killed")

    def _call(self, name: str) -> Fault | None:
        self._check_alive()
        self.calls += 1
        self.call_names.append(name)
        fault = self.faults.get(self.calls)
        if fault is Fault.KILL:
            self.killed = True
            self._check_alive()
        elif fault in _NUMBERS:
            raise OSError(_NUMBERS[fault], f"simulated: {os.strerror(_NUMBERS[fault])}")
        return fault


class SimDatabase:
    """Satisfies ``engines.journal.wal.disk.Database``: committed data survives a crash.

    Each commit makes one disk call before and one after it, where faults can happen.
    """

    def __init__(
        self,
        root: str,
        call: Callable[[str], object],
        opening: Callable[[str], None],
        name: str = DATABASE,
    ) -> None:
        self.images: dict[str, bytes] = {}
        """Committed database images by name."""
        self.file = f"{root}/{name}"
        self._name = name
        self._root = root
        self._call = call
        self._opening = opening
        self._address = ""
        self._first_connection: sqlite3.Connection | None = None

    def exists(self) -> bool:
        """Whether there was a commit."""
        return self._name in self.images

    def size(self) -> int:
        """The size of the committed database."""
        return len(self.images.get(self._name, b""))

    def connect(self) -> sqlite3.Connection:
        """Open a connection to the database, which is in memory."""
        self._opening(f"connect {self._name}")
        if self._first_connection is None:
            self._address = f"file:holdfast-sim-{next(_DATABASE_NUMBERS)}?mode=memory&cache=shared"
            self._first_connection = self._open()
            if self._name in self.images:
                with contextlib.closing(sqlite3.connect(":memory:")) as found:
                    found.deserialize(self.images[self._name])
                    found.backup(self._first_connection)
        return self._open()

    def commit(self, connection: sqlite3.Connection) -> None:
        """Commit the transaction durably."""
        self._call("before_commit")
        connection.execute("COMMIT")
        self.images[self._name] = connection.serialize()
        self._call("after_commit")

    def set_aside(self) -> str:
        """Rename the committed database."""
        self._call(f"rename {self._name}")
        aside = f"{self._name}.damaged-{len(self.images)}"
        self.images[aside] = self.images.pop(self._name)
        self._first_connection = None
        return f"{self._root}/{aside}"

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._address, uri=True, isolation_level=None, check_same_thread=False
        )


def _change(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        data = b""
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def _after_power_cut(file: _File, rng: random.Random) -> bytes:
    """Return the durable content plus a random part of the sectors of the unsynced writes."""
    content = bytearray(file.durable)
    keep = rng.random()
    for offset, data in file.unsynced:
        if data is None:
            if rng.random() < keep:
                _change(content, offset, None)
            continue
        start = offset
        while start < offset + len(data):
            stop = min((start // SECTOR + 1) * SECTOR, offset + len(data))
            if rng.random() < keep:
                _change(content, start, data[start - offset : stop - offset])
            start = stop
    return bytes(content)
