"""The table of moves, from both sides: what decides, and what folds."""

from collections.abc import Callable, Mapping

import msgspec
import pytest

from holdfast.model import effects as fx
from holdfast.model import folding, lifecycle, outcome
from holdfast.model.errors import IllegalTransition, InvariantViolation
from holdfast.model.failure import Failure
from holdfast.model.folding import apply
from holdfast.model.job import MAX_TIME_US, Edit, Job, State, Ties
from holdfast.model.lifecycle import EDITABLE, MOVES, LeaseTerms, Move
from holdfast.model.outcome import Outcome, OutcomeKind

NOW = 1_000_000_000
SEQ = 99
FAILURE = Failure.of("timeout", "too slow")
TERMS = LeaseTerms(NOW, 30.0, 600.0)
HELD = Ties("k", 7, ("a", "b"), ("a",), True)


def a_job(
    state: State = State.PENDING,
    *,
    attempt: int = 1,
    losses: int = 0,
    stop_requested: bool = False,
    ties: Ties = HELD,
) -> Job:
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
        stop_requested=stop_requested,
        cancel_reason="no longer needed" if stop_requested else "",
        ties=ties,
    )


def jobs_in(state: State) -> list[Job]:
    """A fresh one, one used up, one lost twice, one asked to stop, one that waits for nothing."""
    return [
        a_job(state),
        a_job(state, attempt=3),
        a_job(state, losses=2),
        a_job(state, stop_requested=state is State.IN_FLIGHT),
        a_job(state, ties=Ties()),
    ]


Decide = Callable[[Job], fx.Effect]

DECIDE: Mapping[Move, Decide] = {
    Move.UNBLOCK: lambda job: lifecycle.unblock(job, NOW),
    Move.CLAIM: lambda job: lifecycle.claim(job, 5, "w2", TERMS),
    Move.EXPIRE: lambda job: lifecycle.expire(job, NOW),
    Move.COMPLETE: lambda job: lifecycle.settle(job, outcome.completed(job), NOW),
    Move.CANCEL: lambda job: (
        lifecycle.settle(job, outcome.cancelled(job), NOW)
        if job.state is State.IN_FLIGHT
        else lifecycle.cancel(job, NOW, "no longer needed", "ann")
    ),
    Move.RETRY: lambda job: lifecycle.settle(job, outcome.retry(job, FAILURE, 1.0), NOW),
    Move.RELEASE: lambda job: lifecycle.settle(job, outcome.release(job), NOW),
    Move.SNOOZE: lambda job: lifecycle.settle(job, outcome.snooze(job, 1.0), NOW),
    Move.DIE: lambda job: lifecycle.settle(job, outcome.dead(job, FAILURE), NOW),
    Move.LOSE: lambda job: lifecycle.lose(job, NOW, "worker_lost", "silent"),
    Move.REPLAY: lambda job: lifecycle.replay(
        job, NOW, "ann", "it is back", waiting_for=job.ties.waiting_for
    ),
    Move.ARCHIVE: lambda job: lifecycle.archive(job, NOW, "ann", "not worth it"),
    Move.RESTORE: lambda job: lifecycle.restore(job, NOW, "ann", "after all"),
}
"""Enqueue is decided by ``apply``: there is no job to look at yet."""

PAIRS = [(state, move) for state in State for move in DECIDE]
LEGAL = [pair for pair in PAIRS if pair in MOVES]
ILLEGAL = [pair for pair in PAIRS if pair not in MOVES]

EFFECTS: Mapping[type[fx.JobEffect], tuple[fx.JobEffect, set[Move]]] = {
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
    fx.Replayed: (fx.Replayed(NOW, a_job(), "ann", "why"), {Move.REPLAY}),
    fx.Archived: (fx.Archived(NOW, a_job(State.ARCHIVED), "ann", "why"), {Move.ARCHIVE}),
    fx.Restored: (fx.Restored(NOW, a_job(State.DEAD), "ann", "why"), {Move.RESTORE}),
    fx.Edited: (fx.Edited(NOW, a_job(), "ann", "why", b"{}"), set()),
    fx.Freed: (fx.Freed(NOW, "acme", "j1", "a"), set()),
    fx.Confirmed: (fx.Confirmed(NOW, "acme", "j1", "ann", "why"), set()),
    fx.StopRequested: (fx.StopRequested(NOW, "acme", "j1", "ann", "why"), set()),
    fx.Noted: (fx.Noted(NOW, "acme", "j1", "ann", "look"), set()),
    fx.Purged: (fx.Purged(NOW, "acme", "j1", "mail", State.DEAD, None), set()),
}
"""An effect of every type on a job, and the moves that it can come from."""

FINISHED = {state for state in State if state.finished}
WITHOUT_MOVE: Mapping[type[fx.JobEffect], set[State]] = {
    fx.Extended: {State.IN_FLIGHT},
    fx.Edited: set(EDITABLE),
    fx.Freed: {State.BLOCKED},
    fx.Confirmed: {State.BLOCKED},
    fx.StopRequested: {State.IN_FLIGHT},
    fx.Noted: set(State),
    fx.Purged: FINISHED,
}
"""Those that leave a job where it is, or end it: the states in which that can be."""

FORGOTTEN = {State.COMPLETED, State.CANCELLED}
"""The id of such a job may be enqueued again: ``apply`` says so."""

CHANGES = [kind for kind in EFFECTS if kind not in (fx.Enqueued, fx.Noted, fx.Purged)]


def effect_on(kind: type[fx.JobEffect], state: State) -> fx.JobEffect:
    """The effect as it is on a job in this state: an edit carries that job."""
    effect = EFFECTS[kind][0]
    if isinstance(effect, fx.Edited):
        return msgspec.structs.replace(effect, job=a_job(state, attempt=2))
    return effect


def folded(job: Job | None, effect: fx.Effect) -> Job:
    assert not isinstance(effect, fx.SETTINGS)
    after = apply(job, effect, SEQ)
    assert after is not None
    return after


def states_for(kind: type[fx.JobEffect]) -> set[State | None]:
    if kind in WITHOUT_MOVE:
        return {*WITHOUT_MOVE[kind]}
    moves = EFFECTS[kind][1]
    states = {state for state, move in MOVES if move in moves}
    return states | FORGOTTEN if kind is fx.Enqueued else states


def test_every_move_and_every_effect_is_covered_here() -> None:
    assert set(DECIDE) | {Move.ENQUEUE} == set(Move)
    assert set(EFFECTS) == set(folding._EFFECTS) | {fx.Enqueued}
    assert set(fx.LOG_NAMES) == {*EFFECTS, *fx.SETTINGS}
    assert len(set(fx.LOG_NAMES.values())) == len(fx.LOG_NAMES)
    assert {(None, Move.ENQUEUE), *LEGAL} == set(MOVES)


def test_what_is_completed_or_cancelled_stays_so_and_every_state_is_reached() -> None:
    assert not [state for state, _ in MOVES if state in FORGOTTEN]
    assert frozenset().union(*MOVES.values()) == set(State)
    assert not [pair for pair, targets in MOVES.items() if pair[0] in targets]


@pytest.mark.parametrize(("state", "move"), LEGAL)
def test_a_legal_move_leads_to_each_of_its_states_and_to_no_other(state: State, move: Move) -> None:
    reached = {folded(job, DECIDE[move](job)).state for job in jobs_in(state)}
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
    assert lifecycle.settle(job, outcome.cancelled(job), NOW) == fx.Cancelled(NOW, "acme", "j1")


def test_a_job_in_flight_is_asked_to_stop_once_and_only_by_somebody() -> None:
    job = a_job(State.IN_FLIGHT)
    effect = lifecycle.cancel(job, NOW, "no longer needed", "ann")
    assert effect == fx.StopRequested(NOW, "acme", "j1", "ann", "no longer needed")
    asked = folded(job, effect)
    assert (asked.state, asked.stop_requested) == (State.IN_FLIGHT, True)
    assert asked.cancel_reason == "no longer needed"
    for refused, by in ((asked, "bob"), (job, "")):
        with pytest.raises(IllegalTransition):
            lifecycle.cancel(refused, NOW, "once more", by)


@pytest.mark.parametrize("kind", OutcomeKind)
def test_one_asked_to_stop_ends_cancelled_unless_it_completes_or_fails_for_good(
    kind: OutcomeKind,
) -> None:
    job = a_job(State.IN_FLIGHT, stop_requested=True)
    after = folded(job, lifecycle.settle(job, Outcome(kind, "j1", 4, failure=FAILURE), NOW))
    ends = {OutcomeKind.COMPLETED: State.COMPLETED, OutcomeKind.DEAD: State.DEAD}
    assert after.state is ends.get(kind, State.CANCELLED)
    if after.state is State.CANCELLED:
        assert after.cancel_reason == "no longer needed"


def test_one_asked_to_stop_that_is_lost_is_cancelled() -> None:
    job = a_job(State.IN_FLIGHT, stop_requested=True, losses=2)
    effect = lifecycle.lose(job, NOW, "worker_lost", "silent")
    assert effect == fx.Cancelled(NOW, "acme", "j1", "no longer needed")


@pytest.mark.parametrize("state", State)
def test_only_a_blocked_job_that_waits_for_a_person_is_confirmed(state: State) -> None:
    for job in (a_job(state), a_job(state, ties=Ties())):
        if state is State.BLOCKED and job.ties.hold:
            after = folded(job, lifecycle.confirm(job, NOW, "ann", "fine"))
            assert (after.state, after.ties.hold) == (State.BLOCKED, False)
            assert after.ties.waiting_for == ("a",)
            continue
        with pytest.raises(IllegalTransition):
            lifecycle.confirm(job, NOW, "ann", "fine")


@pytest.mark.parametrize("state", State)
def test_only_what_nobody_runs_and_is_not_done_is_edited(state: State) -> None:
    job = a_job(state)
    if state in EDITABLE:
        after = folded(job, lifecycle.edit(job, NOW, Edit(priority=9), "ann", "sooner"))
        assert (after.state, after.version, after.priority) == (state, 2, 9)
        return
    with pytest.raises(IllegalTransition):
        lifecycle.edit(job, NOW, Edit(priority=9), "ann", "sooner")


@pytest.mark.parametrize("state", State)
def test_only_what_is_finished_is_purged(state: State) -> None:
    job = a_job(state)
    if state.finished:
        effect = lifecycle.purge(job, NOW)
        assert effect == fx.Purged(NOW, "acme", "j1", "mail", state, "k")
        assert apply(job, effect, SEQ) is None
        return
    with pytest.raises(IllegalTransition):
        lifecycle.purge(job, NOW)


@pytest.mark.parametrize("state", State)
def test_only_a_blocked_job_waits_for_one_less(state: State) -> None:
    job = a_job(state)
    if state is State.BLOCKED:
        after = folded(job, lifecycle.free(job, "a", NOW))
        assert (after.ties.waiting_for, after.ties.depends_on) == ((), ("a", "b"))
        return
    with pytest.raises(IllegalTransition):
        lifecycle.free(job, "a", NOW)


@pytest.mark.parametrize("state", State)
def test_only_a_lease_in_flight_is_extended(state: State) -> None:
    job = a_job(state)
    if state is State.IN_FLIGHT:
        assert folded(job, lifecycle.extend(job, TERMS)).state is State.IN_FLIGHT
        return
    with pytest.raises(IllegalTransition):
        lifecycle.extend(job, TERMS)


@pytest.mark.parametrize("kind", EFFECTS)
@pytest.mark.parametrize("state", State)
def test_an_effect_folds_in_exactly_the_states_of_its_moves(
    state: State, kind: type[fx.JobEffect]
) -> None:
    job, effect = a_job(state), effect_on(kind, state)
    if state not in states_for(kind):
        with pytest.raises(IllegalTransition) as caught:
            apply(job, effect, SEQ)
        assert (caught.value.job_id, caught.value.state) == ("j1", state)
        return
    after = apply(job, effect, SEQ)
    if kind in WITHOUT_MOVE:
        assert (
            (after is None) if kind is fx.Purged else (after is not None and after.state is state)
        )
        return
    moves = EFFECTS[kind][1]
    targets = frozenset().union(*(to for (_, move), to in MOVES.items() if move in moves))
    assert after is not None
    assert after.state in targets


@pytest.mark.parametrize("kind", CHANGES)
def test_a_job_that_is_not_there_was_finished_or_the_effect_is_refused(
    kind: type[fx.JobEffect],
) -> None:
    """Finished jobs are kept elsewhere: what happens to them carries them whole."""
    effect = EFFECTS[kind][0]
    if states_for(kind) & FINISHED:
        assert isinstance(effect, fx.WHOLE)
        assert folded(None, effect).id == "j1"
        return
    with pytest.raises(IllegalTransition) as caught:
        apply(None, effect, SEQ)
    assert caught.value.state == "unknown"


def test_a_job_that_is_not_there_takes_notes_and_is_purged() -> None:
    for kind in (fx.Noted, fx.Purged):
        assert apply(None, EFFECTS[kind][0], SEQ) is None


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
def test_folding_leaves_the_job_that_it_was_given_as_it_was(kind: type[fx.JobEffect]) -> None:
    for state in states_for(kind):
        assert state is not None
        job, effect = a_job(state), effect_on(kind, state)
        encoded_effect = msgspec.msgpack.encode(effect)
        encoded = msgspec.msgpack.encode(job)
        after = apply(job, effect, SEQ)
        assert after is not job
        assert after != job
        assert msgspec.msgpack.encode(job) == encoded
        assert msgspec.msgpack.encode(effect) == encoded_effect


@pytest.mark.parametrize("kind", CHANGES)
def test_folding_keeps_what_makes_the_job_that_job(kind: type[fx.JobEffect]) -> None:
    for state in states_for(kind):
        assert state is not None
        before, after = a_job(state), folded(a_job(state), effect_on(kind, state))
        for field in ("id", "tenant", "scope", "queue", "task", "priority", "created_at_us"):
            assert getattr(after, field) == getattr(before, field)
        assert after.payload == before.payload
        assert after.token >= before.token
        assert (after.ties.key, after.ties.key_seq) == ("k", 7)


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
