"""What can be set: one struct, which cannot be made of anything bad."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.masking import masked
from holdfast.model.schema_name import DEFAULT_SCHEMA

from .parsers import READERS, EventLoop, HistoryWord, LogFormat, LogLevel, SyncWord, WakeWord
from .store_url import DEFAULT_PLACES, is_directory, is_server, placed
from .validation import clashes


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set. Making one checks every field; ``InvalidInput`` names the bad one.

    Relative paths are relative to the working directory, also those in a file. Durations are
    seconds, or text such as ``500ms``, ``3s`` and ``1h30m`` wherever they are read.
    """

    store: str = DEFAULT_PLACES["store"]
    """Where work is kept: a directory, ``postgresql://user@host/database``, or ``memory:``, which
    ends with the process."""
    schema: str = DEFAULT_SCHEMA
    """The schema on a PostgreSQL server in which work is kept."""
    max_connections: int = 8
    """The most connections that one process opens to a PostgreSQL server, beside one to listen."""
    statement_timeout_seconds: float = 30.0
    """How long a PostgreSQL server may take for a statement before that is given up."""
    wake: WakeWord = "notify"
    """How who waits for work learns of it on a PostgreSQL server: it is told at once (``notify``),
    or looks every poll_interval_seconds (``poll``)."""
    listen_url: str | None = None
    """Where to be told of new work, if not at the store's own URL: past a pooler, which swallows
    what the server says."""
    wal_path: str | None = DEFAULT_PLACES["wal_path"]
    """Another way to name the store: the log lies in the directory of this path, in ``log/``. The
    file name itself is not used. None if the store has no log."""
    snapshot_path: str | None = DEFAULT_PLACES["snapshot_path"]
    """Snapshots lie in the directory of this path, in ``snapshots/``: elsewhere than the log, if
    one wishes. The file name itself is not used. No two stores may share the directory. None if
    the store has no snapshots."""
    worker_count: int = 8
    """How many jobs run at once."""
    processes: int = 1
    """How many worker processes there are."""
    queues: str | None = None
    """The queues to serve and how many slots each has at most, such as ``mail:8,slow:2``; None is
    every queue of a registered task. See ``queue_slots``."""
    worker_id: str | None = None
    """What this worker is called; None lets it make a name of its own."""
    default_task: str = "holdfast.simulate"
    """The task of a job that names none."""
    batch_size: int | None = None
    """How many jobs one claim takes at most; None is as many as there are free slots."""
    poll_interval_seconds: float = 1.0
    """How long a claim waits for work before it is made anew. Work that comes is seen at once; a
    queue that nobody has heard of yet is seen by the next claim."""
    task_timeout_seconds: float = 3.0
    """How long a task may run, unless it says otherwise."""
    lease_seconds: float = 30.0
    """How long a claim lasts without a heartbeat."""
    max_processing_seconds: float = 600.0
    """How long a job may stay claimed, heartbeats or not."""
    reclaim_interval_seconds: float = 1.0
    """How often to look for leases that ran out."""
    max_attempts: int = 3
    """How often a job runs in all before it is dead."""
    base_backoff_seconds: float = 1.0
    """The most that is waited after the first failure; it doubles with each."""
    max_backoff_seconds: float = 300.0
    """The most that is waited after any failure."""
    remember_seconds: float = 3_600.0
    """How long finished jobs are kept and their ids refused."""
    snapshot_interval_seconds: float = 2.0
    """How often to look whether a snapshot is worth while."""
    sync: SyncWord = "always"
    """When acknowledged work is on stable storage: always, within an interval, or whenever."""
    history: HistoryWord = "required"
    """Whether to begin ``anew`` when the file of finished work is damaged or missing."""
    drain_seconds: float = 30.0
    """How long a stop waits for the jobs that run."""
    run_seconds: float | None = None
    """Stop by itself after this long; None is never."""
    stall_seconds: float | None = 30.0
    """How long a task may hold the event loop before the process starts over; None is for ever."""
    event_loop: EventLoop = "asyncio"
    """What the processes of the daemon run on: Python's own, or the quicker ``uvloop``."""
    memory_limit_bytes: int | None = None
    """The most memory of a task that runs in a process of its own; None is no limit."""
    metrics_host: str = "127.0.0.1"
    """The address that metrics are served on."""
    metrics_port: int | None = 9090
    """The port that metrics are served on; 0 is any free one, None or ``off`` is none at all."""
    log_level: LogLevel = "info"
    """The least that is logged."""
    log_format: LogFormat = "auto"
    """How it is logged; ``auto`` is console on a terminal and json elsewhere."""
    flags: Mapping[str, bool] = {}
    """Feature flags to switch when the daemon starts, and when this changes and it reads its
    settings again. What is not named here is left as it is."""

    def __post_init__(self) -> None:
        for field, read in READERS.items():
            force_setattr(self, field, read(field, getattr(self, field)))
        for field, value in placed(self.store, self.wal_path, self.snapshot_path).items():
            force_setattr(self, field, value)
        for clash in clashes(self):
            raise clash

    @property
    def on_server(self) -> bool:
        """Whether a server keeps the work, which many machines share."""
        return is_server(self.store)

    @property
    def directory(self) -> str | None:
        """The directory that the journal owns; None if the store is not one."""
        return self.store if is_directory(self.store) else None

    @property
    def snapshot_directory(self) -> str | None:
        """The directory of the snapshots; None if the store has none."""
        if self.snapshot_path is None:
            return None
        return str(PurePath(self.snapshot_path).parent / "snapshots")

    @property
    def store_shown(self) -> str:
        """The store, without the password that may be in it."""
        return masked(self.store)

    def __rich_repr__(self) -> list[tuple[str, object]]:
        values = [(field, getattr(self, field)) for field in self.__struct_fields__]
        return [
            (field, masked(value) if isinstance(value, str) else value) for field, value in values
        ]

    def __repr__(self) -> str:
        fields = ", ".join(f"{field}={value!r}" for field, value in self.__rich_repr__())
        return f"{type(self).__name__}({fields})"


_AT_DEFAULT = Settings()
DEFAULTS: Mapping[str, object] = {
    field: getattr(_AT_DEFAULT, field) for field in Settings.__struct_fields__
}
