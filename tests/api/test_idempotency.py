"""Idempotency-Key: one effect and one answer, however often a request is sent."""

import asyncio
import re
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from holdfast.engines.embedded.record_book import RecordBook
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.errors import Unavailable
from holdfast.model.job import NewJob
from holdfast.model.permissions import Role
from tests.e2e.rig import HOLDFAST, Daemon, Rig, until

from .rig import Api, opened

WHO = ("--by", "ann", "--reason", "a test")
KEY = {"idempotency-key": "k1"}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


async def jobs_of(api: Api) -> list[str]:
    return [job.id for job in (await api.engine.find(limit=100)).jobs]


async def test_a_repeat_has_the_same_answer_and_no_effect():
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        body = {"task": "t", "payload": {"n": 1}}
        first = await api.call(key, "POST", "/v2/jobs", body=body, headers=KEY)
        assert first.status_code == 201
        assert "idempotency-replayed" not in first.headers
        spaced = '{ "payload" : {"n":1}, "task":"t" }'
        headers = {**KEY, "authorization": f"Bearer {key}", "content-type": "application/json"}
        again = await api.http.post("/v2/jobs", headers=headers, content=spaced)
        assert (again.status_code, again.content) == (201, first.content)
        assert again.headers["location"] == first.headers["location"]
        assert again.headers["idempotency-replayed"] == "true"
        assert await jobs_of(api) == [first.json()["data"]["id"]]


async def test_another_request_with_the_same_key_is_refused():
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        for job_id in ("a", "b"):
            await api.engine.enqueue([NewJob(task="t", id=job_id, tenant="acme", hold=True)])
        await api.call(key, "POST", "/v2/jobs", body={"task": "t"}, headers=KEY)
        other = await api.call(key, "POST", "/v2/jobs", body={"task": "u"}, headers=KEY)
        assert (other.status_code, other.json()["type"]) == (
            422,
            "/problems/idempotency-key-reused",
        )
        why = {"why": "a test"}
        done = await api.call(key, "POST", "/v2/jobs/a/confirm", body=why, headers=KEY)
        assert done.status_code == 200, "the route is part of the scope"
        other = await api.call(key, "POST", "/v2/jobs/b/confirm", body=why, headers=KEY)
        assert other.json()["type"] == "/problems/idempotency-key-reused"


async def test_a_key_counts_for_its_tenant_and_api_key_alone():
    async with opened() as api:
        both = await api.key(Role.PRODUCER, tenants=("acme", "other"))
        third = await api.key(Role.PRODUCER)
        for sender, path in ((both, "tenants/acme/"), (both, "tenants/other/"), (third, "")):
            made = await api.call(
                sender, "POST", f"/v2/{path}jobs", body={"task": "t"}, headers=KEY
            )
            assert made.status_code == 201
            assert "idempotency-replayed" not in made.headers
        assert len(await jobs_of(api)) == 3


@pytest.mark.parametrize("bad", ["", "x" * 256, "a b", "ä", "a\x7fb"])
async def test_a_bad_key_is_refused_before_anything_happens(bad):
    async with opened() as api:
        key = await api.key(Role.PRODUCER)
        header = {"idempotency-key": bad.encode("latin-1")}
        sent = {"authorization": f"Bearer {key}".encode(), **header}
        got = await api.http.post("/v2/jobs", headers=sent, json={"task": "t"})
        assert (got.status_code, got.json()["errors"][0]["pointer"]) == (422, "/Idempotency-Key")
        assert await jobs_of(api) == []


@pytest.mark.parametrize("path", ["/claims", "/claims/settle", "/keys", "/keys/key1/rotate"])
async def test_a_key_is_refused_where_it_would_not_be_kept(path):
    async with opened() as api:
        key = await api.key(Role.ADMIN, Role.WORKER)
        headers = {"idempotency-key": "k"}
        refused = await api.call(key, "POST", f"/v2{path}", body={}, headers=headers)
        assert (refused.status_code, "Idempotency-Key" in refused.text) == (422, True)


async def test_a_refused_request_stores_nothing_and_may_be_mended():
    async with opened() as api:
        key = await api.key(Role.PRODUCER)
        for body in ({"task": ""}, {"task": "t", "priority": "high"}):
            assert (
                await api.call(key, "POST", "/v2/jobs", body=body, headers=KEY)
            ).status_code == 422
        made = await api.call(key, "POST", "/v2/jobs", body={"task": "t"}, headers=KEY)
        assert made.status_code == 201


async def test_every_action_on_a_job_is_made_once():
    async with opened() as api:
        key = await api.key(Role.ADMIN)
        await api.engine.enqueue([NewJob(task="t", id="held", tenant="acme", hold=True)])
        await api.dead_letter("dead")
        why = {"why": "a test"}
        edit = {**why, "priority": 2, "version": 1}
        for method, path, body in (
            ("POST", "/v2/jobs/held/confirm", why),
            ("PATCH", "/v2/jobs/held", edit),
            ("POST", "/v2/jobs/dead/archive", why),
            ("POST", "/v2/jobs/dead/restore", why),
            ("POST", "/v2/jobs/dead/replay", why),
            ("POST", "/v2/jobs/held/notes", why),
            ("DELETE", "/v2/jobs/held?why=enough", None),
        ):
            count = len(await api.engine.audited(limit=1_000))
            first = await api.call(key, method, path, body=body, headers=KEY)
            assert first.status_code == 200, first.text
            again = await api.call(key, method, path, body=body, headers=KEY)
            assert (again.status_code, again.content) == (200, first.content)
            assert again.headers["idempotency-replayed"] == "true"
            assert len(await api.engine.audited(limit=1_000)) == count + 1, path
        without = await api.call(key, "DELETE", "/v2/jobs/held?why=enough")
        assert without.status_code == 409


async def test_a_large_batch_is_answered_again_from_its_key():
    async with opened() as api:
        key = await api.key(Role.PRODUCER)
        body = {"jobs": [{"task": "t"} for _number in range(200)] + [{"task": "t", "id": "own"}]}
        first = await api.call(key, "POST", "/v2/jobs:batch", body=body, headers=KEY)
        assert first.status_code == 200
        [record] = await api.engine.records("once")
        assert len(record.value) < 4_096 < len(first.content)
        again = await api.call(key, "POST", "/v2/jobs:batch", body=body, headers=KEY)
        assert again.content == first.content
        assert len((await api.engine.find(limit=1_000)).jobs) == 201
        for more in ({"on_duplicate": "skip"}, {"jobs": [{"task": "t", "unique": "u"}]}):
            got = await api.call(
                key, "POST", "/v2/jobs:batch", body={**body, **more}, headers={**KEY}
            )
            assert got.status_code == 422


async def test_a_unique_job_that_exists_is_answered_as_such():
    async with opened() as api:
        key = await api.key(Role.PRODUCER)
        body = {"task": "t", "unique": "u"}
        made = await api.call(key, "POST", "/v2/jobs", body=body)
        for _again in range(2):
            got = await api.call(key, "POST", "/v2/jobs", body=body, headers=KEY)
            assert (got.status_code, got.json()["data"]["existing"]) == (200, True)
            assert got.json()["data"]["id"] == made.json()["data"]["id"]


@pytest.mark.parametrize("path", ["/v2/jobs", "/v2/jobs/a/notes"])
async def test_of_two_at_once_one_has_an_effect(path):
    async with opened() as api:
        key = await api.key(Role.ADMIN)
        await api.engine.enqueue([NewJob(task="t", id="a", tenant="acme")])
        body = {"task": "t"} if path.endswith("jobs") else {"why": "seen"}
        before = len(await jobs_of(api)), len(await api.engine.audited(limit=1_000))
        calls = [api.call(key, "POST", path, body=body, headers=KEY) for _number in range(8)]
        answers = await asyncio.gather(*calls)
        assert {one.status_code for one in answers} <= {200, 201}
        replayed = [one.headers.get("idempotency-replayed") for one in answers]
        assert replayed.count("true") == 7
        assert len({one.json()["data"]["id"] for one in answers}) == 1
        after = len(await jobs_of(api)), len(await api.engine.audited(limit=1_000))
        assert sum(after) == sum(before) + 1


async def test_if_the_answer_could_not_be_stored_a_repeat_shows_the_job(monkeypatch):
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        await api.engine.enqueue([NewJob(task="t", id="a", tenant="acme", hold=True)])
        real = api.engine.set_record

        async def fails(kind: str, *args: object, **options: object) -> None:
            if kind == "once":
                raise Unavailable("the server ended here")
            await real(kind, *args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(api.engine, "set_record", fails)
        why = {"why": "a test"}
        first = await api.call(key, "POST", "/v2/jobs/a/confirm", body=why, headers=KEY)
        assert first.status_code == 200
        again = await api.call(key, "POST", "/v2/jobs/a/confirm", body=why, headers=KEY)
        assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
        assert again.json() == first.json()


async def test_records_expire_after_a_day_and_are_bounded(monkeypatch):
    monkeypatch.setattr("holdfast.engines.embedded.record_book.MAX_ONCE", 3)
    async with opened() as api:
        key = await api.key(Role.PRODUCER)
        for number in (5, 4, 3, 2, 0, 1):
            headers = {"idempotency-key": f"k{number}"}
            await api.call(key, "POST", "/v2/jobs", body={"task": "t"}, headers=headers)
        records = await api.engine.records("once")
        assert len(records) == 3
        at_us = msgspec.json.decode(records[0].value)["at_us"]
        assert records[0].expires_at_us - at_us == 24 * 3_600 * 1_000_000
        got = await api.call(key, "POST", "/v2/jobs", body={"task": "t"}, headers=KEY)
        assert got.headers["idempotency-replayed"] == "true", "the newest are kept"


async def test_a_tenant_that_sends_many_keys_loses_its_own_records(monkeypatch):
    monkeypatch.setattr("holdfast.engines.embedded.record_book.MAX_ONCE", 6)
    async with opened() as api:
        calm = await api.key(Role.PRODUCER, tenants=("acme",))
        loud = await api.key(Role.PRODUCER, tenants=("zeta",))
        await api.call(calm, "POST", "/v2/jobs", body={"task": "t"}, headers=KEY)
        for number in range(20):
            headers = {"idempotency-key": f"k{number}"}
            await api.call(loud, "POST", "/v2/jobs", body={"task": "t"}, headers=headers)
        again = await api.call(calm, "POST", "/v2/jobs", body={"task": "t"}, headers=KEY)
        assert again.headers["idempotency-replayed"] == "true"
        assert len(await api.engine.records("once")) == 6


async def test_control_without_the_record_there_are_two_jobs(monkeypatch):
    monkeypatch.setattr(RecordBook, "once", lambda _self, _record, _now_us: [])
    with pytest.raises(AssertionError):
        await test_a_repeat_has_the_same_answer_and_no_effect()
    with pytest.raises(AssertionError):
        await test_every_action_on_a_job_is_made_once()


def served(rig: Rig) -> tuple[Daemon, str]:
    server = rig.start([HOLDFAST, "serve", "--port", "0"])
    found = until(
        lambda: server.gone() or re.search(r"is at (http://\S+)", server.output), "it listens"
    )
    assert isinstance(found, re.Match), server.errors
    return server, found[1]


def lost_answer(at: str, request: httpx.Request, *daemons: Daemon) -> None:
    """Send a request, and kill these when its answer is on the way: nobody reads it."""
    port = int(at.rpartition(":")[2])
    lines = [f"{request.method} {request.url.raw_path.decode()} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
        peer.sendall("\r\n".join([*lines, "", ""]).encode() + request.content)
        ready, _writable, _failed = select.select([peer], [], [], 20)
        assert ready, "it is answered"
        for daemon in daemons:
            daemon.kill()


def sent_twice(rig: Rig, owner: Daemon | None) -> None:
    """Create and cancel a job, each through a kill of every process after its commit."""
    done = rig.command("keys", "create", "a", "--role", "responder", "--tenant", "acme", *WHO)
    key = {"authorization": f"Bearer {done.stdout.strip()}"}
    server, at = served(rig)
    job = ""
    for number, method, path, body in (
        (1, "POST", "/v2/jobs", {"task": "later", "delay_seconds": 3600}),
        (2, "POST", "/v2/jobs/{id}/notes", {"why": "seen"}),
        (3, "DELETE", "/v2/jobs/{id}?why=enough", None),
    ):
        keyed = {**key, "idempotency-key": f"k{number}"}
        url = at + path.format(id=job)
        request = httpx.Request(method, url, headers=keyed, json=body)
        lost_answer(at, request, server, *([owner] if owner else []))
        owner = rig.run().ready() if owner else None
        server, at = served(rig)
        url = at + path.format(id=job)
        again = httpx.request(method, url, headers=keyed, json=body)
        assert again.status_code == (201 if number == 1 else 200), again.text
        assert again.headers["idempotency-replayed"] == "true"
        third = httpx.request(method, url, headers=keyed, json=body)
        assert third.content == again.content
        job = again.json()["data"]["id"]
    listed = httpx.get(f"{at}/v2/jobs", headers=key).json()["data"]
    assert [(one["id"], one["status"]) for one in listed] == [(job, "cancelled")]
    history = httpx.get(f"{at}/v2/jobs/{job}/history", headers=key).json()["data"]
    assert [note["text"] for note in history["notes"]].count("seen") == 1
    server.stop()


def test_one_effect_through_a_kill_on_a_directory(rig):
    sent_twice(rig, rig.run().ready())


def test_one_effect_through_a_kill_on_postgresql(server18, tmp_path):
    with server18.bare() as database:
        made = Rig(tmp_path)
        made.env["HOLDFAST_STORE"] = server18.store(database)
        try:
            assert made.command("migrate").returncode == 0
            sent_twice(made, None)
        finally:
            made.close()


async def test_simultaneous_requests_on_postgresql_have_one_effect(server18):
    with server18.fresh() as database:
        engine = await PostgresEngine.open(server18.store(database))
        async with opened(engine) as api:
            key = await api.key(Role.ADMIN)
            calls = [
                api.call(key, "POST", "/v2/jobs", body={"task": "t"}, headers=KEY)
                for _number in range(8)
            ]
            answers = await asyncio.gather(*calls)
            assert len({one.content for one in answers}) == 1
            assert len(await jobs_of(api)) == 1
