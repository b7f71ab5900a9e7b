"""The schema of one version of an event type: a class, and what JSON it takes.

The class is a dataclass, a ``msgspec.Struct`` or a model of pydantic 2. The *data* of an event is
its payload, together with ``before``, ``after`` and ``diff`` where it has them: a class may have
fields of these names, and those are stored beside the payload.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import msgspec.inspect

from .errors import EventInvalid, InvalidInput
from .job import BAD_PAYLOAD
from .json_values import NOT_FINITE, has_non_finite
from .value_types import changed, decode_hook, encode_hook, is_model, needs_check, unsupported

CHANGE_FIELDS = ("before", "after", "diff")
"""The fields that are stored beside the payload."""
JsonSchema = Mapping[str, object]

_ENCODE = msgspec.json.Encoder(enc_hook=encode_hook).encode
_OBJECT = msgspec.json.Decoder(dict[str, object])
_PLACE = " - at `$"
_MISSING = re.compile(r"Object missing required field `(?P<field>.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.*)`")
_LIMITS = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matches {}",
}
_MAX_DEPTH = 20


class FieldInfo(msgspec.Struct, frozen=True):
    """A field of the data, for people."""

    name: str
    type: str
    required: bool
    limits: str = ""
    description: str = ""


class EventSchema:
    """Encodes, decodes and describes the data of one version of an event type."""

    def __init__(self, kind: type, event_type: str) -> None:
        """Raise ``InvalidInput`` if JSON cannot carry values of this class."""
        self.kind = kind
        self._event_type = event_type
        if not (dataclasses.is_dataclass(kind) or _is_struct(kind) or is_model(kind)):
            raise InvalidInput(
                "event",
                f"{event_type}: {kind!r} is not a dataclass, a msgspec.Struct or a pydantic model",
            )
        try:
            self._info = msgspec.inspect.type_info(kind)
            problem = unsupported(self._info, kind.__name__)
            if problem is not None:
                raise InvalidInput("event", f"{event_type}: {problem}")
            self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
                kind, dec_hook=decode_hook
            )
            self.json_schema = _json_schema(kind)
        except (TypeError, NameError) as error:
            problem = f"{event_type}: JSON cannot carry {kind.__name__}: {error}"
            raise InvalidInput("event", problem) from None
        self._checked = not is_model(kind) and needs_check(self._info)
        root = _resolved(self.json_schema, self.json_schema)
        self._properties = cast("Mapping[str, JsonSchema]", root.get("properties", {}))
        self._needed = frozenset(cast("list[str]", root.get("required", [])))
        self.is_open = bool(root.get("additionalProperties", False))
        if root.get("type") != "object":
            raise InvalidInput("event", f"{event_type}: {kind.__name__} is not a JSON object")
        self.has_changes = not self._properties.keys().isdisjoint(CHANGE_FIELDS)
        """Whether before, after or diff are fields of the class."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, as in JSON."""
        return tuple(self._properties)

    @property
    def fields(self) -> list[FieldInfo]:
        """The fields, for people."""
        return [
            FieldInfo(
                name,
                type_text(node, self.json_schema),
                name in self._needed,
                _limits_text(node, self.json_schema),
                str(node.get("description", "")),
            )
            for name, node in self._properties.items()
        ]

    def encode(self, value: object) -> tuple[bytes, object]:
        """Return the data of this object, and the object that comes back from it.

        Raise ``EventInvalid`` naming a bad field.
        """
        try:
            data = _ENCODE(value)
            back = self._decoder.decode(data)
            if back == value:
                return bytes(memoryview(data)), back
        except BAD_PAYLOAD:
            pass  # the checks below name the problem
        self._check_unchanged(value)
        try:
            data = _ENCODE(value)
        except BAD_PAYLOAD as error:
            problem = str(error) or type(error).__name__
            raise EventInvalid(self._event_type, "payload", problem) from None
        if b"null" in data and has_non_finite(value):
            raise EventInvalid(self._event_type, "payload", NOT_FINITE)
        return bytes(memoryview(data)), self.decode(data)

    def _check_unchanged(self, value: object) -> None:
        """Raise ``EventInvalid`` if JSON would make something else of a field."""
        if self._checked and (problem := changed(value, self._info, "")) is not None:
            field, _, rest = problem.removeprefix(".").partition(" ")
            raise EventInvalid(self._event_type, field, rest)

    def decode(self, data: bytes) -> object:
        """Return the object with this data; raise ``EventInvalid`` naming a bad field."""
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self._invalid(str(error)) from None

    def check_names(self, data: Mapping[str, object]) -> None:
        """Raise ``EventInvalid`` if there is a field that the class does not have."""
        if self.is_open:
            return
        for name in data:
            if name not in self._properties and name not in CHANGE_FIELDS:
                raise EventInvalid(self._event_type, name, self._unknown())

    def has(self, path: str) -> bool:
        """Whether the data may have a value at this path, such as ``after.title``.

        What is not declared of before, after and diff may be anything.
        """
        root = path.partition(".")[0]
        if root in CHANGE_FIELDS and root not in self._properties:
            return True
        return _has(self.json_schema, self.json_schema, path.split("."))

    def _invalid(self, message: str) -> EventInvalid:
        """Return the error for what msgspec says: the field apart from the problem."""
        problem, mark, place = message.rpartition(_PLACE)
        problem, place = (problem, place.removeprefix(".")[:-1]) if mark else (message, "")
        for pattern, text in ((_MISSING, "is required"), (_UNKNOWN, self._unknown())):
            if (named := pattern.fullmatch(problem)) is not None:
                field = named["field"]
                return EventInvalid(self._event_type, f"{place}.{field}".strip("."), text)
        if not place and is_model(self.kind) and ": " in problem:
            place, _, problem = problem.partition(": ")
        limits = self._allowed(place)
        return EventInvalid(self._event_type, place or "payload", f"{problem}{limits}")

    def _unknown(self) -> str:
        return f"there is no such field; there are {', '.join(self._properties)}"

    def _allowed(self, place: str) -> str:
        node = self._properties.get(place.partition(".")[0].partition("[")[0])
        if node is None:
            return ""
        limits = _limits_text(node, self.json_schema)
        kind = type_text(node, self.json_schema)
        return f"; allowed: {kind}{', ' if limits else ''}{limits}"


def fields_of(data: bytes) -> dict[str, object]:
    """Return the fields of encoded data."""
    return _OBJECT.decode(data)


def value_at(data: Mapping[str, object], path: str) -> object:
    """Return what is at a path of the data; None if nothing is."""
    found: object = data
    for part in path.split("."):
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    return found


def type_text(node: JsonSchema, root: JsonSchema) -> str:
    """Return the type of a value in a word or two."""
    node = _resolved(node, root)
    if isinstance(options := node.get("anyOf"), list):
        return " or ".join(dict.fromkeys(type_text(one, root) for one in options))
    if isinstance(values := node.get("enum"), list):
        return "one of " + ", ".join(str(value) for value in values)
    if "const" in node:
        return str(node["const"])
    kind = str(node.get("format") or node.get("type") or "any")
    if kind == "array" and isinstance(items := node.get("items"), Mapping):
        return f"list of {type_text(items, root)}"
    return kind


def _limits_text(node: JsonSchema, root: JsonSchema) -> str:
    node = _resolved(node, root)
    options = node.get("anyOf")
    nodes = [_resolved(one, root) for one in options] if isinstance(options, list) else [node]
    return ", ".join(
        text.format(one[name]) for one in nodes for name, text in _LIMITS.items() if name in one
    )


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _json_schema(kind: type) -> JsonSchema:
    if is_model(kind):
        return _of_model(kind)
    return msgspec.json.schema(kind, schema_hook=_of_other)


def _of_other(kind: type) -> dict[str, object]:
    return _inlined(_of_model(kind)) if is_model(kind) else {"description": "any JSON value"}


def _of_model(kind: type) -> dict[str, object]:
    made: dict[str, object] = kind.model_json_schema()  # type: ignore[attr-defined]
    return made


def _inlined(schema: dict[str, object]) -> dict[str, object]:
    """Return the schema of a model inside another class: its references lead nowhere there."""

    def inline(node: object, depth: int) -> object:
        if isinstance(node, dict):
            if depth > _MAX_DEPTH:
                return {}  # it contains itself
            node = _resolved(node, schema)
            return {name: inline(one, depth + 1) for name, one in node.items() if name != "$defs"}
        return [inline(one, depth + 1) for one in node] if isinstance(node, list) else node

    return cast("dict[str, object]", inline(schema, 0))


def _resolved(node: JsonSchema, root: JsonSchema) -> JsonSchema:
    for _ in range(_MAX_DEPTH):
        reference = node.get("$ref")
        definitions = root.get("$defs")
        if not isinstance(reference, str) or not isinstance(definitions, Mapping):
            break
        node = definitions[reference.rpartition("/")[2]]
    return node


def _has(node: JsonSchema, root: JsonSchema, parts: list[str]) -> bool:
    if not parts:
        return True
    node = _resolved(node, root)
    if isinstance(options := node.get("anyOf"), list):
        return any(_has(one, root, parts) for one in options)
    properties = node.get("properties")
    if isinstance(properties, Mapping) and parts[0] in properties:
        return _has(properties[parts[0]], root, parts[1:])
    if node.get("type") is None and "enum" not in node and "const" not in node:
        return True  # any value
    return node.get("type") == "object" and (
        properties is None or bool(node.get("additionalProperties", False))
    )
