"""The API described as OpenAPI 3.1, from its routes and the types of their bodies."""

from __future__ import annotations

import re
from functools import cache
from typing import cast

import msgspec

from holdfast.model.job import NAME_LIMIT
from holdfast.operations.views import JobView

from .call import Route
from .deprecation import DEPRECATED, NOTICE
from .problems import TYPES

Schema = dict[str, object]

_REFERENCE = "#/components/schemas/{name}"
_PROBLEM: Schema = {
    "type": "object",
    "description": "RFC 9457; `type` is one of those in docs/problems.md.",
    "properties": {
        "type": {"type": "string", "enum": [one.uri for one in TYPES.values()]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string", "description": "The request id."},
        "retryable": {"type": "boolean"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["type", "title", "status", "detail", "instance"],
}
_REFUSED: Schema = {
    "description": "A problem",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_META: Schema = {
    "type": "object",
    "properties": {
        "api_version": {"type": "string"},
        "timestamp": {"type": "string", "format": "date-time"},
        "request_id": {"type": "string"},
        "next_cursor": {"type": "string"},
        "prev_cursor": {"type": "string"},
        "total": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "relation": {"type": "string", "enum": ["equal", "at_least"]},
            },
        },
        "existing": {"type": "boolean"},
    },
    "required": ["api_version", "timestamp", "request_id"],
}


@cache
def openapi_document(version: str = "v2") -> Schema:
    """Return the document at ``/v2/openapi.json``, or that of another version."""
    from .routing import VERSIONS  # noqa: PLC0415 - the routes import what handles them

    routes, about = VERSIONS[version], "Each path is also below "
    about += f"/{version}/tenants/{{tenant}}. Times are RFC 3339."
    bodies = [route.body for route in routes if route.body is not None]
    kinds = [one for route in routes for one in (route.answers, *route.other_answers.values())]
    _schemas, components = msgspec.json.schema_components(
        [*bodies, *kinds], ref_template=_REFERENCE, schema_hook=_any
    )
    schemas: Schema = {**components, "Problem": _PROBLEM, "Meta": _META}
    if JobView.__name__ in schemas:
        job = cast("dict[str, list[str]]", schemas[JobView.__name__])
        job["required"] = [name for name in job["required"] if name != "payload"]
    deprecated: Schema = {"deprecated": True} if version in DEPRECATED else {}
    paths: dict[str, Schema] = {}
    for route in routes:
        described = {**_operation(route), **deprecated}
        paths.setdefault(f"/{version}{route.path}", {})[route.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": version[1:],
            "description": f"{NOTICE} {about}" if deprecated else about,
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {"Problem": _REFUSED},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> Schema:
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [{"name": name, "in": "query", "schema": _TEXT} for name in route.parameters]
    if route.method in ("PATCH", "PUT"):
        parameters.append({"name": "If-Match", "in": "header", "schema": _TEXT})
    if route.method != "GET" and route.takes_key:
        key = {**_TEXT, "minLength": 1, "maxLength": NAME_LIMIT}
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": key})
    found: Schema = {
        "operationId": route.operation_id,
        "summary": route.summary,
        "parameters": parameters,
        "responses": _responses(route),
    }
    if route.permission is not None:
        found["x-permission"] = route.permission.value
    if route.everything:
        found["x-every-tenant"] = True
    if route.body is not None:
        media = "application/x-ndjson" if route.streams_body else "application/json"
        content = {media: {"schema": _schema_of(route.body), "example": route.example}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _responses(route: Route) -> Schema:
    found: Schema = {}
    for status in route.statuses:
        found[str(status)] = {"description": route.summary}
        if status != 304:
            envelope = _envelope(route.other_answers.get(status, route.answers))
            content: Schema = {media: {"schema": _TEXT} for media in route.media}
            if route.envelope:
                content["application/json"] = {"schema": envelope}
            found[str(status)] = {"description": route.summary, "content": content}
    for statuses in ("4XX", "503", "507"):
        found[statuses] = {"$ref": "#/components/responses/Problem"}
    return found


def _envelope(data: object) -> Schema:
    return {
        "type": "object",
        "properties": {
            "data": _schema_of(data),
            "meta": {"$ref": _REFERENCE.format(name="Meta")},
            "errors": {"type": "array", "maxItems": 0},
        },
        "required": ["data", "meta", "errors"],
    }


def _any(_kind: object) -> Schema:
    return {"description": "Any JSON value."}


def _schema_of(kind: object) -> Schema:
    (schema,), _components = msgspec.json.schema_components(
        [kind], ref_template=_REFERENCE, schema_hook=_any
    )
    return cast(Schema, schema)


_TEXT: Schema = {"type": "string"}
