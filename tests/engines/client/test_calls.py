"""How calls travel: together where they can, apart where one waits."""

import asyncio
import enum
import uuid
from typing import Any

import pytest

from holdfast.daemon.rpc.dispatch import Dispatcher
from holdfast.engines.client import channel
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.contract import Claim, Engine, Receipt
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.protocol import messages
from holdfast.model.access import Caller
from holdfast.model.errors import EngineClosed, InvalidInput, TooLarge
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import Outcome, OutcomeKind
from holdfast.testing.conformance.fixture import settle_down

from .rig import Rig, eventually, jobs_named, rigged


async def is_pending(rig: Rig, job_id: str) -> bool:
    [job] = await rig.owner.engine.get([job_id])
    return job is not None and job.state is State.PENDING


def test_it_is_an_engine_and_says_what_it_can():
    async def scenario(rig: Rig) -> None:
        engine: Engine = rig.client
        said = engine.capabilities
        assert (said.name, said.durable, said.shared) == ("client", True, True)

    rigged(scenario)


def test_a_call_by_itself_is_a_request_by_itself():
    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("a"))
        await rig.client.counts()
        assert rig.owner.app.verbs == ["enqueue", "counts"]

    rigged(scenario)


def test_calls_that_come_while_one_is_under_way_go_out_together():
    async def scenario(rig: Rig) -> None:
        client = rig.new_client()
        await client.counts()
        rig.owner.app.verbs.clear()
        names = [str(number) for number in range(100)]
        answers = await asyncio.gather(*(client.enqueue(jobs_named(name)) for name in names))
        assert answers == [[Receipt(name)] for name in names]
        assert rig.owner.app.verbs == ["enqueue", "calls"]
        assert client.requests == 3
        claim = await client.claim(queues=["default"], worker="w", limit=100)
        assert [job.id for job in claim.jobs] == names, "in their order"
        await client.close()

    rigged(scenario)


def test_calls_that_come_before_there_is_a_connection_go_out_together():
    async def scenario(rig: Rig) -> None:
        await asyncio.gather(rig.client.counts(), rig.client.validate(), rig.client.get(["a"]))
        assert rig.owner.app.verbs == ["calls"]

    rigged(scenario)


def test_one_request_takes_only_so_much(monkeypatch):
    monkeypatch.setattr(messages, "MAX_CALLS", 10)
    monkeypatch.setattr(channel, "MAX_BATCH_BYTES", 5_000)

    async def scenario(rig: Rig) -> None:
        small = [rig.client.enqueue(jobs_named(str(number))) for number in range(25)]
        large = [
            rig.client.enqueue(jobs_named(f"l{number}", payload={"x": "y" * 5_000}))
            for number in range(3)
        ]
        await asyncio.gather(*small, *large)
        assert rig.owner.app.verbs == ["calls"] * 3 + ["enqueue"] * 3
        assert (await rig.client.counts())["default"].pending == 28

    rigged(scenario)


def test_a_call_that_was_given_up_before_it_was_sent_is_not_made():
    async def scenario(rig: Rig) -> None:
        rig.wire.fates.append("hold")
        first = asyncio.create_task(rig.client.enqueue(jobs_named("first")))
        await rig.wire.held.wait()
        given_up = asyncio.create_task(rig.client.enqueue(jobs_named("given up")))
        last = asyncio.create_task(rig.client.enqueue(jobs_named("last")))
        await asyncio.sleep(0)
        given_up.cancel()
        rig.wire.let_go.set()
        await asyncio.gather(first, last)
        assert given_up.cancelled()
        assert rig.owner.app.verbs == ["enqueue", "enqueue"]
        assert await rig.client.get(["given up"]) == [None]

    rigged(scenario)


def test_a_claim_that_waits_blocks_nobody():
    async def scenario(rig: Rig) -> None:
        waiting = [
            asyncio.create_task(
                rig.client.claim(queues=["mail", queue], worker="w", wait_seconds=60)
            )
            for queue in ("a", "b")
        ]
        await settle_down()
        assert await rig.client.enqueue(jobs_named("elsewhere")) == [Receipt("elsewhere")]
        assert not any(task.done() for task in waiting)
        await rig.client.enqueue(jobs_named("1", "2", queue="mail"))
        claims = await asyncio.gather(*waiting)
        assert sorted(job.id for claim in claims for job in claim.jobs) == ["1", "2"]

    rigged(scenario)


def test_connections_of_claims_that_wait_are_used_again():
    async def scenario(rig: Rig) -> None:
        client = rig.new_client()
        for number in range(3):
            waiting = asyncio.create_task(
                client.claim(queues=["default"], worker="w", wait_seconds=60)
            )
            await settle_down()
            await rig.owner.engine.enqueue(jobs_named(str(number)))
            assert [job.id for job in (await waiting).jobs] == [str(number)]
            assert len(client._channel._claims._idle) == 1
        await client.close()

    rigged(scenario)


def test_a_claim_that_was_cancelled_while_it_waited_takes_nothing():
    async def scenario(rig: Rig) -> None:
        client = rig.new_client()
        waiting = asyncio.create_task(client.claim(queues=["default"], worker="w", wait_seconds=60))
        await settle_down()
        assert rig.owner.engine._core.waiters.waiting
        waiting.cancel()
        await asyncio.wait([waiting])

        async def has_left() -> bool:
            return not rig.owner.engine._core.waiters.waiting

        await eventually(has_left)
        await client.enqueue(jobs_named("a"))
        [job] = await client.get(["a"])
        assert job is not None
        assert (job.state, job.attempt, job.token) == (State.PENDING, 0, 0)
        await client.close()

    rigged(scenario)


@pytest.mark.parametrize("wait_seconds", [0, 60])
def test_jobs_that_come_for_a_cancelled_claim_are_handed_back(wait_seconds):
    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("a"))
        rig.wire.fates.append("hold")
        claiming = asyncio.create_task(
            rig.client.claim(queues=["default"], worker="w", wait_seconds=wait_seconds)
        )
        await rig.wire.held.wait()
        assert not await is_pending(rig, "a")
        claiming.cancel()
        await asyncio.wait([claiming])
        rig.wire.let_go.set()
        await eventually(lambda: is_pending(rig, "a"))
        [job] = await rig.owner.engine.get(["a"])
        assert job is not None
        assert job.attempt == 0, "nobody was charged"

    rigged(scenario)


def test_control_otherwise_they_are_held_by_nobody(monkeypatch):
    monkeypatch.setattr(ClientEngine, "_release_abandoned", lambda *_arguments: None)

    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("a"))
        rig.wire.fates.append("hold")
        claiming = asyncio.create_task(rig.client.claim(queues=["default"], worker="w"))
        await rig.wire.held.wait()
        claiming.cancel()
        await asyncio.wait([claiming])
        rig.wire.let_go.set()
        await rig.client.counts()
        assert not await is_pending(rig, "a")

    rigged(scenario)


async def test_the_owner_hands_back_what_it_claimed_for_somebody_who_left():
    left = asyncio.Event()

    class Late(MemoryEngine):
        """Finds work in the very moment in which the asker leaves."""

        async def claim(self, **arguments: Any) -> Claim:
            claim = await super().claim(**arguments)
            left.set()
            await asyncio.sleep(0)
            return claim

    async def disconnected() -> None:
        await left.wait()

    engine = Late()
    await engine.enqueue(jobs_named("a"))
    call = messages.ClaimCall(["default"], "w", None, 1, 30.0, 60.0, [])
    body = messages.CLAIM.write_call(call)
    answer = await Dispatcher(engine).answer("claim", body, disconnected)
    assert [job.id for job in messages.CLAIM.read_answer(answer.body).jobs] == ["a"]
    [job] = await engine.get(["a"])
    assert job is not None
    assert (job.state, job.attempt) == (State.PENDING, 0)


# --- closing ---------------------------------------------------------------------------------


def test_a_close_lets_what_is_under_way_finish_and_refuses_the_rest():
    async def scenario(rig: Rig) -> None:
        rig.wire.fates.append("hold")
        under_way = asyncio.create_task(rig.client.enqueue(jobs_named("a")))
        await rig.wire.held.wait()
        lined_up = asyncio.create_task(rig.client.enqueue(jobs_named("b")))
        waiting = asyncio.create_task(
            rig.client.claim(queues=["other"], worker="w", wait_seconds=60)
        )
        await settle_down()
        closing = asyncio.create_task(rig.client.close())
        for refused in (lined_up, waiting):
            with pytest.raises(EngineClosed):
                await refused
        with pytest.raises(EngineClosed):
            await rig.client.counts()
        assert not under_way.done()
        rig.wire.let_go.set()
        assert await under_way == [Receipt("a")]
        await closing
        await rig.client.close()
        assert await rig.owner.engine.get(["b"]) == [None]

    rigged(scenario)


def test_a_close_does_not_wait_for_ever():
    async def scenario(rig: Rig) -> None:
        client = ClientEngine(rig.wire.path, patience_seconds=0.05)
        rig.wire.fates.append("hold")
        under_way = asyncio.create_task(client.enqueue(jobs_named("a")))
        await rig.wire.held.wait()
        await client.close()
        with pytest.raises(EngineClosed):
            await under_way

    rigged(scenario)


def test_a_client_that_was_never_used_closes():
    asyncio.run(ClientEngine("/nowhere").close())


# --- what is refused before it is sent -------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("jobs", lambda engine: engine.enqueue([{"task": "t"}])),
        ("jobs", lambda engine: engine.enqueue("t")),
        ("jobs", lambda engine: engine.enqueue(NewJob(task="t"))),
        ("on_duplicate", lambda engine: engine.enqueue([], on_duplicate="replace")),
        ("outcomes", lambda engine: engine.settle([None])),
        ("kind", lambda engine: engine.settle([Outcome("completed", "a", 1)])),  # type: ignore[arg-type]
        ("token", lambda engine: engine.settle([Outcome(OutcomeKind.COMPLETED, "a", "1")])),  # type: ignore[arg-type]
        ("settle", lambda engine: engine.claim(queues=["q"], worker="w", settle=[1])),
        ("tasks", lambda engine: engine.claim(queues=["q"], worker="w", tasks="t")),
        ("queues", lambda engine: engine.claim(queues=[7], worker="w")),
        ("held", lambda engine: engine.extend(["a"], lease_seconds=5)),
        ("lease_seconds", lambda engine: engine.extend([], lease_seconds=0)),
        ("limit", lambda engine: engine.reclaim(limit=0)),
        ("forced", lambda engine: engine.reclaim(forced=["a"])),
        ("ids", lambda engine: engine.get([7])),
        ("tenant", lambda engine: engine.get(["a"], tenant="")),
        ("caller", lambda engine: engine.counts(caller="acme")),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_sent(field, call):
    async def scenario(rig: Rig) -> None:
        with pytest.raises(InvalidInput) as refused:
            await call(rig.client)
        assert refused.value.field == field
        assert rig.owner.app.verbs == []

    rigged(scenario)


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("get", lambda engine: engine.get(["\ud800"])),
        ("counts", lambda engine: engine.counts(caller=Caller("\ud800"))),
        (
            "settle",
            lambda engine: engine.settle([Outcome(OutcomeKind.COMPLETED, "a", 10**30)]),
        ),
        ("counts", lambda engine: engine.counts(caller=Caller(7))),  # type: ignore[arg-type]
        ("enqueue", lambda engine: engine.enqueue([NewJob(task="t", delay_seconds=False)])),
    ],
)
def test_what_no_message_can_hold_is_refused_with_a_reason(field, call):
    async def scenario(rig: Rig) -> None:
        with pytest.raises(InvalidInput) as refused:
            await call(rig.client)
        assert refused.value.field == field

    rigged(scenario)


class Mail(enum.StrEnum):
    QUEUE = "mail"


@pytest.mark.parametrize(
    "fields",
    [
        {"queue": 7},
        {"queue": ""},
        {"queue": Mail.QUEUE},
        {"task": uuid.UUID(int=1)},
        {"id": uuid.UUID(int=1)},
        {"id": "\n"},
        {"tenant": "\ud800"},
        {"priority": True},
        {"max_attempts": 10**30},
        {"delay_seconds": -1.0},
        {"run_at_us": 1.0},
        {"unique": b"u"},
        {"key": Mail.QUEUE},
        {"scope": "a//b"},
        {"depends_on": {"a"}},
        {"depends_on": [uuid.UUID(int=1)]},
        {"depends_on": "a"},
        {"hold": 1},
        {"payload": [1]},
        {"payload": b"[1]"},
    ],
)
def test_a_bad_job_is_refused_as_any_engine_refuses_it(fields):
    async def scenario(rig: Rig) -> None:
        make: Any = NewJob
        bad = make(**{"task": "t", **fields})
        with pytest.raises(InvalidInput) as expected:
            await rig.owner.engine.enqueue([bad])
        with pytest.raises(InvalidInput) as refused:
            await rig.client.enqueue([bad])
        assert type(refused.value) is type(expected.value)
        assert refused.value.field == expected.value.field == next(iter(fields))
        assert str(refused.value) == str(expected.value)
        assert await rig.client.counts() == {}

    rigged(scenario)


def test_a_call_that_is_too_large_for_any_request_is_not_sent(monkeypatch):
    monkeypatch.setattr(messages, "MAX_BODY_BYTES", 10_000)

    async def scenario(rig: Rig) -> None:
        with pytest.raises(TooLarge) as refused:
            await rig.client.enqueue(jobs_named("a", payload={"x": "y" * 9_990}))
        assert refused.value.limit == 10_000
        assert rig.owner.app.verbs == []
        await rig.client.enqueue(jobs_named("a"))

    rigged(scenario)


@pytest.mark.parametrize("path", ["", "x" * 108, "a\0b", 7, None])
def test_a_path_that_no_socket_can_have_is_refused(path):
    with pytest.raises(InvalidInput) as refused:
        ClientEngine(path)
    assert refused.value.field == "path"


async def test_a_request_has_at_most_a_thousand_calls():
    dispatcher = Dispatcher(MemoryEngine())
    call = messages.BatchedCall("flags", messages.FLAGS.write_call(messages.Empty()))
    most = await dispatcher.answer_all(messages.write_calls([call] * messages.MAX_CALLS))
    assert most.status == messages.OK
    over = await dispatcher.answer_all(messages.write_calls([call] * (messages.MAX_CALLS + 1)))
    assert over.status == messages.BAD_REQUEST
    assert b"send at most 1,000" in over.body
