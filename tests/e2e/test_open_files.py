"""A real daemon that may open no more files: it refuses new work, and loses and stops nothing."""

import asyncio
import resource
import sys
from pathlib import Path

import pytest

from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.socket_path import socket_path
from holdfast.model.errors import HoldfastError, StorageFull
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import completed

from .rig import HERE, PATIENCE_SECONDS, Daemon, Rig, until

PAYLOAD = {"x": "y" * 250_000}
BATCH = 32
FILES = resource.RLIMIT_NOFILE


def allow_no_more_files(daemon: Daemon) -> tuple[int, int]:
    """Lower the daemon's limit below the files that it has; return the limit before."""
    old = resource.prlimit(daemon.pid, FILES)
    resource.prlimit(daemon.pid, FILES, (3, old[1]))
    return old


async def fill(client: ClientEngine) -> tuple[list[str], StorageFull | None]:
    """Enqueue until it is refused, at most as much as three segments take."""
    taken: list[str] = []
    for _batch in range(3 * (64 << 20) // (BATCH * 250_000)):
        jobs = [NewJob(task="quick", queue="unserved", payload=PAYLOAD) for _ in range(BATCH)]
        try:
            taken += [receipt.id for receipt in await client.enqueue(jobs)]
        except StorageFull as refused:
            return taken, refused
    return taken, None


def exhaust(rig: Rig, daemon: Daemon) -> None:
    """Use up the log while no file can be opened, finish what is under way, and go on."""

    async def use() -> list[str]:
        client = ClientEngine(socket_path(str(rig.store)), patience_seconds=PATIENCE_SECONDS)
        await client.enqueue([NewJob(task="quick", queue="mine", id="under-way")])
        [held] = (await client.claim(queues=["mine"], worker="me", limit=1)).jobs
        old = allow_no_more_files(daemon)
        taken, refused = await fill(client)
        assert not daemon.gone(), daemon.errors
        assert refused is not None
        assert "ulimit -n" in str(refused)
        assert await client.settle([completed(held)]) == [None]
        # Others wait at the door, and do no harm there.
        other = ClientEngine(socket_path(str(rig.store)), patience_seconds=PATIENCE_SECONDS)
        waiting = asyncio.ensure_future(other.get(["under-way"]))
        assert await client.settle([completed(held)]) != [None], "it is settled already"
        resource.prlimit(daemon.pid, FILES, old)
        [found] = await waiting
        assert found is not None
        assert found.state is State.COMPLETED
        taken += [receipt.id for receipt in await client.enqueue([NewJob(task="quick")])]
        await other.close()
        await client.close()
        return taken

    ids = asyncio.run(use())
    daemon.stop()
    left = rig.left()
    assert [one for one in [*ids, "under-way"] if one not in left] == [], "acknowledged, and lost"


def test_a_daemon_that_can_open_no_more_files_refuses_new_work_and_goes_on(rig):
    exhaust(rig, rig.run("--queues", "default").ready())


def test_control_a_daemon_that_takes_it_for_a_failed_write_stops(rig):
    unsafe = (sys.executable, str(Path(HERE) / "unsafe.py"), "stop_without_files")
    daemon = rig.run("--queues", "default", command=unsafe).ready()
    with pytest.raises((AssertionError, HoldfastError)):
        exhaust(rig, daemon)
    assert until(daemon.gone, "the daemon has stopped")
    assert "Too many open files" in daemon.errors
