"""What every answer of the API must have, as checks for schemathesis (``SCHEMATHESIS_HOOKS``)."""

import json
from functools import cache
from pathlib import Path

import schemathesis

from holdfast.api.problems import TYPES

NDJSON = "application/x-ndjson"
FOREIGN = "planted-for-the-other-tenant"
_TYPES = {one.uri: one.status for one in TYPES.values()}


@schemathesis.serializer(NDJSON)
def one_line(ctx: schemathesis.SerializationContext, value: object) -> bytes:
    """Send a body of a single line."""
    return json.dumps(value).encode() + b"\n"


@cache
def own_keys() -> frozenset[str]:
    """Return the ids of the keys that the requests are sent with."""
    peers = json.loads(Path("auth.json").read_text("utf-8"))["auth"]
    return frozenset(one["fixedHeaders"][0]["value"].split("_")[2] for one in peers)


@schemathesis.hook
def before_call(
    ctx: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, object]
) -> None:
    """Revoke and rotate other keys alone: without its own one nothing is answered any more."""
    if case.path.startswith("/v2/keys/") and case.path_parameters.get("id") in own_keys():
        case.path_parameters["id"] = "another"


@schemathesis.check
def an_error_is_a_documented_problem(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case
) -> None:
    if response.status_code < 400 or case.method == "HEAD":
        return
    assert response.headers["content-type"][0] == "application/problem+json"
    problem = response.json()
    assert _TYPES[problem["type"]] == problem["status"] == response.status_code, problem
    assert problem["detail"], problem
    assert problem["data"] is None, problem


@schemathesis.check
def an_answer_is_marked(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case
) -> None:
    assert response.headers["x-request-id"], "every answer has a request id"
    assert response.headers["x-content-type-options"] == ["nosniff"]
    assert response.headers["cache-control"] == ["no-store"]


@schemathesis.check
def nothing_of_another_tenant_is_shown(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case
) -> None:
    assert FOREIGN not in response.text
