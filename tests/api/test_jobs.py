"""Jobs over HTTP: the happy path of every route, conditions, and what is refused."""

import json
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.model.job import NewJob
from holdfast.model.outcome import completed
from holdfast.model.permissions import Role
from holdfast.testing import SimDisk

from .rig import Api, opened

WHY = {"why": "a test"}


async def test_a_job_is_created_read_listed_edited_and_cancelled():
    async with opened() as api:
        await the_life_of_a_job(api)


async def test_the_same_on_a_journal():
    engine = await JournalEngine.open(SimDisk(), options=JournalOptions(inline=True))
    async with opened(engine) as api:
        await the_life_of_a_job(api)


async def the_life_of_a_job(api: Api) -> None:
    key = await api.key(Role.RESPONDER)
    wanted = {"task": "mail", "id": "m1", "payload": {"to": "bob"}, "priority": 3}
    made = await api.call(key, "POST", "/v2/jobs", body=wanted)
    assert made.status_code == 201, made.text
    assert made.json()["data"] == {"id": "m1", "tenant": "acme", "existing": False}
    assert made.headers["location"] == "/v2/tenants/acme/jobs/m1"
    envelope = made.json()
    assert envelope["errors"] == []
    assert envelope["meta"]["api_version"] == "2"
    assert envelope["meta"]["request_id"] == made.headers["x-request-id"]

    shown = await api.call(key, "GET", made.headers["location"])
    assert shown.json()["data"]["status"] == "pending"
    assert "payload" not in shown.json()["data"]
    asked = await api.call(key, "GET", "/v2/jobs/m1?include=payload")
    assert asked.json()["data"]["payload"] == {"to": "bob"}
    listed = await api.call(key, "GET", "/v2/jobs?task=mail&status=pending")
    assert [job["id"] for job in listed.json()["data"]] == ["m1"]

    tag = shown.headers["etag"]
    again = await api.call(key, "GET", "/v2/jobs/m1", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    changed = await api.call(
        key, "PATCH", "/v2/jobs/m1", body={"priority": 5, **WHY}, headers={"if-match": tag}
    )
    assert changed.json()["data"]["priority"] == 5
    assert changed.headers["etag"] != tag
    again = await api.call(key, "GET", "/v2/jobs/m1", headers={"if-none-match": tag})
    assert again.status_code == 200

    gone = await api.call(key, "DELETE", "/v2/jobs/m1?why=enough")
    assert (gone.status_code, gone.json()["data"]["status"]) == (200, "cancelled")
    history = await api.call(key, "GET", "/v2/jobs/m1/history")
    assert [note["text"] for note in history.json()["data"]["notes"]] == ["a test", "enough"]
    audited = [one.entry for one in await api.engine.audited(limit=100)]
    assert ("job.cancel", "key1") in [(one.action, one.user_id) for one in audited]


@pytest.mark.parametrize("when", [{"delay_seconds": 1e12}, {"run_at": "9999-12-31T23:59:59-14:00"}])
async def test_a_job_that_is_due_after_the_last_year_does_not_break_lists(when):
    async with opened() as api:
        key = await api.key(Role.PRODUCER)
        made = await api.call(key, "POST", "/v2/jobs", body={"task": "t", "id": "far", **when})
        assert made.status_code == 201
        everything = await api.key(Role.ADMIN, tenants=())
        for form in ("json", "csv", "ndjson", "parquet"):
            found = await api.call(everything, "GET", f"/v2/jobs?format={form}&fields=id,run_at")
            assert (found.status_code, b"far" in found.content) == (200, True)


async def test_an_edit_needs_the_version_that_was_seen():
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        await api.engine.enqueue([NewJob(task="t", id="a", tenant="acme")])
        for more, tag, status, name in (
            ({}, None, 428, "precondition-required"),
            ({"version": 7}, None, 409, "stale-version"),
            ({}, '"7"', 412, "precondition-failed"),
            ({}, '"x"', 412, "precondition-failed"),
            ({"version": 1}, None, 200, ""),
        ):
            headers = {} if tag is None else {"if-match": tag}
            body = {"priority": 1, **WHY, **more}
            got = await api.call(key, "PATCH", "/v2/jobs/a", body=body, headers=headers)
            assert got.status_code == status, got.text
            if name:
                assert got.json()["type"] == f"/problems/{name}"


async def test_dead_letters_are_replayed_archived_restored_and_noted():
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        await api.dead_letter("a")
        failures = await api.call(key, "GET", "/v2/failures")
        assert [(one["count"], one["error_reason"]) for one in failures.json()["data"]] == [
            (1, "timeout")
        ]
        for action, status in (
            ("archive", "archived"),
            ("restore", "dead"),
            ("notes", "dead"),
            ("replay", "pending"),
        ):
            got = await api.call(key, "POST", f"/v2/jobs/a/{action}", body=WHY)
            assert (got.status_code, got.json()["data"]["status"]) == (200, status), action
        again = await api.call(key, "POST", "/v2/jobs/a/replay", body=WHY)
        assert again.json()["type"] == "/problems/illegal-transition"
        assert "pending" in again.json()["detail"]


async def test_a_held_job_is_confirmed_a_running_one_reclaimed_and_its_result_awaited():
    async with opened() as api:
        key = await api.key(Role.RESPONDER)
        await api.call(key, "POST", "/v2/jobs", body={"task": "t", "id": "a", "hold": True})
        waits = await api.call(key, "GET", "/v2/jobs/a/explain")
        assert not waits.json()["data"]["claimable"]
        done = await api.call(key, "POST", "/v2/jobs/a/confirm", body=WHY)
        assert done.json()["data"]["status"] == "pending"
        await api.engine.claim(queues=["default"], worker="w")
        lost = await api.call(key, "POST", "/v2/jobs/a/reclaim", body=WHY)
        assert lost.json()["data"]["status"] == "pending"
        early = await api.call(key, "GET", "/v2/jobs/a/result")
        assert (early.status_code, early.json()["data"]["finished"]) == (202, False)
        claim = await api.engine.claim(queues=["default"], worker="w")
        await api.engine.settle([completed(claim.jobs[0], b'{"sent":1}')])
        late = await api.call(key, "GET", "/v2/jobs/a/result?wait=5")
        assert (late.status_code, late.json()["data"]["result"]) == (200, {"sent": 1})
        queues = await api.call(key, "GET", "/v2/queues")
        assert queues.json()["data"][0]["counts"]["completed"] == 1


async def test_a_batch_is_all_or_nothing_and_names_what_is_wrong():
    async with opened() as api:
        key = await api.key(Role.PRODUCER)
        jobs = [{"task": "t", "id": f"j{number}"} for number in range(3)]
        wrong = [*jobs, {"task": "t", "queue": ""}]
        refused = await api.call(key, "POST", "/v2/jobs:batch", body={"jobs": wrong})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == "/3/queue"
        assert await api.engine.get(["j0"], tenant="acme") == [None]
        made = await api.call(key, "POST", "/v2/jobs:batch", body={"jobs": jobs})
        assert [one["existing"] for one in made.json()["data"]] == [False] * 3
        again = await api.call(key, "POST", "/v2/jobs:batch", body={"jobs": jobs})
        assert (again.status_code, again.json()["type"]) == (409, "/problems/duplicate-id")
        body = {"jobs": jobs, "on_duplicate": "skip"}
        skipped = await api.call(key, "POST", "/v2/jobs:batch", body=body)
        assert [one["existing"] for one in skipped.json()["data"]] == [True] * 3


async def test_a_unique_job_that_exists_is_the_answer():
    async with opened() as api:
        key = await api.key(Role.PRODUCER)
        body = {"task": "t", "unique": "u"}
        first = await api.call(key, "POST", "/v2/jobs", body=body)
        second = await api.call(key, "POST", "/v2/jobs", body=body)
        assert (first.status_code, second.status_code) == (201, 200)
        assert second.json()["data"]["id"] == first.json()["data"]["id"]
        assert second.json()["meta"]["existing"] is True


async def test_pages_have_every_job_once():
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        names = {f"j{number}" for number in range(7)}
        await api.engine.enqueue([NewJob(task="t", id=name, tenant="acme") for name in names])
        seen: list[str] = []
        path, link = "/v2/jobs?limit=3&order=created", ""
        for _page in range(3):
            got = await api.call(key, "GET", path)
            seen += [job["id"] for job in got.json()["data"]]
            link = got.headers.get("link", "")
            path = "/v2/jobs" + link.partition("<")[2].partition(">")[0]
        assert 'rel="next"' not in link
        assert (len(seen), set(seen)) == (7, names)
        other = await api.call(key, "GET", "/v2/jobs?cursor=nonsense")
        assert (other.status_code, other.json()["type"]) == (400, "/problems/invalid-cursor")


IDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30).filter(
    lambda text: text.strip() == text
)


@given(IDS | st.sampled_from(["../a?b#c/%2f", "..", ".", "a/history", "jobs:batch", "%", "+ +"]))
@settings(max_examples=60, deadline=None)
def test_an_id_may_be_any_string(job_id):
    import asyncio  # noqa: PLC0415 - hypothesis runs outside of the loop

    async def run() -> None:
        async with opened() as api:
            key = await api.key(Role.RESPONDER)
            made = await api.call(key, "POST", "/v2/jobs", body={"task": "t", "id": job_id})
            if made.status_code == 422:
                return  # no store has such an id
            assert made.status_code == 201, made.text
            for path in (
                made.headers["location"],
                f"/v2/jobs:lookup?id={quote(job_id, safe='')}",
            ):
                got = await api.call(key, "GET", path)
                assert got.status_code == 200, (path, got.text)
                assert got.json()["data"]["id"] == job_id
            noted = await api.call(key, "POST", made.headers["location"] + "/notes", body=WHY)
            assert noted.json()["data"]["id"] == job_id

    asyncio.run(run())


@pytest.mark.parametrize(
    ("body", "content_type", "status", "name"),
    [
        (b"{", "application/json", 400, "malformed-json"),
        (b"", "application/json", 400, "malformed-json"),
        (b'{"task":"t"}', "text/plain", 415, "unsupported-media-type"),
        (b'{"task":"t","max_attemps":3}', "application/json", 422, "invalid-input"),
        (b'{"task":"t","tenant":"other"}', "application/json", 422, "invalid-input"),
        (b'{"task":7}', "application/json", 422, "invalid-input"),
        (b"[" * 100_000, "application/json", 400, "malformed-json"),
        (
            b'{"task":"t","payload":' + b'{"a":' * 70 + b"1" + b"}" * 71,
            "application/json",
            400,
            "malformed-json",
        ),
        (b'{"task":"t","id":"\\ud800"}', "application/json", 400, "malformed-json"),
        (b'{"task":"\xff"}', "application/json", 400, "malformed-json"),
        (b'{"task":"t","id":"a\\nb"}', "application/json", 422, "invalid-input"),
        (b'{"task":"t","priority":1e400}', "application/json", 422, "invalid-input"),
        (b'{"task":"t","delay_seconds":-1}', "application/json", 422, "invalid-input"),
        (b" " * ((8 << 20) + 1), "application/json", 413, "too-large"),
    ],
)
async def test_a_hostile_body_is_a_problem_and_nothing_is_stored(body, content_type, status, name):
    async with opened() as api:
        headers = {
            "authorization": f"Bearer {await api.key(Role.ADMIN)}",
            "content-type": content_type,
        }
        got = await api.http.post("/v2/jobs", content=body, headers=headers)
        assert (got.status_code, got.json()["type"]) == (status, f"/problems/{name}"), got.text
        assert got.headers["content-type"] == "application/problem+json"
        assert await api.engine.counts() == {}


@pytest.mark.parametrize(
    ("path", "status", "name"),
    [
        ("/v2/jobs?statsu=dead", 400, "unknown-parameter"),
        ("/v2/jobs?status=sleeping", 422, "invalid-input"),
        ("/v2/jobs?limit=0", 422, "invalid-input"),
        ("/v2/jobs?limit=" + "9" * 400, 422, "invalid-input"),
        ("/v2/jobs?limit=1&limit=2", 422, "invalid-input"),
        ("/v2/jobs?order=sideways", 422, "invalid-input"),
        ("/v2/jobs?q=colour:red", 422, "invalid-input"),
        ("/v2/jobs?queue=%ff", 400, "unknown-parameter"),
        ("/v2/jobs?" + "&".join(["queue=a"] * 1_001), 400, "unknown-parameter"),
        ("/v2/jobs/%ff", 404, "not-found"),
        ("/v2/jobs/none", 404, "not-found"),
        ("/v2/jobs/", 404, "not-found"),
        ("/v3/jobs", 404, "not-found"),
        ("//v2/jobs", 404, "not-found"),
        ("/v2/jobs?group=nothing", 404, "not-found"),
    ],
)
async def test_a_hostile_path_is_a_problem(path, status, name):
    async with opened() as api:
        key = await api.key(Role.ADMIN)
        got = await api.call(key, "GET", path)
        assert (got.status_code, got.json()["type"]) == (status, f"/problems/{name}"), got.text
        assert set(json.loads(got.content)) >= {"type", "title", "status", "detail", "instance"}


async def test_another_method_says_which_there_are():
    async with opened() as api:
        got = await api.call(await api.key(Role.ADMIN), "PUT", "/v2/jobs/a")
        assert got.status_code == 405
        assert got.headers["allow"] == "DELETE, GET, HEAD, PATCH"
