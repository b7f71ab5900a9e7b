"""Reading the chronicle: pages both ways, counts, full text, and the reach of the caller."""

import pytest

from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.catalog import Catalog
from holdfast.model.errors import EventNotFound, InvalidInput
from holdfast.model.event import NewEvent
from holdfast.model.job import MICROSECONDS
from holdfast.model.projection import RebuildMode
from holdfast.operations import chronicle
from holdfast.operations.attribution import Author
from holdfast.operations.chronicle import ChronicleOperations
from holdfast.operations.chronicle_views import ChronicleFilter, Place, exact_date
from holdfast.operations.projections import ProjectionOperations
from holdfast.projections import chronicle as declaration
from holdfast.projections.generations import Generations
from holdfast.projections.registry import event_reader

DAY_US = 86_400 * MICROSECONDS
WHO = Author("ops", "a test")


def event(number, **fields):
    return NewEvent(
        id=f"00000000-0000-7000-8000-{number:012d}",
        event_type=fields.pop("event_type", "book.renamed"),
        entity_type="book",
        entity_id=fields.pop("entity_id", str(number)),
        actor_id=fields.pop("actor_id", "anna"),
        occurred_at_us=fields.pop("occurred_at_us", 100 * DAY_US + number // 2),
        **fields,
    )


class World:
    def __init__(self):
        self.engine = MemoryEngine()
        known = {"chronicle": declaration.PROJECTION}
        self.projections = ProjectionOperations(self.engine, known, event_reader(Catalog()))
        self.chronicle = ChronicleOperations(self.engine)

    async def enter(self, *events):
        await self.engine.append(list(events))
        rebuild = await self.projections.start("chronicle", RebuildMode.TRUNCATE, WHO)
        assert (await self.projections.drive("chronicle", rebuild.id)).phase == "done"

    async def found(self, caller=SYSTEM, **wanted):
        page = await self.chronicle.page(ChronicleFilter(**wanted), newest=False, caller=caller)
        return [int(one.id[-12:]) for one in page.entries]


@pytest.fixture
def world():
    return World()


@pytest.mark.parametrize("newest", [True, False])
async def test_pages_go_on_and_back_without_losing_or_repeating(world, newest):
    """Two entries of each time: the id decides between them."""
    await world.enter(*(event(number) for number in range(11)))
    wanted = ChronicleFilter()
    expected = sorted(range(11), reverse=newest)
    seen, pages, cursor = [], [], ""
    while True:
        page = await world.chronicle.page(wanted, cursor=cursor, limit=4, newest=newest)
        pages.append(page)
        seen += [int(one.id[-12:]) for one in page.entries]
        cursor = page.next
        if not cursor:
            break
    assert seen == expected
    assert pages[0].previous == ""
    before = pages[0]
    for number in (2, 1):
        before = await world.chronicle.page(
            wanted, cursor=pages[number].previous, limit=4, newest=newest
        )
        assert before.entries == pages[number - 1].entries
        after = await world.chronicle.page(wanted, cursor=before.next, limit=4, newest=newest)
        assert after.entries == pages[number].entries
    assert before.previous == ""


async def test_a_cursor_of_another_filter_or_order_is_refused(world):
    await world.enter(*(event(number) for number in range(3)))
    page = await world.chronicle.page(limit=1)
    for wanted, newest, cursor in (
        (ChronicleFilter(actor_id="bob"), True, page.next),
        (ChronicleFilter(), False, page.next),
        (ChronicleFilter(), True, "nonsense"),
    ):
        with pytest.raises(InvalidInput, match="cursor"):
            await world.chronicle.page(wanted, cursor=cursor, newest=newest)


async def test_every_filter_finds_its_entries(world):
    await world.enter(
        event(1, actor_id="bob", scope="library:1/book:2"),
        event(2, event_type="book.lent", entity_id="x", request_id="r", scope="library:12"),
        event(3, tenant="other", correlation_id="c", occurred_at_us=103 * DAY_US),
        event(4, actor_type="service"),
    )
    assert await world.found() == [1, 2, 4, 3]
    assert await world.found(actor_type="user", actor_id="bob") == [1]
    assert await world.found(event_types=("book.lent", "book.lost")) == [2]
    assert await world.found(entity_type="book", entity_id="x") == [2]
    assert await world.found(scope="library:1") == [1]
    assert await world.found(request_id="r") == [2]
    assert await world.found(correlation_id="c") == [3]
    assert await world.found(tenant="other") == [3]
    assert await world.found(occurred_from_us=101 * DAY_US) == [3]
    assert await world.found(occurred_to_us=100 * DAY_US) == [1]


async def test_nobody_reads_beyond_his_tenant_and_scopes(world):
    await world.enter(
        event(1, scope="library:42"),
        event(2, scope="library:42/book:7"),
        event(3, scope="library:43"),
        event(4, tenant="other", scope="library:42"),
        event(5, scope="library:44/book:1"),
    )
    caller = Caller("default", ("library:42", "library:44"))
    assert await world.found(caller) == [1, 2, 5]
    assert await world.found(caller, scope="library:43") == []
    assert await world.found(caller, tenant="other") == []
    counts = await world.chronicle.stats("type", caller=caller)
    assert [one.count for one in counts] == [3]
    with pytest.raises(EventNotFound):
        await world.chronicle.show(event(3).id, caller=caller)
    assert (await world.chronicle.show(event(2).id, caller=caller)).scope == "library:42/book:7"


async def test_two_characters_of_chinese_are_found_and_counts_are_right(world):
    await world.enter(
        event(1, reason="重建失败了"),
        event(2, reason="done", actor_id="bob"),
        event(3, occurred_at_us=102 * DAY_US),
    )
    assert await world.found(search="失败") == [1]
    assert await world.found(search="失去") == []
    since = ChronicleFilter(occurred_from_us=0)
    counted = {
        by: await world.chronicle.stats(by, since) for by in ("day", "actor", "entity", "type")
    }
    shown = {by: [(one.name, one.count) for one in found] for by, found in counted.items()}
    assert shown["day"] == [("1970-04-11", 2), ("1970-04-13", 1)]
    assert shown["actor"] == [("user:anna", 2), ("user:bob", 1)]
    assert shown["entity"] == [("book:1", 1), ("book:2", 1), ("book:3", 1)]
    assert shown["type"] == [("book.renamed", 3)]


async def test_a_reader_is_told_what_is_missing(world):
    assert "no worker" in (await world.chronicle.page()).notices[0]
    await world.enter(event(1))
    assert (await world.chronicle.page()).notices == []
    await Generations(world.engine).ensure(declaration.PROJECTION)
    await world.engine.append([event(2)])
    assert (await world.chronicle.page()).notices == ["1 event not entered yet"]
    with pytest.raises(InvalidInput, match="it is pending"):
        await world.chronicle.show(event(2).id)
    rebuild = await world.projections.start("chronicle", RebuildMode.TRUNCATE, WHO)
    while (await world.chronicle.page()).entries:
        await world.projections._rebuilder.step("chronicle")
    notices = (await world.chronicle.page()).notices
    assert "incomplete: it is being rebuilt in place" in notices[0]
    await world.projections.drive("chronicle", rebuild.id)
    assert len((await world.chronicle.page()).entries) == 2


async def test_control_without_the_reach_of_the_caller_others_are_read(world, monkeypatch):
    found = ChronicleFilter.conditions
    monkeypatch.setattr(ChronicleFilter, "conditions", lambda self, _caller: found(self, SYSTEM))
    with pytest.raises(AssertionError):
        await test_nobody_reads_beyond_his_tenant_and_scopes(world)


async def test_control_a_cursor_by_time_alone_loses_entries(world, monkeypatch):
    monkeypatch.setattr(chronicle, "_ORDER", ("occurred_at",))
    monkeypatch.setattr(Place, "key", property(lambda self: (exact_date(self.occurred_at_us),)))
    with pytest.raises(AssertionError):
        await test_pages_go_on_and_back_without_losing_or_repeating(world, True)
