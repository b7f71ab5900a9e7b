"""Whether what a store consists of is ours: who can write in a store can have jobs run.

Trusted are this user, root, and the group of root, which containers with an arbitrary user have.
What belongs to anybody else is refused, and so is what anybody else can write in; files and
directories of ours that have too wide a mode get a narrow one. Windows has no such owners and
modes: there the access list of the directory decides.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Callable
from pathlib import Path

from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import StoreNotOurs

log = StructuredLog("holdfast.journal")

PRIVATE_DIRECTORY = 0o700
PRIVATE_FILE = 0o600
_ROOT = 0
_OTHERS = 0o077
_SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")


def current_uid() -> int | None:
    """Return the user of this process; None where files have no such owner."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def is_trusted(uid: int) -> bool:
    """Whether this user may have made what we read: only this one and root."""
    return uid in (_ROOT, current_uid())


def named(uid: int) -> str:
    """Return a user as people know them."""
    try:
        import pwd  # noqa: PLC0415 - not on Windows

        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except (ImportError, KeyError):
        return f"uid {uid}"


# --- directories --------------------------------------------------------------------------------


def make_directory(path: Path) -> None:
    """Make a directory for this user alone, whatever the umask."""
    path.mkdir(mode=PRIVATE_DIRECTORY)
    if current_uid() is not None and stat.S_IMODE(path.stat().st_mode) & 0o777 != PRIVATE_DIRECTORY:
        path.chmod(PRIVATE_DIRECTORY)


def claim_directory(path: Path, only: Callable[[str], bool] = lambda _name: True) -> None:
    """Raise ``StoreNotOurs`` unless nobody but this user and root can write in the directory.

    One of ours in which others can write gets mode 0700, if it has only names for which ``only``
    holds: what else is in it may be meant for them. One that is not there is nobody's.
    """
    problem = directory_problem(path)
    if problem is None:
        return
    if not _can_mend(path, only):
        raise problem
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_OTHERS)
    if others_can_write(path.stat()):
        command = f"mount -o remount,umask=077 {_mount_point(path)}"
        said = "and others can write in it, because its file system keeps no modes"
        raise _refused(path, path.stat(), said, command)
    log.emit("journal.directory_mended", directory=str(path))


def directory_problem(path: Path) -> StoreNotOurs | None:
    """Return why a directory cannot be used; None if it can, or is not there."""
    if current_uid() is None:
        return None
    try:
        link, found = path.lstat(), path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(link.st_mode) and not is_trusted(link.st_uid):
        return _refused(path, link, "and is a symbolic link", f"rm {_quoted(path)}")
    if not is_trusted(found.st_uid):
        return _refused(path, found, "", _give(path, found, "-R "))
    if not others_can_write(found):
        return None
    said = f"and has mode {stat.S_IMODE(found.st_mode):04o}: other users can write in it"
    if found.st_mode & stat.S_ISVTX:
        return _refused(path, found, said, f"export HOLDFAST_STORE={_quoted(path / 'holdfast')}")
    if found.st_uid == current_uid():
        return _refused(path, found, said, f"chmod go-w {_quoted(path)}")
    return _refused(path, found, said, _give(path, found, ""))


def others_can_write(found: os.stat_result) -> bool:
    """Whether others than its owner and root can write in it."""
    by_group = found.st_mode & stat.S_IWGRP and found.st_gid != _ROOT
    return bool(by_group or found.st_mode & stat.S_IWOTH)


def others_can_replace(found: os.stat_result) -> bool:
    """Whether others can rename what is in this directory, and put something else in its place."""
    return others_can_write(found) and not found.st_mode & stat.S_ISVTX


def _can_mend(path: Path, only: Callable[[str], bool]) -> bool:
    found = path.stat()
    return (
        found.st_uid == current_uid()
        and not found.st_mode & stat.S_ISVTX
        and is_trusted(path.lstat().st_uid)
        and all(only(one.name) for one in path.iterdir())
    )


# --- files --------------------------------------------------------------------------------------


def file_problem(path: Path, found: os.stat_result) -> StoreNotOurs | None:
    """Return why a file of a store, of which this is known, cannot be used."""
    if current_uid() is None:
        return None
    if stat.S_ISLNK(found.st_mode):
        return linked(path, found)
    if not is_trusted(found.st_uid):
        return _refused(path, found, "", _give(path, found, ""))
    if not stat.S_ISREG(found.st_mode):
        return _refused(path, found, "and is not a regular file", f"rm {_quoted(path)}")
    if found.st_uid != current_uid() and others_can_write(found):
        said = f"and has mode {stat.S_IMODE(found.st_mode):04o}: other users can write it"
        return _refused(path, found, said, _give(path, found, ""))
    return None


def check_file(path: Path, found: os.stat_result) -> None:
    """Raise ``StoreNotOurs`` if a file of a store, of which this is known, cannot be used."""
    if problem := file_problem(path, found):
        raise problem


def linked(path: Path, found: os.stat_result | None = None) -> StoreNotOurs:
    """Return why a symbolic link cannot be a file of a store."""
    found = path.lstat() if found is None else found
    return _refused(path, found, "and is a symbolic link", f"rm {_quoted(path)}")


def too_wide(found: os.stat_result) -> bool:
    """Whether it is a file of ours that others can read or write."""
    return found.st_uid == current_uid() and bool(stat.S_IMODE(found.st_mode) & _OTHERS)


def claim_database(path: Path, *, create: bool) -> None:
    """Refuse a SQLite file, and those beside it, unless they are ours; give them mode 0600.

    With ``create`` one that is not there is made, empty.
    """
    if create:
        with contextlib.suppress(FileExistsError):
            path.touch(PRIVATE_FILE, exist_ok=False)  # exclusively: never through a link
    for suffix in _SQLITE_SUFFIXES:
        file = path.with_name(path.name + suffix)
        try:
            found = file.lstat()
        except FileNotFoundError:
            continue
        check_file(file, found)
        if too_wide(found):
            file.chmod(PRIVATE_FILE)


# --- errors -------------------------------------------------------------------------------------


def _refused(path: Path, found: os.stat_result, said: str, command: str) -> StoreNotOurs:
    me = current_uid()
    if not said:
        said = f"and this process runs as {named(_ROOT if me is None else me)}"
    return StoreNotOurs(str(path), named(found.st_uid), said, command)


def _give(path: Path, found: os.stat_result, recursive: str) -> str:
    """Return the command that gives it to this user; root works as its owner instead."""
    me = current_uid()
    if me == _ROOT:
        return f"sudo -u '#{found.st_uid}' holdfast …"
    return f"sudo chown {recursive}{me} {_quoted(path)}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _mount_point(path: Path) -> str:
    place = path.resolve()
    while not place.is_mount() and place != place.parent:
        place = place.parent
    return _quoted(place)
