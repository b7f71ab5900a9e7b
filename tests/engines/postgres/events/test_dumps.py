"""Events and subscriptions in dumps of PostgreSQL, and into it."""

from msgspec.structs import replace

from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.restore.restore import load
from holdfast.model.projection import ProjectionState, Rebuild, RebuildMode, RebuildPhase
from holdfast.model.subscription import Subscription
from holdfast.testing import VirtualClock
from tests.engines.dump.test_dumps import OPTIONS, everything, live, told
from tests.engines.postgres.stores import connected, stream

from .appending import CHRONICLE, WHY, new_event


async def test_events_and_subscriptions_go_to_postgres_and_come_back_as_they_were(url):
    clock = VirtualClock()
    memory = MemoryEngine(clock=clock, options=OPTIONS)
    await live(memory, clock)
    await memory.append([new_event("before")])
    stored = await memory.set_subscription("chronicle", CHRONICLE, WHY)
    await memory.append([new_event(key, payload={"n": 1}, reason="why") for key in "aab"])
    records = await everything(memory)
    await load(url, stream(records))
    engine: PostgresEngine = await connected(url, clock)
    try:
        assert told(await everything(engine)) == told(records)
        assert await engine.subscriptions() == {"chronicle": stored}
        assert stored is not None
        # What comes next is later than all that was loaded.
        last = (await engine.find_events(newest=True, limit=1)).events[0]
        [receipt] = await engine.append([new_event("b")])
        assert receipt.position > last.position
        [event] = await engine.get_events([receipt.id])
        assert event is not None
        assert event.fanout_version == last.fanout_version
        again = await engine.set_subscription("other", Subscription("other", "other", "entry"), WHY)
        assert again is not None
        assert again.since_version > stored.since_version
        jobs = (await engine.claim(queues=["chronicle"], worker="w", limit=9)).jobs
        assert sorted(str(job.ties.key) for job in jobs) == ["a", "b"]
        assert await engine.validate() == []
    finally:
        await engine.close()


async def test_a_projection_that_was_loaded_is_incomplete_until_it_is_rebuilt(url):
    clock = VirtualClock()
    memory = MemoryEngine(clock=clock, options=OPTIONS)
    state = ProjectionState(name="titles", live=2, newest=3, previous=1, previous_until_us=10**15)
    rebuild = Rebuild(id="r", mode=RebuildMode.GENERATION, generation=3, by="ann", started_at_us=1)
    await memory.set_projection(replace(state, rebuild=rebuild), WHY, expected=None)
    records = await everything(memory)
    await load(url, stream(records))
    engine: PostgresEngine = await connected(url, clock)
    try:
        assert told(await everything(engine)) == told(records)
        stored = (await engine.projections())["titles"]
        assert (stored.live, stored.incomplete, stored.previous_until_us) == (2, True, 1)
        assert stored.rebuild == replace(rebuild, phase=RebuildPhase.CANCELLING)
    finally:
        await engine.close()
