"""Appending on PostgreSQL: once under each id, byte for byte, and found by SQL."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from holdfast.engines.postgres import joined_verbs
from holdfast.engines.postgres.events import append as append_verbs
from holdfast.engines.postgres.events.append import AppendRequest
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.errors import AccessDenied, DuplicateId, EventConflict, InvalidInput
from holdfast.model.event import NewEvent
from holdfast.model.job import MAX_TIME_US, NewJob
from tests.engines.postgres.shops import psycopg_async

from .appending import OPTIONS, append, new_event, subscribe
from .test_open_transactions import wait_until_blocked

ONE = "01900000-0000-7000-8000-000000000001"


async def test_of_many_appends_of_one_id_at_once_one_is_the_first(opened):
    async with opened(5_000) as engine:
        await subscribe(engine)
        news = [new_event("a", ONE), new_event("b")]
        answers = await asyncio.gather(*(engine.append(news[:1]) for _one in range(8)))
        assert sum(one.created for [one] in answers) == 1
        assert len({one.position for [one] in answers}) == 1
        assert await engine.count_events() == 1
        assert len((await engine.find()).jobs) == 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_an_id_of_an_open_transaction_is_decided_by_its_end(url, end):
    """Under keys that differ: it is the id that they wait for."""
    with psycopg.connect(url) as first, psycopg.connect(url) as second:
        append(first, new_event("a", ONE))
        with ThreadPoolExecutor(1) as pool:
            racing = pool.submit(append, second, new_event("b"), new_event("b", ONE))
            wait_until_blocked(url)
            getattr(first, end)()
            if end == "rollback":
                assert [one.created for one in racing.result(20)] == [True, True]
                return
            with pytest.raises(EventConflict, match=ONE):
                racing.result(20)
        # The transaction goes on, without anything of that call.
        append(second, new_event("c"))
        second.commit()
        keys = second.execute("SELECT key FROM holdfast.chronicle_events ORDER BY key").fetchall()
        assert keys == [("a",), ("c",)]


async def test_a_repeated_append_in_a_transaction_is_recognised(opened, url):
    async with opened() as engine:
        await subscribe(engine)
        with psycopg.connect(url) as connection:
            [first] = append(connection, new_event("a", ONE))
            [again] = append(connection, new_event("a", ONE.upper()))
        assert (first.created, again.created) == (True, False)
        assert again.position == first.position
        assert len((await engine.find()).jobs) == 1


async def test_an_append_whose_reply_was_lost_says_what_it_did(opened):
    """The commit came through, and the same request is sent again."""
    async with opened() as engine:
        request = AppendRequest([new_event("a", ONE)], SYSTEM, [""], 1)
        verb = lambda: append_verbs.append(request, engine._context())
        first = await engine._database.perform(verb)
        second = await engine._database.perform(verb)
        assert first.receipts == second.receipts
        assert second.receipts[0].created
        [other] = await engine.append([new_event("a", ONE)])
        assert not other.created


async def test_an_asynchronous_caller_appends_in_its_transaction(opened, url):
    async with opened() as engine:
        await subscribe(engine)
        async with psycopg_async(url) as (connection, _insert):
            [one] = await joined_verbs.append(connection, [new_event("a")], options=OPTIONS)
            assert await engine.count_events() == 0
            await connection.commit()
        assert [event and event.id for event in await engine.get_events([one.id])] == [one.id]


async def test_what_is_appended_is_checked_as_always(opened, url):
    async with opened() as engine:
        with psycopg.connect(url) as connection:
            with pytest.raises(InvalidInput, match="1,000"):
                append(connection, *(new_event() for _event in range(1_001)))
            with pytest.raises(InvalidInput, match="version"):
                append(connection, new_event(), new_event(version=0))
            caller = Caller("acme")
            with pytest.raises(AccessDenied):
                joined_verbs.append_sync(connection, [new_event()], options=OPTIONS, caller=caller)
            assert append(connection) == []
        assert await engine.count_events() == 0


async def test_a_job_that_has_the_id_already_refuses_the_event(opened):
    async with opened() as engine:
        await subscribe(engine)
        await engine.enqueue([NewJob(task="t", id=f"chronicle:{ONE}")])
        with pytest.raises(DuplicateId, match=ONE):
            await engine.append([new_event("a"), new_event("b", ONE)])
        assert await engine.count_events() == 0


@pytest.mark.parametrize(
    "payload",
    [
        b'{ "b" : 1,\n "a": 1.50, "b": 1e300 }',
        b'{"nul":"\\u0000","slash":"\\/"}',
        b'{"title":"\xe6\x9b\xb8\xe7\xb1\x8d"}',
    ],
)
async def test_json_comes_back_byte_for_byte(opened, payload):
    async with opened() as engine:
        news = NewEvent(
            event_type="e",
            entity_type="t",
            entity_id="1",
            actor_id="ann",
            payload=payload,
            before=payload,
            after=payload,
            diff=payload,
            occurred_at_us=MAX_TIME_US,
        )
        [one] = await engine.append([news])
        [found] = await engine.get_events([one.id])
        assert found is not None
        assert {found.payload, found.before, found.after, found.diff} == {payload}
        assert found.occurred_at_us == MAX_TIME_US


async def test_events_are_columns_in_sql(opened, url):
    async with opened() as engine:
        event = new_event("a", payload={"title": "x", "tags": ["new"]}, ip="10.0.0.1")
        system = new_event("a", actor_type="service", actor_id="import")
        await engine.append([event, system])
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT payload ->> 'title', payload::jsonb @> '{\"tags\": [\"new\"]}', actor_user_id,"
            " ip, device, occurred_at = created_at, event_type"
            " FROM holdfast.chronicle_events ORDER BY position"
        ).fetchall()
    assert found == [
        ("x", True, "ann", "10.0.0.1", None, True, "book.renamed"),
        (None, False, None, None, None, True, "book.renamed"),
    ]
