"""Finding jobs: filters, pages, reach."""

from __future__ import annotations

import itertools

import pytest

from holdfast.engines.contract import Engine
from holdfast.model.access import Caller
from holdfast.model.actions import ArchiveJobs, CancelJobs, ReplayJobs, RestoreJobs
from holdfast.model.errors import InvalidInput
from holdfast.model.failure import FailureClass
from holdfast.model.fingerprint import fingerprint
from holdfast.model.job import Job, State
from holdfast.model.outcome import completed, dead, retry
from holdfast.model.search import Filter

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
        assert await _listed(fixture.engine, newest=False) == ids
        assert await _listed(fixture.engine, newest=True) == ids[::-1]

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
        shifted = {
            name: value + began_us if name.endswith("_us") else value  # type: ignore[operator]
            for name, value in conditions.items()
        }
        expected = [
            job.id for job in everything if all(_matches(job, *one) for one in shifted.items())
        ]
        assert await fixture.find(**shifted) == expected
        newest = await fixture.engine.find(wanted(**shifted), limit=50, newest=True)
        assert [job.id for job in newest.jobs] == expected[::-1]

    @pytest.mark.parametrize("order", ["oldest first", "newest first"])
    @on_engine
    async def test_pages_have_no_gaps_or_duplicates(
        self, fixture: EngineFixture, order: str
    ) -> None:
        newest = order == "newest first"
        everything = [job.id for job in await _jobs_in_every_state(fixture)]
        seen: list[str] = []
        cursor = ""
        for _page in itertools.count():
            page = await fixture.engine.find(cursor=cursor, limit=2, newest=newest)
            seen += [job.id for job in page.jobs]
            cursor = page.cursor
            if not cursor:
                break
            assert len(page.jobs) == 2
        assert seen == (everything[::-1] if newest else everything)

    @pytest.mark.parametrize("order", ["oldest first", "newest first"])
    @on_engine
    async def test_a_cursor_stays_valid_while_jobs_change_state(
        self, fixture: EngineFixture, order: str
    ) -> None:
        newest = order == "newest first"
        names = [f"j{number}" for number in range(6)]
        await fixture.put(*names)
        page = await fixture.engine.find(limit=3, newest=newest)
        await fixture.complete("j0", "j1")
        await fixture.dead_letter("j2", "j3")
        await fixture.take()
        fixture.clock.advance(1)
        await fixture.put("a_new_one")
        rest = await fixture.engine.find(limit=9, newest=newest, cursor=page.cursor)
        seen = [job.id for job in [*page.jobs, *rest.jobs]]
        assert seen == (names[::-1] if newest else [*names, "a_new_one"])

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
        ],
        ids=str,
    )
    @on_engine
    async def test_a_bad_filter_is_refused_by_name(
        self, fixture: EngineFixture, conditions: dict[str, object]
    ) -> None:
        for look in (fixture.engine.find, fixture.engine.groups):
            with pytest.raises(InvalidInput) as refused:
                await look(wanted(**conditions))
            assert refused.value.field in conditions


async def _jobs_in_every_state(fixture: EngineFixture) -> list[Job]:
    """Create jobs in every state, one second apart; return them in order of creation."""
    jobs = [
        new_job(id="done", key="k", scope="library:42"),
        new_job(id="d1", queue="mail", tenant="acme"),
        new_job(id="d2", key="k", scope="library:42/book:7"),
        new_job(id="d3", queue="mail", task="other", scope="library:421"),
        new_job(id="aside", tenant="acme"),
        new_job(id="back", scope="library:43"),
        new_job(id="b1", key="k", hold=True, task="other"),
        new_job(id="p1", queue="mail", delay_seconds=600),
        new_job(id="p2", max_attempts=9, scope="library:42"),
        new_job(id="gone", queue="slow"),
        new_job(id="fly", queue="slow"),
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
    await fixture.take(queues=["slow"])
    found = [
        job
        for tenant in ("default", "acme")
        for job in await fixture.engine.get([one.id or "" for one in jobs], tenant=tenant)
        if job is not None
    ]
    assert {job.state for job in found} == set(State)
    return sorted(found, key=lambda job: job.created_at_us)


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
    own = {"ids": job.id, "states": job.state, "queues": job.queue, "tasks": job.task}
    return isinstance(value, tuple) and own.get(name, job.ties.key) in value


async def _listed(engine: Engine, *, newest: bool) -> list[str]:
    """Return the ids of all jobs, a few at a time."""
    found: list[str] = []
    cursor = ""
    while True:
        page = await engine.find(cursor=cursor, limit=4, newest=newest)
        found += [job.id for job in page.jobs]
        cursor = page.cursor
        if not cursor:
            return found
