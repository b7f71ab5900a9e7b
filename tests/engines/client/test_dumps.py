"""A dump through the socket is the owner's, of one moment, and is given up when nobody asks."""

import pytest

from holdfast.daemon.rpc import dump_sessions
from holdfast.daemon.rpc.dump_sessions import DumpSessions
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.contract import EngineOptions
from holdfast.model.errors import InvalidInput
from holdfast.model.job import NewJob
from tests.engines.dump.test_dumps import everything, live, told

from .rig import Owner, short_directory


async def test_a_client_dumps_what_its_owner_would():
    with short_directory() as directory:
        owner = Owner(directory, EngineOptions(remember_seconds=10_000.0))
        await owner.start()
        client = ClientEngine(owner.path, clock=owner.clock)
        await live(client, owner.clock)
        for _batch in range(9):
            await client.enqueue([NewJob(task="t") for _ in range(300)])
        assert told(await everything(client)) == told(await everything(owner.engine))
        await client.close()
        await owner.stop()


async def test_dumps_that_nobody_asks_for_any_more_are_given_up(monkeypatch):
    with short_directory() as directory:
        owner = Owner(directory)
        await owner.start()
        dumps = DumpSessions()
        sessions = [
            (await dumps.next("", owner.engine)).session for _ in range(dump_sessions.MAX_SESSIONS)
        ]
        with pytest.raises(InvalidInput, match="under way"):
            await dumps.next("", owner.engine)
        monkeypatch.setattr(dump_sessions, "IDLE_SECONDS", -1.0)
        fresh = (await dumps.next("", owner.engine)).session
        assert fresh not in sessions
        with pytest.raises(InvalidInput, match="begin again"):
            await dumps.next(sessions[0], owner.engine)
        await owner.stop()
