"""Health, the OpenAPI document, and the page of problems."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.api.call import Route, decoded
from holdfast.api.openapi import openapi_document
from holdfast.api.problems import TYPES, RequestRefused
from holdfast.api.routing import VERSIONS
from holdfast.model import errors
from holdfast.model.errors import Unavailable

from .compatibility import breaks
from .rig import opened

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "docs" / "reference" / "openapi-v2.json"


async def test_health_needs_no_key_and_has_no_envelope():
    async with opened() as api:
        live = await api.http.get("/health/live")
        assert (live.status_code, live.json()) == (200, {"status": "ok"})
        ready = await api.http.get("/health/ready")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
        api.application.drain()
        ready = await api.http.get("/health/ready")
        assert (ready.status_code, ready.json()["status"]) == (503, "unhealthy")


async def test_ready_asks_the_store(monkeypatch):
    async with opened() as api:

        async def gone() -> None:
            raise Unavailable("no owner")

        monkeypatch.setattr(api.engine, "flags", gone)
        ready = await api.http.get("/health/ready")
        assert (ready.status_code, ready.json()["status"]) == (503, "unhealthy")


@pytest.mark.parametrize("version", list(VERSIONS))
async def test_the_openapi_document_is_the_committed_one(version):
    """``HOLDFAST_WRITE_GOLDEN=1`` writes additions; ``break`` also what takes something away."""
    committed = COMMITTED.with_name(f"openapi-{version}.json")
    text = json.dumps(openapi_document(version), indent=1, sort_keys=True) + "\n"
    write = os.environ.get("HOLDFAST_WRITE_GOLDEN")
    if write != "break":
        assert breaks(json.loads(committed.read_text("utf-8")), json.loads(text)) == []
    if write:
        committed.write_text(text, "utf-8")
    assert committed.read_text("utf-8") == text
    async with opened() as api:
        served = await api.http.get(f"/{version}/openapi.json")
        assert served.json() == json.loads(text)
        assert served.json()["openapi"] == "3.1.0"


def test_what_is_taken_away_is_told_from_what_is_added():
    before = json.loads(COMMITTED.read_text("utf-8"))
    more = json.loads(COMMITTED.read_text("utf-8"))
    more["paths"]["/v2/new"] = {}
    more["components"]["schemas"]["JobView"]["properties"]["new"] = {"type": "string"}
    assert breaks(before, more) == []
    less = json.loads(COMMITTED.read_text("utf-8"))
    del less["paths"]["/v2/jobs"]["post"]
    less["paths"]["/v2/jobs"]["get"]["parameters"] = []
    del less["paths"]["/v2/jobs/{id}"]["get"]["responses"]["200"]
    view = less["components"]["schemas"]["JobView"]
    del view["properties"]["queue"]
    view["properties"]["id"] = {"type": "integer"}
    less["components"]["schemas"]["NewJobBody"]["required"].append("why")
    found = breaks(before, less)
    for told in (
        "POST /v2/jobs is gone",
        "GET /v2/jobs: the parameter limit in query is gone",
        "GET /v2/jobs/{id}: the answer 200 is gone",
        "JobView: the field queue is gone",
        "JobView: the type of id was string",
        "NewJobBody: the new field why is required",
    ):
        assert told in found


def test_operation_ids_differ():
    ids = [
        one["operationId"]
        for version in VERSIONS
        for methods in openapi_document(version)["paths"].values()  # type: ignore[attr-defined]
        for one in methods.values()
    ]
    assert len(set(ids)) == len(ids)


def test_every_problem_has_a_section_and_every_section_a_problem():
    page = (ROOT / "docs" / "problems.md").read_text("utf-8")
    sections = [line[3:] for line in page.splitlines() if line.startswith("## ")]
    assert sections == [f"{one.status} {one.name}" for one in TYPES.values()]


async def test_an_unexpected_error_is_a_problem_without_its_text(monkeypatch):
    async with opened() as api:

        async def fails(*_args: object, **_options: object) -> None:
            raise errors.InvariantViolation("secret")

        key = await api.key("viewer")  # type: ignore[arg-type]
        monkeypatch.setattr(api.engine, "find", fails)
        got = await api.call(key, "GET", "/v2/jobs")
        assert (got.status_code, got.json()["type"]) == (500, "/problems/internal")
        assert "secret" not in got.text


def check_example(route: Route, document: dict[str, Any]) -> None:
    """Check that a body's example is one that the route takes, and that the document shows it."""
    sent = json.dumps(route.example).encode()
    decoded(sent, route.body)  # type: ignore[arg-type]
    version = document["info"]["version"]
    described = document["paths"][f"/v{version}{route.path}"][route.method.lower()]
    media = "application/x-ndjson" if route.streams_body else "application/json"
    assert described["requestBody"]["content"][media]["example"] == json.loads(sent)


@pytest.mark.parametrize("version", list(VERSIONS))
def test_every_body_has_an_example_that_its_route_takes(version):
    with_body = [route for route in VERSIONS[version] if route.body is not None]
    assert with_body
    for route in with_body:
        check_example(route, openapi_document(version))


@pytest.mark.parametrize("example", [None, {"taks": "t"}], ids=["none", "wrong"])
def test_control_a_missing_or_wrong_example_is_noticed(example):
    (route,) = [one for one in VERSIONS["v2"] if one.operation_id == "createJob"]
    with pytest.raises(RequestRefused):
        check_example(replace(route, example=example), openapi_document())
