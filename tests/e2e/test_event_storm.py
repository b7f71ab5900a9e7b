"""Writers of events through the socket of a daemon that is killed: the tables are right."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.contract import Engine
from holdfast.engines.read_models.contract import DIRECTORY
from holdfast.engines.socket_path import socket_path
from holdfast.projections.chronicle import ENTRIES

from .pages import TRAILS
from .rig import PATIENCE_SECONDS, Rig, until
from .storm import Daemons, Writers, after_a_kill, calm, rebuild
from .storm_audit import Accounts, Found, problems

T = TypeVar("T")
KILLS = int(os.environ.get("HOLDFAST_TEST_KILLS", "4"))
KILLS_PER_STORE = 30
PROCESSES = 2
APPENDS_PER_KILL = 20


class ReadingRig(Rig):
    """A store whose owner is asked for jobs and events; tables are read from their files."""

    def ask(self, question: Callable[[Engine], Awaitable[T]]) -> T:
        async def asking() -> T:
            engine = ClientEngine(
                socket_path(str(self.store)),
                patience_seconds=PATIENCE_SECONDS,
                read_models=self.store / DIRECTORY,
            )
            try:
                return await question(engine)
            finally:
                await engine.close()

        return asyncio.run(asking())


def storm(rig: Rig, kills: int, seed: int) -> tuple[Found, Accounts]:
    """Kill the daemon so often while events are stored, applied and rebuilt; come to rest."""
    rng = random.Random(seed)
    writers = Writers(rig, PROCESSES, seed)
    try:
        daemons = Daemons(rig, 1)
        for number in range(kills):
            some = len(writers.said("stored")) + rng.randrange(1, APPENDS_PER_KILL * 4)
            writers.more(APPENDS_PER_KILL)
            if number == 1:
                daemons.running[0].ready()
                rebuild(rig, "--detach")
            stored = lambda some=some: len(writers.said("stored")) >= some
            until(stored, "events are stored", 60.0)
            daemons.kill(0)
        daemons.running[0].ready()
        accounts = writers.finish()
        found = calm(rig, daemons)
        daemons.stop()
    finally:
        writers.close()
        rig.close()
    return found, accounts


@pytest.mark.timeout(240 + 20 * KILLS)
def test_every_acknowledged_event_is_in_the_tables_once_and_in_order(
    tmp_path: Path, byte_code: Path
) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    for first in range(0, KILLS, KILLS_PER_STORE):
        kills = min(KILLS_PER_STORE, KILLS - first)
        directory = tmp_path / str(first)
        directory.mkdir()
        rig = ReadingRig(directory, byte_code)
        found, accounts = storm(rig, kills, seed + first)
        verified = rig.command("journal", "verify")
        figures = f"{kills} kills, {len(found.events)} events"
        print(figures)  # noqa: T201 - the figures are the point
        assert problems(found, accounts) == [], figures
        assert len(found.events) == len(accounts.stored) == kills * APPENDS_PER_KILL * 8
        assert {number for one in found.digests.values() for number in one} >= {2, 3}
        assert verified.returncode == 0, verified.stdout


@pytest.mark.parametrize(
    ("promise", "table", "problem"),
    [
        ("settle_first", ENTRIES.name, "events that are not in the chronicle"),
        ("forget_applied", TRAILS.name, "books whose trail is wrong"),
    ],
)
def test_a_daemon_that_breaks_a_promise_is_found_out(
    tmp_path: Path, byte_code: Path, promise: str, table: str, problem: str
) -> None:
    found = after_a_kill(ReadingRig(tmp_path, byte_code), promise, table)
    assert [said for said in found if problem in said], found
