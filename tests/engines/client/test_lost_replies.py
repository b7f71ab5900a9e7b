"""The connection breaks before the answer comes: nothing is lost, and nothing is done twice."""

import asyncio
import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from holdfast.engines.client import connection
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.contract import Admission, Counts, Engine, EngineOptions, Receipt, Renewal
from holdfast.engines.lost_replies import accepted
from holdfast.engines.protocol import messages
from holdfast.model.errors import DuplicateId, LeaseLost, NoOwner, Unavailable
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob, State
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
from holdfast.testing import VirtualClock
from holdfast.testing.machine import EngineMachine

from .rig import Owner, Rig, Wire, jobs_named, rigged, short_directory

FAILURE = Failure.of("upstream_5xx", "503 from the mail server")
CUTS = ["before", "after"]
EXAMPLES = int(os.environ.get("HOLDFAST_TEST_EXAMPLES", "200"))
PARTS = 4
"""So that each stays far from the timeout of a test on a busy machine too.

Hypothesis takes a timeout for a failing example, and calls it flaky when it does not recur.
"""


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE_SECONDS", 0.0001)


async def counts(rig: Rig) -> Counts:
    return (await rig.owner.engine.counts()).get("default", Counts())


@pytest.mark.parametrize("cut", CUTS)
def test_an_enqueue_with_ids_that_the_client_makes(cut):
    async def scenario(rig: Rig) -> None:
        rig.wire.fates.append(cut)
        receipts = await rig.client.enqueue([NewJob(task="t"), NewJob(task="t")])
        assert [receipt.admission for receipt in receipts] == [Admission.CREATED] * 2
        assert rig.wire.cuts == 1
        found = await rig.owner.engine.get([receipt.id for receipt in receipts])
        assert None not in found
        assert await counts(rig) == Counts(pending=2)

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
def test_an_enqueue_with_ids_that_the_caller_chose(cut):
    async def scenario(rig: Rig) -> None:
        rig.wire.fates.append(cut)
        receipts = await rig.client.enqueue(jobs_named("a", "b"))
        assert receipts == [Receipt("a"), Receipt("b")]
        assert await counts(rig) == Counts(pending=2)

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
def test_an_enqueue_that_was_cut_several_times(cut):
    async def scenario(rig: Rig) -> None:
        rig.wire.fates.extend([cut] * 5)
        assert await rig.client.enqueue(jobs_named("a")) == [Receipt("a")]
        assert rig.wire.cuts == 5
        assert await counts(rig) == Counts(pending=1)

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
def test_a_real_duplicate_stays_one(cut):
    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("a"))
        rig.owner.clock.advance(1)
        rig.wire.fates.append(cut)
        with pytest.raises(DuplicateId) as refused:
            await rig.client.enqueue(jobs_named("a", "b"))
        assert refused.value.ids == ["a"]
        assert await counts(rig) == Counts(pending=1)

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize(
    "fields", [{"payload": {"other": 1}}, {"task": "other"}, {"queue": "other"}]
)
def test_another_job_of_that_id_is_not_taken_for_ours(cut, fields):
    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("a", **fields))
        rig.wire.fates.append(cut)
        with pytest.raises(DuplicateId):
            await rig.client.enqueue(jobs_named("a"))

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
def test_an_old_finished_job_of_that_id_is_not_taken_for_ours(cut):
    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("a"))
        claim = await rig.client.claim(queues=["default"], worker="w")
        await rig.client.settle([completed(claim.jobs[0])])
        rig.owner.clock.advance(1)
        rig.wire.fates.append(cut)
        with pytest.raises(DuplicateId):
            await rig.client.enqueue(jobs_named("a"))

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
def test_ours_is_recognised_even_when_it_was_done_already(cut):
    async def scenario(rig: Rig) -> None:
        async def work() -> None:
            claim = await rig.owner.engine.claim(queues=["default"], worker="w", wait_seconds=60)
            await rig.owner.engine.settle([completed(job) for job in claim.jobs])

        working = asyncio.create_task(work())
        rig.wire.fates.append(cut)
        assert await rig.client.enqueue(jobs_named("a")) == [Receipt("a")]
        await working
        assert await counts(rig) == Counts(completed=1)

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
def test_a_unique_job(cut):
    async def scenario(rig: Rig) -> None:
        rig.wire.fates.append(cut)
        [receipt] = await rig.client.enqueue([NewJob(task="t", unique="k")])
        assert receipt.admission is Admission.CREATED
        rig.wire.fates.append(cut)
        again = await rig.client.enqueue([NewJob(task="t", unique="k")])
        assert again == [Receipt(receipt.id, Admission.EXISTING)]
        assert await counts(rig) == Counts(pending=1)

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
def test_a_unique_job_among_others_when_there_is_one_already(cut):
    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("first", unique="k"))
        rig.wire.fates.append(cut)
        receipts = await rig.client.enqueue(
            [*jobs_named("a"), *jobs_named("b", unique="k"), *jobs_named("c", unique="l")]
        )
        assert receipts == [
            Receipt("a"),
            Receipt("first", Admission.EXISTING),
            Receipt("c"),
        ]
        assert await counts(rig) == Counts(pending=3)

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
def test_an_enqueue_that_skips_duplicates(cut):
    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("old"))
        rig.owner.clock.advance(1)
        rig.wire.fates.append(cut)
        receipts = await rig.client.enqueue(jobs_named("old", "new", "new"), on_duplicate="skip")
        assert receipts == [
            Receipt("old", Admission.SKIPPED),
            Receipt("new"),
            Receipt("new", Admission.SKIPPED),
        ]
        assert await counts(rig) == Counts(pending=2)

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize(
    ("end", "state"),
    [
        (completed, State.COMPLETED),
        (cancelled, State.CANCELLED),
        (release, State.PENDING),
        (lambda job: snooze(job, 5), State.PENDING),
        (lambda job: retry(job, FAILURE, 5), State.PENDING),
        (lambda job: dead(job, FAILURE), State.DEAD),
    ],
)
def test_a_settle(cut, end, state):
    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("a"))
        [job] = (await rig.client.claim(queues=["default"], worker="w")).jobs
        rig.wire.fates.append(cut)
        assert await rig.client.settle([end(job)]) == [None]
        assert rig.client.leases_refused == 0
        [found] = await rig.client.get(["a"])
        assert found is not None
        assert found.state is state

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
def test_a_retry_that_used_up_the_last_attempt(cut):
    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("a", max_attempts=1))
        [job] = (await rig.client.claim(queues=["default"], worker="w")).jobs
        rig.wire.fates.append(cut)
        assert await rig.client.settle([retry(job, FAILURE)]) == [None]
        assert await counts(rig) == Counts(dead=1)

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
def test_a_settle_of_several_tells_which_was_refused(cut):
    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("a", "b", "c"))
        jobs = (await rig.client.claim(queues=["default"], worker="w", limit=3)).jobs
        await rig.owner.engine.reclaim(forced=[jobs[1]])
        rig.wire.fates.append(cut)
        answers = await rig.client.settle(
            [completed(jobs[0]), completed(jobs[1]), completed(jobs[2]), dead(jobs[2], FAILURE)]
        )
        assert [isinstance(answer, LeaseLost) for answer in answers] == [False, True, False, True]
        assert rig.client.leases_refused == 2
        assert await counts(rig) == Counts(pending=1, completed=2)

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize(
    "end", [release, lambda job: snooze(job, 5), lambda job: retry(job, FAILURE)]
)
def test_a_stale_outcome_is_not_taken_for_a_recorded_one(cut, end):
    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("a"))
        [job] = (await rig.client.claim(queues=["default"], worker="w")).jobs
        rig.owner.clock.advance(1)
        await rig.owner.engine.reclaim(forced=[job])
        rig.wire.fates.append(cut)
        [answer] = await rig.client.settle([end(job)])
        assert isinstance(answer, LeaseLost)

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
def test_a_claim_that_settles(cut):
    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("a", "b", "c"))
        [job] = (await rig.client.claim(queues=["default"], worker="w")).jobs
        rig.wire.fates.append(cut)
        claim = await rig.client.claim(queues=["default"], worker="w", settle=[completed(job)])
        assert claim.settled == [None]
        # What the lost answer handed out is held by nobody until its lease has run out.
        assert [taken.id for taken in claim.jobs] == (["b"] if cut == "before" else ["c"])
        rig.owner.clock.advance(31)
        await rig.client.reclaim()
        left = await rig.client.claim(queues=["default"], worker="w", limit=9)
        assert {taken.id for taken in left.jobs} == {"b", "c"}
        assert (await counts(rig)).completed == 1

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
def test_verbs_that_do_no_harm_twice(cut):
    async def scenario(rig: Rig) -> None:
        await rig.client.enqueue(jobs_named("a"))
        [job] = (await rig.client.claim(queues=["default"], worker="w")).jobs
        rig.wire.fates.append(cut)
        assert await rig.client.extend([job], lease_seconds=60) == [
            Renewal(rig.owner.clock.now_us() + 60_000_000)
        ]
        rig.wire.fates.append(cut)
        assert await rig.client.get(["a", "b"]) == [*await rig.owner.engine.get(["a"]), None]
        rig.wire.fates.append(cut)
        assert await rig.client.counts() == {"default": Counts(in_flight=1)}
        rig.wire.fates.append(cut)
        assert await rig.client.validate() == []
        rig.wire.fates.append(cut)
        await rig.client.reclaim(forced=[job])
        assert await counts(rig) == Counts(pending=1)
        assert rig.wire.cuts == 5

    rigged(scenario)


@pytest.mark.parametrize("cut", CUTS)
def test_calls_that_went_out_together_are_each_resolved(cut):
    async def scenario(rig: Rig) -> None:
        rig.wire.fates.append(cut)
        answers = await asyncio.gather(
            *(rig.client.enqueue(jobs_named(str(number))) for number in range(20))
        )
        assert answers == [[Receipt(str(number))] for number in range(20)]
        assert rig.wire.cuts == 1
        assert await counts(rig) == Counts(pending=20)

    rigged(scenario)


def test_a_doubt_that_stays_is_said_with_what_to_do():
    async def scenario(rig: Rig) -> None:
        client = ClientEngine(rig.wire.path, patience_seconds=0.05)
        rig.wire.fates.extend(["after"] * 10_000)
        with pytest.raises(Unavailable, match="it is unknown whether") as unknown:
            await client.enqueue(jobs_named("order-7"))
        assert "ask for 'order-7' before you enqueue again" in str(unknown.value)
        rig.wire.fates.clear()
        assert await client.get(["order-7"]) != [None]
        await client.close()

    rigged(scenario)


def test_a_doubt_whose_owner_does_not_come_back_is_said_too():
    async def scenario(rig: Rig) -> None:
        client = rig.new_client(patience_seconds=0.05)
        await client.counts()

        async def leave_at_once() -> None:
            client._channel._calls._connection.close()  # type: ignore[union-attr]
            await rig.owner.stop()

        asking = asyncio.create_task(client.enqueue(jobs_named("a")))
        await asyncio.sleep(0)
        await leave_at_once()
        with pytest.raises(NoOwner, match=r"holdfast run.*Before that, the connection broke"):
            await asking
        await client.close()
        await rig.owner.start()

    rigged(scenario)


# --- controls --------------------------------------------------------------------------------


def without_resolution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "holdfast.engines.lost_replies.SentEnqueue.was_taken", lambda *_arguments: False
    )
    monkeypatch.setattr(
        "holdfast.engines.lost_replies.SentEnqueue.restored",
        lambda _order, receipts, _known: receipts,
    )
    monkeypatch.setattr(
        "holdfast.engines.client.engine.accepted",
        lambda _outcomes, answers, _known, _at: list(answers),
    )


@pytest.mark.parametrize(
    "claim",
    [
        test_an_enqueue_with_ids_that_the_client_makes,
        test_an_enqueue_with_ids_that_the_caller_chose,
        test_a_unique_job,
        test_an_enqueue_that_skips_duplicates,
        test_a_claim_that_settles,
    ],
)
def test_control_without_the_resolution_a_lost_answer_is_a_wrong_one(claim, monkeypatch):
    without_resolution(monkeypatch)
    with pytest.raises((AssertionError, DuplicateId)):
        claim("after")


def test_control_without_the_resolution_a_recorded_settle_looks_refused(monkeypatch):
    without_resolution(monkeypatch)
    with pytest.raises(AssertionError):
        test_a_settle("after", completed, State.COMPLETED)


# --- beside the oracle -----------------------------------------------------------------------


class ClientMachine(EngineMachine):
    """Any enqueue, settle or look may lose its connection, before or after it was recorded."""

    async def open_engine(self, clock: VirtualClock, options: EngineOptions) -> Engine:
        self._directory = short_directory()
        directory = self._directory.__enter__()
        self._owner = Owner(directory, options)
        self._owner.clock = clock
        await self._owner.start()
        self._wire = Wire(directory, self._owner)
        # What is in a lost answer of claims comes back later, not at once; operations are sent
        # once; looking is not cut so that there is enough left for what matters.
        verbs = {verb.name for verb in vars(messages).values() if isinstance(verb, messages.Verb)}
        self._wire.spared = verbs - {"enqueue", "settle", "extend"}
        self._strung = self._wire.strung()
        await self._strung.__aenter__()
        return ClientEngine(self._wire.path, clock=clock)

    def both(self, call):
        # Two jobs of one id and one content, in one microsecond, are as good as one.
        self.clock.advance(0.000_001)
        return super().both(call)

    def may_settle(self, outcome: Outcome) -> bool:
        # One that is recorded already is told so, not refused, if an answer is lost on the way.
        [job] = self.run(self.oracle.get([outcome.id], tenant=outcome.tenant))
        known = {} if job is None else {(job.tenant, job.id): job}
        late = LeaseLost(outcome.id, outcome.token)
        return accepted([outcome], [late], known, self.clock.now_us()) == [late]

    @rule(fates=st.lists(st.sampled_from(["pass", *CUTS]), min_size=1, max_size=3))
    def cut_soon(self, fates: list[str]) -> None:
        self._wire.fates.extend(fates)

    @rule()
    def restart(self) -> None:
        self.run(self._owner.restart())

    def teardown(self) -> None:
        async def end() -> None:
            await self.subject.close()
            await self._strung.__aexit__(None, None, None)
            await self._owner.stop()

        try:
            self.run(end())
        finally:
            self._directory.__exit__(None, None, None)
            self.loop.close()


SETTINGS = settings(
    max_examples=max(5, EXAMPLES // 10 // PARTS),
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_client_equals_the_oracle_through_cut_connections(part):
    del part
    run_state_machine_as_test(ClientMachine, settings=SETTINGS)


@seed(3)
class SeededMachine(ClientMachine):
    """Finds what the control breaks within seconds."""


def test_control_the_machine_sees_a_missing_resolution(monkeypatch):
    without_resolution(monkeypatch)
    control = settings(SETTINGS, max_examples=1_000, phases=[Phase.generate], database=None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(SeededMachine, settings=control)


def test_every_kind_of_outcome_is_known_to_the_resolution():
    """A new kind must be looked at here: where does it leave a job?"""
    assert {kind.value for kind in OutcomeKind} == {
        "completed",
        "cancelled",
        "retry",
        "release",
        "snooze",
        "dead",
        "lost",
    }
