"""Enqueueing: ids, duplicates, unique keys, bad input."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast.engines.contract import Admission, Counts, EngineOptions, Receipt
from holdfast.model.access import Caller
from holdfast.model.errors import (
    AccessDenied,
    DuplicateId,
    InvalidInput,
    PayloadInvalid,
    TooLarge,
)
from holdfast.model.job import Job, State
from holdfast.model.outcome import (
    Outcome,
    cancelled,
    completed,
    dead,
)

from .fixture import FAILURE, EngineFixture, Suite, new_job, on_engine, uniform_batch


class EnqueueRules(Suite):
    """Enqueueing: ids, duplicates, unique keys, bad input."""

    @on_engine
    async def test_enqueue_creates_a_pending_job_with_every_requested_field(
        self, fixture: EngineFixture
    ) -> None:
        [job_id] = await fixture.put(
            "a", queue="mail", priority=5, scope="library:42", max_attempts=7
        )
        job = await fixture.job(job_id)
        assert (job.id, job.state, job.attempt, job.version) == ("a", State.PENDING, 0, 1)
        assert (job.queue, job.priority, job.scope) == ("mail", 5, "library:42")
        assert (job.max_attempts, job.task, job.tenant) == (7, "t", "default")
        assert job.arguments() == {"n": 1}
        assert job.created_at_us == job.run_at_us == fixture.clock.now_us()

    @on_engine
    async def test_an_id_is_made_when_none_is_given(self, fixture: EngineFixture) -> None:
        receipts = await fixture.engine.enqueue([new_job(), new_job()])
        first, second = (receipt.id for receipt in receipts)
        assert first != second
        assert first[14] == second[14] == "7", "a UUIDv7"
        assert await fixture.state(first) is State.PENDING

    @on_engine
    async def test_a_uniform_batch_is_enqueued_in_order(self, fixture: EngineFixture) -> None:
        receipts = await fixture.engine.enqueue(uniform_batch(500, queue="mail", priority=5))
        [last] = await fixture.engine.enqueue([new_job(queue="mail", priority=5)])
        taken = await fixture.take(501, queues=["mail"])
        assert [job.id for job in taken] == [*(one.id for one in receipts), last.id]
        assert [job.arguments()["n"] for job in taken] == [*range(500), 1]
        assert {receipt.admission for receipt in receipts} == {Admission.CREATED}
        assert len({job.id for job in taken}) == 501

    def test_a_uniform_batch_is_refused_as_a_whole(self) -> None:
        async def scenario(fixture: EngineFixture) -> None:
            def numbers() -> Iterator[int]:
                yield from range(300)
                raise InvalidInput("n", "no more")

            for bad in (numbers(), [0] * 300 + ["x" * 2_000]):
                with pytest.raises((InvalidInput, TooLarge)):
                    await fixture.engine.enqueue(uniform_batch(301, bad))
            with pytest.raises(InvalidInput, match="priority"):
                await fixture.engine.enqueue(uniform_batch(300, priority=1 << 20))
            with pytest.raises(AccessDenied):
                await fixture.engine.enqueue(uniform_batch(300), caller=Caller(tenant="other"))
            assert await fixture.engine.enqueue(uniform_batch(0)) == []
            assert await fixture.counts() == Counts()
            assert len(await fixture.engine.enqueue(uniform_batch(300))) == 300

        self.check(scenario, EngineOptions(max_payload_bytes=1_000))

    @on_engine
    async def test_a_uniform_batch_obeys_keys_delays_and_unique(
        self, fixture: EngineFixture
    ) -> None:
        receipts = await fixture.engine.enqueue(uniform_batch(3, key="k", delay_seconds=5))
        assert await fixture.take(3) == []
        fixture.clock.advance(5)
        await fixture.complete(receipts[0].id)
        [first] = await fixture.engine.enqueue(uniform_batch(1, unique="u"))
        again = await fixture.engine.enqueue(uniform_batch(2, unique="u"))
        assert again == [Receipt(first.id, Admission.EXISTING)] * 2
        with pytest.raises(DuplicateId):
            await fixture.engine.enqueue(uniform_batch(2, id="same"))

    @on_engine
    async def test_an_empty_enqueue_does_nothing(self, fixture: EngineFixture) -> None:
        assert await fixture.engine.enqueue([]) == []

    @on_engine
    async def test_a_payload_may_be_json_bytes(self, fixture: EngineFixture) -> None:
        await fixture.put("a", payload=b'{"k": [1, null]}')
        assert (await fixture.job("a")).arguments() == {"k": [1, None]}

    @on_engine
    async def test_a_duplicate_id_refuses_the_whole_batch(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        with pytest.raises(DuplicateId) as refused:
            await fixture.put("b", "a")
        assert refused.value.ids == ["a"]
        assert await fixture.engine.get(["b"]) == [None]

    @on_engine
    async def test_a_duplicate_within_a_batch_is_refused(self, fixture: EngineFixture) -> None:
        with pytest.raises(DuplicateId):
            await fixture.put("a", "b", "a")
        assert await fixture.counts() == Counts()

    @on_engine
    async def test_duplicates_are_skipped_when_asked(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        receipts = await fixture.engine.enqueue(
            [new_job(id="a"), new_job(id="b"), new_job(id="b")], on_duplicate="skip"
        )
        admissions = [receipt.admission for receipt in receipts]
        assert admissions == [Admission.SKIPPED, Admission.CREATED, Admission.SKIPPED]
        assert (await fixture.counts()).pending == 2

    @on_engine
    async def test_the_id_of_a_finished_job_is_remembered_for_the_set_time(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a")
        await fixture.settle(completed((await fixture.take())[0]))
        fixture.clock.advance(60)
        with pytest.raises(DuplicateId):
            await fixture.put("a")
        fixture.clock.advance(0.000001)
        assert await fixture.engine.get(["a"]) == [None]
        assert await fixture.counts() == Counts()
        await fixture.put("a")
        assert await fixture.state("a") is State.PENDING

    @on_engine
    async def test_the_id_of_a_dead_job_is_never_forgotten(self, fixture: EngineFixture) -> None:
        await fixture.put("a")
        await fixture.settle(dead((await fixture.take())[0], FAILURE))
        fixture.clock.advance(3_600)
        with pytest.raises(DuplicateId):
            await fixture.put("a")

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
    @on_engine
    async def test_a_bad_field_is_named_and_nothing_is_enqueued(
        self, fixture: EngineFixture, fields: dict[str, object], field: str
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            await fixture.engine.enqueue([new_job(id="good"), new_job(**fields)])
        assert refused.value.field == field
        assert await fixture.counts() == Counts()

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
    @on_engine
    async def test_a_payload_that_is_not_a_json_object_is_refused(
        self, fixture: EngineFixture, payload: object
    ) -> None:
        with pytest.raises(PayloadInvalid) as refused:
            await fixture.put("a", payload=payload)
        assert refused.value.field == "payload"
        assert await fixture.counts() == Counts()

    def test_an_oversized_payload_is_refused(self) -> None:
        async def scenario(fixture: EngineFixture) -> None:
            with pytest.raises(TooLarge) as refused:
                await fixture.put("a", payload={"x": "y" * 2_000})
            assert refused.value.field == "payload"
            assert await fixture.counts() == Counts()

        self.check(scenario, EngineOptions(max_payload_bytes=2_000))

    @on_engine
    async def test_a_second_unfinished_unique_job_returns_the_first(
        self, fixture: EngineFixture
    ) -> None:
        await fixture.put("a", unique="welcome:7")
        for _state in ("pending", "in_flight"):
            receipts = await fixture.engine.enqueue([new_job(id="b", unique="welcome:7")])
            assert [(r.id, r.admission) for r in receipts] == [("a", Admission.EXISTING)]
            await fixture.take()
        assert (await fixture.counts()).in_flight == 1

    @on_engine
    async def test_a_unique_key_is_free_once_its_job_is_finished(
        self, fixture: EngineFixture
    ) -> None:
        def buried(job: Job) -> Outcome:
            return dead(job, FAILURE)

        for number, finish in enumerate((completed, cancelled, buried)):
            await fixture.put(f"job{number}", unique="k")
            await fixture.settle(finish((await fixture.take())[0]))
        await fixture.put("last", unique="k")
        assert await fixture.state("last") is State.PENDING

    @on_engine
    async def test_unique_is_per_queue_and_tenant_and_holds_within_a_batch(
        self, fixture: EngineFixture
    ) -> None:
        receipts = await fixture.engine.enqueue(
            [
                new_job(id="a", unique="k"),
                new_job(id="b", unique="k", queue="other"),
                new_job(id="c", unique="k", tenant="acme"),
                new_job(id="d", unique="k"),
            ]
        )
        assert [receipt.id for receipt in receipts] == ["a", "b", "c", "a"]

    @on_engine
    async def test_concurrent_enqueues_each_get_their_own_answer(
        self, fixture: EngineFixture
    ) -> None:
        reader = Caller(tenant="default", scopes=("library:2",))
        engine = fixture.engine
        answers = await asyncio.gather(
            engine.enqueue([new_job(id="a"), new_job(id="b")]),
            engine.enqueue([new_job(id="c"), new_job(id="a")]),
            engine.enqueue([new_job(id="a"), new_job(id="d")], on_duplicate="skip"),
            engine.enqueue([new_job(id="e", unique="u", scope="library:1")]),
            engine.enqueue([new_job(id="f", unique="u")]),
            engine.enqueue([new_job(unique="u", scope="library:2")], caller=reader),
            engine.enqueue([new_job(id="g"), new_job(priority=10**6)]),
            engine.enqueue([new_job(id="h")]),
            return_exceptions=True,
        )
        assert answers[0] == [Receipt("a"), Receipt("b")]
        assert isinstance(answers[1], DuplicateId)
        assert answers[2] == [Receipt("a", Admission.SKIPPED), Receipt("d")]
        assert answers[3:5] == [[Receipt("e")], [Receipt("e", Admission.EXISTING)]]
        assert isinstance(answers[5], AccessDenied)
        assert isinstance(answers[6], InvalidInput)
        assert answers[7] == [Receipt("h")]
        assert await fixture.take_ids() == ["a", "b", "d", "e", "h"]

    @on_engine
    async def test_concurrent_enqueues_too_large_together_are_taken_singly(
        self, fixture: EngineFixture
    ) -> None:
        payload = {"x": "y" * 250_000}
        answers = await asyncio.gather(
            *(fixture.engine.enqueue([new_job(payload=payload)] * 8) for _call in range(6))
        )
        assert [len(receipts) for receipts in answers] == [8] * 6
        assert (await fixture.counts()).pending == 48
