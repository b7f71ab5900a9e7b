"""The events of a journal: a file of their own, which is never begun anew; the brake of appends."""

import asyncio
import sqlite3

import pytest

from holdfast.engines.dump.digest import digest_of
from holdfast.engines.dump.format import DumpedEvent, DumpedSubscription
from holdfast.engines.dump.redact import redacted
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.events.feed import EventFeed
from holdfast.engines.journal.events.statements import composed
from holdfast.engines.journal.events.store import SqliteEvents
from holdfast.engines.journal.events.where_clause import conditions
from holdfast.engines.journal.inspection import dump, salvage, verify
from holdfast.engines.journal.options import DamagedHistory, JournalOptions
from holdfast.engines.journal.readonly_engine import open_readonly
from holdfast.engines.journal.restore import restore
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.access import SYSTEM
from holdfast.model.errors import (
    CorruptEvents,
    DuplicateId,
    EngineClosed,
    EventsMissing,
    StorageError,
    UnknownFormat,
)
from holdfast.model.event import NewEvent
from holdfast.model.event_search import EVERY_EVENT, EventFilter
from holdfast.model.job import NewJob
from holdfast.testing import SimDisk, VirtualClock
from holdfast.testing.conformance.events import CHRONICLE, SEARCH, event_id, new_event
from holdfast.testing.conformance.fixture import OPERATION

OPTIONS = JournalOptions(inline=True, segment_bytes=16 << 10, remember_seconds=1e6)
ANEW = JournalOptions(inline=True, segment_bytes=16 << 10, history=DamagedHistory.ANEW)


async def opened(disk, options=OPTIONS) -> JournalEngine:
    return await JournalEngine.open(disk, clock=VirtualClock(), options=options)


async def with_events(*numbers: int, compacted: bool = True) -> SimDisk:
    """Return a closed store with these events, one after another, and a subscription."""
    disk = SimDisk()
    engine = await opened(disk)
    await engine.set_subscription("chronicle", CHRONICLE, OPERATION)
    for number in numbers:
        await engine.append([new_event(number, key=f"k{number % 3}")])
    if compacted:
        await engine.compact()
    await engine.close()
    return disk.crash()


async def ids_in(engine) -> list[str]:
    return [event.id for event in (await engine.find_events(limit=1_000)).events]


async def test_there_is_no_file_without_events():
    disk = SimDisk()
    engine = await opened(disk)
    await engine.enqueue([NewJob(task="t")])
    assert await engine.count_events() == 0
    await engine.compact()
    await engine.close()
    assert not disk.events().exists()


async def test_events_leave_memory_and_are_known_all_the_same():
    engine = await opened(SimDisk())
    await engine.append([new_event(1), new_event(2)])
    feed = engine._event_feed
    assert feed.unfed == 2
    for _ in range(2):  # not stored yet, then stored
        [receipt] = await engine.append([new_event(1)])
        assert not receipt.created
        assert await engine.get_events([event_id(2)]) != [None]
        await feed.flush()
    assert (feed.unfed, feed._waiting, feed._weight) == (0, {}, 0)
    await engine.close()


async def test_a_store_that_is_opened_again_knows_its_events():
    disk = await with_events(1, 2, 3)
    engine = await opened(disk)
    receipts = await engine.append([new_event(2, key="k2"), new_event(4)])
    assert [one.created for one in receipts] == [False, True]
    assert await ids_in(engine) == [event_id(number) for number in (1, 2, 3, 4)]
    assert (await engine.subscriptions())["chronicle"].since_version == 1
    [again] = await engine.get_events([event_id(4)])
    assert again is not None
    assert again.fanout_version == 1
    await engine.close()


async def test_a_missing_file_is_refused_once_the_log_was_cut():
    disk = await with_events(1, 2)
    disk.events().images.clear()
    for options in (OPTIONS, ANEW):
        with pytest.raises(EventsMissing, match="is missing"):
            await opened(disk, options)
    with pytest.raises(EventsMissing):
        await open_readonly(disk)
    assert any("events.sqlite is missing" in problem for problem in verify(disk).problems)
    assert not disk.events().exists(), "nothing was created"


async def test_an_older_file_is_refused_once_the_log_was_cut():
    disk = await with_events(1)
    old = dict(disk.events().images)
    engine = await opened(disk)
    await engine.append([new_event(2)])
    await engine.compact()
    await engine.close()
    left = disk.crash()
    left.events().images.update(old)
    with pytest.raises(EventsMissing, match="ends at seq"):
        await opened(left)


async def test_a_missing_file_is_filled_from_the_log_while_that_has_everything():
    disk = await with_events(1, 2, compacted=False)
    disk.events().images.clear()
    engine = await opened(disk)
    assert await ids_in(engine) == [event_id(1), event_id(2)]
    await engine.close()
    assert verify(disk.crash()).events == 2


async def test_events_of_another_log_are_refused():
    disk, other = await with_events(1, compacted=False), await with_events(1, 2, 3)
    disk.events().images.update(other.events().images)
    with pytest.raises(CorruptEvents, match="the log only to"):
        await opened(disk, ANEW)
    assert any("the log only to" in problem for problem in verify(disk).problems)


def changed(disk: SimDisk, *statements: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(disk.events().images["events.sqlite"])
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    disk.events().images["events.sqlite"] = connection.serialize()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("PRAGMA application_id = 7", "another program"),
        ("UPDATE checkpoint SET seq = seq + 1", "checksum of its checkpoint"),
        ("DELETE FROM checkpoint", "checkpoint is not there"),
    ],
)
async def test_a_damaged_file_is_refused_and_never_set_aside(statement, problem):
    disk = await with_events(1, 2)
    changed(disk, statement)
    image = disk.events().images["events.sqlite"]
    for options in (OPTIONS, ANEW):
        with pytest.raises(CorruptEvents, match=problem):
            await opened(disk, options)
    assert disk.events().images == {"events.sqlite": image}
    assert any(problem in one for one in verify(disk).problems)


async def test_what_is_no_database_is_refused():
    disk = await with_events(1)
    image = bytearray(disk.events().images["events.sqlite"])
    image[8192:12_000] = b"\xff" * (12_000 - 8192)
    disk.events().images["events.sqlite"] = bytes(image)
    with pytest.raises(CorruptEvents):
        await opened(disk, ANEW)
    assert verify(disk).problems


async def test_a_file_of_a_later_version_is_refused():
    disk = await with_events(1)
    changed(disk, "PRAGMA user_version = 99")
    with pytest.raises(UnknownFormat, match="schema version 99"):
        await opened(disk)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE events SET body = replace(body, 'ann', 'eve')", "its checksum is wrong"),
        ("UPDATE events SET actor_id = 'eve'", "its body otherwise"),
    ],
)
async def test_a_changed_row_is_reported(statement, problem):
    disk = await with_events(1, 2, 3)
    changed(disk, f"{statement} WHERE id = '{event_id(2)}'")
    [found] = verify(disk).problems
    assert problem in found
    if "checksum" in problem:
        engine = await opened(disk)
        with pytest.raises(CorruptEvents, match="at position"):
            await engine.get_events([event_id(2)])
        assert await engine.get_events([event_id(3)]) != [None]
        await engine.close()


async def test_history_begun_anew_leaves_the_events():
    disk = await with_events(1, 2)
    disk.database().images.clear()
    engine = await opened(disk, ANEW)
    assert await ids_in(engine) == [event_id(1), event_id(2)]
    assert not (await engine.append([new_event(1, key="k1")]))[0].created
    await engine.close()


class FullDisk:
    """Makes every commit of events fail while it is full."""

    def __init__(self, monkeypatch) -> None:
        self.full = True
        feed = SqliteEvents.feed

        def fails(store, events, checkpoint):
            if self.full and events:
                raise StorageError("no room")
            feed(store, events, checkpoint)

        monkeypatch.setattr(SqliteEvents, "feed", fails)


async def test_appends_wait_for_room_and_jobs_do_not(monkeypatch):
    disk = FullDisk(monkeypatch)
    options = JournalOptions(inline=True, max_events_backlog_bytes=3_000)
    engine = await opened(SimDisk(), options)
    await engine.set_subscription("chronicle", CHRONICLE, OPERATION)
    for number in range(3):
        await engine.append([new_event(number)])
    waiting = asyncio.create_task(engine.append([new_event(9)]))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done(), "there is no room for another one"
    # Claims, outcomes and new jobs go on.
    await engine.enqueue([NewJob(task="t", id="j")])
    claim = await engine.claim(queues=["default", "chronicle"], worker="w", limit=9)
    assert {job.id for job in claim.jobs} == {"j", f"chronicle:{event_id(0)}"}
    with pytest.raises(StorageError, match="no room"):
        await engine.find_events()
    disk.full = False
    assert await engine.count_events() == 3
    [receipt] = await waiting
    assert receipt.created
    await engine.close()


async def test_control_without_the_brake_the_backlog_grows(monkeypatch):
    async def room(_feed):
        return None

    monkeypatch.setattr(EventFeed, "room", room)
    with pytest.raises(AssertionError, match="no room for another"):
        await test_appends_wait_for_room_and_jobs_do_not(monkeypatch)


async def test_a_job_that_has_the_id_of_an_events_job_refuses_the_event():
    engine = await opened(SimDisk())
    await engine.set_subscription("chronicle", CHRONICLE, OPERATION)
    await engine.enqueue([NewJob(task="t", id=f"chronicle:{event_id(1)}")])
    with pytest.raises(DuplicateId):
        await engine.append([new_event(2), new_event(1)])
    assert await engine.count_events() == 0
    await engine.close()


async def test_the_log_shows_events_by_their_id():
    disk = await with_events(1, compacted=False)
    found = [(one.type, one.tenant, one.job_id) for one in dump(disk)]
    assert found == [
        ("SUBSCRIPTION", "", ""),
        ("EVENT", "default", event_id(1)),
        ("ENQUEUE", "default", f"chronicle:{event_id(1)}"),
    ]


async def test_a_store_without_an_owner_shows_the_events_of_file_and_log():
    disk = await with_events(1, 2)
    engine = await opened(disk)
    await engine.append([new_event(3, actor_id="bob"), new_event(4)])
    found = disk.crash()
    reader = await open_readonly(found, clock=VirtualClock())
    assert await ids_in(reader) == [event_id(number) for number in (1, 2, 3, 4)]
    newest = await reader.find_events(newest=True, limit=3)
    assert [event.id for event in newest.events] == [event_id(number) for number in (4, 3, 2)]
    rest = await reader.find_events(newest=True, limit=3, cursor=newest.cursor)
    assert [event.id for event in rest.events] == [event_id(1)]
    assert await reader.count_events(EventFilter(actor_id="bob")) == 1
    assert None not in await reader.get_events([event_id(1), event_id(3)])
    assert set(await reader.subscriptions()) == {"chronicle"}
    for call in (
        reader.append([new_event(9)]),
        reader.set_subscription("chronicle", None, OPERATION),
    ):
        with pytest.raises(EngineClosed):
            await call
    assert not (await reader.append([new_event(3, actor_id="bob")]))[0].created
    await reader.close()
    await engine.close()


async def batches(engine) -> list:
    return [list(batch) async for batch in engine.dump()]


async def test_a_dump_keeps_events_and_subscriptions_in_order():
    engine = await opened(await with_events(*range(7)))
    found = await batches(engine)
    records = [record for batch in found for record in batch]
    positions = [one.event.position for one in records if isinstance(one, DumpedEvent)]
    assert positions == sorted(positions)
    assert len(positions) == 7
    assert sum(isinstance(one, DumpedSubscription) for one in records) == 1
    # Into memory, from there into another journal: the same content each time.
    memory = MemoryEngine(clock=VirtualClock(), options=OPTIONS)
    memory.load(records)
    target = SimDisk()
    restore(target, await batches(memory))
    again = await opened(target)
    nothing = lambda _count: None
    digests = [await digest_of(one.dump(), nothing) for one in (engine, memory, again)]
    assert digests[0] == digests[1] == digests[2]
    # Positions and versions go on above the old ones.
    for store in (memory, again):
        [receipt] = await store.append([new_event(50)])
        assert receipt.position > max(positions)
        assert not (await store.append([new_event(3, key="k0")]))[0].created
        changed = await store.set_subscription("search", SEARCH, OPERATION)
        assert changed is not None
        assert changed.since_version == 2
    await again.compact()
    await again.close()
    assert verify(target.crash()).problems == []
    await engine.close()


async def test_a_redacted_dump_has_nothing_that_people_wrote():
    engine = MemoryEngine(clock=VirtualClock())
    secret = NewEvent(
        id=event_id(1),
        event_type="book.renamed",
        entity_type="book",
        entity_id="secret-1",
        actor_id="ann",
        actor_name="secret-2",
        payload={"x": "secret-3"},
        before={"x": "secret-4"},
        reason="secret-5",
        ip="secret-6",
        scope="secret-7",
    )
    await engine.append([secret])
    found = [record async for batch in redacted(engine.dump()) for record in batch]
    [event] = [one.event for one in found if isinstance(one, DumpedEvent)]
    assert "secret" not in repr(event)
    assert (event.id, event.actor_id, event.before) == (event_id(1), "ann", b"null")


async def test_salvage_copies_whole_events_of_file_and_log():
    disk = await with_events(1, 2, 3)
    engine = await opened(disk)
    await engine.append([new_event(4)])
    left = disk.crash()
    changed(left, "UPDATE events SET crc = crc + 1 WHERE id LIKE '%2'")
    target = SimDisk()
    report = salvage(left, target)
    assert (report.events, "its checksum is wrong" in report.events_lost) == (3, True)
    saved = await opened(target)
    assert await ids_in(saved) == [event_id(number) for number in (1, 3, 4)]
    assert set(await saved.subscriptions()) == {"chronicle"}
    await saved.close()
    await engine.close()


async def test_salvage_without_the_file_says_so():
    disk = await with_events(1, 2)
    disk.events().images.clear()
    report = salvage(disk, SimDisk())
    assert report.events == 0
    assert "events.sqlite is missing" in report.events_lost


def test_every_filter_uses_an_index():
    store = SqliteEvents.open(SimDisk().events())
    engine = MemoryEngine(clock=VirtualClock())
    asyncio.run(engine.append([new_event(1)]))
    store.feed(asyncio.run(engine.find_events()).events, 1)
    assert store.count(EVERY_EVENT, SYSTEM) == 1
    for wanted, index in (
        (EventFilter(ids=(event_id(1),)), "events_by_name"),
        (EventFilter(entity_type="book", entity_id="7"), "events_by_entity"),
        (EventFilter(key="k"), "events_by_key"),
        (EventFilter(actor_id="ann", tenant="default"), "events_by_actor"),
        (EventFilter(event_types=("a",), tenant="default"), "events_by_type"),
        (EventFilter(tenant="default"), "events_by_tenant"),
        (EventFilter(request_id="r"), "events_by_request"),
        (EventFilter(correlation_id="c"), "events_by_correlation"),
        (EventFilter(occurred_from_us=1, occurred_to_us=2), "events_by_time"),
    ):
        found = conditions(wanted, SYSTEM)
        assert found is not None
        with store._reading() as connection:
            assert connection is not None
            sql = "EXPLAIN QUERY PLAN " + composed("count_events", found.where)
            plan = connection.execute(sql, found.values).fetchall()
        assert index in str(plan), (wanted, plan)
    store.close()
