"""The checks of ``holdfast doctor``: of the store, and of the jobs in it."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from holdfast.daemon.control_socket import control_path
from holdfast.engines.journal.events.store import SqliteEvents
from holdfast.engines.journal.wal.disk import DATABASE, EVENTS, LOG, LocalDisk
from holdfast.engines.journal.wal.recovery import newest_head
from holdfast.engines.ownership import current_uid, others_can_replace
from holdfast.engines.socket_path import private_socket_directory, socket_path
from holdfast.model.durations import format_seconds
from holdfast.model.errors import HoldfastError, InvalidInput
from holdfast.model.job import MICROSECONDS, State
from holdfast.model.outage import base_queue
from holdfast.model.plural import count_of
from holdfast.model.search import MAX_PAGE, Filter
from holdfast.operations.operations import Operations
from holdfast.operations.views import Status
from holdfast.settings import LoadedSettings, Settings, queue_slots
from holdfast.stores.opening import connect_postgres
from holdfast.worker.registry import Registry, check_times

from . import store_access
from .commands.doctor import CheckResult

HOUR_SECONDS = 3_600
MIN_FREE_BYTES = 256 << 20
MIN_FREE_SHARE = 0.05
MAX_LOG_BYTES = 1 << 30
SURGE_MIN = 20
SURGE_FACTOR = 5
MAX_CHECKED = 5_000
MAX_QUEUES = 20
SLOW_RECOVERY_SECONDS = 3.0
SKEW_SECONDS = 60
_MAX_NAMED = 5
_DURABLE = ("on", "local", "remote_write", "remote_apply")


def declarations(app: str, registry: Registry, loaded: LoadedSettings) -> list[CheckResult]:
    """Whether every task of an application can reach its timeout."""
    cap_seconds = loaded.settings.max_processing_seconds
    found = []
    for spec in registry.tasks.values():
        try:
            check_times(spec, cap_seconds, f"({loaded.origins['max_processing_seconds']})")
        except InvalidInput as error:
            found.append(CheckResult("tasks", "wrong", str(error)))
    text = f"{count_of(len(registry.tasks), 'task')} of {app}: each can reach its timeout"
    return found or [CheckResult("tasks", "ok", text)]


def store(settings: Settings) -> list[CheckResult]:
    """Whether the directory or the server can be used."""
    store_access.require_at_hand(settings)
    if settings.on_server:
        return _server(settings)
    path = Path(settings.store)
    if not path.exists():
        return [CheckResult("store", "ok", f"{path} does not exist yet: enqueue creates it")]
    if not path.is_dir():
        return [CheckResult("store", "wrong", f"{path} is not a directory", "set store to one")]
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        advice = "run as its owner, or grant this user access"
        return [CheckResult("store", "wrong", f"{path} is not readable and writable", advice)]
    parts = {
        "log": path / LOG,
        "snapshots": Path(settings.snapshot_directory or path / "snapshots"),
    }
    sizes = {
        name: sum(file.stat().st_size for file in place.iterdir()) if place.is_dir() else 0
        for name, place in parts.items()
    }
    history, events = path / DATABASE, path / EVENTS
    sizes["history"] = history.stat().st_size if history.exists() else 0
    if events.exists():
        sizes["events"] = events.stat().st_size
    text = ", ".join(f"{name} {size / (1 << 20):,.1f} MiB" for name, size in sizes.items())
    found = [CheckResult("store", "ok", f"{path}: {text}")]
    if sizes["log"] > MAX_LOG_BYTES + 2 * sizes["snapshots"]:
        advice = "look for journal.compaction_failed in the daemon's log; free disk space if needed"
        found.append(
            CheckResult("journal size", "warning", f"the log is not compacted: {text}", advice)
        )
    return [*found, *_events(LocalDisk(path, snapshots=settings.snapshot_directory))]


def _events(disk: LocalDisk) -> list[CheckResult]:
    """Whether the events are there up to where the log relies on them, and can be read."""
    try:
        head = newest_head(disk)
        expected_seq = 0 if head is None else head.last_event_seq
        SqliteEvents.open(disk.events(), expected_seq=expected_seq, writes=False).close()
    except (HoldfastError, OSError) as error:
        return [
            CheckResult("events", "wrong", str(error), "see `holdfast runbook damaged-journal`")
        ]
    return []


def _server(settings: Settings) -> list[CheckResult]:
    """Whether the server can be used, is durable, and is safe from others."""

    async def ask() -> tuple[Mapping[str, str], list[CheckResult]]:
        engine = await connect_postgres(settings, reading=True)
        try:
            return await engine.server_settings(), await server_checks(engine)
        finally:
            await engine.close()

    from .server_checks import server_checks  # noqa: PLC0415 - imports an engine that is an extra

    server, safety = asyncio.run(ask())
    found = [
        CheckResult("store", "ok", f"{settings.store_shown}: PostgreSQL {server['server_version']}")
    ]
    for name, good in (("fsync", ("on",)), ("synchronous_commit", _DURABLE)):
        if server[name] not in good:
            wrong = f"{name} is {server[name]}: a crash loses acknowledged jobs"
            found.append(CheckResult("sync", "wrong", wrong, f"set {name} = on on the server"))
    if len(found) == 1:
        found.append(CheckResult("sync", "ok", "acknowledged jobs survive a crash of the server"))
    return found + safety


def disk(settings: Settings) -> list[CheckResult]:
    """Whether there is free space."""
    if settings.on_server:
        return []  # the server's disk is not visible here
    path = Path(settings.store).absolute()
    while not path.exists():
        path = path.parent
    room = shutil.disk_usage(path)
    text = f"{room.free / (1 << 30):,.1f} GiB free of {room.total / (1 << 30):,.1f}"
    if room.free < MIN_FREE_BYTES:
        advice = "free some space: a full disk refuses new jobs"
        return [CheckResult("disk", "wrong", text, advice)]
    if room.free < room.total * MIN_FREE_SHARE:
        return [CheckResult("disk", "warning", text, "free some space soon")]
    return [CheckResult("disk", "ok", text)]


def sync(settings: Settings) -> list[CheckResult]:
    """Whether acknowledged jobs survive a power cut."""
    if settings.on_server:
        return []  # see ``_server``
    if settings.sync == "always":
        return [CheckResult("sync", "ok", "acknowledged jobs survive a power cut")]
    text = f"sync is {settings.sync}: a power cut loses the last acknowledged jobs"
    return [CheckResult("sync", "warning", text, "set sync: always unless that is what you want")]


def clock(settings: Settings) -> list[CheckResult]:
    """Whether the clock is behind the files on disk."""
    if settings.on_server:
        return []  # the server's time counts
    newest = 0.0
    log = Path(settings.store) / LOG
    if log.is_dir():
        newest = max((file.stat().st_mtime for file in log.iterdir()), default=0.0)
    ahead = newest - time.time()
    if ahead > SKEW_SECONDS:
        ahead_text = format_seconds(round(ahead))
        text = f"the log was written {ahead_text} in the future: the clock was set back"
        return [CheckResult("clock", "warning", text, "check the time service of this machine")]
    return [CheckResult("clock", "ok", "not behind the files on disk")]


_UNHEALTHY = 503


def daemon(settings: Settings) -> list[CheckResult]:
    """Whether a daemon owns the store and answers; of a server, which daemons are live."""
    if settings.on_server:
        return _live_daemons(settings)
    holder = None if settings.directory is None else LocalDisk(settings.directory).owner()
    path = control_path(settings)
    if store_access.has_owner(settings):
        ready = store_access.request_owner(
            settings, "GET", "/health/ready", b"", dict[str, str], _UNHEALTHY
        )
        if ready is not None and ready.get("status") == "ready":
            text = f"process {holder or 'unknown'} owns it and is ready"
            return [CheckResult("daemon", "ok", text)]
        reason = "" if ready is None else ready.get("reason", "")
        return [CheckResult("daemon", "wrong", f"not ready: {reason}", "look at its log")]
    if holder is not None:
        text = f"process {holder} owns the store and does not listen on {path}"
        return [CheckResult("daemon", "wrong", text, f"see what it is (ps {holder}), or stop it")]
    found = [CheckResult("daemon", "warning", "none runs: no jobs run", "start `holdfast run`")]
    if Path(path).exists():
        text = f"{path} was left behind by a daemon that crashed: the next one replaces it"
        found.append(CheckResult("socket", "ok", text))
    return found


def _live_daemons(settings: Settings) -> list[CheckResult]:
    live = store_access.read_store(settings, lambda operations: operations.fleet.live())
    if not live:
        text = "none is live: no jobs run, unless by daemons of an older version"
        return [CheckResult("daemon", "warning", text, "start `holdfast run`")]
    named = [f"{one.process.name} on {one.process.host}" for one in live[:_MAX_NAMED]]
    more = f" and {len(live) - _MAX_NAMED} more" if len(live) > _MAX_NAMED else ""
    text = f"{count_of(len(live), 'daemon')} live: {', '.join(named)}{more}"
    found = [CheckResult("daemon", "ok", text)]
    versions = sorted({one.process.version for one in live})
    if len(versions) > 1:
        text = f"live daemons are of versions {', '.join(versions)}"
        found.append(CheckResult("versions", "warning", text, "finish the deployment"))
    return found


def ownership(settings: Settings) -> list[CheckResult]:
    """Whether every directory and file of the store is this user's, and nobody else's."""
    if current_uid() is None:
        return []  # files have no such owners here
    if settings.directory is None:
        private_socket_directory()
        return []
    disk = LocalDisk(settings.directory, snapshots=settings.snapshot_directory)
    found = []
    for problem in disk.ownership_problems():
        text = f"{problem.path} belongs to {problem.owner} {problem.problem}"
        found.append(CheckResult("ownership", "wrong", text, f"`{problem.command}`"))
    for place in Path(disk.root).resolve().parents:
        if place.exists() and others_can_replace(place.stat()):
            text = f"other users can rename what is in {place}, and so take the store away"
            advice = f"`chmod +t {shlex.quote(str(place))}`"
            found.append(CheckResult("ownership", "warning", text, advice))
    socket_path(settings.directory)
    return found or [CheckResult("ownership", "ok", "every file and directory is this user's")]


STORE_CHECKS = (store, disk, sync, clock, daemon)


async def invariants(
    operations: Operations, _settings: Settings, _status: Status
) -> list[CheckResult]:
    """Whether every invariant holds."""
    problems = await operations.engine.validate()
    if not problems:
        return [CheckResult("invariants", "ok", "all hold")]
    advice = "a bug in Holdfast: please report it, with `holdfast journal verify`"
    return [CheckResult("invariants", "wrong", problem, advice) for problem in problems]


async def stuck_work(
    operations: Operations, settings: Settings, _status: Status
) -> list[CheckResult]:
    """Whether a job is held past its lease."""
    page = await operations.engine.find(Filter(states=(State.IN_FLIGHT,)), limit=MAX_PAGE)
    now_us = int(time.time() * MICROSECONDS)
    patience_us = int((settings.reclaim_interval_seconds + 5) * MICROSECONDS)
    late = [job for job in page.jobs if job.lease_until_us + patience_us < now_us]
    if not late:
        return [
            CheckResult("stuck work", "ok", f"{count_of(len(page.jobs))} in flight, none overdue")
        ]
    text = f"{count_of(len(late))} held past the lease, the first is {late[0].id}"
    if await operations.fleet.live():
        advice = f"`holdfast jobs reclaim {late[0].id} --reason …` ends the lease"
        return [CheckResult("stuck work", "wrong", text, advice)]
    return [
        CheckResult("stuck work", "warning", text, "they run again once `holdfast run` is started")
    ]


async def dead_letters(
    operations: Operations, _settings: Settings, _status: Status
) -> list[CheckResult]:
    """Whether more jobs than usual died in the last hour."""
    now_us = int(time.time() * MICROSECONDS)
    hour_us = HOUR_SECONDS * MICROSECONDS
    groups = await operations.engine.groups(Filter(finished_from_us=max(0, now_us - 25 * hour_us)))
    late = [group for group in groups if group.last_at_us >= now_us - hour_us]
    count = sum(group.count for group in late)
    usual = sum(group.count for group in groups if group not in late) / 24
    held = sum(group.held_behind for group in await operations.engine.groups())
    found = [
        CheckResult(
            "dead letters", "ok", f"{count:,} in the last hour, {usual:,.1f} per hour before"
        )
    ]
    if count >= SURGE_MIN and count > SURGE_FACTOR * usual:
        first = late[0]
        text = f"{count:,} in the last hour, mostly {first.error_reason} in {first.queue}"
        advice = "`holdfast dead groups --since 1h`; fix the cause, then `holdfast replay`"
        found = [CheckResult("dead letters", "wrong", text, advice)]
    if held:
        text = f"{count_of(held)} held behind a dead job of the same key"
        advice = "`holdfast dead groups` (HELD) shows where: replay or archive the dead job"
        found.append(CheckResult("held keys", "warning", text, advice))
    return found


async def queues(operations: Operations, settings: Settings, _status: Status) -> list[CheckResult]:
    """Whether queues with pending jobs are paused, or no live daemon serves them."""
    counts, policies = await operations.engine.counts(), await operations.policies()
    live = [entry.process for entry in await operations.fleet.live()]
    served = None if settings.queues is None else set(queue_slots(settings.queues))
    found: list[CheckResult] = []
    for name, one in counts.items():
        if not one.pending:
            continue
        waiting = f"{name} has {count_of(one.pending)} pending"
        if name in policies and policies[name].paused:
            text = f"{name} is paused with {count_of(one.pending)} pending"
            advice = f"`holdfast queues resume {name} --reason …` lets them run"
            found.append(CheckResult("queues", "warning", text, advice))
        if live and not any(process.serves(name) for process in live):
            text = f"{waiting}, and no live daemon serves it"
            advice = "start a daemon that serves it; those of an older version are not listed"
            found.append(CheckResult("queues", "warning", text, advice))
        elif live and all(process.draining for process in live if process.serves(name)):
            text = f"{waiting}, and every daemon that serves it drains"
            found.append(CheckResult("queues", "warning", text, "`holdfast workers resume`"))
        elif not live and served is not None and not {name, base_queue(name)} & served:
            text = f"{waiting}, and these settings do not serve it"
            found.append(
                CheckResult("queues", "warning", text, "add it to queues, or run it elsewhere")
            )
    if len(found) > MAX_QUEUES:
        text = f"{count_of(len(found) - MAX_QUEUES, 'more warning')} about queues"
        return [*found[:MAX_QUEUES], CheckResult("queues", "warning", text, "`holdfast status`")]
    return found or [CheckResult("queues", "ok", f"{count_of(len(counts), 'queue')}, none blocked")]


async def tasks(operations: Operations, _settings: Settings, _status: Status) -> list[CheckResult]:
    """Whether pending jobs have a task that no live daemon that serves their queue knows."""
    live = [entry.process for entry in await operations.fleet.live()]
    if not live:
        return []
    unknown: dict[str, int] = {}
    known: dict[str, frozenset[str]] = {}
    cursor, checked = "", 0
    while checked < MAX_CHECKED:
        wanted = Filter(states=(State.PENDING,))
        page = await operations.engine.find(wanted, cursor=cursor, limit=MAX_PAGE)
        for job in page.jobs:
            if job.queue not in known:
                serving = [process.tasks for process in live if process.serves(job.queue)]
                # A queue that none serves is found by the check before this.
                known[job.queue] = frozenset().union(*serving or [one.tasks for one in live])
            if job.task not in known[job.queue]:
                unknown[job.task] = unknown.get(job.task, 0) + 1
        checked += len(page.jobs)
        cursor = page.cursor
        if not cursor:
            break
    if not unknown:
        return [CheckResult("tasks", "ok", "live daemons know the task of every pending job")]
    text = ", ".join(f"{count_of(count)} of {task!r}" for task, count in sorted(unknown.items()))
    advice = "deploy code that has the task, or cancel: `holdfast jobs cancel --task …`"
    return [CheckResult("tasks", "wrong", f"no live daemon knows the task of {text}", advice)]


async def recovery(
    _operations: Operations, _settings: Settings, status: Status
) -> list[CheckResult]:
    """Whether the last start was fast."""
    seconds = status.totals.get("recovery_seconds")
    if seconds is None:
        return []
    if seconds <= SLOW_RECOVERY_SECONDS:
        return [CheckResult("recovery", "ok", f"the last start took {seconds:.2f} s")]
    advice = "many unfinished jobs, or the log was not compacted: see journal size"
    return [CheckResult("recovery", "warning", f"the last start took {seconds:.1f} s", advice)]


WORK_CHECKS = (invariants, stuck_work, dead_letters, queues, tasks, recovery)
