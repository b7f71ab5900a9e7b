"""What every answer of the API must have, as checks for schemathesis (``SCHEMATHESIS_HOOKS``)."""

import json

import schemathesis

from holdfast.api.problems import TYPES

NDJSON = "application/x-ndjson"
FOREIGN = "planted-for-the-other-tenant"
_TYPES = {one.uri: one.status for one in TYPES.values()}


@schemathesis.serializer(NDJSON)
def lines(ctx: schemathesis.SerializationContext, value: object) -> bytes:
    """Send what is generated as one line."""
    return value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n"


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
