"""The disk: the only module of the engines that touches the operating system's files.

Calls are as small as the system's own, so that ``holdfast.testing.SimDisk`` can lose, tear,
reorder, fail or kill at any of them. Names are relative: ``log/…`` and ``snapshots/…``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import sys
import weakref
from pathlib import Path
from typing import Protocol, runtime_checkable

from holdfast.engines import ownership
from holdfast.engines.read_models.contract import DIRECTORY as READ_MODELS
from holdfast.engines.socket_path import SOCKET_NAME
from holdfast.model.errors import DirectoryInUse, StorageError, StoreNotOurs

LOG = "log"
SNAPSHOTS = "snapshots"
DATABASE = "cold.sqlite"
EVENTS = "events.sqlite"
SAMPLES = "samples.sqlite"
LOCK = "LOCK"
CANNOT_GROW = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EPERM}
)
"""Why no file can be made, or made longer: new work is refused, and nothing is lost."""
_BUSY_SECONDS = 10.0
_STORE_NAMES = (LOCK, LOG, SNAPSHOTS, READ_MODELS, SOCKET_NAME, "MOVED", "MOVING", "lost+found")
_STORE_PREFIXES = (DATABASE, EVENTS, SAMPLES)


class DatabaseFile(Protocol):
    """A SQLite database of a store, wherever it is kept.

    ``connect`` and ``commit`` raise ``OSError`` or ``sqlite3.Error``, as the system does.
    """

    @property
    def file(self) -> str:
        """Its name in messages."""

    def exists(self) -> bool:
        """Whether it is there."""

    def size(self) -> int:
        """How many bytes it takes, 0 if it is not there."""

    def connect(self) -> sqlite3.Connection:
        """Return a connection of its own, for any thread; an empty database if there is none."""

    def commit(self, connection: sqlite3.Connection) -> None:
        """End the connection's transaction, and return when it is on stable storage."""

    def set_aside(self) -> str:
        """Rename the file, so that a new one can be created; return its new name."""


@runtime_checkable
class Disk(Protocol):
    """The calls that the journal makes. They raise ``OSError`` as the system does."""

    @property
    def root(self) -> str:
        """The directory, for messages and for the compacting process."""

    @property
    def snapshots(self) -> str:
        """The directory of the snapshots, for the compacting process."""

    def lock(self) -> None:
        """Take ownership of the directory, or raise ``DirectoryInUse``."""

    def unlock(self) -> None:
        """Release the directory."""

    def names(self, place: str) -> list[str]:
        """Return the names of the files in ``log`` or ``snapshots``, sorted, with their place."""

    def create(self, name: str) -> int:
        """Create the file, emptied if it was there, and open it for reading and writing."""

    def open(self, name: str) -> int:
        """Open an existing file for reading."""

    def close(self, fd: int) -> None:
        """Close it."""

    def allocate(self, fd: int, size: int) -> None:
        """Make the file this long, of zeros that are really allocated on the disk."""

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """Write at the offset; return how many bytes were taken, perhaps not all."""

    def sync(self, fd: int) -> None:
        """Return when the file's content and size are on stable storage."""

    def read(self, fd: int, offset: int, length: int) -> bytes:
        """Read at the offset; shorter only at the end."""

    def size(self, fd: int) -> int:
        """Return the file's length."""

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to this length."""

    def rename(self, old: str, new: str) -> None:
        """Rename the file within its place, replacing an existing one."""

    def remove(self, name: str) -> None:
        """Remove the file."""

    def sync_directory(self, place: str) -> None:
        """Return when the names in this place are on stable storage."""

    def forget_cached(self, fd: int) -> None:
        """Ask the system to read the file from the device the next time."""

    @property
    def samples(self) -> str:
        """The path of the database of samples; ``:memory:`` if they are not kept."""

    @property
    def read_models(self) -> Path | None:
        """The directory of the read models, which need not be there; None: they are in memory."""

    def database(self) -> DatabaseFile:
        """Return the database of the history, in the root; it need not be there yet."""

    def events(self) -> DatabaseFile:
        """Return the database of the events, in the root; it need not be there yet."""


def remedy(error: BaseException, place: str) -> str:
    """Return what to do when no file can be made in this place."""
    number = getattr(error, "errno", None)
    if number in (errno.EMFILE, errno.ENFILE):
        own = number == errno.EMFILE
        whose = "this process" if own else "the system"
        limit = "ulimit -n, or LimitNOFILE= of systemd" if own else "fs.file-max"
        return f"{whose} has too many files open: raise the limit ({limit})"
    if number in (errno.EACCES, errno.EPERM):
        return f"this user may not make files there: see `ls -ld {place}`"
    return "free some space" if number in CANNOT_GROW else "check the disk"


def write_all(disk: Disk, fd: int, data: bytes, offset: int) -> None:
    """Write all of it, even if the system takes it in parts."""
    written = disk.write(fd, data, offset)
    while written < len(data):
        step = disk.write(fd, data[written:], offset + written)
        if step <= 0:
            raise OSError(f"a write of {len(data)} bytes stopped after {written}")
        written += step


def read_all(disk: Disk, name: str) -> bytes:
    """Return the file's content, from the device where the system allows it."""
    fd = disk.open(name)
    try:
        disk.forget_cached(fd)
        size = disk.size(fd)
        data = disk.read(fd, 0, size)
        while len(data) < size:
            more = disk.read(fd, len(data), size - len(data))
            if not more:
                break
            data += more
        return data
    finally:
        disk.close(fd)


def file_size(disk: Disk, name: str) -> int:
    """Return the file's length."""
    fd = disk.open(name)
    try:
        return disk.size(fd)
    finally:
        disk.close(fd)


class LocalDisk:
    """A directory of this machine."""

    def __init__(self, root: str | os.PathLike[str], *, snapshots: str | None = None) -> None:
        """Take the directory; its snapshots may be kept elsewhere."""
        # Absolute from the start: a daemon may change its directory later.
        self._root = Path(root).absolute()
        self._places = {
            LOG: self._root / LOG,
            SNAPSHOTS: Path(snapshots).absolute() if snapshots else self._root / SNAPSHOTS,
        }
        self._lock_fd: int | None = None
        self._directories: dict[str, int] = {}
        """The open places of an owner: a sync must not need another file."""

    @property
    def root(self) -> str:
        """The directory."""
        return str(self._root)

    @property
    def snapshots(self) -> str:
        """The directory of the snapshots."""
        return str(self._places[SNAPSHOTS])

    def lock(self) -> None:
        """Take ownership of the directory, creating it if needed."""
        try:
            for path in (self._root, *self._places.values()):
                _make_directory(path)
            self.claim()
            # Python opens files close-on-exec: a child never inherits the lock.
            fd = _open_ours(self._root / LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            advice = remedy(error, str(self._root))
            if error.errno not in CANNOT_GROW:
                advice = "check that the directory may be created and written by this user"
            problem = f"cannot write in {self._root}: {error.strerror}; {advice}"
            raise StorageError(problem) from None
        try:
            _lock_file(fd)
        except OSError:
            owner = _pread(fd, 64, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise DirectoryInUse(
                f"{self._root} is owned by process {owner}: stop it first, or talk to it instead "
                "of opening its directory"
            ) from None
        with contextlib.suppress(OSError):  # only for messages: the disk may be full
            os.ftruncate(fd, 0)
            _pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._lock_fd = fd
        _HELD_LOCKS.add(self)
        try:
            if sys.platform != "win32":
                for place, path in self._places.items():
                    self._directories[place] = os.open(path, os.O_RDONLY)
        except OSError as error:
            self.unlock()
            advice = remedy(error, str(self._root))
            raise StorageError(f"cannot open {self._root}: {error.strerror}; {advice}") from None

    def claim(self) -> None:
        """Refuse directories that are not ours, or mend them; see ``ownership``."""
        ownership.claim_directory(self._root, _is_store_name)
        for path in (*self._places.values(), self.read_models):
            ownership.claim_directory(path)

    def ownership_problems(self) -> list[StoreNotOurs]:
        """Return every directory and file that is not ours, or too wide; change nothing."""
        found: list[StoreNotOurs | None] = []
        for path in (self._root, *self._places.values(), self.read_models):
            found.append(ownership.directory_problem(path))
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                files = [one for one in path.iterdir() if _is_file_of_store(path, one)]
                found += [ownership.file_problem(one, one.lstat()) for one in sorted(files)]
        return [one for one in found if one is not None]

    def unlock(self) -> None:
        """Release the directory."""
        _HELD_LOCKS.discard(self)
        for directory in self._directories.values():
            os.close(directory)
        self._directories.clear()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def owner(self) -> str | None:
        """Return the process that owns the directory, or None; change nothing."""
        try:
            fd = _open_ours(self._root / LOCK, os.O_RDWR)
        except OSError:
            return None
        try:
            _lock_file(fd)
        except OSError:
            return _pread(fd, 64, 0).decode("ascii", "replace").strip() or "unknown"
        finally:
            os.close(fd)
        return None

    def names(self, place: str) -> list[str]:
        """Return the names of the files in this place, sorted."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(f"{place}/{entry.name}" for entry in os.scandir(self._places[place]))
        return []

    def create(self, name: str) -> int:
        """Create the file, emptied if it was there."""
        fd = _open_ours(self._path(name), os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(fd, 0)  # only now: it is known whose file it is
        except BaseException:
            os.close(fd)
            raise
        return fd

    def open(self, name: str) -> int:
        """Open an existing file for reading."""
        return _open_ours(self._path(name), os.O_RDONLY)

    def close(self, fd: int) -> None:
        """Close it."""
        os.close(fd)

    def allocate(self, fd: int, size: int) -> None:
        """Make the file this long, of zeros that are really allocated on the disk."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
            return
        zeros = bytes(1 << 20)
        for offset in range(0, size, len(zeros)):
            write_all(self, fd, zeros[: size - offset], offset)

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """Write at the offset; return how many bytes were taken."""
        return _pwrite(fd, data, offset)

    def sync(self, fd: int) -> None:
        """Return when the file's content and size are on stable storage."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(fd)
        else:
            os.fsync(fd)

    def read(self, fd: int, offset: int, length: int) -> bytes:
        """Read at the offset."""
        return _pread(fd, length, offset)

    def size(self, fd: int) -> int:
        """Return the file's length."""
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to this length."""
        os.ftruncate(fd, size)

    def rename(self, old: str, new: str) -> None:
        """Rename the file, replacing an existing one."""
        self._path(old).replace(self._path(new))

    def remove(self, name: str) -> None:
        """Remove the file."""
        self._path(name).unlink()

    def sync_directory(self, place: str) -> None:
        """Return when the names in this place are on stable storage."""
        if place in self._directories:
            os.fsync(self._directories[place])
        else:
            _sync_directory(self._places[place])

    def forget_cached(self, fd: int) -> None:
        """Ask the system to read the file from the device the next time."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    @property
    def samples(self) -> str:
        """The path of the database of samples."""
        return str(self._root / SAMPLES)

    @property
    def read_models(self) -> Path:
        """The directory of the read models."""
        return self._root / READ_MODELS

    def database(self) -> LocalDatabaseFile:
        """Return the database of the history."""
        return LocalDatabaseFile(self._root / DATABASE)

    def events(self) -> LocalDatabaseFile:
        """Return the database of the events."""
        return LocalDatabaseFile(self._root / EVENTS)

    def _path(self, name: str) -> Path:
        place, _, rest = name.partition("/")
        return self._places[place] / rest


class LocalDatabaseFile:
    """A local database file, and the files of SQLite beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def file(self) -> str:
        """The file."""
        return str(self._path)

    def exists(self) -> bool:
        """Whether the file is there."""
        return self._path.exists()

    def size(self) -> int:
        """Return the length of the file and of its log."""
        return sum(path.stat().st_size for path in self._files() if path.exists())

    def connect(self) -> sqlite3.Connection:
        """Open the file, creating it with mode 0600 if needed."""
        known = self._path.exists()
        ownership.claim_database(self._path, create=True)
        if not known:
            _sync_directory(self._path.parent)
        return sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )

    def commit(self, connection: sqlite3.Connection) -> None:
        """End the transaction; SQLite syncs it."""
        connection.execute("COMMIT")

    def set_aside(self) -> str:
        """Rename the file and what belongs to it."""
        number = 1
        while (aside := self._path.with_name(f"{self._path.name}.damaged-{number}")).exists():
            number += 1
        # SQLite's log first: without its database it is ignored.
        for suffix in ("-wal", "-shm", ""):
            old = self._path.with_name(self._path.name + suffix)
            if old.exists():
                old.replace(aside.with_name(aside.name + suffix))
        _sync_directory(self._path.parent)
        return str(aside)

    def _files(self) -> list[Path]:
        return [self._path.with_name(self._path.name + suffix) for suffix in ("", "-wal")]


_IS_LINK = (errno.ELOOP, errno.EMLINK)
_HELD_LOCKS: weakref.WeakSet[LocalDisk] = weakref.WeakSet()


def _release_locks() -> None:
    """In a forked child: it must not keep the directory locked after its parent has ended."""
    for disk in list(_HELD_LOCKS):
        disk.unlock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_locks)


def _is_store_name(name: str) -> bool:
    """Whether this may be in the root of a store."""
    return name in _STORE_NAMES or name.startswith(_STORE_PREFIXES)


def _is_file_of_store(place: Path, path: Path) -> bool:
    """Whether this, found in a place of a store, is one of its files."""
    if path.name in (LOG, SNAPSHOTS, READ_MODELS, SOCKET_NAME, "lost+found"):
        return False
    return place.name in (LOG, SNAPSHOTS, READ_MODELS) or _is_store_name(path.name)


def _open_ours(path: Path, flags: int) -> int:
    """Open a file of ours, and never what a link points to; a new one has mode 0600."""
    try:
        fd = os.open(path, flags | _BINARY | _NO_LINKS, ownership.PRIVATE_FILE)
    except OSError as error:
        if error.errno in _IS_LINK and path.is_symlink():
            raise ownership.linked(path) from None
        raise
    try:
        found = os.fstat(fd)
        ownership.check_file(path, found)
        if ownership.too_wide(found):
            os.fchmod(fd, ownership.PRIVATE_FILE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _make_directory(path: Path) -> None:
    """Make the directory, for this user alone, and every parent, each durable in its own parent."""
    if path.is_dir():
        return
    for parent in reversed(path.parents):
        if not parent.is_dir():
            parent.mkdir(mode=0o755, exist_ok=True)
            _sync_directory(parent.parent)
    with contextlib.suppress(FileExistsError):
        ownership.make_directory(path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    if sys.platform == "win32":
        return  # Windows has no handle to sync a directory by; NTFS journals its names.
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


if sys.platform == "win32":
    import msvcrt

    _BINARY = os.O_BINARY
    _NO_LINKS = 0

    def _lock_file(fd: int) -> None:
        # Far beyond the owner's name, which must stay readable.
        os.lseek(fd, 1 << 30, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def _pwrite(fd: int, data: bytes, offset: int) -> int:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.write(fd, data)

    def _pread(fd: int, length: int, offset: int) -> bytes:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, length)

else:
    import fcntl

    _BINARY = 0
    # Not blocking: what is there may be a pipe that nobody writes.
    _NO_LINKS = os.O_NOFOLLOW | os.O_NONBLOCK
    _pwrite = os.pwrite
    _pread = os.pread

    def _lock_file(fd: int) -> None:
        # flock, not lockf: POSIX locks go when any descriptor of the file is closed.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
