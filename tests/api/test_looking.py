"""The audit, series and metrics over HTTP."""

import pytest
from msgspec.structs import replace

from holdfast.http.credential_files import TokenFile
from holdfast.model.audit import WHOLE_AUDIT, AuditEntry
from holdfast.model.permissions import Role
from holdfast.operations.access.engine import AuthorizedEngine
from holdfast.telemetry.http_metrics import HTTP_METRICS

from .rig import Api, opened

TOKEN = "0123456789abcdef" * 2


async def acts(api: Api) -> None:
    for by, tenant, action in (
        ("key1", "acme", "job.replay"),
        ("bob", "acme", "job.cancel"),
        ("key1", "other", "job.cancel"),
        ("bob", "acme", "queue.policy"),
    ):
        entry = AuditEntry(action, "job", "j1", by, reason=f"because {by}", tenant=tenant)
        await api.engine.audit([entry])


async def numbers(api: Api, key: str, query: str = "") -> list[int]:
    got = await api.call(key, "GET", f"/v2/audit{query}")
    assert got.status_code == 200, got.text
    return [one["number"] for one in got.json()["data"]]


async def test_the_audit_is_searched_and_paged():
    async with opened() as api:
        await acts(api)
        key = await api.key(Role.AUDITOR)
        assert await numbers(api, key) == [4, 2, 1]
        assert await numbers(api, key, "?order=recorded&action=job.&by=bob") == [2]
        assert await numbers(api, key, "?text=BECAUSE+KEY&since=1h&type=job&resource=j1") == [1]
        first = await api.call(key, "GET", "/v2/audit?limit=2")
        cursor = first.json()["meta"]["next_cursor"]
        assert await numbers(api, key, f"?limit=2&cursor={cursor}") == [1]
        shown = await api.call(key, "GET", "/v2/audit/2")
        assert shown.json()["data"]["reason"] == "because bob"
        for path, status in (
            ("/v2/audit/3", 404),
            ("/v2/audit/zero", 404),
            ("/v2/audit?cursor=x", 400),
            ("/v2/audit?order=up", 422),
            ("/v2/audit?since=soon", 422),
        ):
            got = await api.call(key, "GET", path)
            assert got.status_code == status, got.text
        assert await numbers(api, key, "?tenant=other") == []


async def test_an_operator_sees_their_own_acts():
    async with opened() as api:
        await acts(api)
        key = await api.key(Role.OPERATOR)  # key1
        assert await numbers(api, key) == [1]
        assert await numbers(api, key, "?by=bob") == []
        assert (await api.call(key, "GET", "/v2/audit:verify")).status_code == 403


async def test_the_chain_is_verified_by_who_reaches_everything():
    async with opened() as api:
        await acts(api)
        key = await api.key(Role.AUDITOR, tenants=())
        found = (await api.call(key, "GET", "/v2/audit:verify")).json()["data"]
        assert (found["whole"], found["problem"]) == (True, "")
        again = await api.call(key, "GET", f"/v2/audit:verify?head={found['head']}")
        assert again.json()["data"]["whole"] is True
        wrong = await api.call(key, "GET", f"/v2/audit:verify?head=2:{'0' * 64}")
        assert (wrong.json()["data"]["whole"], "does not match" in wrong.text) == (False, True)
        bad = await api.call(key, "GET", "/v2/audit:verify?head=2")
        assert bad.json()["errors"][0]["pointer"] == "/head"


async def test_series_of_queues():
    async with opened() as api:
        await api.dead_letter("a")
        await api.engine.take_sample(every_seconds=10.0)
        key = await api.key(Role.VIEWER, tenants=())
        got = await api.call(key, "GET", "/v2/series?queue=dead&from=10m")
        (series,) = got.json()["data"]
        assert (series["queue"], series["points"][-1]["dead"]) == ("dead", 1)
        none = await api.call(key, "GET", "/v2/series?queue=other")
        assert none.json()["data"] == []
        for query, pointer in (
            ("from=soon", "/from"),
            ("from=1h&to=2h", "/to"),
            ("step=-1s", "/step"),
            ("&".join(["queue=a"] * 201), "/queue"),
        ):
            bad = await api.call(key, "GET", f"/v2/series?{query}")
            assert (bad.status_code, bad.json()["errors"][0]["pointer"]) == (422, pointer), bad.text


async def test_metrics_need_the_token_or_a_key_that_sees_all_counts(tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    async with opened() as api:
        handler = api.application._handler
        token = TokenFile(str(tmp_path / "token"), "token")
        handler._options = replace(handler._options, metrics_token=token)
        for role in Role:
            wide, narrow = await api.key(role, tenants=()), await api.key(role)
            allowed = role not in (Role.PRODUCER, Role.WORKER)
            assert (await api.call(wide, "GET", "/metrics")).status_code == (
                200 if allowed else 403
            ), role
            assert (await api.call(narrow, "GET", "/metrics")).status_code == (
                404 if allowed else 403
            ), role
        assert (await api.call(TOKEN, "GET", "/metrics")).status_code == 200
        for wrong in ("", TOKEN[:-1], "ü" * 32):
            sent = {b"authorization": f"Bearer {wrong}".encode()}
            assert (await api.http.get("/metrics", headers=sent)).status_code == 401
        assert (await api.call(TOKEN, "GET", "/v2/me")).status_code == 401
        denied = [one.entry.action for one in await api.engine.audited(limit=100)]
        assert "access.denied" in denied


async def test_metrics_count_requests_and_name_no_tenant():
    async with opened() as api:
        key = await api.key(Role.ADMIN, tenants=())
        narrow = await api.key(Role.VIEWER, tenants=("canary",))
        await api.call(narrow, "GET", "/v2/jobs/canary1?include=payload")
        await api.call(narrow, "GET", "/v2/tenants/canary/jobs?queue=canary2")
        await api.call(narrow, "GET", "/v2/canary3")
        await api.call("canary4", "GET", "/v2/jobs")
        got = await api.call(key, "GET", "/metrics")
        assert got.headers["content-type"].startswith("text/plain")
        assert "canary" not in got.text
        for sample in (
            'holdfast_http_requests_total{operation="getJob",status="403"} 1.0',
            'holdfast_http_requests_total{operation="listJobs",status="200"} 1.0',
            'holdfast_http_requests_total{operation="listJobs",status="401"} 1.0',
            'holdfast_http_requests_total{operation="none",status="404"} 1.0',
            'holdfast_http_request_seconds_count{operation="listJobs"} 2.0',
            "holdfast_http_requests_in_progress 1.0",
        ):
            assert sample in got.text, got.text
        for name in HTTP_METRICS:
            assert f"# TYPE {name}" in got.text


@pytest.mark.parametrize("path", ["/health/live", "/v2/openapi.json"])
async def test_what_needs_no_key_is_counted_too(path):
    async with opened() as api:
        await api.http.get(path)
        key = await api.key(Role.ADMIN, tenants=())
        text = (await api.call(key, "GET", "/metrics")).text
        assert 'operation="none"' not in text


async def test_control_an_audit_without_a_filter_is_noticed(monkeypatch):
    async def everything(self, wanted=WHOLE_AUDIT, **options):
        return await self._engine.audited(wanted, **options)

    monkeypatch.setattr(AuthorizedEngine, "audited", everything)
    with pytest.raises(AssertionError):
        await test_an_operator_sees_their_own_acts()
