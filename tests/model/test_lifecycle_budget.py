"""What the moves do to a job's attempts, losses, place in line and lease."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import effects as fx
from holdfast.model import folding, lifecycle, outcome
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import MICROSECONDS, Edit, Job, Replays, State, Ties
from holdfast.model.lifecycle import LeaseTerms

NOW = 1_000_000_000
SEQ = 99
HOUR = 3_600
FAILURE = Failure.of("timeout", "too slow")


def pending(**fields: object) -> Job:
    job = Job("j1", "acme", "", "mail", "send", b"{}", 0, 3, created_at_us=10, run_at_us=20, seq=7)
    return msgspec.structs.replace(job, **fields)


def apply(job: Job, effect: fx.Effect, seq: int) -> Job:
    assert not isinstance(effect, fx.SETTINGS)
    after = folding.apply(job, effect, seq)
    assert after is not None
    return after


def claimed(job: Job, now_us: int = NOW) -> Job:
    terms = LeaseTerms(now_us, 30.0, 600.0)
    return apply(job, lifecycle.claim(job, job.token + 1, "w1", terms), SEQ)


def retried(job: Job, delay_seconds: float = 0.0) -> Job:
    return apply(job, lifecycle.settle(job, outcome.retry(job, FAILURE, delay_seconds), NOW), SEQ)


def lost(job: Job) -> Job:
    return apply(job, lifecycle.lose(job, NOW, "worker_lost", "silent"), SEQ)


def test_a_claim_charges_an_attempt_and_names_worker_token_and_lease() -> None:
    job = claimed(pending(attempt=1, token=8))
    assert (job.state, job.attempt, job.token, job.worker) == (State.IN_FLIGHT, 2, 9, "w1")
    assert (job.claimed_at_us, job.lease_until_us) == (NOW, NOW + 30 * MICROSECONDS)
    assert job.place == (20, 7)


def test_an_extension_moves_the_end_of_the_lease_and_nothing_else() -> None:
    job = claimed(pending())
    later = apply(job, lifecycle.extend(job, LeaseTerms(NOW + 5, 60.0, 600.0)), SEQ)
    assert later.lease_until_us == NOW + 5 + 60 * MICROSECONDS
    assert msgspec.structs.replace(later, lease_until_us=job.lease_until_us) == job


def test_completion_keeps_the_result_and_the_payload_and_drops_the_failure() -> None:
    job = claimed(pending(failure=FAILURE))
    done = apply(job, lifecycle.settle(job, outcome.completed(job, b"42"), NOW + 1), SEQ)
    assert (done.state, done.result, done.finished_at_us) == (State.COMPLETED, b"42", NOW + 1)
    assert (done.payload, done.failure, done.attempt) == (job.payload, None, 1)


def test_a_cancelled_job_keeps_its_payload_and_its_last_failure() -> None:
    gone = apply(pending(failure=FAILURE), lifecycle.cancel(pending(), NOW + 1), SEQ)
    assert gone.payload == pending().payload
    assert (gone.failure, gone.finished_at_us) == (FAILURE, NOW + 1)


def test_a_retry_goes_to_the_tail_after_its_delay_and_stays_charged() -> None:
    job = retried(claimed(pending()), 1.5)
    assert (job.state, job.attempt, job.failure) == (State.PENDING, 1, FAILURE)
    assert job.place == (NOW + 1_500_000, SEQ)
    assert (job.worker, job.lease_until_us, job.token) == ("", 0, 1)


def test_a_release_gives_back_the_attempt_and_the_place_in_line() -> None:
    before = pending(attempt=1, failure=FAILURE)
    job = claimed(before)
    back = apply(job, lifecycle.settle(job, outcome.release(job), NOW), SEQ)
    assert (back.state, back.attempt, back.place) == (State.PENDING, 1, before.place)
    assert (back.failure, back.worker, back.lease_until_us) == (FAILURE, "", 0)
    assert back.token == job.token


def test_a_snooze_gives_back_the_attempt_and_goes_to_the_tail_after_its_delay() -> None:
    job = claimed(pending(attempt=1))
    back = apply(job, lifecycle.settle(job, outcome.snooze(job, 2.0), NOW), SEQ)
    assert (back.state, back.attempt, back.failure) == (State.PENDING, 1, None)
    assert back.place == (NOW + 2_000_000, SEQ)


def test_handing_back_never_uses_up_the_budget() -> None:
    job = pending(max_attempts=1)
    for _ in range(50):
        held = claimed(job)
        assert held.attempt == 1
        job = apply(held, lifecycle.settle(held, outcome.snooze(held, 1.0), NOW), SEQ)
    assert (job.state, job.attempt, job.token) == (State.PENDING, 0, 50)


@pytest.mark.parametrize("max_attempts", [1, 2, 3, 7])
def test_max_attempts_counts_runs_in_all(max_attempts: int) -> None:
    job, runs = pending(max_attempts=max_attempts), 0
    while job.state is State.PENDING:
        job, runs = retried(claimed(job)), runs + 1
    assert (job.state, runs, job.attempt) == (State.DEAD, max_attempts, max_attempts)
    assert (job.failure, job.finished_at_us, job.losses) == (FAILURE, NOW, 0)
    assert job.payload == b"{}"


def test_a_dead_outcome_is_final_with_attempts_to_spare() -> None:
    job = claimed(pending(losses=1))
    effect = lifecycle.settle(job, outcome.dead(job, FAILURE), NOW)
    assert effect == fx.Died(NOW, "acme", "j1", FAILURE, 1)


def test_a_lost_job_is_queued_at_the_tail_with_one_loss_more() -> None:
    job = lost(claimed(pending(max_attempts=9)))
    assert (job.state, job.losses, job.attempt) == (State.PENDING, 1, 1)
    assert job.place == (NOW, SEQ)
    assert job.failure == Failure("worker_lost", FailureClass.UNKNOWN, "silent")
    assert (job.worker, job.lease_until_us) == ("", 0)


def test_a_job_lost_twice_runs_alone_and_dies_of_the_third_loss() -> None:
    job = pending(max_attempts=9)
    seen = []
    while job.state is State.PENDING:
        seen.append((job.losses, lifecycle.runs_alone(job)))
        job = lost(claimed(job))
    assert seen == [(0, False), (1, False), (2, True)]
    assert (job.state, job.losses, job.attempt) == (State.DEAD, 3, 3)
    assert job.failure is not None
    assert job.failure.error_reason == "worker_lost"


def test_a_loss_past_the_budget_is_a_death_and_is_counted() -> None:
    job = lost(claimed(pending(max_attempts=1)))
    assert (job.state, job.losses) == (State.DEAD, 1)


@settings(deadline=None)
@given(
    attempt=st.integers(1, 20),
    before_replay=st.integers(0, 20),
    max_attempts=st.integers(1, 10),
    losses=st.integers(0, 5),
)
def test_the_budget_counts_from_the_last_replay(
    attempt: int, before_replay: int, max_attempts: int, losses: int
) -> None:
    job = pending(
        state=State.IN_FLIGHT,
        attempt=attempt,
        attempts_before_replay=before_replay,
        max_attempts=max_attempts,
        losses=losses,
    )
    used_up = attempt - before_replay >= max_attempts
    assert lifecycle.exhausted(job) is used_up
    assert (retried(job).state is State.DEAD) is used_up
    assert (lost(job).state is State.DEAD) is (used_up or losses >= 2)


@pytest.mark.parametrize("state", [State.PENDING, State.BLOCKED])
def test_an_expired_job_is_dead_of_it_with_its_losses_unchanged(state: State) -> None:
    job = pending(state=state, losses=1, attempt=1, expires_at_us=NOW)
    dead = apply(job, lifecycle.expire(job, NOW + 1), SEQ)
    assert (dead.state, dead.losses, dead.attempt) == (State.DEAD, 1, 1)
    assert dead.finished_at_us == NOW + 1
    assert dead.failure == Failure.of("expired", "it was not claimed before expires_at")


def test_a_replay_brings_a_fresh_budget_and_lifts_the_expiry() -> None:
    job = pending(max_attempts=2, losses=2, expires_at_us=NOW)
    dead = retried(claimed(retried(claimed(job))))
    assert (dead.state, dead.attempt, dead.losses) == (State.DEAD, 2, 2)
    again = apply(dead, lifecycle.replay(dead, NOW + 9, "ann", "it is back"), SEQ)
    assert (again.state, again.attempts_before_replay, again.losses) == (State.PENDING, 2, 0)
    assert (again.finished_at_us, again.expires_at_us) == (0, None)
    assert (again.failure, again.payload, again.place) == (FAILURE, b"{}", (NOW + 9, SEQ))
    runs = 0
    while again.state is State.PENDING:
        again, runs = retried(claimed(again)), runs + 1
    assert (runs, again.attempt) == (2, 4)


def test_the_archive_gives_back_what_it_was_given() -> None:
    dead = apply(pending(), lifecycle.expire(pending(), NOW), SEQ)
    laid_aside = apply(dead, lifecycle.archive(dead, NOW + 1, "ann", "not now"), SEQ)
    assert laid_aside == msgspec.structs.replace(dead, state=State.ARCHIVED)
    back = apply(laid_aside, lifecycle.restore(laid_aside, NOW + 2, "ann", "now"), SEQ)
    assert back == dead


def test_a_replay_is_counted_and_says_who_why_and_in_which_run() -> None:
    dead = apply(pending(), lifecycle.expire(pending(), NOW), SEQ)
    again = apply(dead, lifecycle.replay(dead, NOW + 1, "ann", "it is back", run="r1"), SEQ)
    assert again.replays == Replays(1, NOW + 1, "ann", "it is back", "r1")
    dead = msgspec.structs.replace(again, state=State.DEAD)
    again = apply(dead, lifecycle.replay(dead, NOW + 2, "bob", "once more"), SEQ)
    assert again.replays == Replays(2, NOW + 2, "bob", "once more")


def test_a_replay_waits_for_what_is_still_open_and_keeps_its_place_in_its_key() -> None:
    ties = Ties("k", 3, ("a", "b"), ("a", "b"))
    dead = pending(state=State.DEAD, ties=ties, stop_requested=True, cancel_reason="no")
    for left, state in ((("b",), State.BLOCKED), ((), State.PENDING)):
        again = lifecycle.replay(dead, NOW, "ann", "why", waiting_for=left).job
        assert (again.state, again.ties.waiting_for) == (state, left)
        assert (again.ties.key, again.ties.key_seq) == ("k", 3)
        assert again.ties.depends_on == ("a", "b")
        assert (again.stop_requested, again.cancel_reason) == (False, "")


def test_a_replayed_job_that_was_held_is_held_again() -> None:
    dead = pending(state=State.DEAD, ties=Ties(hold=True))
    assert lifecycle.replay(dead, NOW, "ann", "why").job.state is State.BLOCKED


@pytest.mark.parametrize(
    ("changes", "place", "before"),
    [
        (Edit(payload={"n": 1}), (20, 7), b"{}"),
        (Edit(payload={}), (20, 7), None),
        (Edit(max_attempts=9), (20, 7), None),
        (Edit(priority=5), (20, SEQ), None),
        (Edit(run_at_us=NOW + 5), (NOW + 5, SEQ), None),
        (Edit(run_at_us=1), (NOW, SEQ), None),
    ],
)
def test_an_edit_moves_a_job_only_when_its_time_or_priority_changes(
    changes: Edit, place: tuple[int, int], before: bytes | None
) -> None:
    job = pending()
    effect = lifecycle.edit(job, NOW, changes, "ann", "because")
    assert (effect.before, effect.by, effect.why) == (before, "ann", "because")
    after = apply(job, effect, SEQ)
    assert (after.version, after.place, after.attempt) == (2, place, 0)


@pytest.mark.parametrize(("run_at_us", "due_us"), [(20, NOW), (NOW + 50, NOW + 50)])
def test_an_unblocked_job_is_due_now_unless_it_asked_for_later(run_at_us: int, due_us: int) -> None:
    job = pending(state=State.BLOCKED, run_at_us=run_at_us)
    free = apply(job, lifecycle.unblock(job, NOW), SEQ)
    assert (free.state, free.place, free.attempt) == (State.PENDING, (due_us, SEQ), 0)


def lease_us(job: Job, terms: LeaseTerms) -> int:
    effect = lifecycle.claim(job, 1, "w1", terms)
    assert type(effect.lease_until_us) is int
    return effect.lease_until_us - terms.now_us


@pytest.mark.parametrize(
    ("lease", "cap", "fields", "expected"),
    [
        (30.0, 600.0, {}, 30),
        (HOUR * 2, HOUR * 9, {}, HOUR),
        (float("inf"), HOUR * 9, {}, HOUR),
        (30.0, 10.0, {}, 10),
        (30.0, 600.0, {"estimated_seconds": 90.0}, 90),
        (30.0, 600.0, {"estimated_seconds": 5.0}, 5),
        (30.0, 600.0, {"estimated_seconds": 900.0}, 600),
        (30.0, HOUR * 9, {"estimated_seconds": HOUR * 2.0}, HOUR),
        (30.0, 600.0, {"max_processing_seconds": 12.0}, 12),
        (900.0, 600.0, {"max_processing_seconds": 800.0}, 800),
        (30.0, 600.0, {"estimated_seconds": 50.0, "max_processing_seconds": 40.0}, 40),
        (HOUR * 2, 600.0, {"max_processing_seconds": HOUR * 9.0}, HOUR),
    ],
)
def test_a_first_lease_is_capped_at_an_hour_and_at_the_cap_on_processing(
    lease: float, cap: float, fields: dict[str, float], expected: float
) -> None:
    assert lease_us(pending(**fields), LeaseTerms(NOW, lease, cap)) == expected * MICROSECONDS


@pytest.mark.parametrize(
    ("fields", "waited", "lease", "expected"),
    [
        ({}, 10, 30.0, 40),
        ({}, 590, 30.0, 600),
        ({}, 700, 30.0, 600),
        ({}, 10, HOUR * 2.0, 600),
        ({"max_processing_seconds": 20.0}, 10, 30.0, 20),
        ({"max_processing_seconds": HOUR * 9.0}, 700, 30.0, 730),
        ({"max_processing_seconds": HOUR * 9.0}, 10, HOUR * 2.0, HOUR + 10),
        ({"estimated_seconds": 90.0}, 80, 30.0, 110),
    ],
)
def test_an_extension_counts_from_now_and_its_cap_from_the_claim(
    fields: dict[str, float], waited: int, lease: float, expected: float
) -> None:
    job = claimed(pending(**fields))
    effect = lifecycle.extend(job, LeaseTerms(NOW + waited * MICROSECONDS, lease, 600.0))
    assert (effect.lease_until_us - NOW) / MICROSECONDS == expected


@settings(deadline=None)
@given(lease=st.floats(0.001, 1e9), cap=st.floats(0.001, 1e9), own=st.floats(0.001, 1e9))
def test_no_lease_is_longer_than_what_was_asked_an_hour_or_the_cap(
    lease: float, cap: float, own: float
) -> None:
    terms = LeaseTerms(NOW, lease, cap)
    for job, asked, bound in (
        (pending(), lease, cap),
        (pending(max_processing_seconds=own), lease, own),
        (pending(estimated_seconds=own), own, cap),
    ):
        assert 0 <= lease_us(job, terms) <= min(asked, HOUR, bound) * MICROSECONDS
