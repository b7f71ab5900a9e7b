"""Groups, tallies and histories after any life, held against a plain recount."""

import os
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engines.journal.history.check import verify
from holdfast.engines.journal.history.store import SqliteHistory
from holdfast.model.access import SYSTEM
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.failure_groups import group_dead_jobs
from holdfast.model.job import State
from holdfast.model.search import EVERYTHING, HOUR_US, Filter, Order
from holdfast.testing import SimDisk

from .generated import callers, filters
from .world import World, forget_all

EXAMPLES = int(os.environ.get("HOLDFAST_TEST_EXAMPLES", "40"))
FAILURES = (
    Failure("timeout", FailureClass.TRANSIENT, "no answer after 30 s"),
    Failure("timeout", FailureClass.TRANSIENT, "no answer after 31 s"),
    Failure("timeout", FailureClass.UNKNOWN, "no answer after 32 s", status=504),
    Failure("nul\0reason", FailureClass.UNKNOWN, "nul \0 here"),
)
MOVES = [
    "enqueue",
    "claim",
    "complete",
    "cancel",
    "retry",
    "die",
    "die",
    "die",
    "replay",
    "archive",
    "restore",
    "edit",
    "note",
    "purge",
    "audit",
    "hour",
    "feed",
    "feed",
    "forget",
]
STEPS = st.tuples(st.sampled_from(MOVES), st.integers(0, 11), st.sampled_from((0, 0, 1, 2, 3)))


def live(world: World, store: SqliteHistory, move: str, number: int, choice: int) -> None:
    """Make one move, if it is possible for this job now."""
    tenant, job_id = f"t{number % 2}", f"j{number // 2}"
    job = world.jobs.get((tenant, job_id))
    if move == "hour":
        world.pass_time(HOUR_US // 2)
    elif move == "feed":
        world.feed(store)
    elif move == "audit":
        world.audit()
    elif move == "forget":
        forget(world, store)
    elif job is None:
        if move == "enqueue":
            scope = ("", "x", "x/y", "z")[choice]
            world.enqueue(
                job_id,
                tenant=tenant,
                scope=scope,
                queue="q0" if number < 9 else "q1",
                max_attempts=9,
            )
    elif move == "note":
        world.note(job)
    elif move == "die" and not job.state.finished:
        world.die(job, FAILURES[choice])
    elif move == "retry" and job.state is State.IN_FLIGHT:
        world.retry(job, FAILURES[choice])
    elif move in _FROM and job.state in _FROM[move]:
        getattr(world, move)(job)


_FROM = {
    "claim": {State.PENDING},
    "complete": {State.IN_FLIGHT},
    "cancel": {State.PENDING},
    "replay": {State.DEAD},
    "archive": {State.DEAD},
    "restore": {State.ARCHIVED},
    "edit": {State.PENDING, State.DEAD},
    "purge": {State.DEAD, State.ARCHIVED, State.COMPLETED, State.CANCELLED},
}


def forget(world: World, store: SqliteHistory) -> None:
    world.feed(store)
    before_us = world.now_us - 3_000
    old = [
        job
        for job in world.finished()
        if job.state in (State.COMPLETED, State.CANCELLED) and job.finished_at_us < before_us
    ]
    gone = forget_all(store, before_us)
    assert gone == Counter((job.tenant, job.queue, job.state) for job in old)
    for job in old:
        world.drop((job.tenant, job.id))


def check(world: World, store: SqliteHistory) -> None:
    finished = world.finished()
    dead = [job for job in finished if job.state is State.DEAD]
    assert store.groups(EVERYTHING, SYSTEM, world.now_us) == group_dead_jobs(dead, world.now_us)
    assert store.tallies() == Counter((job.tenant, job.queue, job.state) for job in finished)
    found = store.find(EVERYTHING, SYSTEM, None, 1_000, Order.CREATED)
    assert sorted(found, key=lambda job: (job.tenant, job.id)) == sorted(
        finished, key=lambda job: (job.tenant, job.id)
    )
    for name, job in world.jobs.items():
        assert store.get(*name) == (job if job.state.finished else None)
        assert store.history(job) == (world.attempts.get(name, []), world.notes.get(name, []))
    assert store.audit(0, 1_000) == [
        one.effect.record for one in world.recorded if hasattr(one.effect, "record")
    ]
    assert verify(store) == []


@settings(max_examples=EXAMPLES, deadline=None)
@given(steps=st.lists(STEPS, min_size=60, max_size=160), evicted=st.booleans())
def test_after_any_life_everything_is_as_a_recount_says(steps, evicted):
    world = World(evicted=evicted)
    store = SqliteHistory.open(SimDisk().database())
    for number in range(12):
        live(world, store, "enqueue", number, number % 4)
        live(world, store, "die", number, 0)
    for step in steps:
        live(world, store, *step)
    world.feed(store)
    check(world, store)
    store.close()


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    steps=st.lists(STEPS, min_size=30, max_size=80),
    asked=st.lists(st.tuples(filters(), callers()), min_size=5, max_size=5),
    queue=st.sampled_from(("q0", "q1", "none")),
)
def test_groups_within_a_filter_and_a_reach(steps, asked, queue):
    world = World()
    store = SqliteHistory.open(SimDisk().database())
    for step in steps:
        live(world, store, *step)
    world.feed(store)
    asked += [
        (Filter(queues=(queue,)), SYSTEM),
        (Filter(error_reasons=("timeout", "nul\0reason"), queues=("q0", "q1")), SYSTEM),
        (Filter(fingerprint="no answer after <number> s"), SYSTEM),
        (Filter(fingerprint="", classes=(FailureClass.UNKNOWN,)), SYSTEM),
        (Filter(text="ANSWER"), SYSTEM),
        (Filter(statuses=(504,)), SYSTEM),
        (Filter(statuses=(0,), tasks=("t0", "t1")), SYSTEM),
        (Filter(states=(State.ARCHIVED,)), SYSTEM),
    ]
    for wanted, caller in asked:
        dead = [
            job
            for job in world.finished()
            if job.state is State.DEAD
            and wanted.matches(job)
            and caller.can_access(job.tenant, job.scope)
        ]
        assert store.groups(wanted, caller, world.now_us) == group_dead_jobs(dead, world.now_us)
    store.close()


def test_the_first_and_the_last_of_a_group_are_right_after_they_left(store, world):
    jobs = [world.dead(f"j{number}") for number in range(5)]
    world.feed(store)
    world.replay(jobs[0])
    world.purge(jobs[4])
    world.feed(store)
    (group,) = store.groups(EVERYTHING, SYSTEM, world.now_us)
    assert (group.first_at_us, group.last_at_us) == (
        jobs[1].finished_at_us,
        jobs[3].finished_at_us,
    )
