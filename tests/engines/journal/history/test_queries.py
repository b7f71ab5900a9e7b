"""Pages of the history, held against ``Filter.matches`` and ``Caller.reaches``."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.engines.journal.history import queries
from holdfast.engines.journal.history.check import verify
from holdfast.engines.journal.history.store import SqliteHistory
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.failure import Failure
from holdfast.model.job import State
from holdfast.model.search import EVERYTHING, Filter, Order, is_after, place_of
from holdfast.testing import SimDisk

from .generated import callers, filters, jobs, recorded
from .world import World

EXAMPLES = int(os.environ.get("HOLDFAST_TEST_EXAMPLES", "40"))
BY_PLACE = settings(max_examples=EXAMPLES, deadline=None)


def distinct(made):
    """Keep one job of each name: there is never more than one that is not forgotten."""
    return list({(job.tenant, job.id): job for job in made}.values())


def filled(made):
    store = SqliteHistory.open(SimDisk().database())
    store.feed([recorded(seq, job) for seq, job in enumerate(made, 1)], len(made))
    return store


def expected(made, wanted, caller, after, limit, order):
    matching = [
        job
        for job in made
        if wanted.matches(job)
        and caller.can_access(job.tenant, job.scope)
        and is_after(place_of(job, order), after, order)
    ]
    places = sorted(matching, key=lambda job: place_of(job, order), reverse=order.descending)
    return places[:limit]


ORDERS = [order for order in Order if order is not Order.RUN_AT]
"""What has finished is not listed by when it is due."""


PLANS = {
    "as it is": {},
    "never by kind": {"MERGE_MOST": 0},
    "never by text": {"MOSTLY": 0},
    "never sorted": {"SORT_MOST": 0},
    "never sorted, by attempts of a tenant": {"SORT_MOST": 0, "MOSTLY": 0},
    "pages of two": {"MAX_PAGE": 2},
}


@pytest.mark.parametrize("plan", PLANS)
def test_every_filter_and_caller_finds_what_the_model_says(plan):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PLANS[plan].items():
            patch.setattr(queries, name, value)

        @settings(max_examples=EXAMPLES, deadline=None)
        @given(
            made=st.lists(jobs(), min_size=5, max_size=25).map(distinct),
            asked=st.lists(
                st.tuples(filters(), callers(), st.sampled_from(ORDERS)), min_size=8, max_size=8
            ),
            limit=st.integers(1, 6),
            start=perhaps_place(),
        )
        def hold(made, asked, limit, start):
            store = filled(made)
            for wanted, caller, order in asked:
                found = store.find(wanted, caller, start, limit, order)
                assert found == expected(made, wanted, caller, start, limit, order)
                matching = len(expected(made, wanted, caller, None, len(made), order))
                assert store.count_matching(wanted, caller, limit) == min(matching, limit)
            store.close()

        hold()


def perhaps_place():
    return st.none() | jobs().map(place_of)


@settings(max_examples=50, deadline=None)
@given(
    made=st.lists(jobs(), max_size=30).map(distinct),
    wanted=filters(),
    caller=callers(),
    limit=st.integers(1, 4),
    order=st.sampled_from(ORDERS),
)
def test_page_after_page_finds_every_job_once(made, wanted, caller, limit, order):
    store = filled(made)
    found, after = [], None
    while page := store.find(wanted, caller, after, limit, order):
        found += page
        after = place_of(page[-1], order)
    assert found == expected(made, wanted, caller, None, len(made), order)
    assert verify(store) == []
    store.close()


@pytest.mark.parametrize("wanted", [Filter(ids=("a", "b")), Filter(text="slow")])
def test_a_reason_is_asked_for_whichever_way_is_taken(store, world, wanted):
    for number, reason in enumerate(["timeout", "connection"]):
        world.dead("ab"[number], failure=Failure.of(reason, "slow"))
    world.feed(store)
    found = store.find(replace(wanted, error_reasons=("timeout",)), SYSTEM, None, 9, Order.CREATED)
    assert [job.id for job in found] == ["a"]


@pytest.mark.parametrize("order", [Order.CREATED, Order.NEWEST])
def test_pages_stay_whole_while_jobs_come_and_go(store, world, order):
    kept = [world.dead(f"{number:03}") for number in range(30)]
    leaving = [world.dead(f"x{number:03}") for number in range(10)]
    world.feed(store)
    found, after = [], None
    while page := store.find(EVERYTHING, SYSTEM, after, 4, order):
        found += page
        after = place_of(page[-1])
        if leaving:
            gone = leaving.pop()
            world.purge(gone)
            world.archive(kept[len(found) % 30]) if world.jobs[
                "default", kept[len(found) % 30].id
            ].state is State.DEAD else None
            world.dead(f"new-{len(found)}")
            world.feed(store)
    seen = [job.id for job in found]
    assert len(seen) == len(set(seen))
    assert {job.id for job in kept} <= set(seen)


def test_a_job_that_moves_is_seen_once(store, world):
    """One read transaction over both tables: dead and done are looked at in one moment."""
    job = world.dead("a")
    world.feed(store)
    with store.reading() as connection:
        connection.execute("SELECT count(*) FROM done").fetchall()
        source = queries.ReadSnapshot(connection, store.file, 0)
        wanted = queries.PageQuery(EVERYTHING, SYSTEM, 9, Order.CREATED)
        assert queries.find(source, wanted, None) == [job]


def test_on_the_real_disk_a_reader_sees_one_moment(disk, world):
    store = SqliteHistory.open(disk.database())
    job = world.dead("a")
    world.feed(store)
    with store.reading() as connection:
        source = queries.ReadSnapshot(connection, store.file, 0)
        wanted = queries.PageQuery(EVERYTHING, SYSTEM, 9, Order.CREATED)
        assert queries.find(source, wanted, None) == [job]
        world.complete(world.claim(world.replay(job)))
        world.feed(store)
        assert queries.find(source, wanted, None) == [job]
    assert [job.state for job in store.find(EVERYTHING, SYSTEM, None, 9, Order.CREATED)] == [
        State.COMPLETED
    ]
    store.close()


def test_a_scope_is_no_pattern(store):
    world = World()
    for number, scope in enumerate(("lib_1", "libx1", "lib_1/book", "LIB_1", "lib_10", "lib%")):
        world.dead(str(number), scope=scope)
    world.feed(store)
    caller = Caller("default", ("lib_1", "lib%"))
    assert [job.scope for job in store.find(EVERYTHING, caller, None, 9, Order.CREATED)] == [
        "lib_1",
        "lib_1/book",
        "lib%",
    ]


def test_many_ids_at_once(store, world):
    for number in range(50):
        world.dead(f"id-{number}") if number % 2 else world.done(f"id-{number}")
    world.feed(store)
    wanted = Filter(ids=tuple(f"id-{number}" for number in range(0, 10_000, 3)))
    found = store.find(wanted, SYSTEM, None, 1_000, Order.CREATED)
    assert [job.id for job in found] == [f"id-{number}" for number in range(0, 50, 3)]


NOT_MAIL = Filter(without=(Filter(queues=("mail",)),))


@pytest.mark.parametrize(
    ("wanted", "caller", "order", "index"),
    [
        (Filter(), SYSTEM, Order.CREATED, "dead_by_place"),
        (Filter(queues=("default",)), SYSTEM, Order.CREATED, "dead_by_kind"),
        (Filter(error_reasons=("timeout",)), SYSTEM, Order.CREATED, "dead_by_kind"),
        (NOT_MAIL, SYSTEM, Order.NEWEST, "dead_by_kind"),
        (Filter(tenant="t1"), SYSTEM, Order.CREATED, "dead_by_tenant"),
        (Filter(), Caller("t1"), Order.NEWEST, "dead_by_tenant"),
        (Filter(ids=("1", "2")), SYSTEM, Order.CREATED, "dead_by_name"),
        (Filter(), SYSTEM, Order.LAST_FINISHED, "dead_by_finish"),
        (Filter(finished_from_us=7), SYSTEM, Order.FINISHED, "dead_by_finish"),
        (Filter(queues=("default",)), SYSTEM, Order.LAST_FINISHED, "dead_by_kind"),
        (Filter(tenant="t1"), SYSTEM, Order.LAST_FINISHED, "dead_by_tenant"),
        (Filter(), SYSTEM, Order.ATTEMPTS, "dead_by_attempt"),
    ],
)
def test_each_page_goes_by_its_index_and_sorts_nothing_needlessly(
    store, world, wanted, caller, order, index
):
    for number in range(20):
        world.dead(str(number), tenant=f"t{number % 3}")
    world.feed(store)
    statements: list[str] = []
    with store.reading() as connection:
        connection.set_trace_callback(statements.append)
        source = queries.ReadSnapshot(connection, store.file, 0)
        queries.find(source, queries.PageQuery(wanted, caller, 5, order), None)
        connection.set_trace_callback(None)
        (sql,) = [sql for sql in statements if "dead_bodies" in sql]
        plan = b"\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}"))
    assert f"INDEX {index}".encode() in plan
    sorted_by = {
        "dead_by_place": "created_at_us",
        "dead_by_tenant": "created_at_us",
        "dead_by_finish": "finished_at_us",
        "dead_by_attempt": "attempt",
    }
    if order.field == sorted_by.get(index):
        assert b"TEMP B-TREE" not in plan
