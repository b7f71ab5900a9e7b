"""The checks that ``holdfast doctor`` makes: of the place, and of the work in it."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from holdfast.daemon.control_socket import control_path
from holdfast.engines.journal.wal.disk import DATABASE, LOG, LocalDisk
from holdfast.model.durations import shown
from holdfast.model.job import MICROSECONDS, State
from holdfast.model.search import MAX_PAGE, Filter
from holdfast.operations.operations import Operations
from holdfast.operations.views import Status
from holdfast.settings import Settings, queue_slots
from holdfast.stores.opening import open_server

from . import store_access
from .commands.doctor import CheckResult
from .output import count_of

HOUR_SECONDS = 3_600
LEAST_FREE_BYTES = 256 << 20
LEAST_FREE_SHARE = 0.05
MOST_LOG_BYTES = 1 << 30
SURGE_LEAST = 20
SURGE_FACTOR = 5
LOOKED_AT = 5_000
SLOW_RECOVERY_SECONDS = 3.0
SKEW_SECONDS = 60
_DURABLE = ("on", "local", "remote_write", "remote_apply")


def store(settings: Settings) -> list[CheckResult]:
    """Whether the directory can be used, or the server."""
    store_access.check_kept(settings)
    if settings.on_server:
        return _server(settings)
    path = Path(settings.store)
    if not path.exists():
        return [CheckResult("store", "ok", f"{path} is not there yet: whoever enqueues makes it")]
    if not path.is_dir():
        return [CheckResult("store", "wrong", f"{path} is no directory", "set store to one")]
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        advice = "run as the user that owns it, or give this one the right"
        return [CheckResult("store", "wrong", f"{path} may not be read and written by us", advice)]
    parts = {
        "log": path / LOG,
        "snapshots": Path(settings.snapshot_directory or path / "snapshots"),
    }
    sizes = {
        name: sum(file.stat().st_size for file in place.iterdir()) if place.is_dir() else 0
        for name, place in parts.items()
    }
    past = path / DATABASE
    sizes["history"] = past.stat().st_size if past.exists() else 0
    said = ", ".join(f"{name} {size / (1 << 20):,.1f} MiB" for name, size in sizes.items())
    found = [CheckResult("store", "ok", f"{path}: {said}")]
    if sizes["log"] > MOST_LOG_BYTES + 2 * sizes["snapshots"]:
        advice = "look for journal.compaction_failed in the daemon's log; free disk space if short"
        found.append(
            CheckResult("journal size", "warning", f"the log is not compacted: {said}", advice)
        )
    return found


def _server(settings: Settings) -> list[CheckResult]:
    """Whether the server can be used, and keeps what it acknowledges."""

    async def ask() -> Mapping[str, str]:
        engine = await open_server(settings)
        try:
            return await engine.server_settings()
        finally:
            await engine.close()

    said = asyncio.run(ask())
    found = [
        CheckResult("store", "ok", f"{settings.store_shown}: PostgreSQL {said['server_version']}")
    ]
    for name, good in (("fsync", ("on",)), ("synchronous_commit", _DURABLE)):
        if said[name] not in good:
            wrong = f"{name} is {said[name]}: a crash takes acknowledged work with it"
            found.append(CheckResult("sync", "wrong", wrong, f"set {name} = on on the server"))
    if len(found) == 1:
        found.append(CheckResult("sync", "ok", "acknowledged work survives a crash of the server"))
    return found


def disk(settings: Settings) -> list[CheckResult]:
    """Whether there is room."""
    if settings.on_server:
        return []  # the server's disk is not ours to see
    path = Path(settings.store).absolute()
    while not path.exists():
        path = path.parent
    room = shutil.disk_usage(path)
    said = f"{room.free / (1 << 30):,.1f} GiB free of {room.total / (1 << 30):,.1f}"
    if room.free < LEAST_FREE_BYTES:
        advice = "make room: enqueue is refused when nothing is left, and work under way goes on"
        return [CheckResult("disk", "wrong", said, advice)]
    if room.free < room.total * LEAST_FREE_SHARE:
        return [CheckResult("disk", "warning", said, "make room before it is needed")]
    return [CheckResult("disk", "ok", said)]


def sync(settings: Settings) -> list[CheckResult]:
    """Whether acknowledged work survives a power cut."""
    if settings.on_server:
        return []  # see ``_server``
    if settings.sync == "always":
        return [CheckResult("sync", "ok", "acknowledged work survives a power cut")]
    said = f"sync is {settings.sync}: a power cut takes the last acknowledged work with it"
    return [CheckResult("sync", "warning", said, "set sync: always unless that is what you want")]


def clock(settings: Settings) -> list[CheckResult]:
    """Whether the clock goes with what is on the disk."""
    if settings.on_server:
        return []  # the server's time counts, for everybody
    newest = 0.0
    log = Path(settings.store) / LOG
    if log.is_dir():
        newest = max((file.stat().st_mtime for file in log.iterdir()), default=0.0)
    ahead = newest - time.time()
    if ahead > SKEW_SECONDS:
        said = f"the log was written {shown(round(ahead))} in the future: the clock was set back"
        return [CheckResult("clock", "warning", said, "check the time service of this machine")]
    return [CheckResult("clock", "ok", "not behind what is on the disk")]


_UNHEALTHY = 503


def daemon(settings: Settings) -> list[CheckResult]:
    """Whether somebody owns the store, and answers."""
    holder = None if settings.directory is None else LocalDisk(settings.directory).owner()
    path = control_path(settings)
    if store_access.owned(settings):
        ready = store_access.ask(settings, "GET", "/health/ready", b"", dict[str, str], _UNHEALTHY)
        if ready is not None and ready.get("status") == "ready":
            said = "one is ready on this machine"
            if not settings.on_server:
                said = f"process {holder or 'unknown'} owns it and is ready"
            return [CheckResult("daemon", "ok", said)]
        reason = "" if ready is None else ready.get("reason", "")
        return [CheckResult("daemon", "wrong", f"it is not ready: {reason}", "look at its log")]
    if holder is not None:
        said = f"process {holder} owns the store and does not listen on {path}"
        return [CheckResult("daemon", "wrong", said, f"see what it is (ps {holder}), or stop it")]
    if settings.on_server:
        return [CheckResult("daemon", "ok", "none on this machine; others may have some")]
    found = [CheckResult("daemon", "warning", "nobody runs: nothing moves", "start `holdfast run`")]
    if Path(path).exists():
        said = f"{path} was left behind by a daemon that crashed: the next one replaces it"
        found.append(CheckResult("socket", "ok", said))
    return found


OF_THE_PLACE = (store, disk, sync, clock, daemon)


async def invariants(
    operations: Operations, _settings: Settings, _status: Status
) -> list[CheckResult]:
    """Whether the work that is kept makes sense."""
    problems = await operations.engine.validate()
    if not problems:
        return [CheckResult("invariants", "ok", "all hold")]
    advice = "a bug in Holdfast: please report it, with `holdfast journal verify`"
    return [CheckResult("invariants", "wrong", problem, advice) for problem in problems]


async def stuck_work(
    operations: Operations, settings: Settings, _status: Status
) -> list[CheckResult]:
    """Whether anything is held for longer than it may be."""
    page = await operations.engine.find(Filter(states=(State.IN_FLIGHT,)), limit=MAX_PAGE)
    now_us = int(time.time() * MICROSECONDS)
    patience_us = int((settings.reclaim_interval_seconds + 5) * MICROSECONDS)
    late = [job for job in page.jobs if job.lease_until_us + patience_us < now_us]
    if not late:
        return [
            CheckResult("stuck work", "ok", f"{count_of(len(page.jobs))} in flight, none overdue")
        ]
    said = f"{count_of(len(late))} held past the lease, the first is {late[0].id}"
    if store_access.owned(settings):
        advice = f"`holdfast jobs reclaim {late[0].id} --reason …` ends the lease"
        return [CheckResult("stuck work", "wrong", said, advice)]
    return [CheckResult("stuck work", "warning", said, "they go on when `holdfast run` is started")]


async def dead_letters(
    operations: Operations, _settings: Settings, _status: Status
) -> list[CheckResult]:
    """Whether more has died of late than is usual."""
    now_us = int(time.time() * MICROSECONDS)
    hour_us = HOUR_SECONDS * MICROSECONDS
    groups = await operations.engine.groups(Filter(finished_from_us=max(0, now_us - 25 * hour_us)))
    late = [group for group in groups if group.last_at_us >= now_us - hour_us]
    count = sum(group.count for group in late)
    usual = sum(group.count for group in groups if group not in late) / 24
    held = sum(group.held_behind for group in await operations.engine.groups())
    found = [CheckResult("dead letters", "ok", f"{count:,} of late, {usual:,.1f} in a usual hour")]
    if count >= SURGE_LEAST and count > SURGE_FACTOR * usual:
        first = late[0]
        said = f"{count:,} of late, mostly {first.error_reason} in {first.queue}"
        advice = "`holdfast dead groups --since 1h`; mend the cause, then `holdfast replay`"
        found = [CheckResult("dead letters", "wrong", said, advice)]
    if held:
        said = f"{count_of(held)} held up behind a dead one of the same key"
        advice = "`holdfast dead groups` (HELD) shows where: replay it, or archive it to go on"
        found.append(CheckResult("held keys", "warning", said, advice))
    return found


async def queues(operations: Operations, settings: Settings, _status: Status) -> list[CheckResult]:
    """Whether queues with work are paused, or served by nobody."""
    counts, policies = await operations.engine.counts(), await operations.policies()
    served = None if settings.queues is None else set(queue_slots(settings.queues))
    found: list[CheckResult] = []
    for name, one in counts.items():
        if one.pending and name in policies and policies[name].paused:
            said = f"{name} is paused with {count_of(one.pending)} pending"
            advice = f"`holdfast queues resume {name} --reason …` lets them go"
            found.append(CheckResult("queues", "warning", said, advice))
        if one.pending and served is not None and name not in served:
            said = f"{name} has {count_of(one.pending)} pending, and these settings do not serve it"
            found.append(CheckResult("queues", "warning", said, "add it to queues, or run another"))
    return found or [CheckResult("queues", "ok", f"{count_of(len(counts), 'queue')}, none held up")]


async def tasks(operations: Operations, _settings: Settings, status: Status) -> list[CheckResult]:
    """Whether jobs wait for a task that the daemon does not know."""
    if not status.tasks:
        return []
    known = set(status.tasks)
    strange: dict[str, int] = {}
    cursor, looked_at = "", 0
    while looked_at < LOOKED_AT:
        wanted = Filter(states=(State.PENDING,))
        page = await operations.engine.find(wanted, cursor=cursor, limit=MAX_PAGE)
        for job in page.jobs:
            if job.task not in known:
                strange[job.task] = strange.get(job.task, 0) + 1
        looked_at += len(page.jobs)
        cursor = page.cursor
        if not cursor:
            break
    if not strange:
        return [CheckResult("tasks", "ok", "every pending job has a task that is known")]
    said = ", ".join(f"{count_of(count)} of {task!r}" for task, count in sorted(strange.items()))
    advice = "deploy the code that has it, or cancel them: `holdfast jobs cancel --task …`"
    return [CheckResult("tasks", "wrong", f"nobody knows the task of {said}", advice)]


async def recovery(
    _operations: Operations, _settings: Settings, status: Status
) -> list[CheckResult]:
    """Whether the last start was quick."""
    seconds = status.totals.get("recovery_seconds")
    if seconds is None:
        return []
    if seconds <= SLOW_RECOVERY_SECONDS:
        return [CheckResult("recovery", "ok", f"the last start took {seconds:.2f} s")]
    advice = "there is much unfinished work, or the log was not compacted: see journal size"
    return [CheckResult("recovery", "warning", f"the last start took {seconds:.1f} s", advice)]


OF_THE_WORK = (invariants, stuck_work, dead_letters, queues, tasks, recovery)
