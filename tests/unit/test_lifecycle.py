"""The table of moves, from both sides: what decides, and what folds."""

from collections.abc import Callable, Mapping

import msgspec
import pytest

from holdfast.model import effects as fx
from holdfast.model import lifecycle, outcome
from holdfast.model.errors import IllegalTransition, InvariantViolation
from holdfast.model.failure import Failure
from holdfast.model.job import MAX_TIME_US, Job, State
from holdfast.model.lifecycle import MOVES, LeaseTerms, Move, apply
from holdfast.model.outcome import Outcome, OutcomeKind

NOW = 1_000_000_000
SEQ = 99
FAILURE = Failure.of("timeout", "too slow")
TERMS = LeaseTerms(NOW, 30.0, 600.0)


def a_job(state: State = State.PENDING, *, attempt: int = 1, losses: int = 0) -> Job:
    return Job(
        "j1",
        "acme",
        "library:42",
        "mail",
        "send",
        b'{"to":"x"}',
        priority=5,
        max_attempts=3,
        created_at_us=10,
        run_at_us=20,
        seq=7,
        state=state,
        attempt=attempt,
        token=4,
        worker="w1" if state is State.IN_FLIGHT else "",
        claimed_at_us=30,
        lease_until_us=40,
        losses=losses,
    )


def jobs_in(state: State) -> list[Job]:
    """A fresh one, one with its budget used up, one that was lost twice."""
    return [a_job(state), a_job(state, attempt=3), a_job(state, losses=2)]


Decide = Callable[[Job], fx.Effect]

DECIDE: Mapping[Move, Decide] = {
    Move.UNBLOCK: lambda job: lifecycle.unblock(job, NOW),
    Move.CLAIM: lambda job: lifecycle.claim(job, 5, "w2", TERMS),
    Move.EXPIRE: lambda job: lifecycle.expire(job, NOW),
    Move.COMPLETE: lambda job: lifecycle.settle(job, outcome.completed(job), NOW),
    Move.CANCEL: lambda job: lifecycle.cancel(job, NOW),
    Move.RETRY: lambda job: lifecycle.settle(job, outcome.retry(job, FAILURE, 1.0), NOW),
    Move.RELEASE: lambda job: lifecycle.settle(job, outcome.release(job), NOW),
    Move.SNOOZE: lambda job: lifecycle.settle(job, outcome.snooze(job, 1.0), NOW),
    Move.DIE: lambda job: lifecycle.settle(job, outcome.dead(job, FAILURE), NOW),
    Move.LOSE: lambda job: lifecycle.lose(job, NOW, "worker_lost", "silent"),
    Move.REPLAY: lambda job: lifecycle.replay(job, NOW),
    Move.ARCHIVE: lambda job: lifecycle.archive(job, NOW),
    Move.RESTORE: lambda job: lifecycle.restore(job, NOW),
}
"""Enqueue is decided by ``apply``: there is no job to look at yet."""

PAIRS = [(state, move) for state in State for move in DECIDE]
LEGAL = [pair for pair in PAIRS if pair in MOVES]
ILLEGAL = [pair for pair in PAIRS if pair not in MOVES]

EFFECTS: Mapping[type[fx.Effect], tuple[fx.Effect, set[Move]]] = {
    fx.Enqueued: (fx.Enqueued(NOW, msgspec.structs.replace(a_job(), token=0)), {Move.ENQUEUE}),
    fx.Claimed: (fx.Claimed(NOW, "acme", "j1", 5, "w2", NOW + 1), {Move.CLAIM}),
    fx.Extended: (fx.Extended(NOW, "acme", "j1", NOW + 1), set()),
    fx.Completed: (fx.Completed(NOW, "acme", "j1", b"1"), {Move.COMPLETE}),
    fx.Cancelled: (fx.Cancelled(NOW, "acme", "j1"), {Move.CANCEL}),
    fx.Retried: (fx.Retried(NOW, "acme", "j1", NOW + 1, FAILURE), {Move.RETRY}),
    fx.Released: (fx.Released(NOW, "acme", "j1"), {Move.RELEASE}),
    fx.Snoozed: (fx.Snoozed(NOW, "acme", "j1", NOW + 1), {Move.SNOOZE}),
    fx.Lost: (fx.Lost(NOW, "acme", "j1", FAILURE), {Move.LOSE}),
    fx.Died: (
        fx.Died(NOW, "acme", "j1", FAILURE, 1),
        {Move.DIE, Move.EXPIRE, Move.RETRY, Move.LOSE},
    ),
    fx.Unblocked: (fx.Unblocked(NOW, "acme", "j1"), {Move.UNBLOCK}),
    fx.Replayed: (fx.Replayed(NOW, "acme", "j1"), {Move.REPLAY}),
    fx.Archived: (fx.Archived(NOW, "acme", "j1"), {Move.ARCHIVE}),
    fx.Restored: (fx.Restored(NOW, "acme", "j1"), {Move.RESTORE}),
}
"""An effect of every type, and the moves that it can come from."""

FORGOTTEN = {State.COMPLETED, State.CANCELLED}
"""The id of such a job may be enqueued again: ``apply`` says so."""

CHANGES = [kind for kind in EFFECTS if kind is not fx.Enqueued]


def states_for(kind: type[fx.Effect]) -> set[State | None]:
    if kind is fx.Extended:
        return {State.IN_FLIGHT}
    moves = EFFECTS[kind][1]
    states = {state for state, move in MOVES if move in moves}
    return states | FORGOTTEN if kind is fx.Enqueued else states


def test_every_move_and_every_effect_is_covered_here() -> None:
    assert set(DECIDE) | {Move.ENQUEUE} == set(Move)
    assert set(EFFECTS) == set(fx.LOG_NAMES) == set(lifecycle._EFFECTS) | {fx.Enqueued}
    assert {(None, Move.ENQUEUE), *LEGAL} == set(MOVES)


def test_what_is_completed_or_cancelled_stays_so_and_every_state_is_reached() -> None:
    assert not [state for state, _ in MOVES if state in FORGOTTEN]
    assert frozenset().union(*MOVES.values()) == set(State)
    assert not [pair for pair, targets in MOVES.items() if pair[0] in targets]


@pytest.mark.parametrize(("state", "move"), LEGAL)
def test_a_legal_move_leads_to_each_of_its_states_and_to_no_other(state: State, move: Move) -> None:
    reached = {apply(job, DECIDE[move](job), SEQ).state for job in jobs_in(state)}
    assert reached == MOVES[state, move]


@pytest.mark.parametrize(("state", "move"), ILLEGAL)
def test_any_other_move_is_refused_by_what_decides(state: State, move: Move) -> None:
    for job in jobs_in(state):
        with pytest.raises(IllegalTransition) as caught:
            DECIDE[move](job)
        assert (caught.value.job_id, caught.value.state, caught.value.move) == ("j1", state, move)


@pytest.mark.parametrize("kind", OutcomeKind)
@pytest.mark.parametrize("state", [state for state in State if state is not State.IN_FLIGHT])
def test_only_what_is_in_flight_is_settled(state: State, kind: OutcomeKind) -> None:
    with pytest.raises(IllegalTransition) as caught:
        lifecycle.settle(a_job(state), Outcome(kind, "j1", 4, failure=FAILURE), NOW)
    assert caught.value.move == lifecycle._SETTLES[kind]


def test_a_cancelled_outcome_cancels() -> None:
    job = a_job(State.IN_FLIGHT)
    effect = lifecycle.settle(job, outcome.cancelled(job), NOW)
    assert effect == lifecycle.cancel(job, NOW) == fx.Cancelled(NOW, "acme", "j1")


@pytest.mark.parametrize("state", State)
def test_only_a_lease_in_flight_is_extended(state: State) -> None:
    job = a_job(state)
    if state is State.IN_FLIGHT:
        assert apply(job, lifecycle.extend(job, TERMS), SEQ).state is State.IN_FLIGHT
        return
    with pytest.raises(IllegalTransition):
        lifecycle.extend(job, TERMS)


@pytest.mark.parametrize("kind", EFFECTS)
@pytest.mark.parametrize("state", [None, *State])
def test_an_effect_folds_in_exactly_the_states_of_its_moves(
    state: State | None, kind: type[fx.Effect]
) -> None:
    effect, moves = EFFECTS[kind]
    job = None if state is None else a_job(state)
    if state not in states_for(kind):
        with pytest.raises(IllegalTransition) as caught:
            apply(job, effect, SEQ)
        assert caught.value.job_id == "j1"
        assert caught.value.state == (state or "unknown")
        return
    after = apply(job, effect, SEQ)
    targets = frozenset().union(*(to for (_, move), to in MOVES.items() if move in moves))
    assert after.state in (targets or {State.IN_FLIGHT})


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("token", [0, 1])
def test_a_job_begins_pending_or_blocked_and_without_a_token(state: State, token: int) -> None:
    job = msgspec.structs.replace(a_job(state), token=token)
    if state in MOVES[None, Move.ENQUEUE] and not token:
        assert apply(None, fx.Enqueued(NOW, job), SEQ) == job
        return
    with pytest.raises(IllegalTransition):
        apply(None, fx.Enqueued(NOW, job), SEQ)


@pytest.mark.parametrize("kind", CHANGES)
def test_folding_leaves_the_job_that_it_was_given_as_it_was(kind: type[fx.Effect]) -> None:
    effect = EFFECTS[kind][0]
    encoded_effect = msgspec.msgpack.encode(effect)
    for state in states_for(kind):
        assert state is not None
        job = a_job(state)
        encoded = msgspec.msgpack.encode(job)
        after = apply(job, effect, SEQ)
        assert after is not job
        assert after != job
        assert msgspec.msgpack.encode(job) == encoded
        assert msgspec.msgpack.encode(effect) == encoded_effect


@pytest.mark.parametrize("kind", CHANGES)
def test_folding_keeps_what_makes_the_job_that_job(kind: type[fx.Effect]) -> None:
    for state in states_for(kind):
        assert state is not None
        before, after = a_job(state), apply(a_job(state), EFFECTS[kind][0], SEQ)
        for field in ("id", "tenant", "scope", "queue", "task", "priority", "created_at_us"):
            assert getattr(after, field) == getattr(before, field)
        assert after.payload == (b"" if after.state in FORGOTTEN else before.payload)
        assert after.token >= before.token


@pytest.mark.parametrize("token", [-1, 0, 3, 4])
def test_a_token_that_does_not_grow_is_a_bug_of_ours(token: int) -> None:
    with pytest.raises(InvariantViolation, match=f"token {token} of job 'j1'"):
        apply(a_job(), fx.Claimed(NOW, "acme", "j1", token, "w2", NOW + 1), SEQ)


def test_a_failed_outcome_without_its_failure_is_a_bug_of_ours() -> None:
    for kind in (OutcomeKind.RETRY, OutcomeKind.DEAD):
        with pytest.raises(InvariantViolation, match="carries no failure"):
            lifecycle.settle(a_job(State.IN_FLIGHT), Outcome(kind, "j1", 4), NOW)


def test_times_far_ahead_stay_whole_numbers() -> None:
    job = a_job(State.IN_FLIGHT)
    effect = lifecycle.settle(job, outcome.snooze(job, MAX_TIME_US / 2e6), NOW)
    assert isinstance(effect, fx.Snoozed)
    assert type(effect.run_at_us) is int
    assert effect.run_at_us == NOW + MAX_TIME_US // 2
