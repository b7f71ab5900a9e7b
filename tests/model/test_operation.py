"""How operations go on: pure decisions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.model import operation as operations
from holdfast.model.access import SYSTEM
from holdfast.model.actions import ArchiveJobs, ReplayJobs, RetargetJobs
from holdfast.model.errors import InvalidInput
from holdfast.model.job import MICROSECONDS, State
from holdfast.model.operation import (
    WINDOW,
    Chunk,
    NewOperation,
    Operation,
    OperationChange,
    Outcomes,
    Phase,
)
from holdfast.model.operation_ledger import OperationLedger
from holdfast.model.policy import Rate
from holdfast.model.search import Filter

NOW_US = 1_800_000_000 * MICROSECONDS


def started(**fields) -> Operation:
    new = NewOperation(**{"id": "op", "action": ReplayJobs(), "wanted": Filter(), **fields})
    return operations.start(new, "ann", "why", SYSTEM, NOW_US, None)


def chunk_of(count: int, first: int = 0, **fields) -> Chunk:
    names = tuple(("t", f"j{first + number}") for number in range(count))
    return Chunk(acted=names, after=(first + count, "t", f"j{first + count}"), **fields)


def test_the_moment_of_finished_jobs_is_when_they_finished():
    found = operations.members(ReplayJobs(), Filter(), 7)
    assert (found.finished_to_us, found.created_to_us, found.states) == (8, None, (State.DEAD,))


def test_the_moment_of_others_is_when_they_were_created():
    found = operations.members(RetargetJobs("x"), Filter(), 7)
    assert (found.finished_to_us, found.created_to_us) == (None, 8)


def test_an_earlier_end_of_the_filter_stays():
    found = operations.members(ReplayJobs(), Filter(finished_to_us=3), 7)
    assert found.finished_to_us == 3


def test_a_state_that_does_not_fit_is_refused():
    with pytest.raises(InvalidInput, match="dead"):
        operations.members(ReplayJobs(), Filter(states=(State.PENDING,)), 7)


def test_only_what_waits_for_outcomes_has_an_abort_ratio_by_default():
    assert started().abort_ratio is None
    for fields in ({"rate": Rate(1, 1.0)}, {"canary": 1}):
        assert started(**fields).abort_ratio == operations.DEFAULT_ABORT_RATIO
    assert started(rate=Rate(1, 1.0), abort_ratio=0.5).abort_ratio == 0.5


def test_a_window_bounds_what_is_unfinished():
    operation = replace(started(abort_ratio=1.0), acted=WINDOW - 10)
    assert operations.due(operation, NOW_US) == 10
    operation = replace(operation, acted=WINDOW)
    assert (operations.due(operation, NOW_US), operations.next_at_us(operation, NOW_US)) == (
        0,
        None,
    )
    operation = replace(operation, outcomes=Outcomes(completed=3))
    assert operations.due(operation, NOW_US) == 3


def test_other_actions_have_no_window():
    operation = replace(started(action=ArchiveJobs(), rate=Rate(9_000, 1.0)), acted=WINDOW * 2)
    assert operations.due(operation, NOW_US) == operations.CHUNK


@given(
    rate=st.tuples(st.integers(1, 5_000), st.sampled_from([0.1, 1.0, 60.0, 3_600.0])),
    pauses=st.lists(st.integers(0, 5 * MICROSECONDS), min_size=1, max_size=40),
)
def test_a_rate_is_never_exceeded(rate, pauses):
    operation = started(rate=Rate(*rate), abort_ratio=1.0)
    now_us, acted = NOW_US, 0
    interval_us = Rate(*rate).interval_us
    burst = max(1, MICROSECONDS // interval_us)
    for pause_us in pauses:
        now_us += pause_us
        count = operations.due(operation, now_us)
        operation = operations.after_chunk(operation, chunk_of(count, acted), now_us)
        operation = replace(operation, outcomes=Outcomes(completed=operation.acted))
        acted += count
        assert acted <= burst + (now_us - NOW_US) // interval_us
        if operation.ended:
            break
        next_us = operations.next_at_us(operation, now_us)
        assert next_us is not None
        if next_us > now_us:
            assert operations.due(operation, next_us - 1) == 0
        assert operations.due(operation, next_us) > 0


@given(
    limit=st.none() | st.integers(1, 3_000),
    canary=st.integers(0, 10),
    steps=st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 3)), max_size=40),
)
def test_it_never_acts_on_more_than_its_limit_and_always_ends(limit, canary, steps):
    operation = started(limit=limit, canary=canary, abort_ratio=1.0)
    now_us = NOW_US
    for found, kind in steps:
        now_us += MICROSECONDS
        operation = operations.watch(operation, now_us)
        count = min(found, operations.due(operation, now_us))
        if operations.due(operation, now_us):
            chunk = chunk_of(count, operation.acted, exhausted=kind == 3)
            operation = operations.after_chunk(operation, chunk, now_us)
        if kind:
            finished = operation.outcomes.finished
            open_ = operation.acted - finished
            operation = replace(
                operation, outcomes=replace(operation.outcomes, completed=finished + open_)
            )
        assert limit is None or operation.acted <= limit
        assert operation.outstanding <= WINDOW
    operation = operations.watch(operation, now_us)
    if operations.due(operation, now_us):
        operation = operations.after_chunk(operation, Chunk(exhausted=True), now_us)
    for _turn in range(3):
        now_us += 2 * 3_600 * MICROSECONDS
        operation = operations.watch(operation, now_us)
        if operation.paused:
            resumed = OperationChange(paused=False)
            operation = operations.change(operation, resumed, "ann", now_us)
        if operations.due(operation, now_us):
            operation = operations.after_chunk(operation, Chunk(exhausted=True), now_us)
    assert operation.ended


def test_one_change_at_a_time():
    with pytest.raises(InvalidInput):
        OperationChange().check()
    with pytest.raises(InvalidInput):
        OperationChange(paused=True, abort=True).check()


def test_a_paused_operation_is_still_aborted_by_its_outcomes():
    operation = replace(
        started(rate=Rate(100, 1.0)), paused=True, acted=30, outcomes=Outcomes(failed=25)
    )
    assert operations.watch(operation, NOW_US).phase is Phase.ABORTED


def test_operations_that_ended_first_are_forgotten(monkeypatch):
    monkeypatch.setattr("holdfast.model.operation_ledger.MAX_ENDED", 3)
    ledger = OperationLedger()
    for number in range(6):
        one = replace(started(), id=f"op{number}")
        if number != 1:
            one = operations.end(one, Phase.COMPLETED, "", NOW_US + number)
        ledger.put(one)
    assert sorted(one.id for one in ledger) == ["op1", "op3", "op4", "op5"]


def test_a_stored_operation_is_read_again():
    operation = replace(started(rate=Rate(1, 1.0), canary=2), skipped={"x": 3}, after=(1, "t", "i"))
    assert operations.decode(operations.encode(operation)) == operation
