"""The engine contract as tests: subclass ``EngineConformance`` for your engine.

    class TestMyEngine(EngineConformance):
        async def open_engine(self, clock, options):
            return await MyEngine.open(clock=clock, options=options)

Every test opens an engine of its own on a virtual clock, and asks the engine to validate itself
at the end. Nothing here sleeps. The tests need pytest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.engines.base import Admission, Claim, Counts, Engine, EngineOptions, Reclaim
from holdfast.model.access import Caller
from holdfast.model.errors import (
    AccessDenied,
    DuplicateId,
    EngineClosed,
    InvalidInput,
    LeaseLost,
    PayloadInvalid,
    TooLarge,
)
from holdfast.model.failure import Failure
from holdfast.model.job import Job, NewJob, State
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

from .clock import VirtualClock

FAILURE = Failure.of("upstream_5xx", "503 from the mail server")
OPTIONS = EngineOptions(remember_seconds=60.0, max_processing_seconds=600.0)


class Desk:
    """An engine and its clock, with the calls that tests make most."""

    def __init__(self, engine: Engine, clock: VirtualClock) -> None:
        self.engine = engine
        self.clock = clock

    async def put(self, *ids: str, **fields: object) -> list[str]:
        """Enqueue jobs of these ids; return the ids."""
        jobs = [new_job(id=job_id, **fields) for job_id in ids]
        return [receipt.id for receipt in await self.engine.enqueue(jobs)]

    async def take(self, limit: int = 1, **fields: object) -> list[Job]:
        """Claim jobs."""
        return (await self.claim(limit=limit, **fields)).jobs

    async def claim(self, **fields: object) -> Claim:
        """Claim with defaults."""
        arguments: dict[str, object] = {"queues": ["default"], "worker": "w1", **fields}
        claim: Callable[..., Awaitable[Claim]] = self.engine.claim
        return await claim(**arguments)

    async def take_ids(self, limit: int = 100, **fields: object) -> list[str]:
        """Claim jobs; return their ids."""
        return [job.id for job in await self.take(limit, **fields)]

    async def settle(self, *outcomes: Outcome) -> list[LeaseLost | None]:
        """Settle these."""
        return await self.engine.settle(outcomes)

    async def job(self, job_id: str) -> Job:
        """Return the job, which must exist."""
        job = (await self.engine.get([job_id]))[0]
        assert job is not None, f"{job_id} is gone"
        return job

    async def state(self, job_id: str) -> State:
        """Return the job's state."""
        return (await self.job(job_id)).state

    async def counts(self, queue: str = "default") -> Counts:
        """Return one queue's counts."""
        return (await self.engine.counts()).get(queue, Counts())

    async def lose(self, seconds: float = 31.0) -> Reclaim:
        """Let time pass, then reclaim."""
        self.clock.advance(seconds)
        return await self.engine.reclaim()


def new_job(**fields: object) -> NewJob:
    """Return a request with defaults."""
    make: Callable[..., NewJob] = NewJob
    return make(**{"task": "t", "payload": {"n": 1}, **fields})


class EngineConformance:
    """Every rule that an engine obeys, a test each."""

    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        """Return a new, empty engine. Subclasses say how."""
        raise NotImplementedError

    def check(
        self, scenario: Callable[[Desk], Awaitable[None]], options: EngineOptions = OPTIONS
    ) -> None:
        """Run a scenario on an engine of its own; the engine must be valid after it."""

        async def run() -> None:
            clock = VirtualClock()
            engine = await self.open_engine(clock, options)
            try:
                await scenario(Desk(engine, clock))
                assert await engine.validate() == []
            finally:
                await engine.close()

        asyncio.run(run())

    # --- enqueue -----------------------------------------------------------------------------

    def test_enqueue_makes_a_pending_job_with_everything_that_was_asked(self) -> None:
        async def scenario(desk: Desk) -> None:
            [job_id] = await desk.put(
                "a", queue="mail", priority=5, scope="library:42", max_attempts=7
            )
            job = await desk.job(job_id)
            assert (job.id, job.state, job.attempt, job.version) == ("a", State.PENDING, 0, 1)
            assert (job.queue, job.priority, job.scope) == ("mail", 5, "library:42")
            assert (job.max_attempts, job.task, job.tenant) == (7, "t", "default")
            assert job.arguments() == {"n": 1}
            assert job.created_at_us == job.run_at_us == desk.clock.now_us()

        self.check(scenario)

    def test_an_id_is_made_when_none_is_given(self) -> None:
        async def scenario(desk: Desk) -> None:
            receipts = await desk.engine.enqueue([new_job(), new_job()])
            first, second = (receipt.id for receipt in receipts)
            assert first != second
            assert first[14] == second[14] == "7", "a UUIDv7"
            assert await desk.state(first) is State.PENDING

        self.check(scenario)

    def test_an_empty_enqueue_is_nothing(self) -> None:
        async def scenario(desk: Desk) -> None:
            assert await desk.engine.enqueue([]) == []

        self.check(scenario)

    def test_a_payload_may_be_json_bytes(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", payload=b'{"k": [1, null]}')
            assert (await desk.job("a")).arguments() == {"k": [1, None]}

        self.check(scenario)

    def test_a_duplicate_id_refuses_the_whole_batch(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            with pytest.raises(DuplicateId) as refused:
                await desk.put("b", "a")
            assert refused.value.ids == ["a"]
            assert await desk.engine.get(["b"]) == [None]

        self.check(scenario)

    def test_a_duplicate_within_a_batch_is_refused(self) -> None:
        async def scenario(desk: Desk) -> None:
            with pytest.raises(DuplicateId):
                await desk.put("a", "b", "a")
            assert await desk.counts() == Counts()

        self.check(scenario)

    def test_duplicates_are_skipped_when_asked(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            receipts = await desk.engine.enqueue(
                [new_job(id="a"), new_job(id="b"), new_job(id="b")], on_duplicate="skip"
            )
            said = [receipt.admission for receipt in receipts]
            assert said == [Admission.SKIPPED, Admission.CREATED, Admission.SKIPPED]
            assert (await desk.counts()).pending == 2

        self.check(scenario)

    def test_the_id_of_a_finished_job_is_remembered_for_the_set_time(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            await desk.settle(completed((await desk.take())[0]))
            desk.clock.advance(60)
            with pytest.raises(DuplicateId):
                await desk.put("a")
            desk.clock.advance(0.000001)
            assert await desk.engine.get(["a"]) == [None]
            assert await desk.counts() == Counts()
            await desk.put("a")
            assert await desk.state("a") is State.PENDING

        self.check(scenario)

    def test_the_id_of_a_dead_job_is_never_forgotten(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            await desk.settle(dead((await desk.take())[0], FAILURE))
            desk.clock.advance(3_600)
            with pytest.raises(DuplicateId):
                await desk.put("a")

        self.check(scenario)

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"id": ""}, "id"),
            ({"id": "x" * 256}, "id"),
            ({"id": "a\nb"}, "id"),
            ({"id": "\ud800"}, "id"),
            ({"id": 7}, "id"),
            ({"task": ""}, "task"),
            ({"queue": "q\0"}, "queue"),
            ({"tenant": ""}, "tenant"),
            ({"scope": "a//b"}, "scope"),
            ({"priority": 40_000}, "priority"),
            ({"priority": 1.5}, "priority"),
            ({"max_attempts": 0}, "max_attempts"),
            ({"delay_seconds": -1}, "delay_seconds"),
            ({"delay_seconds": float("nan")}, "delay_seconds"),
            ({"delay_seconds": 1, "run_at_us": 5}, "delay_seconds"),
            ({"run_at_us": -5}, "run_at_us"),
            ({"expires_seconds": -1}, "expires_seconds"),
            ({"estimated_seconds": 3_601}, "estimated_seconds"),
            ({"max_processing_seconds": 0}, "max_processing_seconds"),
            ({"unique": ""}, "unique"),
        ],
    )
    def test_a_bad_field_is_named_and_nothing_is_enqueued(
        self, fields: dict[str, object], field: str
    ) -> None:
        async def scenario(desk: Desk) -> None:
            with pytest.raises(InvalidInput) as refused:
                await desk.engine.enqueue([new_job(id="good"), new_job(**fields)])
            assert refused.value.field == field
            assert await desk.counts() == Counts()

        self.check(scenario)

    @pytest.mark.parametrize(
        "payload",
        [
            b"[1]",
            b"{",
            b'{"a": 1} x',
            b'{"a": "\xff"}',
            [1],
            {"a": float("nan")},
            {"a": [{"b": float("inf")}], "c": None},
            {"a": object()},
            {"a": "\ud800"},
        ],
    )
    def test_a_payload_that_is_not_a_json_object_is_refused(self, payload: object) -> None:
        async def scenario(desk: Desk) -> None:
            with pytest.raises(PayloadInvalid) as refused:
                await desk.put("a", payload=payload)
            assert refused.value.field == "payload"
            assert await desk.counts() == Counts()

        self.check(scenario)

    def test_an_oversized_payload_is_refused(self) -> None:
        async def scenario(desk: Desk) -> None:
            with pytest.raises(TooLarge) as refused:
                await desk.put("a", payload={"x": "y" * 2_000})
            assert refused.value.field == "payload"
            assert await desk.counts() == Counts()

        self.check(scenario, EngineOptions(max_payload_bytes=2_000))

    # --- order -------------------------------------------------------------------------------

    def test_fifo_within_a_priority_and_higher_priorities_first(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("low1", "low2")
            await desk.put("high1", "high2", priority=3)
            await desk.put("lowest", priority=-1)
            expected = ["high1", "high2", "low1", "low2", "lowest"]
            assert await desk.take_ids(2) + await desk.take_ids() == expected

        self.check(scenario)

    def test_several_queues_and_tasks_share_one_line(self) -> None:
        async def scenario(desk: Desk) -> None:
            for number, (queue, task) in enumerate(
                [("a", "x"), ("b", "y"), ("a", "y"), ("c", "x"), ("b", "x"), ("a", "x")]
            ):
                await desk.put(str(number), queue=queue, task=task)
            assert await desk.take_ids(queues=["a", "b"]) == ["0", "1", "2", "4", "5"]
            assert await desk.take_ids(queues=["c"]) == ["3"]

        self.check(scenario)

    def test_only_known_tasks_are_claimed(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("new", task="unknown_here")
            await desk.put("old", task="known")
            assert await desk.take_ids(tasks=["known", "other"]) == ["old"]
            assert await desk.state("new") is State.PENDING
            assert await desk.take_ids() == ["new"]

        self.check(scenario)

    def test_a_delayed_job_is_not_handed_out_before_it_is_due(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("later", delay_seconds=5)
            await desk.put("now")
            assert await desk.take_ids() == ["now"]
            desk.clock.advance(4.999_999)
            assert await desk.take_ids() == []
            desk.clock.advance(0.000_001)
            assert await desk.take_ids() == ["later"]

        self.check(scenario)

    def test_a_delayed_job_lines_up_when_it_becomes_due(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("due_at_5", delay_seconds=5)
            desk.clock.advance(3)
            await desk.put("put_at_3")
            desk.clock.advance(4)
            await desk.put("put_at_7")
            assert await desk.take_ids() == ["put_at_3", "due_at_5", "put_at_7"]

        self.check(scenario)

    def test_run_at_in_the_past_is_now(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("first")
            desk.clock.advance(1)
            await desk.put("second", run_at_us=5)
            assert await desk.take_ids() == ["first", "second"]

        self.check(scenario)

    def test_a_retry_goes_to_the_tail(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", "b")
            await desk.settle(retry((await desk.take())[0], FAILURE))
            assert await desk.take_ids() == ["b", "a"]

        self.check(scenario)

    def test_a_released_job_keeps_its_place(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", "b", "c", "d")
            jobs = await desk.take(3)
            await desk.settle(release(jobs[1]), release(jobs[0]), release(jobs[2]))
            assert await desk.take_ids() == ["a", "b", "c", "d"]

        self.check(scenario)

    # --- claim -------------------------------------------------------------------------------

    def test_a_claim_charges_an_attempt_and_gives_a_token_and_a_lease(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            [job] = await desk.take(lease_seconds=10, worker="w7")
            assert (job.state, job.attempt, job.worker) == (State.IN_FLIGHT, 1, "w7")
            assert 0 < job.token < 2**63
            assert job.lease_until_us == desk.clock.now_us() + 10_000_000
            assert await desk.job("a") == job
            assert await desk.take_ids() == []

        self.check(scenario)

    def test_tokens_of_one_job_only_grow(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", max_attempts=10)
            tokens = []
            for give_back in (release, release, lambda job: retry(job, FAILURE)):
                [job] = await desk.take()
                tokens.append(job.token)
                await desk.settle(give_back(job))
            await desk.take()
            await desk.lose()
            tokens.append((await desk.take())[0].token)
            assert tokens == sorted(set(tokens))

        self.check(scenario)

    def test_an_estimate_is_the_first_lease(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", estimated_seconds=120)
            [job] = await desk.take(lease_seconds=10)
            assert job.lease_until_us == desk.clock.now_us() + 120_000_000

        self.check(scenario)

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"limit": 0}, "limit"),
            ({"limit": 10_001}, "limit"),
            ({"lease_seconds": 0}, "lease_seconds"),
            ({"lease_seconds": 3_601}, "lease_seconds"),
            ({"worker": ""}, "worker"),
            ({"wait_seconds": -1}, "wait_seconds"),
            ({"queues": "default"}, "queues"),
        ],
    )
    def test_a_bad_claim_names_the_field_and_claims_nothing(
        self, fields: dict[str, object], field: str
    ) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            with pytest.raises(InvalidInput) as refused:
                await desk.claim(**fields)
            assert refused.value.field == field
            assert await desk.state("a") is State.PENDING

        self.check(scenario)

    def test_settling_and_claiming_are_one_step(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", "b", "c")
            first = await desk.take(2)
            answer = await desk.claim(limit=2, settle=[completed(job) for job in first])
            assert answer.settled == [None, None]
            assert [job.id for job in answer.jobs] == ["c"]
            assert (await desk.counts()).completed == 2

        self.check(scenario)

    def test_what_a_claim_settles_it_may_hand_out_again(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            [job] = await desk.take()
            answer = await desk.claim(settle=[retry(job, FAILURE)])
            assert [(again.id, again.attempt) for again in answer.jobs] == [("a", 2)]

        self.check(scenario)

    def test_a_claim_waits_for_work(self) -> None:
        async def scenario(desk: Desk) -> None:
            waiting = asyncio.create_task(desk.take(wait_seconds=10))
            await _settle_down()
            assert not waiting.done()
            await desk.put("elsewhere", queue="other")
            await _settle_down()
            assert not waiting.done()
            await desk.put("a")
            assert [job.id for job in await waiting] == ["a"]

        self.check(scenario)

    def test_a_waiting_claim_gives_up_in_time(self) -> None:
        async def scenario(desk: Desk) -> None:
            waiting = asyncio.create_task(desk.take(wait_seconds=10))
            await _settle_down()
            desk.clock.advance(9.9)
            await _settle_down()
            assert not waiting.done()
            desk.clock.advance(0.1)
            assert await waiting == []

        self.check(scenario)

    def test_a_waiting_claim_wakes_when_a_job_becomes_due(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", delay_seconds=3)
            waiting = asyncio.create_task(desk.take(wait_seconds=10))
            await _settle_down()
            desk.clock.advance(3)
            assert [job.id for job in await waiting] == ["a"]

        self.check(scenario)

    def test_a_claim_that_settles_does_not_wait(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            [job] = await desk.take()
            answer = await desk.claim(settle=[completed(job)], wait_seconds=10)
            assert answer == Claim([], [None])

        self.check(scenario)

    def test_a_cancelled_waiting_claim_takes_nothing(self) -> None:
        async def scenario(desk: Desk) -> None:
            waiting = asyncio.create_task(desk.take(wait_seconds=10))
            await _settle_down()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await desk.put("a")
            assert await desk.state("a") is State.PENDING

        self.check(scenario)

    # --- settle ------------------------------------------------------------------------------

    def test_completed(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            [job] = await desk.take()
            desk.clock.advance(2)
            assert await desk.settle(completed(job, b'{"sent":true}')) == [None]
            done = await desk.job("a")
            assert (done.state, done.result) == (State.COMPLETED, b'{"sent":true}')
            assert done.finished_at_us == desk.clock.now_us()
            assert await desk.counts() == Counts(completed=1)

        self.check(scenario)

    def test_cancelled(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            assert await desk.settle(cancelled((await desk.take())[0])) == [None]
            assert await desk.state("a") is State.CANCELLED

        self.check(scenario)

    def test_retry_waits_for_its_backoff_and_keeps_the_failure(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            await desk.settle(retry((await desk.take())[0], FAILURE, delay_seconds=5))
            job = await desk.job("a")
            assert (job.state, job.attempt, job.failure) == (State.PENDING, 1, FAILURE)
            assert await desk.take_ids() == []
            desk.clock.advance(5)
            [again] = await desk.take()
            assert again.attempt == 2

        self.check(scenario)

    def test_three_attempts_mean_three_runs(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", max_attempts=3)
            runs = 0
            while jobs := await desk.take():
                runs += 1
                await desk.settle(retry(jobs[0], FAILURE))
            job = await desk.job("a")
            assert (runs, job.attempt) == (3, 3)
            assert (job.state, job.failure) == (State.DEAD, FAILURE)

        self.check(scenario)

    @pytest.mark.parametrize("give_back", [release, lambda job: snooze(job, 5)])
    def test_release_and_snooze_hand_the_attempt_back_but_not_the_token(
        self, give_back: Callable[[Job], Outcome]
    ) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            [job] = await desk.take()
            assert await desk.settle(give_back(job)) == [None]
            back = await desk.job("a")
            assert (back.state, back.attempt, back.worker) == (State.PENDING, 0, "")
            desk.clock.advance(5)
            [again] = await desk.take()
            assert again.attempt == 1
            assert again.token > job.token

        self.check(scenario)

    def test_snooze_comes_back_later(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            await desk.settle(snooze((await desk.take())[0], 5))
            assert await desk.take_ids() == []
            desk.clock.advance(5)
            assert await desk.take_ids() == ["a"]

        self.check(scenario)

    def test_dead_keeps_its_payload_and_its_failure(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            await desk.settle(dead((await desk.take())[0], FAILURE))
            job = await desk.job("a")
            assert (job.state, job.failure) == (State.DEAD, FAILURE)
            assert job.arguments() == {"n": 1}
            assert await desk.counts() == Counts(dead=1)

        self.check(scenario)

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
    def test_a_bad_outcome_is_refused_whole(self, outcome: Outcome) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("b")
            [job] = await desk.take()
            with pytest.raises(InvalidInput):
                await desk.settle(completed(job), outcome)
            assert await desk.state("b") is State.IN_FLIGHT

        self.check(scenario)

    # --- tokens ------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", list(OutcomeKind))
    def test_a_stale_token_never_settles(self, kind: OutcomeKind) -> None:
        async def scenario(desk: Desk) -> None:
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

        self.check(scenario)

    def test_a_stale_token_never_extends(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            [zombie] = await desk.take()
            await desk.lose()
            [current] = await desk.take()
            answers = await desk.engine.extend([zombie, current], lease_seconds=60)
            assert isinstance(answers[0], LeaseLost)
            assert answers[1] == desk.clock.now_us() + 60_000_000
            assert desk.engine.leases_refused == 1

        self.check(scenario)

    def test_nothing_settles_twice(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            [job] = await desk.take()
            answers = await desk.settle(completed(job), dead(job, FAILURE))
            assert answers[0] is None
            assert isinstance(answers[1], LeaseLost)
            assert isinstance((await desk.settle(completed(job)))[0], LeaseLost)
            assert await desk.state("a") is State.COMPLETED
            assert desk.engine.leases_refused == 2

        self.check(scenario)

    def test_a_token_is_good_for_its_own_job_only(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", "b")
            first, second = await desk.take(2)
            crossed = Outcome(OutcomeKind.COMPLETED, first.id, second.token)
            foreign = Outcome(OutcomeKind.COMPLETED, first.id, first.token, tenant="other")
            guessed = Outcome(OutcomeKind.COMPLETED, "a", first.token + 1_000)
            answers = await desk.settle(crossed, foreign, guessed)
            assert all(isinstance(answer, LeaseLost) for answer in answers)
            assert (await desk.counts()).in_flight == 2

        self.check(scenario)

    def test_one_stale_outcome_does_not_stop_the_others(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", "b")
            stale, good = await desk.take(2)
            await desk.settle(release(stale))
            answers = await desk.settle(completed(stale), completed(good))
            assert isinstance(answers[0], LeaseLost)
            assert answers[1] is None
            assert await desk.state("b") is State.COMPLETED

        self.check(scenario)

    # --- leases ------------------------------------------------------------------------------

    def test_an_expired_lease_is_reclaimed_with_a_loss_and_the_attempt_stays_charged(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", "b")
            await desk.take()
            assert (await desk.lose(29.999_999)).lost == []
            [lost] = (await desk.lose(0.000_001)).lost
            assert (lost.id, lost.state, lost.attempt, lost.losses) == ("a", State.PENDING, 1, 1)
            assert lost.failure is not None
            assert lost.failure.error_reason == "worker_lost"
            assert await desk.take_ids() == ["b", "a"], "a lost job goes to the tail"

        self.check(scenario)

    def test_a_settle_before_the_reclaim_is_accepted_however_late(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            [job] = await desk.take()
            desk.clock.advance(500)
            assert await desk.settle(completed(job)) == [None]
            assert await desk.engine.reclaim() == Reclaim([], [])

        self.check(scenario)

    def test_lost_three_times_is_dead(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("poison", max_attempts=10)
            for losses in (1, 2):
                await desk.take()
                [job] = (await desk.lose()).lost
                assert (job.state, job.losses) == (State.PENDING, losses)
            await desk.take()
            [job] = (await desk.lose()).lost
            assert (job.state, job.losses, job.attempt) == (State.DEAD, 3, 3)
            assert job.failure is not None
            assert job.failure.error_reason == "worker_lost"

        self.check(scenario)

    def test_losses_count_as_attempts(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", max_attempts=2)
            await desk.settle(retry((await desk.take())[0], FAILURE))
            await desk.take()
            [job] = (await desk.lose()).lost
            assert (job.state, job.attempt, job.losses) == (State.DEAD, 2, 1)

        self.check(scenario)

    def test_extend_renews_from_now(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            [job] = await desk.take(lease_seconds=10)
            desk.clock.advance(8)
            assert await desk.engine.extend([job], lease_seconds=10) == [
                desk.clock.now_us() + 10_000_000
            ]
            desk.clock.advance(9)
            assert (await desk.engine.reclaim()).lost == []
            assert await desk.settle(completed(job)) == [None]

        self.check(scenario)

    def test_no_heartbeat_holds_a_job_past_max_processing_seconds(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", max_processing_seconds=100)
            [job] = await desk.take(lease_seconds=60)
            started_us = desk.clock.now_us()
            desk.clock.advance(50)
            assert await desk.engine.extend([job], lease_seconds=60) == [started_us + 100_000_000]
            [lost] = (await desk.lose(50)).lost
            assert lost.failure is not None
            assert lost.failure.error_reason == "stuck"
            assert isinstance((await desk.engine.extend([job], lease_seconds=60))[0], LeaseLost)

        self.check(scenario)

    def test_the_engine_has_a_cap_on_processing_of_its_own(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a")
            [job] = await desk.take(lease_seconds=3_600)
            assert job.lease_until_us == desk.clock.now_us() + 600_000_000

        self.check(scenario)

    def test_an_operator_can_end_a_lease(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", "b", "c")
            held, _other = await desk.take(2)
            waiting = await desk.job("c")
            answer = await desk.engine.reclaim(forced=[held, waiting, held])
            assert [job.id for job in answer.lost] == ["a"]
            assert answer.lost[0].failure is not None
            assert answer.lost[0].failure.error_reason == "stuck"
            assert isinstance((await desk.settle(completed(held)))[0], LeaseLost)
            assert await desk.state("b") is State.IN_FLIGHT

        self.check(scenario)

    def test_reclaim_takes_no_more_than_its_limit_oldest_first(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", "b", "c")
            await desk.take(lease_seconds=20)
            await desk.take(lease_seconds=10)
            await desk.take(lease_seconds=30)
            desk.clock.advance(60)
            first = await desk.engine.reclaim(limit=2)
            assert [job.id for job in first.lost] == ["b", "a"]
            assert [job.id for job in (await desk.engine.reclaim(limit=2)).lost] == ["c"]

        self.check(scenario)

    # --- expiry ------------------------------------------------------------------------------

    def test_an_expired_job_is_not_handed_out_and_dies(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("old", expires_seconds=5)
            await desk.put("good")
            desk.clock.advance(5)
            assert await desk.take_ids() == ["good"]
            [job] = (await desk.engine.reclaim()).expired
            assert (job.id, job.state) == ("old", State.DEAD)
            assert job.failure is not None
            assert job.failure.error_reason == "expired"

        self.check(scenario)

    def test_a_claimed_job_does_not_expire_but_a_retried_one_does(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", expires_seconds=5)
            [job] = await desk.take()
            desk.clock.advance(6)
            assert (await desk.engine.reclaim()).expired == []
            await desk.settle(retry(job, FAILURE))
            assert [dead.id for dead in (await desk.engine.reclaim()).expired] == ["a"]

        self.check(scenario)

    def test_a_scheduled_job_can_expire_before_it_is_due(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", delay_seconds=60, expires_seconds=5)
            desk.clock.advance(5)
            assert [job.id for job in (await desk.engine.reclaim()).expired] == ["a"]

        self.check(scenario)

    def test_expired_jobs_are_buried_oldest_first(self) -> None:
        async def scenario(desk: Desk) -> None:
            for seconds in (3, 1, 2):
                await desk.put(f"in{seconds}", expires_seconds=seconds)
            desk.clock.advance(10)
            answer = await desk.engine.reclaim(limit=2)
            assert [job.id for job in answer.expired] == ["in1", "in2"]

        self.check(scenario)

    # --- unique ------------------------------------------------------------------------------

    def test_a_second_unfinished_unique_job_is_the_first_one(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("a", unique="welcome:7")
            for _state in ("pending", "in_flight"):
                receipts = await desk.engine.enqueue([new_job(id="b", unique="welcome:7")])
                assert [(r.id, r.admission) for r in receipts] == [("a", Admission.EXISTING)]
                jobs = await desk.take()
            assert jobs == []
            assert (await desk.counts()).in_flight == 1

        self.check(scenario)

    def test_a_unique_key_is_free_once_its_job_is_finished(self) -> None:
        async def scenario(desk: Desk) -> None:
            for number, finish in enumerate((completed, cancelled, lambda job: dead(job, FAILURE))):
                await desk.put(f"job{number}", unique="k")
                await desk.settle(finish((await desk.take())[0]))
            await desk.put("last", unique="k")
            assert await desk.state("last") is State.PENDING

        self.check(scenario)

    def test_unique_is_per_queue_and_tenant_and_holds_within_a_batch(self) -> None:
        async def scenario(desk: Desk) -> None:
            receipts = await desk.engine.enqueue(
                [
                    new_job(id="a", unique="k"),
                    new_job(id="b", unique="k", queue="other"),
                    new_job(id="c", unique="k", tenant="acme"),
                    new_job(id="d", unique="k"),
                ]
            )
            assert [receipt.id for receipt in receipts] == ["a", "b", "c", "a"]

        self.check(scenario)

    # --- tenants and scopes ------------------------------------------------------------------

    def test_tenants_have_ids_of_their_own(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.engine.enqueue([new_job(id="a"), new_job(id="a", tenant="acme")])
            [theirs] = await desk.engine.get(["a"], tenant="acme")
            assert theirs is not None
            assert theirs.tenant == "acme"
            assert (await desk.counts()).pending == 2

        self.check(scenario)

    def test_nobody_enqueues_into_a_foreign_tenant_or_scope(self) -> None:
        async def scenario(desk: Desk) -> None:
            caller = Caller("acme", ("library:42",))
            cases = [
                ("tenant", new_job(tenant="other", scope="library:42")),
                ("scope", new_job(tenant="acme", scope="library:43")),
                ("scope", new_job(tenant="acme", scope="library:421")),
                ("scope", new_job(tenant="acme")),
            ]
            for field, job in cases:
                with pytest.raises(AccessDenied) as refused:
                    await desk.engine.enqueue([job], caller=caller)
                assert refused.value.field == field
            good = new_job(tenant="acme", scope="library:42/book:7")
            assert len(await desk.engine.enqueue([good], caller=caller)) == 1
            assert (await desk.counts()).pending == 1

        self.check(scenario)

    def test_a_foreign_job_does_not_exist(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.engine.enqueue(
                [
                    new_job(id="a", tenant="acme", scope="library:42"),
                    new_job(id="b", tenant="acme", scope="library:43", expires_seconds=1),
                    new_job(id="c", tenant="other"),
                ]
            )
            reader = Caller("acme", ("library:42",))
            assert await desk.engine.get(["c"], tenant="other", caller=reader) == [None]
            seen = await desk.engine.get(["a", "b"], tenant="acme", caller=reader)
            assert [job is not None for job in seen] == [True, False]
            assert await desk.engine.counts(caller=reader) == {"default": Counts(pending=1)}
            whole = await desk.engine.counts(caller=Caller("acme"))
            assert whole == {"default": Counts(pending=2)}
            desk.clock.advance(1)
            assert (await desk.engine.reclaim(caller=reader)).expired == []
            assert await desk.take_ids(caller=reader) == ["a"]
            assert await desk.take_ids(caller=Caller("nobody")) == []

        self.check(scenario)

    def test_a_foreign_caller_cannot_touch_a_lease(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.engine.enqueue([new_job(id="a", tenant="acme")])
            [job] = await desk.take()
            stranger = Caller("other")
            answers = await desk.engine.settle([completed(job)], caller=stranger)
            assert isinstance(answers[0], LeaseLost)
            extended = await desk.engine.extend([job], lease_seconds=9, caller=stranger)
            assert isinstance(extended[0], LeaseLost)
            assert (await desk.engine.reclaim(forced=[job], caller=stranger)).lost == []
            desk.clock.advance(60)
            assert (await desk.engine.reclaim(caller=stranger)).lost == []
            assert await desk.engine.settle([completed(job)], caller=Caller("acme")) == [None]

        self.check(scenario)

    def test_a_unique_key_in_a_foreign_scope_is_not_given_away(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("secret", scope="library:43", unique="k")
            caller = Caller("default", ("library:42",))
            with pytest.raises(AccessDenied) as refused:
                await desk.engine.enqueue([new_job(scope="library:42", unique="k")], caller=caller)
            assert "secret" not in str(refused.value)

        self.check(scenario)

    # --- the engine itself -------------------------------------------------------------------

    def test_every_job_is_counted_in_exactly_one_state(self) -> None:
        async def scenario(desk: Desk) -> None:
            await desk.put("p", "s", "c", "x", "d", "f")
            await desk.put("other", queue="mail")
            jobs = await desk.take(5)
            await desk.settle(
                release(jobs[0]),
                snooze(jobs[1], 60),
                completed(jobs[2]),
                cancelled(jobs[3]),
                dead(jobs[4], FAILURE),
            )
            await desk.take(1)
            assert await desk.engine.counts() == {
                "default": Counts(pending=2, in_flight=1, completed=1, cancelled=1, dead=1),
                "mail": Counts(pending=1),
            }

        self.check(scenario)

    def test_a_closed_engine_refuses_everything(self) -> None:
        async def scenario(desk: Desk) -> None:
            other = await self.open_engine(desk.clock, OPTIONS)
            waiting = asyncio.create_task(
                other.claim(queues=["default"], worker="w", wait_seconds=60)
            )
            await _settle_down()
            await other.close()
            await other.close()
            with pytest.raises(EngineClosed):
                await waiting
            for call in (
                other.enqueue([new_job()]),
                other.settle([]),
                other.get(["a"]),
                other.counts(),
                other.reclaim(),
                other.validate(),
                other.claim(queues=["default"], worker="w"),
            ):
                with pytest.raises(EngineClosed):
                    await call

        self.check(scenario)


async def _settle_down() -> None:
    """Let everything that is ready run."""
    for _turn in range(20):
        await asyncio.sleep(0)
