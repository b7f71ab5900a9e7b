"""Appending events: stored with their jobs, once, in order, within the caller's reach."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from holdfast.model.access import Caller
from holdfast.model.actions import ReplayJobs
from holdfast.model.errors import (
    AccessDenied,
    EventConflict,
    InvalidInput,
    PayloadInvalid,
    TooLarge,
)
from holdfast.model.event import MAX_APPEND, MAX_EVENT_BYTES, Event, EventReceipt, NewEvent
from holdfast.model.event_search import EventFilter
from holdfast.model.job import State
from holdfast.model.outcome import completed, dead
from holdfast.model.subscription import Subscription

from .fixture import (
    FAILURE,
    OPERATION,
    EngineFixture,
    Suite,
    WaitingClaim,
    named,
    on_engine,
)

CHRONICLE = Subscription("chronicle", "chronicle", "chronicle_entry")
SEARCH = Subscription("search", "find@engine", "index", ("book.renamed",), max_attempts=3)


def event_id(number: int) -> str:
    """Return the id of a test's event."""
    return f"01900000-0000-7000-8000-{number:012x}"


def new_event(number: int | None = None, **fields: object) -> NewEvent:
    """Return an event with defaults, and the id of this number."""
    make: Callable[..., NewEvent] = NewEvent
    known: dict[str, object] = {
        "id": None if number is None else event_id(number),
        "event_type": "book.renamed",
        "entity_type": "book",
        "entity_id": "7",
        "actor_id": "ann",
    }
    return make(**{**known, **fields})


async def subscribe(fixture: EngineFixture, *subscriptions: Subscription) -> list[Subscription]:
    """Store subscriptions; return them as stored."""
    stored: list[Subscription] = []
    for one in subscriptions:
        found = await fixture.engine.set_subscription(one.name, one, OPERATION)
        assert found is not None
        stored.append(found)
    return stored


async def event(fixture: EngineFixture, number: int, tenant: str = "default") -> Event:
    """Return the event of this number, which must exist."""
    [found] = await fixture.engine.get_events([event_id(number)], tenant=tenant)
    assert found is not None
    return found


async def store_is_empty(fixture: EngineFixture) -> bool:
    """Whether there is no event and no job."""
    return await fixture.engine.count_events() == 0 and await fixture.find() == []


class AppendRules(Suite):
    """An event is stored once, with its jobs, all or nothing."""

    @on_engine
    async def test_an_event_is_stored_as_given(self, fixture: EngineFixture) -> None:
        new = new_event(
            1,
            version=3,
            actor_type="service",
            actor_name="Nightly import",
            payload={"title": "Ö"},
            before={"title": "O"},
            after=["a", 1],
            diff=b'{"title":["O","\xc3\x96"]}',
            tenant="acme",
            scope="library:42/shelf:7",
            key="shelf:7",
            occurred_at_us=1_234,
            request_id="r1",
            device="phone",
            client="app/2",
            ip="10.0.0.1",
            reason="a typo\nin the title",
            correlation_id="c1",
            causation_id="c0",
            trace_id="t1",
            supersedes=event_id(9).upper(),
            imported_by="bob",
        )
        now_us = fixture.clock.now_us()
        [receipt] = await fixture.engine.append([new])
        assert (receipt.id, receipt.created) == (event_id(1), True)
        assert await event(fixture, 1, "acme") == Event(
            id=event_id(1),
            event_type="book.renamed",
            version=3,
            tenant="acme",
            scope="library:42/shelf:7",
            key="shelf:7",
            entity_type="book",
            entity_id="7",
            actor_type="service",
            actor_id="ann",
            actor_name="Nightly import",
            payload='{"title":"Ö"}'.encode(),
            before=b'{"title":"O"}',
            after=b'["a",1]',
            diff=b'{"title":["O","\xc3\x96"]}',
            occurred_at_us=1_234,
            created_at_us=now_us,
            position=receipt.position,
            request_id="r1",
            device="phone",
            client="app/2",
            ip="10.0.0.1",
            reason="a typo\nin the title",
            correlation_id="c1",
            causation_id="c0",
            trace_id="t1",
            supersedes=event_id(9),
            imported_by="bob",
        )

    @on_engine
    async def test_what_is_not_given_has_defaults(self, fixture: EngineFixture) -> None:
        [receipt] = await fixture.engine.append([new_event()])
        [stored] = await fixture.engine.get_events([receipt.id.upper()])
        assert stored is not None
        assert (stored.id, stored.key, stored.payload) == (receipt.id, "book:7", b"{}")
        assert stored.occurred_at_us == stored.created_at_us == fixture.clock.now_us()
        assert stored.actor_user_id == "ann"

    @on_engine
    async def test_each_subscription_that_wants_it_gets_a_job(self, fixture: EngineFixture) -> None:
        other = Subscription("other", "other", "t", ("book.lent",))
        await subscribe(fixture, CHRONICLE, SEARCH, other)
        await fixture.engine.append([new_event(1, tenant="acme", scope="library:1", key="k")])
        names = [f"{name}:{event_id(1)}" for name in ("chronicle", "search", "other")]
        entry, index, none = await fixture.engine.get(names, tenant="acme")
        assert none is None
        assert entry is not None
        assert index is not None
        for job, want in ((entry, CHRONICLE), (index, SEARCH)):
            assert (job.queue, job.task, job.max_attempts) == (
                want.queue,
                want.task,
                want.max_attempts,
            )
            assert (job.tenant, job.scope, job.ties.key) == ("acme", "library:1", "k")
            assert (job.state, job.payload) == (
                State.PENDING,
                b'{"event_id":"%s"}' % event_id(1).encode(),
            )
        assert len(await fixture.find()) == 2

    @on_engine
    async def test_nothing_is_appended_by_an_empty_call(self, fixture: EngineFixture) -> None:
        assert await fixture.engine.append([]) == []
        assert await store_is_empty(fixture)

    @on_engine
    async def test_one_bad_event_refuses_the_whole_call(self, fixture: EngineFixture) -> None:
        await subscribe(fixture, CHRONICLE)
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.append([new_event(1), new_event(2, version=0), new_event(3)])
        assert refused.value.field == "version"
        assert await store_is_empty(fixture)

    @on_engine
    async def test_an_event_is_appended_once(self, fixture: EngineFixture) -> None:
        await subscribe(fixture, CHRONICLE)
        new = new_event(1, payload={"n": 1})
        [first] = await fixture.engine.append([new])
        fixture.clock.advance(5)
        [second] = await fixture.engine.append([replace(new, id=event_id(1).upper())])
        assert second == EventReceipt(first.id, first.position, created=False)
        # Who imports it again is not part of what it says.
        [third] = await fixture.engine.append([replace(new, imported_by="bob")])
        assert not third.created
        assert await fixture.engine.count_events() == 1
        assert len(await fixture.find()) == 1

    @on_engine
    async def test_an_event_is_appended_once_within_one_call(self, fixture: EngineFixture) -> None:
        await subscribe(fixture, CHRONICLE)
        first, second, third = await fixture.engine.append(
            [new_event(1), new_event(2), new_event(1)]
        )
        assert [first.created, second.created, third.created] == [True, True, False]
        assert (third.id, third.position) == (first.id, first.position)
        assert await fixture.engine.count_events() == 2
        assert len(await fixture.find()) == 2

    @on_engine
    async def test_an_event_is_known_after_its_job_is_forgotten(
        self, fixture: EngineFixture
    ) -> None:
        await subscribe(fixture, CHRONICLE)
        await fixture.engine.append([new_event(1)])
        await fixture.complete(f"chronicle:{event_id(1)}", queues=["chronicle"])
        fixture.clock.advance(61)
        known, new = await fixture.engine.append([new_event(1), new_event(2)])
        assert [known.created, new.created] == [False, True]
        assert await fixture.find() == [f"chronicle:{event_id(2)}"]

    @pytest.mark.parametrize(
        "changed",
        [
            {"payload": {"n": 2}},
            {"entity_id": "8"},
            {"event_type": "book.lent"},
            {"actor_id": "eve"},
            {"occurred_at_us": 5},
            {"after": {}},
            {"key": "other"},
            {"scope": "library:1"},
        ],
    )
    @on_engine
    async def test_an_id_with_other_content_is_refused(
        self, fixture: EngineFixture, changed: dict[str, object]
    ) -> None:
        await subscribe(fixture, CHRONICLE)
        await fixture.engine.append([new_event(1, payload={"n": 1})])
        before = await event(fixture, 1)
        other = new_event(1, **{"payload": {"n": 1}, **changed})
        with pytest.raises(EventConflict, match="nothing was stored") as refused:
            await fixture.engine.append([new_event(2), other, new_event(3)])
        assert refused.value.event_id == event_id(1)
        assert await fixture.engine.count_events() == 1
        assert len(await fixture.find()) == 1
        assert await event(fixture, 1) == before

    @on_engine
    async def test_an_id_with_two_contents_in_one_call_is_refused(
        self, fixture: EngineFixture
    ) -> None:
        await subscribe(fixture, CHRONICLE)
        with pytest.raises(EventConflict):
            await fixture.engine.append([new_event(1), new_event(1, payload={"n": 2})])
        assert await store_is_empty(fixture)

    @on_engine
    async def test_what_is_wrong_with_the_call_comes_before_a_conflict(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.engine.append([new_event(1), new_event(2)])
        others = [new_event(number, payload={"n": 2}) for number in (2, 1)]
        foreign = new_event(3, tenant="acme")
        with pytest.raises(AccessDenied):
            await fixture.engine.append([*others, foreign], caller=Caller("default"))
        with pytest.raises(InvalidInput):
            await fixture.engine.append([*others, new_event(3, event_type="")])
        with pytest.raises(EventConflict) as refused:
            await fixture.engine.append(others)
        assert refused.value.event_id == event_id(2), "the first of the call"

    @on_engine
    async def test_ids_are_unique_within_a_tenant_only(self, fixture: EngineFixture) -> None:
        await fixture.engine.append([new_event(1)])
        [receipt] = await fixture.engine.append([new_event(1, tenant="acme", entity_id="8")])
        assert receipt.created
        assert (await event(fixture, 1)).entity_id == "7"
        assert (await event(fixture, 1, "acme")).entity_id == "8"

    @on_engine
    async def test_positions_rise_within_a_key(self, fixture: EngineFixture) -> None:
        positions: list[int] = []
        for first in (0, 10, 20):
            news = [new_event(first + n, key="a" if n % 2 else "b") for n in range(6)]
            receipts = await fixture.engine.append(news)
            assert [one.id for one in receipts] == [event_id(first + n) for n in range(6)]
            positions += [one.position for one in receipts[::2]]
        assert positions == sorted(set(positions))
        assert positions[0] > 0

    @on_engine
    async def test_too_many_events_are_refused(self, fixture: EngineFixture) -> None:
        await subscribe(fixture, CHRONICLE)
        news = [new_event(number, key=f"k{number}") for number in range(MAX_APPEND + 1)]
        with pytest.raises(InvalidInput, match="1,000") as refused:
            await fixture.engine.append(news)
        assert refused.value.field == "events"
        assert await store_is_empty(fixture)
        assert all(one.created for one in await fixture.engine.append(news[:MAX_APPEND]))
        assert await fixture.engine.count_events() == MAX_APPEND
        assert (await fixture.counts("chronicle")).pending == MAX_APPEND

    @on_engine
    async def test_an_event_that_is_too_large_is_refused(self, fixture: EngineFixture) -> None:
        half = b'"%s"' % (b"x" * (MAX_EVENT_BYTES // 2 - 2))
        with pytest.raises(TooLarge) as refused:
            await fixture.engine.append([new_event(1, before=half, after=half)])
        assert refused.value.field == "event"
        assert await store_is_empty(fixture)
        await fixture.engine.append([new_event(1, before=half, payload={"n": 1})])
        assert (await event(fixture, 1)).before == half

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("id", "17"),
            ("id", ""),
            ("event_type", ""),
            ("entity_type", "a\nb"),
            ("entity_id", "x" * 256),
            ("actor_id", ""),
            ("actor_type", None),
            ("tenant", ""),
            ("tenant", []),
            ("scope", "a//b"),
            ("key", ""),
            ("version", 0),
            ("version", "1"),
            ("occurred_at_us", -1),
            ("occurred_at_us", 1.5),
            ("supersedes", "x"),
            ("request_id", "a\nb"),
            ("correlation_id", 7),
            ("reason", "x" * 2_001),
            ("reason", "\ud800"),
            ("actor_name", "a\x00b"),
            ("actor_name", 0),
            ("trace_id", "\ud800"),
        ],
    )
    @on_engine
    async def test_a_bad_envelope_is_refused_by_its_field(
        self, fixture: EngineFixture, field: str, value: object
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.append([new_event(1), new_event(2, **{field: value})])
        assert refused.value.field == field
        assert await store_is_empty(fixture)

    @pytest.mark.parametrize("field", ["payload", "before", "after", "diff"])
    @on_engine
    async def test_bad_json_is_refused_by_its_field(
        self, fixture: EngineFixture, field: str
    ) -> None:
        for value in (b"{", {"n": object()}):
            with pytest.raises(PayloadInvalid) as refused:
                await fixture.engine.append([new_event(1, **{field: value})])
            assert refused.value.field == field
        assert await store_is_empty(fixture)

    @pytest.mark.parametrize("events", [None, "text", [1], [{"event_type": "x"}]])
    @on_engine
    async def test_what_is_no_event_is_refused(
        self, fixture: EngineFixture, events: object
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.append(events)  # type: ignore[arg-type]
        assert refused.value.field == "events"


class EventReachRules(Suite):
    """A caller appends and sees what its tenant and scopes reach, and nothing else."""

    @on_engine
    async def test_an_event_out_of_reach_is_refused(self, fixture: EngineFixture) -> None:
        await subscribe(fixture, CHRONICLE)
        caller = Caller("acme", ("library:1",))
        ours = new_event(1, tenant="acme", scope="library:1/shelf:2")
        for field, other in (
            ("tenant", new_event(2, scope="library:1")),
            ("scope", new_event(2, tenant="acme", scope="library:12")),
            ("scope", new_event(2, tenant="acme")),
        ):
            with pytest.raises(AccessDenied) as refused:
                await fixture.engine.append([ours, other], caller=caller)
            assert refused.value.field == field
        assert await store_is_empty(fixture)
        [receipt] = await fixture.engine.append([ours], caller=caller)
        assert receipt.created

    @on_engine
    async def test_events_out_of_reach_do_not_exist(self, fixture: EngineFixture) -> None:
        await fixture.engine.append(
            [
                new_event(1, tenant="acme", scope="library:1/shelf:2"),
                new_event(2, tenant="acme", scope="library:12"),
                new_event(3, tenant="acme"),
                new_event(4),
            ]
        )
        engine, ids = fixture.engine, [event_id(number) for number in (1, 2, 3, 4)]
        for caller, seen in (
            (Caller("acme", ("library:1",)), [1]),
            (Caller("acme"), [1, 2, 3]),
            (Caller(None, ("library:12", "library:1")), [1, 2]),
            (Caller("default"), [4]),
            (Caller("none"), []),
        ):
            expected = [event_id(number) for number in seen]
            page = await engine.find_events(caller=caller)
            assert [one.id for one in page.events] == expected
            assert await engine.count_events(caller=caller) == len(seen)
            found = [
                one.id
                for tenant in ("acme", "default")
                for one in await engine.get_events(ids, tenant=tenant, caller=caller)
                if one is not None
            ]
            assert found == expected
            newest = await engine.find_events(caller=caller, newest=True)
            assert [one.id for one in newest.events] == expected[::-1]


class EventJobRules(Suite):
    """The jobs of events are jobs as others are, in the order of their keys."""

    @on_engine
    async def test_jobs_run_in_the_order_of_their_key(self, fixture: EngineFixture) -> None:
        await subscribe(fixture, CHRONICLE)
        await fixture.engine.append([new_event(3, key="a"), new_event(1, key="a")])
        await fixture.engine.append([new_event(2, key="a"), new_event(0, key="b")])
        run: list[str] = []
        while jobs := await fixture.take(10, queues=["chronicle"]):
            run += [job.id for job in jobs]
            await fixture.settle(*map(completed, jobs))
        first, second, third, other = (f"chronicle:{event_id(number)}" for number in (3, 1, 2, 0))
        assert [one for one in run if one != other] == [first, second, third]
        assert run.index(other) < 2

    @on_engine
    async def test_a_dead_job_holds_its_key_and_is_replayed(self, fixture: EngineFixture) -> None:
        await subscribe(fixture, CHRONICLE)
        await fixture.engine.append([new_event(1, key="a"), new_event(2, key="a")])
        first, second = (f"chronicle:{event_id(number)}" for number in (1, 2))
        [job] = await fixture.take(9, queues=["chronicle"])
        await fixture.settle(dead(job, FAILURE))
        await fixture.engine.append([new_event(3, key="a"), new_event(4, key="b")])
        assert await fixture.take_ids(queues=["chronicle"]) == [f"chronicle:{event_id(4)}"]
        await fixture.engine.operate(ReplayJobs(), named(first), OPERATION)
        await fixture.complete(first, queues=["chronicle"])
        await fixture.complete(second, queues=["chronicle"])

    @on_engine
    async def test_an_append_wakes_a_claim_that_waits(self, fixture: EngineFixture) -> None:
        await subscribe(fixture, CHRONICLE)
        claim = WaitingClaim(fixture, queues=["chronicle"])
        await claim.still_waits()
        await fixture.engine.append([new_event(1)])
        assert await claim.ids() == [f"chronicle:{event_id(1)}"]

    @on_engine
    async def test_finished_jobs_do_not_stop_later_events(self, fixture: EngineFixture) -> None:
        await subscribe(fixture, CHRONICLE)
        for number in range(3):
            [receipt] = await fixture.engine.append([new_event(number)])
            assert receipt.created
            await fixture.complete(f"chronicle:{event_id(number)}", queues=["chronicle"])
        assert (await fixture.counts("chronicle")).completed == 3

    @on_engine
    async def test_a_paused_queue_does_not_stop_appends(self, fixture: EngineFixture) -> None:
        await subscribe(fixture, CHRONICLE)
        await fixture.set_policy("chronicle", paused=True)
        await fixture.engine.append([new_event(1)])
        assert (await fixture.counts("chronicle")).pending == 1
        assert await fixture.take_ids(queues=["chronicle"]) == []

    @on_engine
    async def test_forgotten_jobs_leave_their_event(self, fixture: EngineFixture) -> None:
        await subscribe(fixture, CHRONICLE)
        await fixture.engine.append([new_event(1)])
        await fixture.complete(f"chronicle:{event_id(1)}", queues=["chronicle"])
        fixture.clock.advance(61)
        assert await fixture.find() == []
        page = await fixture.engine.find_events(EventFilter(ids=(event_id(1),)))
        assert [one.id for one in page.events] == [event_id(1)]
