"""The engine over the API: who may do what with it, lost replies, and what it says of failures."""

from __future__ import annotations

import asyncio
import inspect

import msgspec
import pytest

from holdfast.engines.client import engine as client_engine
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.client.http_endpoint import HttpEndpoint
from holdfast.engines.contract import Admission, Receipt
from holdfast.engines.entropy import random_bytes
from holdfast.engines.lost_replies import SentEnqueue
from holdfast.engines.protocol import messages
from holdfast.http.credential_files import TlsFiles
from holdfast.model.actions import CancelJobs, EditJobs
from holdfast.model.api_key import KIND, ApiKey, KeySecret, new_key_text, secret_hash
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.errors import (
    AccessDenied,
    Forbidden,
    HoldfastError,
    InvalidInput,
    KeyRefused,
    LeaseLost,
    TooLarge,
    Unavailable,
    UnknownFormat,
)
from holdfast.model.event import NewEvent
from holdfast.model.job import MAX_TIME_US, NewJob, State
from holdfast.model.operation import NewOperation
from holdfast.model.outcome import completed
from holdfast.model.payload_condition import PayloadCondition
from holdfast.model.payload_paths import Assignment
from holdfast.model.permissions import Role
from holdfast.model.record import Record
from holdfast.model.search import Filter
from holdfast.operations.access.engine import AuthorizedEngine
from tests.settings.observing import CERTIFICATES

from .remote_rig import Remote, remote

CUTS = ["before", "after"]
PLANTED = "planted-in-acme"
EVERYTHING = (Role.ADMIN, Role.WORKER)


# --- lost replies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("job_id", [None, "chosen"])
async def test_an_enqueue_whose_reply_is_lost_is_made_once(cut, job_id):
    async with remote() as there:
        producer = await there.engine(Role.PRODUCER)
        there.wire.fates.append(cut)
        receipts = await producer.enqueue([NewJob(task="t", id=job_id, payload={"n": 1})])
        assert [receipt.admission for receipt in receipts] == [Admission.CREATED]
        assert there.wire.cuts == 1
        assert (await there.store.counts())["default"].pending == 1


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("with_claim", [False, True])
async def test_a_settle_whose_reply_is_lost_is_recorded_once(cut, with_claim):
    async with remote() as there:
        worker = await there.engine(Role.WORKER)
        await there.store.enqueue([NewJob(task="t", id="a")])
        (job,) = (await worker.claim(queues=["default"], worker="w")).jobs
        there.wire.fates.append(cut)
        if with_claim:
            claim = await worker.claim(queues=["default"], worker="w", settle=[completed(job)])
            assert claim.settled == [None]
        else:
            assert await worker.settle([completed(job)]) == [None]
        assert there.wire.cuts == 1
        (found,) = await there.store.history(["a"])
        assert found is not None
        assert (found.job.state, len(found.attempts)) == (State.COMPLETED, 1)


async def test_a_change_by_a_person_is_sent_once():
    async with remote() as there:
        admin = await there.engine(Role.ADMIN)
        await there.store.enqueue([NewJob(task="t", id="a")])
        there.wire.fates.append("after")
        with pytest.raises(Unavailable, match="it is unknown whether this operate was done"):
            await admin.operate(CancelJobs(), Filter(ids=("a",)), Attribution("ann", "x"))


async def test_what_the_server_cannot_know_is_in_doubt():
    async with remote() as there:
        producer = await there.engine(Role.PRODUCER)
        taken, lost = there.store.enqueue, []

        async def commits_and_loses(jobs, **more):
            await taken(jobs, **more)
            there.store.enqueue = taken  # type: ignore[method-assign]
            lost.append(1)
            raise Unavailable("the connection broke before the answer came")

        there.store.enqueue = commits_and_loses  # type: ignore[method-assign]
        assert await producer.enqueue([NewJob(task="t", id="a")]) == [Receipt("a")]
        assert lost == [1]


async def test_a_stale_token_is_refused():
    async with remote() as there:
        worker = await there.engine(Role.WORKER)
        await there.store.enqueue([NewJob(task="t", id="a")])
        (job,) = (await worker.claim(queues=["default"], worker="w")).jobs
        await there.store.reclaim(forced=[job])
        (answer,) = await worker.settle([completed(job)])
        assert isinstance(answer, LeaseLost)
        (answer2,) = await worker.extend([job], lease_seconds=5)
        assert isinstance(answer2, LeaseLost)


async def test_control_without_its_rules_a_lost_enqueue_is_an_error(monkeypatch):
    monkeypatch.setattr(SentEnqueue, "was_taken", lambda *_: False)
    with pytest.raises(HoldfastError):
        await test_an_enqueue_whose_reply_is_lost_is_made_once("after", "chosen")


async def test_control_without_its_rules_a_lost_settle_is_an_error(monkeypatch):
    monkeypatch.setattr(client_engine, "accepted", lambda _outcomes, answers, *_: list(answers))
    with pytest.raises(AssertionError):
        await test_a_settle_whose_reply_is_lost_is_recorded_once("after", with_claim=False)


# --- who may do what ------------------------------------------------------------------------------


async def everything_seen(engine: ClientEngine) -> str:
    """What a caller gets to see of anything, by every verb that looks."""
    asked = [
        engine.get(["a"], tenant="acme"), engine.find(), engine.counts(), engine.queues(),
        engine.groups(), engine.history(["a"], tenant="acme"), engine.policies(), engine.flags(),
        engine.explain(["a"], tenant="acme"), engine.schedules(), engine.outages(),
        engine.operations(), engine.workers(gone=True), engine.find_events(), engine.audited(),
        engine.get_events(["e"], tenant="acme"), engine.records("key"), engine.validate(),
        engine.claim(queues=[PLANTED, "default"], worker="w"), engine.reclaim(),
    ]  # fmt: skip
    return repr([str(one) for one in await asyncio.gather(*asked, return_exceptions=True)])


async def plant(there: Remote) -> None:
    job = NewJob(task=PLANTED, id="a", tenant="acme", queue=PLANTED, payload={"text": PLANTED})
    await there.store.enqueue([job])


@pytest.mark.parametrize("role", Role)
async def test_nothing_of_another_tenant_is_seen_or_changed(role):
    async with remote() as there:
        await plant(there)
        for engine in (
            await there.engine(role, tenants=["other"]),
            await there.engine(role, tenants=["other"], scopes=["library:1"]),
        ):
            assert PLANTED not in await everything_seen(engine)
            refused = await asyncio.gather(
                engine.enqueue([NewJob(task="t", id="x", tenant="acme")]),
                engine.operate(CancelJobs(), Filter(ids=("a",)), Attribution("eve", "x")),
                return_exceptions=True,
            )
            assert isinstance(refused[0], AccessDenied | Forbidden)
            (job, new) = await there.store.get(["a", "x"], tenant="acme")
            assert job is not None
            assert job.state is State.PENDING
            assert new is None


async def test_control_without_the_checks_another_tenant_is_seen(monkeypatch):
    monkeypatch.setattr(AuthorizedEngine, "_reach", lambda _self, caller: caller)
    with pytest.raises(AssertionError):
        await test_nothing_of_another_tenant_is_seen_or_changed(Role.VIEWER)


async def test_a_key_of_several_tenants_names_one_in_its_url():
    async with remote() as there:
        text = await there.api.key(Role.PRODUCER, tenants=["acme", "other"])
        with pytest.raises(InvalidInput, match="name one"):
            await there.with_key(text).get(["a"], tenant="acme")
        there.url += "/v2/tenants/acme"
        engine = there.with_key(text)
        await engine.enqueue([NewJob(task="t", id="a", tenant="acme")])
        there.url = there.url.replace("acme", "foreign")
        with pytest.raises(HoldfastError):
            await there.with_key(text).get(["a"], tenant="foreign")


async def test_nobody_acts_in_the_name_of_another():
    async with remote() as there:
        await there.store.enqueue([NewJob(task="t", id="a")])
        entry = AuditEntry("job.cancel", "job", "a", "the boss", tenant="other")
        who = Attribution("the boss", "x", (entry,))
        operator = await there.engine(Role.OPERATOR, tenants=["default"])
        await operator.operate(CancelJobs(), Filter(ids=("a",)), who)
        (found,) = [
            one.entry for one in await there.store.audited() if one.entry.resource_id == "a"
        ]
        assert (found.user_id, found.tenant) == ("key1", "default")


async def test_only_who_may_do_everything_writes_keys_and_entries():
    async with remote() as there:
        record = Record(KIND, "k", "{}")
        who = Attribution("ann", "x")
        for engine in (
            await there.engine(Role.ADMIN),
            await there.engine(*EVERYTHING, tenants=["acme"]),
        ):
            with pytest.raises((Forbidden, AccessDenied)):
                await engine.set_record(KIND, "k", record, who, expected=None)
            with pytest.raises((Forbidden, AccessDenied)):
                await engine.records(KIND)
            with pytest.raises((Forbidden, AccessDenied)):
                await engine.audit([AuditEntry("a", "b", "c", "eve")])
        everything = await there.engine(*EVERYTHING)
        assert await everything.records(KIND)


@pytest.mark.parametrize("roles", [(Role.PRODUCER,), (Role.OPERATOR,), (Role.ADMIN,)])
async def test_nobody_brings_a_key_along_with_a_change(roles):
    text = new_key_text(random_bytes)
    secrets = (KeySecret(secret_hash(text.secret), 1),)
    key = ApiKey(
        id=text.id, name="eve", roles=EVERYTHING, secrets=secrets, created_at_us=1, created_by="eve"
    )
    record = Record(KIND, key.id, msgspec.json.encode(key).decode(), MAX_TIME_US)
    who = Attribution("eve", "x", once=record)
    event = NewEvent(
        event_type="a.b", entity_type="book", entity_id="b", actor_id="eve", tenant="acme"
    )
    async with remote() as there:
        await there.store.enqueue([NewJob(task="t", id="a", tenant="acme")])
        engine = await there.engine(*roles, tenants=["acme"])
        with pytest.raises((AccessDenied, Forbidden)):
            await engine.enqueue([NewJob(task="t", tenant="acme")], once=record)
        with pytest.raises((AccessDenied, Forbidden)):
            await engine.append([event], once=record)
        with pytest.raises((AccessDenied, Forbidden)):
            await engine.operate(CancelJobs(), Filter(ids=("a",)), who)
        assert (await there.api.call(str(text), "GET", "/v2/me")).status_code == 401
        assert await there.store.records(KIND, [key.id]) == []


async def test_operations_tell_nothing_of_payloads_to_who_may_not_see_them():
    async with remote() as there:
        await there.store.enqueue([NewJob(task="t", id="a", payload={"text": PLANTED})])
        edit = EditJobs((Assignment("payload.text", b'"%b"' % PLANTED.encode()),))
        wanted = Filter(payload=(PayloadCondition.of(("text",), PLANTED),))
        new = NewOperation(id="o", action=edit, wanted=wanted)
        await there.store.start_operation(new, Attribution("ann", "x"))
        viewer, responder = await there.engine(Role.VIEWER), await there.engine(Role.RESPONDER)
        assert PLANTED in str(await responder.operation("o"))
        assert PLANTED not in str([await viewer.operation("o"), await viewer.operations()])


async def test_an_explanation_does_not_name_jobs_out_of_reach():
    async with remote() as there:
        for job_id, scope in ((PLANTED, "library:1"), ("a", "library:2")):
            job = NewJob(task="t", id=job_id, tenant="acme", scope=scope, key="k", queue="q")
            await there.store.enqueue([job])
        near = await there.engine(Role.VIEWER, tenants=["acme"], scopes=["library:2"])
        whole = await there.engine(Role.VIEWER, tenants=["acme"])
        assert PLANTED in str(await whole.explain(["a"], tenant="acme"))
        (found,) = await near.explain(["a"], tenant="acme")
        assert found is not None
        assert [one.kind.value for one in found.blockers] == ["key"]
        assert PLANTED not in str(found)


async def test_a_call_by_a_key_names_no_more_than_a_turn_of_the_store_should_take():
    many = [f"n{number}" for number in range(10_001)]
    async with remote() as there:
        worker = await there.engine(Role.WORKER, tenants=["acme"])
        for call in (
            worker.claim(queues=many, worker="w"),
            worker.claim(queues=["q"], tasks=many, worker="w"),
            worker.get(many, tenant="acme"),
        ):
            with pytest.raises(InvalidInput, match="at most 10,000"):
                await call
        assert (await worker.claim(queues=many[1:], worker="w")).jobs == []


def test_every_verb_of_the_protocol_is_one_that_is_checked():
    verbs = {one.name for one in vars(messages).values() if isinstance(one, messages.Verb)}
    known = {name for name, _ in inspect.getmembers(AuthorizedEngine, inspect.isfunction)}
    assert verbs - known == {"now"}  # ``now_us`` tells nothing of the store


# --- what goes wrong ------------------------------------------------------------------------------


async def test_a_key_that_does_not_count_is_refused():
    async with remote() as there:
        for text in ("wrong", "hf_k_000000000000_" + "x" * 49):
            with pytest.raises(KeyRefused, match="refuses the key"):
                await there.with_key(text).enqueue([NewJob(task="t")])


async def test_nobody_there():
    engine = ClientEngine(HttpEndpoint("http://127.0.0.1:9", lambda: "k"), patience_seconds=0.05)
    with pytest.raises(Unavailable, match=r"holdfast serve"):
        await engine.counts()
    await engine.close()


async def test_a_certificate_that_is_not_trusted_and_one_that_is():
    tls = TlsFiles(str(CERTIFICATES / "first.crt"), str(CERTIFICATES / "first.key"), "x")
    async with remote(tls) as there:
        engine = await there.engine(Role.PRODUCER)
        with pytest.raises(Unavailable, match=r"not trusted .*api_ca_file"):
            await engine.enqueue([NewJob(task="t")])
    async with remote(tls, str(CERTIFICATES / "first.crt")) as there:
        engine = await there.engine(*EVERYTHING)
        await engine.enqueue([NewJob(task="t", id="a")])
        (job,) = (await engine.claim(queues=["default"], worker="w", wait_seconds=5)).jobs
        assert await engine.settle([completed(job)]) == [None]
        waiting = asyncio.create_task(
            engine.claim(queues=["default"], worker="w", wait_seconds=0.2)
        )
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await engine.enqueue([NewJob(task="t", id="b")])
        (job,) = (await engine.claim(queues=["default"], worker="w", wait_seconds=5)).jobs
        assert job.id == "b"


async def test_https_to_a_port_without_it():
    async with remote() as there:
        there.url = there.url.replace("http:", "https:")
        with pytest.raises(Unavailable, match="does not speak TLS"):
            await there.with_key("k").counts()


async def test_another_version_of_the_protocol():
    async with remote() as there:
        answer = await there.api.call(await there.api.key(Role.WORKER), "POST", "/engine/v9/counts")
        assert (answer.status_code, answer.json()["versions"]) == (404, [messages.VERSION])
        found = there.with_key("k")._channel._error("counts", 404, answer.content, 0)
        assert isinstance(found, UnknownFormat)


async def test_more_than_a_request_takes():
    async with remote() as there:
        producer = await there.engine(Role.PRODUCER)
        jobs = [NewJob(task="t", payload={"text": "x" * 250_000}) for _ in range(40)]
        with pytest.raises(TooLarge):
            await producer.enqueue(jobs)


async def test_a_claim_that_waits_ends_when_the_server_drains():
    async with remote() as there:
        text = await there.api.key(Role.WORKER, tenants=[])
        worker = there.with_key(text, 0.05)
        waiting = asyncio.create_task(worker.claim(queues=["default"], worker="w", wait_seconds=60))
        dispatcher = there.api.application._handler._engine_calls._dispatcher
        while not dispatcher._waiting:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)
        there.api.application.drain()
        while dispatcher._waiting:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)
        waiting.cancel()
        refused = await there.api.call(text, "POST", "/engine/v1/claim", body={})
        assert refused.status_code == 400  # it still says what is wrong
