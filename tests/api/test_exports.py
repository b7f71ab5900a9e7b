"""Lists as files: formats, what a spreadsheet must not run, and payloads only for those allowed."""

import csv
import io
import json
import sys
from datetime import datetime

import pytest

from holdfast.api import exports
from holdfast.model.job import NewJob
from holdfast.model.permissions import Role

from .rig import Api, opened


async def filled(api: Api, count: int = 3) -> None:
    for number in range(count):
        job = NewJob(task="t", id=f"j{number}", tenant="acme", payload={"card": "4111"})
        await api.engine.enqueue([job])


async def test_ndjson_and_csv_have_every_job_of_every_page(monkeypatch):
    monkeypatch.setattr(exports, "MAX_PAGE", 2)
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        await filled(api, 5)
        names = [f"j{number}" for number in range(5)]
        got = await api.call(key, "GET", "/v2/jobs?format=ndjson&order=created")
        assert got.headers["content-type"] == "application/x-ndjson"
        assert [json.loads(line)["id"] for line in got.text.splitlines()] == names
        got = await api.call(
            key,
            "GET",
            "/v2/jobs?order=created&fields=id,created_at,depends_on",
            headers={"accept": "text/csv"},
        )
        assert got.headers["content-type"] == "text/csv; charset=utf-8; header=present"
        wanted = "attachment; filename=\"jobs.csv\"; filename*=UTF-8''jobs-acme.csv"
        assert got.headers["content-disposition"] == wanted
        assert got.text.startswith("id,created_at,depends_on\r\n")
        rows = list(csv.DictReader(io.StringIO(got.text, newline="")))
        assert [row["id"] for row in rows] == names
        assert datetime.fromisoformat(rows[0]["created_at"]).tzinfo is not None
        limited = await api.call(key, "GET", "/v2/jobs?format=ndjson&limit=3")
        assert len(limited.text.splitlines()) == 3
        first = (await api.call(key, "GET", "/v2/jobs?order=created&limit=2")).json()
        cursor = first["meta"]["next_cursor"]
        rest = await api.call(key, "GET", f"/v2/jobs?order=created&format=ndjson&cursor={cursor}")
        assert [json.loads(line)["id"] for line in rest.text.splitlines()] == names[2:]


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
async def test_a_cell_that_a_spreadsheet_would_run_is_guarded(start):
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        job = NewJob(task="t", id=f'{start}1,"2"', tenant="acme", priority=-5)
        await api.engine.enqueue([job])
        path = "/v2/jobs?format=csv&fields=id,priority"
        got = await api.call(key, "GET", path)
        assert list(csv.reader(io.StringIO(got.text)))[1] == [f"'{job.id}", "-5"]
        raw = await api.call(key, "GET", f"{path}&raw_cells=1&bom=1")
        assert raw.content.startswith(b"\xef\xbb\xbfid,")
        assert list(csv.reader(io.StringIO(raw.text)))[1][0] == job.id


async def test_control_without_the_guard_a_formula_is_written(monkeypatch):
    monkeypatch.setattr(exports, "_FORMULA", ())
    with pytest.raises(AssertionError):
        await test_a_cell_that_a_spreadsheet_would_run_is_guarded("=")


@pytest.mark.parametrize("form", ["ndjson", "csv", "parquet"])
async def test_payloads_are_exported_only_to_who_may_see_them(form):
    async with opened() as api:
        await filled(api, 1)
        viewer, responder = await api.key(Role.VIEWER), await api.key(Role.RESPONDER)
        for key in (viewer, responder):
            got = await api.call(key, "GET", f"/v2/jobs?format={form}")
            assert (got.status_code, b"4111" in got.content) == (200, False)
        path = f"/v2/jobs?format={form}&include=payload"
        assert (await api.call(viewer, "GET", path)).status_code == 403
        shown = await api.call(responder, "GET", path)
        assert (shown.status_code, b"4111" in shown.content) == (200, True)


async def test_parquet_has_typed_columns():
    from pyarrow import parquet  # noqa: PLC0415 - slow to import

    async with opened() as api:
        key = await api.key(Role.VIEWER)
        await filled(api)
        accept = {"accept": "application/vnd.apache.parquet, application/json;q=0.5"}
        got = await api.call(key, "GET", "/v2/jobs?order=created", headers=accept)
        table = parquet.read_table(io.BytesIO(got.content))
        assert table.column("id").to_pylist() == ["j0", "j1", "j2"]
        assert str(table.schema.field("created_at").type) == "timestamp[us, tz=UTC]"
        assert str(table.schema.field("priority").type) == "int64"


async def test_what_is_not_there_says_what_is(monkeypatch):
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        got = await api.call(key, "GET", "/v2/jobs", headers={"accept": "image/png"})
        assert (got.status_code, got.json()["type"]) == (406, "/problems/not-acceptable")
        assert "text/csv" in got.json()["available"]
        won = await api.call(key, "GET", "/v2/jobs?format=csv", headers={"accept": "image/png"})
        assert won.status_code == 200
        for query in ("format=xml", "format=csv&bom=yes"):
            assert (await api.call(key, "GET", f"/v2/jobs?{query}")).status_code == 422
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        monkeypatch.setattr(exports, "_has_pyarrow", lambda: False)
        got = await api.call(key, "GET", "/v2/jobs?format=parquet")
        assert got.status_code == 406
        assert "holdfast[parquet]" in got.json()["detail"]
        assert "application/vnd.apache.parquet" not in got.json()["available"]


async def test_the_first_page_that_fails_is_a_problem():
    async with opened() as api:
        key = await api.key(Role.VIEWER)
        got = await api.call(key, "GET", "/v2/jobs?format=csv&cursor=AAAA")
        assert (got.status_code, got.json()["type"]) == (400, "/problems/invalid-cursor")
