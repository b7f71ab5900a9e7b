"""The API described as OpenAPI 3.1, from its routes and the types of their bodies."""

from __future__ import annotations

from functools import cache
from typing import cast

import msgspec

from holdfast.operations.views import JobView

from .call import Route
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
def openapi_document() -> Schema:
    """Return the document at ``/v2/openapi.json``."""
    from .routing import PREFIX, ROUTES  # noqa: PLC0415 - the routes import what handles them

    bodies = [route.body for route in ROUTES if route.body is not None]
    kinds = [route.answers for route in ROUTES]
    _schemas, components = msgspec.json.schema_components(
        [*bodies, *kinds], ref_template=_REFERENCE, schema_hook=_any
    )
    schemas: Schema = {**components, "Problem": _PROBLEM, "Meta": _META}
    job = cast("dict[str, list[str]]", schemas[JobView.__name__])
    job["required"] = [name for name in job["required"] if name != "payload"]
    paths: dict[str, Schema] = {}
    for route in ROUTES:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": "2",
            "description": "Each path is also below /v2/tenants/{tenant}. Times are RFC 3339.",
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> Schema:
    parameters: list[Schema] = []
    if "{id}" in route.path:
        parameters.append({"name": "id", "in": "path", "required": True, "schema": _TEXT})
    parameters += [{"name": name, "in": "query", "schema": _TEXT} for name in route.parameters]
    if route.method == "PATCH":
        parameters.append({"name": "If-Match", "in": "header", "schema": _TEXT})
    found: Schema = {
        "operationId": route.operation_id,
        "summary": route.summary,
        "parameters": parameters,
        "responses": _responses(route),
    }
    if route.permission is not None:
        found["x-permission"] = route.permission.value
    if route.body is not None:
        media = "application/x-ndjson" if route.streams_body else "application/json"
        content = {media: {"schema": _schema_of(route.body)}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _responses(route: Route) -> Schema:
    envelope: Schema = {
        "type": "object",
        "properties": {
            "data": _schema_of(route.answers),
            "meta": {"$ref": _REFERENCE.format(name="Meta")},
            "errors": {"type": "array", "maxItems": 0},
        },
        "required": ["data", "meta", "errors"],
    }
    found: Schema = {}
    for status in route.statuses:
        found[str(status)] = {"description": route.summary}
        if status != 304:
            content: Schema = {media: {"schema": _TEXT} for media in route.media}
            if route.envelope:
                content["application/json"] = {"schema": envelope}
            found[str(status)] = {"description": route.summary, "content": content}
    problem = {"schema": {"$ref": _REFERENCE.format(name="Problem")}}
    found["default"] = {
        "description": "A problem",
        "content": {"application/problem+json": problem},
    }
    return found


def _any(_kind: object) -> Schema:
    return {"description": "Any JSON value."}


def _schema_of(kind: object) -> Schema:
    (schema,), _components = msgspec.json.schema_components(
        [kind], ref_template=_REFERENCE, schema_hook=_any
    )
    return cast(Schema, schema)


_TEXT: Schema = {"type": "string"}
