"""Settling attempts: outcomes, and fencing by tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.engines.contract import Counts, Renewal
from holdfast.model.errors import (
    InvalidInput,
    LeaseLost,
)
from holdfast.model.job import Job, State
from holdfast.model.outcome import (
    Outcome,
    OutcomeKind,
    cancelled,
    completed,
    dead,
    release,
    retry,
    snooze,
)

from .fixture import FAILURE, EngineFixture, Suite, on_engine


class SettleRules(Suite):
    """Settling attempts: outcomes, and fencing by tokens."""

    @on_engine
    async def test_completed(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        [job] = await fixture.take()
        fixture.clock.advance(2)
        assert await fixture.settle(completed(job, b'{"sent":true}')) == [None]
        done = await fixture.job("a")
        assert (done.state, done.result) == (State.COMPLETED, b'{"sent":true}')
        assert done.finished_at_us == fixture.clock.now_us()
        assert await fixture.counts() == Counts(completed=1)

    @on_engine
    async def test_cancelled(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        assert await fixture.settle(cancelled((await fixture.take())[0])) == [None]
        assert await fixture.state("a") is State.CANCELLED

    @on_engine
    async def test_retry_waits_for_its_backoff_and_keeps_the_failure(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        await fixture.settle(retry((await fixture.take())[0], FAILURE, delay_seconds=5))
        job = await fixture.job("a")
        assert (job.state, job.attempt, job.failure) == (State.PENDING, 1, FAILURE)
        assert await fixture.take_ids() == []
        fixture.clock.advance(5)
        [again] = await fixture.take()
        assert again.attempt == 2

    @on_engine
    async def test_three_attempts_mean_three_runs(self, fixture: EngineFixture) -> None:
        await fixture.put("a", max_attempts=3)
        runs = 0
        while jobs := await fixture.take():
            runs += 1
            await fixture.settle(retry(jobs[0], FAILURE))
        job = await fixture.job("a")
        assert (runs, job.attempt) == (3, 3)
        assert (job.state, job.failure) == (State.DEAD, FAILURE)

    @pytest.mark.parametrize("give_back", [release, lambda job: snooze(job, 5)])
    @on_engine
    async def test_release_and_snooze_hand_the_attempt_back_but_not_the_token(
        self, fixture: EngineFixture, give_back: Callable[[Job], Outcome]
    ) -> None:
        await fixture.put("a")
        [job] = await fixture.take()
        assert await fixture.settle(give_back(job)) == [None]
        back = await fixture.job("a")
        assert (back.state, back.attempt, back.worker) == (State.PENDING, 0, "")
        fixture.clock.advance(5)
        [again] = await fixture.take()
        assert again.attempt == 1
        assert again.token > job.token

    @on_engine
    async def test_snooze_comes_back_later(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        await fixture.settle(snooze((await fixture.take())[0], 5))
        assert await fixture.take_ids() == []
        fixture.clock.advance(5)
        assert await fixture.take_ids() == ["a"]

    @on_engine
    async def test_dead_keeps_its_payload_and_its_failure(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        await fixture.settle(dead((await fixture.take())[0], FAILURE))
        job = await fixture.job("a")
        assert (job.state, job.failure) == (State.DEAD, FAILURE)
        assert job.arguments() == {"n": 1}
        assert await fixture.counts() == Counts(dead=1)

    @pytest.mark.parametrize(
        "outcome",
        [
            Outcome(OutcomeKind.RETRY, "a", 1),
            Outcome(OutcomeKind.DEAD, "a", 1),
            Outcome(OutcomeKind.SNOOZE, "a", 1, delay_seconds=-1),
            Outcome(OutcomeKind.SNOOZE, "a", 1, delay_seconds=float("nan")),
            Outcome(OutcomeKind.COMPLETED, "a", 1, result=b"x" * 300_000),
        ],
    )
    @on_engine
    async def test_a_bad_outcome_refuses_the_whole_call(
        self, fixture: EngineFixture, outcome: Outcome
    ) -> None:
        await fixture.put("b")
        [job] = await fixture.take()
        with pytest.raises(InvalidInput):
            await fixture.settle(completed(job), outcome)
        assert await fixture.state("b") is State.IN_FLIGHT

    @pytest.mark.parametrize("kind", list(OutcomeKind))
    @on_engine
    async def test_a_stale_token_never_settles(
        self, fixture: EngineFixture, kind: OutcomeKind
    ) -> None:
        await fixture.put("a", max_attempts=5)
        [zombie] = await fixture.take()
        await fixture.expire_leases()
        [current] = await fixture.take(worker="w2")
        late = Outcome(kind, "a", zombie.token, failure=FAILURE)
        [answer] = await fixture.settle(late)
        assert isinstance(answer, LeaseLost)
        assert (answer.job_id, answer.token) == ("a", zombie.token)
        assert await fixture.job("a") == current
        assert fixture.engine.leases_refused == 1
        assert await fixture.settle(completed(current)) == [None]

    @on_engine
    async def test_a_stale_token_never_extends(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        [zombie] = await fixture.take()
        await fixture.expire_leases()
        [current] = await fixture.take()
        answers = await fixture.engine.extend([zombie, current], lease_seconds=60)
        assert isinstance(answers[0], LeaseLost)
        assert answers[1] == Renewal(fixture.clock.now_us() + 60_000_000)
        assert fixture.engine.leases_refused == 1

    @on_engine
    async def test_nothing_settles_twice(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        [job] = await fixture.take()
        answers = await fixture.settle(completed(job), dead(job, FAILURE))
        assert answers[0] is None
        assert isinstance(answers[1], LeaseLost)
        assert isinstance((await fixture.settle(completed(job)))[0], LeaseLost)
        assert await fixture.state("a") is State.COMPLETED
        assert fixture.engine.leases_refused == 2

    @on_engine
    async def test_a_token_is_good_for_its_own_job_only(self, fixture: EngineFixture) -> None:
        await fixture.put("a", "b")
        first, second = await fixture.take(2)
        crossed = Outcome(OutcomeKind.COMPLETED, first.id, second.token)
        foreign = Outcome(OutcomeKind.COMPLETED, first.id, first.token, tenant="other")
        guessed = Outcome(OutcomeKind.COMPLETED, "a", first.token + 1_000)
        answers = await fixture.settle(crossed, foreign, guessed)
        assert all(isinstance(answer, LeaseLost) for answer in answers)
        assert (await fixture.counts()).in_flight == 2

    @on_engine
    async def test_one_stale_outcome_does_not_stop_the_others(self, fixture: EngineFixture) -> None:
        await fixture.put("a", "b")
        stale, good = await fixture.take(2)
        await fixture.settle(release(stale))
        answers = await fixture.settle(completed(stale), completed(good))
        assert isinstance(answers[0], LeaseLost)
        assert answers[1] is None
        assert await fixture.state("b") is State.COMPLETED
