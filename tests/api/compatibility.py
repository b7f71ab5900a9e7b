"""What a change of an OpenAPI document takes away from those who use it."""

from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]


def breaks(before: Document, after: Document) -> list[str]:
    """Return what worked with the document before and does not any more; additions are none."""
    found: list[str] = []
    for path, methods in before["paths"].items():
        for method, operation in methods.items():
            now = after["paths"].get(path, {}).get(method)
            name = f"{method.upper()} {path}"
            if now is None:
                found.append(f"{name} is gone")
            else:
                found += (f"{name}: {one}" for one in _operation(operation, now))
    schemas = after["components"]["schemas"]
    for name, schema in before["components"]["schemas"].items():
        if name not in schemas:
            found.append(f"the schema {name} is gone")
        else:
            found += (f"{name}: {one}" for one in _schema(schema, schemas[name]))
    return found


def _operation(before: Document, after: Document) -> Iterator[str]:
    if before["operationId"] != after["operationId"]:
        yield f"its operation id was {before['operationId']}"
    had = {(one["in"], one["name"]) for one in before["parameters"]}
    has = {(one["in"], one["name"]): one for one in after["parameters"]}
    for place, name in sorted(had - has.keys()):
        yield f"the parameter {name} in {place} is gone"
    for (place, name), one in has.items():
        if one.get("required") and (place, name) not in had:
            yield f"the new parameter {name} in {place} is required"
    for status in sorted(before["responses"].keys() - after["responses"].keys()):
        yield f"the answer {status} is gone"
    if "requestBody" in after and "requestBody" not in before:
        yield "a body is required"


def _schema(before: Document, after: Document) -> Iterator[str]:
    had, has = before.get("properties", {}), after.get("properties", {})
    for name in sorted(had.keys() - has.keys()):
        yield f"the field {name} is gone"
    for name in sorted(had.keys() & has.keys()):
        if had[name].get("type") != has[name].get("type"):
            yield f"the type of {name} was {had[name].get('type')}"
    for name in after.get("required", []):
        if name not in had and not name.startswith("$"):
            yield f"the new field {name} is required"
