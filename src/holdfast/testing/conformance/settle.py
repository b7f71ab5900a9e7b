"""How an attempt ends, and who may say so."""

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
    """How an attempt ends, and who may say so."""

    @on_engine
    async def test_completed(self, desk: EngineFixture) -> None:
        await desk.put("a")
        [job] = await desk.take()
        desk.clock.advance(2)
        assert await desk.settle(completed(job, b'{"sent":true}')) == [None]
        done = await desk.job("a")
        assert (done.state, done.result) == (State.COMPLETED, b'{"sent":true}')
        assert done.finished_at_us == desk.clock.now_us()
        assert await desk.counts() == Counts(completed=1)

    @on_engine
    async def test_cancelled(self, desk: EngineFixture) -> None:
        await desk.put("a")
        assert await desk.settle(cancelled((await desk.take())[0])) == [None]
        assert await desk.state("a") is State.CANCELLED

    @on_engine
    async def test_retry_waits_for_its_backoff_and_keeps_the_failure(
        self, desk: EngineFixture
    ) -> None:
        await desk.put("a")
        await desk.settle(retry((await desk.take())[0], FAILURE, delay_seconds=5))
        job = await desk.job("a")
        assert (job.state, job.attempt, job.failure) == (State.PENDING, 1, FAILURE)
        assert await desk.take_ids() == []
        desk.clock.advance(5)
        [again] = await desk.take()
        assert again.attempt == 2

    @on_engine
    async def test_three_attempts_mean_three_runs(self, desk: EngineFixture) -> None:
        await desk.put("a", max_attempts=3)
        runs = 0
        while jobs := await desk.take():
            runs += 1
            await desk.settle(retry(jobs[0], FAILURE))
        job = await desk.job("a")
        assert (runs, job.attempt) == (3, 3)
        assert (job.state, job.failure) == (State.DEAD, FAILURE)

    @pytest.mark.parametrize("give_back", [release, lambda job: snooze(job, 5)])
    @on_engine
    async def test_release_and_snooze_hand_the_attempt_back_but_not_the_token(
        self, desk: EngineFixture, give_back: Callable[[Job], Outcome]
    ) -> None:
        await desk.put("a")
        [job] = await desk.take()
        assert await desk.settle(give_back(job)) == [None]
        back = await desk.job("a")
        assert (back.state, back.attempt, back.worker) == (State.PENDING, 0, "")
        desk.clock.advance(5)
        [again] = await desk.take()
        assert again.attempt == 1
        assert again.token > job.token

    @on_engine
    async def test_snooze_comes_back_later(self, desk: EngineFixture) -> None:
        await desk.put("a")
        await desk.settle(snooze((await desk.take())[0], 5))
        assert await desk.take_ids() == []
        desk.clock.advance(5)
        assert await desk.take_ids() == ["a"]

    @on_engine
    async def test_dead_keeps_its_payload_and_its_failure(self, desk: EngineFixture) -> None:
        await desk.put("a")
        await desk.settle(dead((await desk.take())[0], FAILURE))
        job = await desk.job("a")
        assert (job.state, job.failure) == (State.DEAD, FAILURE)
        assert job.arguments() == {"n": 1}
        assert await desk.counts() == Counts(dead=1)

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
    async def test_a_bad_outcome_is_refused_whole(
        self, desk: EngineFixture, outcome: Outcome
    ) -> None:
        await desk.put("b")
        [job] = await desk.take()
        with pytest.raises(InvalidInput):
            await desk.settle(completed(job), outcome)
        assert await desk.state("b") is State.IN_FLIGHT

    @pytest.mark.parametrize("kind", list(OutcomeKind))
    @on_engine
    async def test_a_stale_token_never_settles(
        self, desk: EngineFixture, kind: OutcomeKind
    ) -> None:
        await desk.put("a", max_attempts=5)
        [zombie] = await desk.take()
        await desk.lose()
        [current] = await desk.take(worker="w2")
        late = Outcome(kind, "a", zombie.token, failure=FAILURE)
        [answer] = await desk.settle(late)
        assert isinstance(answer, LeaseLost)
        assert (answer.job_id, answer.token) == ("a", zombie.token)
        assert await desk.job("a") == current
        assert desk.engine.leases_refused == 1
        assert await desk.settle(completed(current)) == [None]

    @on_engine
    async def test_a_stale_token_never_extends(self, desk: EngineFixture) -> None:
        await desk.put("a")
        [zombie] = await desk.take()
        await desk.lose()
        [current] = await desk.take()
        answers = await desk.engine.extend([zombie, current], lease_seconds=60)
        assert isinstance(answers[0], LeaseLost)
        assert answers[1] == Renewal(desk.clock.now_us() + 60_000_000)
        assert desk.engine.leases_refused == 1

    @on_engine
    async def test_nothing_settles_twice(self, desk: EngineFixture) -> None:
        await desk.put("a")
        [job] = await desk.take()
        answers = await desk.settle(completed(job), dead(job, FAILURE))
        assert answers[0] is None
        assert isinstance(answers[1], LeaseLost)
        assert isinstance((await desk.settle(completed(job)))[0], LeaseLost)
        assert await desk.state("a") is State.COMPLETED
        assert desk.engine.leases_refused == 2

    @on_engine
    async def test_a_token_is_good_for_its_own_job_only(self, desk: EngineFixture) -> None:
        await desk.put("a", "b")
        first, second = await desk.take(2)
        crossed = Outcome(OutcomeKind.COMPLETED, first.id, second.token)
        foreign = Outcome(OutcomeKind.COMPLETED, first.id, first.token, tenant="other")
        guessed = Outcome(OutcomeKind.COMPLETED, "a", first.token + 1_000)
        answers = await desk.settle(crossed, foreign, guessed)
        assert all(isinstance(answer, LeaseLost) for answer in answers)
        assert (await desk.counts()).in_flight == 2

    @on_engine
    async def test_one_stale_outcome_does_not_stop_the_others(self, desk: EngineFixture) -> None:
        await desk.put("a", "b")
        stale, good = await desk.take(2)
        await desk.settle(release(stale))
        answers = await desk.settle(completed(stale), completed(good))
        assert isinstance(answers[0], LeaseLost)
        assert answers[1] is None
        assert await desk.state("b") is State.COMPLETED
