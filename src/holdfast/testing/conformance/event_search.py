"""Finding and counting events: filters, both directions, pages."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from holdfast.model.errors import InvalidInput
from holdfast.model.event_search import EVERY_EVENT, EventFilter

from .events import CHRONICLE, event_id, new_event, subscribe
from .fixture import EngineFixture, Suite, on_engine

SECOND_US = 1_000_000


async def _ten_events(fixture: EngineFixture) -> None:
    """Append events 0 to 9, one by one; events 5 to 9 are given to a subscription."""
    for number in range(10):
        if number == 5:
            await subscribe(fixture, CHRONICLE)
        await fixture.engine.append(
            [
                new_event(
                    number,
                    event_type="book.lent" if number % 3 == 0 else "book.renamed",
                    entity_id=str(number % 4),
                    entity_type="shelf" if number == 9 else "book",
                    actor_id="ann" if number < 6 else "bob",
                    actor_type="service" if number == 7 else "user",
                    tenant="acme" if number == 8 else "default",
                    scope=("", "library:1", "library:1/shelf:2", "library:12")[number % 4],
                    occurred_at_us=(20 - number) * SECOND_US,
                    request_id=f"r{number // 2}",
                    correlation_id="c" if number == 4 else "",
                    key="k" if number == 2 else None,
                )
            ]
        )


class EventSearchRules(Suite):
    """Every condition, alone and with others, both ways and page by page."""

    @pytest.mark.parametrize(
        ("wanted", "numbers"),
        [
            (EVERY_EVENT, range(10)),
            (EventFilter(ids=(event_id(3), event_id(1), event_id(77))), [1, 3]),
            (EventFilter(ids=(event_id(10).replace("a", "A"),)), []),
            (EventFilter(event_types=("book.lent",)), [0, 3, 6, 9]),
            (EventFilter(event_types=("book.lent", "book.renamed")), range(10)),
            (EventFilter(event_types=("none",)), []),
            (EventFilter(tenant="acme"), [8]),
            (EventFilter(scope="library:1"), [1, 2, 5, 6, 9]),
            (EventFilter(scope="library:12"), [3, 7]),
            (EventFilter(key="k"), [2]),
            (EventFilter(key="book:1"), [1, 5]),
            (EventFilter(entity_type="shelf"), [9]),
            (EventFilter(entity_type="book", entity_id="1"), [1, 5]),
            (EventFilter(entity_id="1"), [1, 5, 9]),
            (EventFilter(actor_id="bob"), [6, 7, 8, 9]),
            (EventFilter(actor_type="service"), [7]),
            (EventFilter(actor_type="user", actor_id="bob"), [6, 8, 9]),
            (EventFilter(request_id="r2"), [4, 5]),
            (EventFilter(request_id=""), []),
            (EventFilter(correlation_id="c"), [4]),
            (EventFilter(correlation_id=""), [0, 1, 2, 3, 5, 6, 7, 8, 9]),
            (EventFilter(occurred_from_us=18 * SECOND_US), [0, 1, 2]),
            (EventFilter(occurred_to_us=12 * SECOND_US), [8, 9]),
            (
                EventFilter(occurred_from_us=12 * SECOND_US, occurred_to_us=14 * SECOND_US),
                [6, 7, 8],
            ),
            (EventFilter(event_types=("book.lent",), actor_id="ann", scope="library:12"), [3]),
        ],
    )
    @on_engine
    async def test_a_filter_finds_and_counts_what_matches(
        self, fixture: EngineFixture, wanted: EventFilter, numbers: list[int]
    ) -> None:
        await _ten_events(fixture)
        expected = [event_id(number) for number in numbers]
        page = await fixture.engine.find_events(wanted)
        assert ([one.id for one in page.events], page.cursor) == (expected, "")
        newest = await fixture.engine.find_events(wanted, newest=True)
        assert [one.id for one in newest.events] == expected[::-1]
        assert await fixture.engine.count_events(wanted) == len(expected)
        assert all(wanted.matches(one) for one in page.events)

    @on_engine
    async def test_events_from_before_a_subscription_are_found(
        self, fixture: EngineFixture
    ) -> None:
        await _ten_events(fixture)
        since = (await fixture.engine.subscriptions())["chronicle"].since_version
        before = EventFilter(fanout_before=since)
        page = await fixture.engine.find_events(before)
        assert [one.id for one in page.events] == [event_id(number) for number in range(5)]
        assert await fixture.engine.count_events(before) == 5

    @pytest.mark.parametrize("newest", [False, True])
    @on_engine
    async def test_pages_are_complete_and_have_no_event_twice(
        self, fixture: EngineFixture, *, newest: bool
    ) -> None:
        await _ten_events(fixture)
        wanted = EventFilter(tenant="default")
        seen: list[str] = []
        cursor = ""
        for _page in itertools.count():
            page = await fixture.engine.find_events(wanted, cursor=cursor, limit=2, newest=newest)
            seen += [one.id for one in page.events]
            cursor = page.cursor
            if not cursor:
                break
            assert len(page.events) == 2
        expected = [event_id(number) for number in range(10) if number != 8]
        assert seen == (expected[::-1] if newest else expected)

    @on_engine
    async def test_a_cursor_goes_on_to_events_that_come_later(self, fixture: EngineFixture) -> None:
        await fixture.engine.append([new_event(1), new_event(2)])
        page = await fixture.engine.find_events(limit=1)
        await fixture.engine.append([new_event(3)])
        rest = await fixture.engine.find_events(cursor=page.cursor)
        assert [one.id for one in rest.events] == [event_id(2), event_id(3)]

    @on_engine
    async def test_a_cursor_of_another_filter_or_direction_is_refused(
        self, fixture: EngineFixture
    ) -> None:
        await _ten_events(fixture)
        ours = EventFilter(tenant="default", occurred_from_us=1)
        cursor = (await fixture.engine.find_events(ours, limit=1)).cursor
        for wanted, newest in (
            (EVERY_EVENT, False),
            (replace(ours, actor_id="ann"), False),
            (ours, True),
        ):
            with pytest.raises(InvalidInput, match="another filter or order") as refused:
                await fixture.engine.find_events(wanted, cursor=cursor, newest=newest)
            assert refused.value.field == "cursor"
        # An age, in a command that is repeated, has become another time.
        later = replace(ours, occurred_from_us=2)
        page = await fixture.engine.find_events(later, cursor=cursor, limit=1)
        assert [one.id for one in page.events] == [event_id(1)]

    @pytest.mark.parametrize("cursor", ["x", "!!", "AAAA"])
    @on_engine
    async def test_a_cursor_from_elsewhere_is_refused(
        self, fixture: EngineFixture, cursor: str
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.find_events(cursor=cursor)
        assert refused.value.field == "cursor"

    @pytest.mark.parametrize("limit", [0, -1, 1_001, True, "5"])
    @on_engine
    async def test_a_bad_limit_is_refused(self, fixture: EngineFixture, limit: int) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.find_events(limit=limit)
        assert refused.value.field == "limit"

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("ids", ("x",)),
            ("event_types", (1,)),
            ("event_types", "book.lent"),
            ("occurred_from_us", -1),
            ("occurred_to_us", "now"),
            ("fanout_before", 1.5),
            ("key", 7),
            ("scope", b"x"),
        ],
    )
    @on_engine
    async def test_a_bad_filter_is_refused(
        self, fixture: EngineFixture, field: str, value: object
    ) -> None:
        wanted = replace(EVERY_EVENT, **{field: value})
        for call in (fixture.engine.find_events, fixture.engine.count_events):
            with pytest.raises(InvalidInput) as refused:
                await call(wanted)
            assert refused.value.field == field

    @on_engine
    async def test_events_are_got_in_the_order_asked_for(self, fixture: EngineFixture) -> None:
        await fixture.engine.append([new_event(1), new_event(2)])
        found = await fixture.engine.get_events([event_id(2), event_id(9), "x", event_id(1)])
        assert [None if one is None else one.id for one in found] == [
            event_id(2),
            None,
            None,
            event_id(1),
        ]
        assert await fixture.engine.get_events([event_id(1)], tenant="acme") == [None]
        assert await fixture.engine.get_events([]) == []
