"""Finding jobs: filters, orders, pages, counts, reach."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from holdfast.engines.contract import Engine
from holdfast.model.access import Caller
from holdfast.model.actions import ArchiveJobs, CancelJobs, ReplayJobs, RestoreJobs
from holdfast.model.errors import InvalidInput
from holdfast.model.failure import FailureClass
from holdfast.model.fingerprint import fingerprint
from holdfast.model.job import Job, State
from holdfast.model.outcome import completed, dead, retry
from holdfast.model.payload_condition import PayloadCondition
from holdfast.model.search import MAX_COUNT, Count, Filter, Order

from .fixture import (
    FAILURE,
    OPERATION,
    WRONG,
    EngineFixture,
    Suite,
    named,
    new_job,
    on_engine,
    uniform_batch,
    wanted,
)

STATES: list[dict[str, object]] = [{"states": (state,)} for state in State]
CONDITIONS: list[dict[str, object]] = [
    {"ids": ("p1", "d1", "nobody")},
    {"tenant": "acme"},
    {"scope": "library:4"},
    {"scope": "library:42"},
    {"scope": "library:42/book:7"},
    *STATES,
    {"states": (State.DEAD, State.PENDING)},
    {"queues": ("mail",)},
    {"queues": ("mail", "default")},
    {"tasks": ("other",)},
    {"keys": ("k", "nix")},
    {"error_reasons": ("mapping_error",)},
    {"error_reasons": ("mapping_error", "upstream_5xx")},
    {"classes": (FailureClass.TRANSIENT,)},
    {"classes": (FailureClass.UNKNOWN,)},
    {"fingerprint": fingerprint(WRONG.message)},
    {"text": "MAIL Server"},
    {"text": "%"},
    {"attempts_from": 1},
    {"attempts_from": 1, "attempts_to": 2},
    {"attempts_to": 1},
    {"created_from_us": 2_000_000},
    {"created_to_us": 2_000_000},
    {"created_from_us": 1_000_000, "created_to_us": 2_000_000},
    {"finished_from_us": 11_000_000},
    {"finished_to_us": 11_000_000},
    {"finished_from_us": 0},
    {"replay_run": "run1"},
    {"workers": ("w1",)},
    {"workers": ("w2", "1")},
    {"payload": (PayloadCondition.of(["user", "id"], 42, "x"),)},
    {"payload": (PayloadCondition.of(["user", "id"], 42),), "states": (State.DEAD,)},
    {"states": (State.DEAD,), "queues": ("mail",), "classes": (FailureClass.DETERMINISTIC,)},
    {"states": (State.DEAD,), "tenant": "acme", "text": "503"},
]
"""Times are relative to the start of the test."""

FAILED = {"error_reasons", "classes", "fingerprint", "text"}


class FindRules(Suite):
    """Filters and pages."""

    @on_engine
    async def test_the_jobs_of_a_batch_are_listed_in_the_order_of_their_enqueue(
        self, fixture: EngineFixture
    ) -> None:
        ids = ["z", "b10", "b9", "a", "m"]
        await fixture.put(*ids)
        batch = await fixture.engine.enqueue(uniform_batch(20, queue="many"))
        mixed = [new_job(queue=f"q{number % 3}", tenant=f"t{number % 2}") for number in range(6)]
        ids += [one.id for one in (*batch, *await fixture.engine.enqueue(mixed))]
        await fixture.put("tied", "untied", key="k")
        ids += ["tied", "untied"]
        await fixture.complete("z", queues=["default"])
        await fixture.dead_letter("b10", queues=["default"])
        [job] = await fixture.take(queues=["default"])
        await fixture.settle(retry(job, FAILURE))  # it goes to the tail of its queue
        assert await _listed(fixture.engine, Order.CREATED) == ids
        assert await _listed(fixture.engine, Order.NEWEST) == ids[::-1]

    @on_engine
    async def test_a_limit_takes_the_dead_letters_that_a_list_has_first(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("late", "x", "early", "b", "a")
        for job_id in ("late", "x", "early", "b", "a"):
            fixture.clock.advance(1)
            await fixture.dead_letter(job_id)
        listed = await fixture.find(states=(State.DEAD,))
        assert listed == ["late", "x", "early", "b", "a"], "oldest first, by when they were created"
        for _ in range(2):
            done = await fixture.engine.operate(
                ReplayJobs(), wanted(states=(State.DEAD,)), OPERATION, limit=2
            )
            assert [job.id for job in done.jobs] == listed[:2]
            del listed[:2]
            assert await fixture.find(states=(State.DEAD,)) == listed

    @pytest.mark.parametrize("conditions", CONDITIONS, ids=str)
    @on_engine
    async def test_a_filter_finds_exactly_the_matching_jobs(
        self, fixture: EngineFixture, conditions: dict[str, object]
    ) -> None:
        began_us = fixture.clock.now_us()
        everything = await _jobs_in_every_state(fixture)
        shifted = dict(_shifted(conditions, began_us))
        expected = [
            job.id for job in everything if all(_matches(job, *one) for one in shifted.items())
        ]
        assert await fixture.find(**shifted) == expected
        newest = await fixture.engine.find(wanted(**shifted), limit=50, order=Order.NEWEST)
        assert [job.id for job in newest.jobs] == expected[::-1]
        assert await fixture.engine.count(wanted(**shifted)) == Count(len(expected))

    @pytest.mark.parametrize("excluded", CONDITIONS, ids=str)
    @on_engine
    async def test_without_a_filter_the_others_are_found(
        self, fixture: EngineFixture, excluded: dict[str, object]
    ) -> None:
        began_us = fixture.clock.now_us()
        everything = await _jobs_in_every_state(fixture)
        without = tuple(Filter(**{name: value}) for name, value in _shifted(excluded, began_us))  # type: ignore[arg-type]
        for narrowed in ({}, {"states": (State.DEAD,)}, {"queues": ("mail",)}):
            expected = [
                job.id
                for job in everything
                if all(_matches(job, *one) for one in narrowed.items())
                and not any(_matches(job, *one) for one in _shifted(excluded, began_us))
            ]
            asked = wanted(**narrowed, without=without)
            page = await fixture.engine.find(asked, limit=50)
            assert [job.id for job in page.jobs] == expected
            assert await fixture.engine.count(asked) == Count(len(expected))
            dead = [job for job in page.jobs if job.state is State.DEAD]
            groups = await fixture.engine.groups(asked)
            assert sum(group.count for group in groups) == len(dead)

    @pytest.mark.parametrize("order", Order)
    @on_engine
    async def test_each_order_lists_what_has_a_place_in_it(
        self, fixture: EngineFixture, order: Order
    ) -> None:
        everything = await _jobs_in_every_state(fixture)
        number: Callable[[Job], int] = {
            "created": lambda job: job.created_at_us,
            "finished": lambda job: job.finished_at_us,
            "run_at": lambda job: job.run_at_us,
            "attempts": lambda job: job.attempt,
        }[order.value.removeprefix("-")]
        listed = [
            job
            for job in everything
            if not (order.value.endswith("finished") and not job.state.finished)
            and not (order is Order.RUN_AT and job.state.finished)
        ]
        listed.sort(
            key=lambda job: (number(job), job.tenant, job.id), reverse=order.value[0] == "-"
        )
        assert await _listed(fixture.engine, order) == [job.id for job in listed]
        wrong = State.DEAD if order is Order.RUN_AT else State.PENDING
        page = await fixture.engine.find(Filter(states=(wrong,)), order=order)
        assert [job.id for job in page.jobs] == [job.id for job in listed if job.state is wrong]

    @on_engine
    async def test_a_cursor_of_another_filter_or_order_is_refused(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", "b", "c")
        mail = Filter(queues=("default",), created_to_us=fixture.clock.now_us() + 9)
        cursor = (await fixture.engine.find(mail, limit=1)).cursor
        for other, order in (
            (Filter(), Order.CREATED),
            (replace(mail, without=(Filter(tasks=("x",)),)), Order.CREATED),
            (mail, Order.NEWEST),
        ):
            with pytest.raises(InvalidInput, match="another filter or order") as refused:
                await fixture.engine.find(other, cursor=cursor, order=order)
            assert refused.value.field == "cursor"
        # An age, in a command that is repeated, has become another time.
        later = replace(mail, created_to_us=fixture.clock.now_us() + 99)
        page = await fixture.engine.find(later, cursor=cursor)
        assert [job.id for job in page.jobs] == ["b", "c"]

    @pytest.mark.parametrize("order", ["", "newest", "created DESC", None])
    @on_engine
    async def test_an_unknown_order_is_refused(self, fixture: EngineFixture, order: str) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.find(order=order)  # type: ignore[arg-type]
        assert refused.value.field == "order"

    @on_engine
    async def test_a_count_ends_at_its_cap(self, fixture: EngineFixture) -> None:
        await fixture.put(*(f"j{number}" for number in range(9)), payload={"n": 1})
        await fixture.dead_letter("j0", "j1", "j2")
        await fixture.complete("j3", "j4")
        count = fixture.engine.count
        payload = (PayloadCondition.of(["n"], 1),)
        for asked, number in (
            (Filter(), 9),
            (Filter(payload=payload), 9),
            (Filter(states=(State.DEAD,)), 3),
            (Filter(states=(State.DEAD, State.COMPLETED), payload=payload), 5),
            (Filter(error_reasons=(FAILURE.error_reason,)), 3),
            (Filter(states=(State.PENDING,), scope="library:1"), 0),
            (Filter(tenant="other"), 0),
        ):
            for cap in (1, 2, 3, 5, 9, 100):
                assert await count(asked, cap=cap) == Count(min(number, cap), number > cap)
        outside = Caller("other")
        assert await count(caller=outside) == Count(0)
        assert await count(Filter(tenant="default"), caller=outside) == Count(0)
        assert await count(caller=Caller("default", ("library:1",))) == Count(0)
        for wrong in (0, MAX_COUNT + 1, 1.5):
            with pytest.raises(InvalidInput) as refused:
                await count(cap=wrong)  # type: ignore[arg-type]
            assert refused.value.field == "cap"

    @on_engine
    async def test_forgotten_jobs_are_not_counted(self, fixture: EngineFixture) -> None:
        await fixture.put("old", scope="library:1")
        await fixture.complete("old")
        fixture.clock.advance(61)
        await fixture.put("new", scope="library:1")
        for asked in (Filter(), Filter(scope="library:1"), Filter(tasks=("mail",))):
            found = len((await fixture.engine.find(asked)).jobs)
            assert await fixture.engine.count(asked) == Count(found)
        assert await fixture.engine.count() == Count(1)

    @pytest.mark.parametrize("order", [Order.CREATED, Order.NEWEST])
    @on_engine
    async def test_pages_have_no_gaps_or_duplicates(
        self, fixture: EngineFixture, order: Order
    ) -> None:
        everything = [job.id for job in await _jobs_in_every_state(fixture)]
        seen: list[str] = []
        cursor = ""
        for _page in itertools.count():
            page = await fixture.engine.find(cursor=cursor, limit=2, order=order)
            seen += [job.id for job in page.jobs]
            cursor = page.cursor
            if not cursor:
                break
            assert len(page.jobs) == 2
        assert seen == (everything[::-1] if order is Order.NEWEST else everything)

    @pytest.mark.parametrize("order", [Order.CREATED, Order.NEWEST])
    @on_engine
    async def test_a_cursor_stays_valid_while_jobs_change_state(
        self, fixture: EngineFixture, order: Order
    ) -> None:
        names = [f"j{number}" for number in range(6)]
        await fixture.put(*names)
        page = await fixture.engine.find(limit=3, order=order)
        await fixture.complete("j0", "j1")
        await fixture.dead_letter("j2", "j3")
        await fixture.take()
        fixture.clock.advance(1)
        await fixture.put("a_new_one")
        rest = await fixture.engine.find(limit=9, order=order, cursor=page.cursor)
        seen = [job.id for job in [*page.jobs, *rest.jobs]]
        assert seen == (names[::-1] if order is Order.NEWEST else [*names, "a_new_one"])

    @on_engine
    async def test_forgotten_jobs_are_not_found_and_do_not_end_the_pages(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put(*(f"old{number}" for number in range(5)))
        await fixture.complete(*(f"old{number}" for number in range(5)))
        fixture.clock.advance(61)
        await fixture.put("a", "b", "c")
        await fixture.complete("a", "b", "c")
        page = await fixture.engine.find(limit=2)
        assert [job.id for job in page.jobs] == ["a", "b"]
        page = await fixture.engine.find(limit=2, cursor=page.cursor)
        assert ([job.id for job in page.jobs], page.cursor) == (["c"], "")

    @on_engine
    async def test_jobs_are_found_in_their_present_state(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        for state, step in (
            (State.DEAD, fixture.dead_letter("a")),
            (State.ARCHIVED, fixture.engine.operate(ArchiveJobs(), named("a"), OPERATION)),
            (State.DEAD, fixture.engine.operate(RestoreJobs(), named("a"), OPERATION)),
            (State.PENDING, fixture.engine.operate(ReplayJobs(), named("a"), OPERATION)),
            (State.COMPLETED, fixture.complete("a")),
        ):
            await step
            assert await fixture.find(states=(state,)) == ["a"]
            others = tuple(other for other in State if other is not state)
            assert await fixture.find(states=others) == []

    @on_engine
    async def test_nothing_outside_the_callers_reach_is_found(self, fixture: EngineFixture) -> None:
        for tenant, scope in itertools.product(["acme", "other"], ["library:42", "library:421"]):
            name = f"{tenant}-{scope}"
            await fixture.put(f"{name}-dead", tenant=tenant, scope=scope)
            [job] = await fixture.take()
            await fixture.settle(dead(job, FAILURE))
        for tenant, scope in itertools.product(["acme", "other"], ["library:42", "library:421"]):
            await fixture.put(f"{tenant}-{scope}-new", tenant=tenant, scope=scope)
        reader = Caller("acme", ("library:42",))
        page = await fixture.engine.find(caller=reader)
        assert [job.id for job in page.jobs] == ["acme-library:42-dead", "acme-library:42-new"]
        page = await fixture.engine.find(Filter(tenant="other"), caller=reader)
        assert page.jobs == []
        [group] = await fixture.engine.groups(caller=reader)
        assert (group.count, group.tenants, group.scopes) == (1, 1, 1)

    @pytest.mark.parametrize("cursor", ["x", "AAAA", "ä", "gqNmb28", 7])
    @on_engine
    async def test_a_bad_cursor_is_refused(self, fixture: EngineFixture, cursor: str) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.find(cursor=cursor)
        assert refused.value.field == "cursor"

    @pytest.mark.parametrize("limit", [0, -1, 1_001, 1.5])
    @on_engine
    async def test_a_bad_limit_is_refused(self, fixture: EngineFixture, limit: int) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.find(limit=limit)
        assert refused.value.field == "limit"

    @pytest.mark.parametrize(
        "conditions",
        [
            {"ids": ("",)},
            {"queues": ("a\nb",)},
            {"scope": "a//b"},
            {"text": ""},
            {"attempts_from": -1},
            {"workers": ("",)},
            {"payload": (PayloadCondition((), ("1",)),)},
            {"payload": (PayloadCondition(("a",), ("{",)),)},
            {"without": (Filter(),)},
            {"without": (Filter(queues=("a",), tasks=("b",)),)},
        ],
        ids=str,
    )
    @on_engine
    async def test_a_bad_filter_is_refused_by_name(
        self, fixture: EngineFixture, conditions: dict[str, object]
    ) -> None:
        for look in (fixture.engine.find, fixture.engine.groups, fixture.engine.count):
            with pytest.raises(InvalidInput) as refused:
                await look(wanted(**conditions))
            assert refused.value.field in conditions


async def _jobs_in_every_state(fixture: EngineFixture) -> list[Job]:
    """Create jobs in every state, one second apart; return them in order of creation."""
    jobs = [
        new_job(id="done", key="k", scope="library:42"),
        new_job(id="d1", queue="mail", tenant="acme", payload={"user": {"id": 42}}),
        new_job(id="d2", key="k", scope="library:42/book:7"),
        new_job(id="d3", queue="mail", task="other", scope="library:421"),
        new_job(id="aside", tenant="acme"),
        new_job(id="back", scope="library:43"),
        new_job(id="b1", key="k", hold=True, task="other"),
        new_job(id="p1", queue="mail", delay_seconds=600, payload={"user": {"id": 42.0}}),
        new_job(id="p2", max_attempts=9, scope="library:42"),
        new_job(id="gone", queue="slow", payload={"user": {"id": "42"}}),
        new_job(id="fly", queue="slow", payload={"user": {"id": 42}, "x": [1]}),
    ]
    for job in jobs:
        await fixture.engine.enqueue([job])
        fixture.clock.advance(1)
    queues = ["default", "mail", "slow"]
    taken = {job.id: job for job in await fixture.take(3, queues=queues)}
    await fixture.settle(
        completed(taken["done"]), dead(taken["d1"], WRONG), dead(taken["d3"], FAILURE)
    )
    fixture.clock.advance(1)
    taken = {job.id: job for job in await fixture.take(9, queues=["default"])}
    for name in ("d2", "aside", "back"):
        await fixture.settle(dead(taken[name], FAILURE))
    await fixture.settle(retry(taken["p2"], FAILURE, 60))
    await fixture.engine.operate(ArchiveJobs(), named("aside"), OPERATION)
    await fixture.engine.operate(ReplayJobs(run="run1"), named("back"), OPERATION)
    await fixture.engine.operate(CancelJobs(), named("gone"), OPERATION)
    await fixture.take(queues=["slow"], worker="own/w2")
    found = [
        job
        for tenant in ("default", "acme")
        for job in await fixture.engine.get([one.id or "" for one in jobs], tenant=tenant)
        if job is not None
    ]
    assert {job.state for job in found} == set(State)
    return sorted(found, key=lambda job: job.created_at_us)


def _shifted(conditions: dict[str, object], by_us: int) -> list[tuple[str, object]]:
    """Return the conditions with times that are relative to this one."""
    return [
        (name, value + by_us if name.endswith("_us") else value)  # type: ignore[operator]
        for name, value in conditions.items()
    ]


def _matches(job: Job, name: str, value: object) -> bool:
    """Whether the job matches one condition: a second, simple implementation."""
    if name in FAILED:
        failure = job.failure
        if failure is None:
            return False
        shown = {
            "error_reasons": failure.error_reason,
            "classes": failure.failure_class,
            "fingerprint": fingerprint(failure.message),
        }
        if name == "text":
            return str(value).lower() in failure.message.lower()
        return shown[name] == value or (isinstance(value, tuple) and shown[name] in value)
    if name == "scope":
        return job.scope == value or job.scope.startswith(f"{value}/")
    if name == "replay_run":
        return job.replays is not None and job.replays.run == value
    if name.startswith("finished") and not job.state.finished:
        return False
    number = {"a": job.attempt, "c": job.created_at_us, "f": job.finished_at_us}.get(name[0], 0)
    if name.endswith(("_from", "_from_us")):
        return isinstance(value, int) and number >= value
    if name.endswith(("_to", "_to_us")):
        return isinstance(value, int) and number < value
    if name == "tenant":
        return job.tenant == value
    if name == "workers":
        return isinstance(value, tuple) and job.worker.rpartition("/")[2] in value
    if name == "payload":
        return job.id in ("d1", "p1", "fly")
    own = {"ids": job.id, "states": job.state, "queues": job.queue, "tasks": job.task}
    return isinstance(value, tuple) and own.get(name, job.ties.key) in value


async def _listed(engine: Engine, order: Order) -> list[str]:
    """Return the ids of all jobs, a few at a time."""
    found: list[str] = []
    cursor = ""
    while True:
        page = await engine.find(cursor=cursor, limit=4, order=order)
        found += [job.id for job in page.jobs]
        cursor = page.cursor
        if not cursor:
            return found
