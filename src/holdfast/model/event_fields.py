"""Fields as a catalog file declares them, made a class that msgspec checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, cast
from uuid import UUID

import msgspec

from .bounded_pattern import longest_text
from .errors import InvalidInput

MAX_FIELDS = 200
_MAX_DEPTH = 8
_NAME = re.compile(r"[^\W\d]\w{0,99}")
_TYPES: Mapping[str, object] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "datetime": Annotated[datetime, msgspec.Meta(tz=True)],
    "date": date,
    "uuid": UUID,
    "decimal": Decimal,
    "any": Any,
}
_CONTAINERS = ("array", "object")
_LIMITS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "min_length": ("min_length", ("string", "array")),
    "max_length": ("max_length", ("string", "array")),
    "pattern": ("pattern", ("string",)),
    "min": ("ge", ("integer", "number")),
    "max": ("le", ("integer", "number")),
}
_OTHERS = ("type", "required", "default", "sensitive", "description", "one_of", "items", "fields")


class FieldDeclaration(msgspec.Struct, frozen=True):
    """A field: its name, its type for msgspec, its default, and which parts are sensitive."""

    name: str
    kind: object
    required: bool
    default: object
    sensitive: tuple[str, ...] = ()


def class_of(name: str, fields: list[FieldDeclaration]) -> type[msgspec.Struct]:
    """Return a class with these fields, which takes no others."""
    members: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        (one.name, one.kind)
        if one.required
        else (one.name, one.kind, msgspec.field(default=one.default, name=one.name))
        for one in fields
    ]
    return msgspec.defstruct(
        re.sub(r"\W", "_", name), members, kw_only=True, forbid_unknown_fields=True
    )


def fields_declared(declared: object, place: str, depth: int = 0) -> list[FieldDeclaration]:
    """Return the fields of a mapping of names to types; raise ``InvalidInput``."""
    if not isinstance(declared, Mapping):
        raise InvalidInput(place, "give names with their types, such as title: string")
    if len(declared) > MAX_FIELDS or depth > _MAX_DEPTH:
        raise InvalidInput(place, f"more than {MAX_FIELDS} fields, or nested too deeply")
    return [_field(name, one, place, depth) for name, one in declared.items()]


def _field(name: object, declared: object, place: str, depth: int) -> FieldDeclaration:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(place, f"{str(name)[:60]!r} is not a name of letters, digits and _")
    place = f"{place}.{name}"
    given = {"type": declared} if isinstance(declared, str) else declared
    if not isinstance(given, Mapping):
        raise InvalidInput(place, "give a type such as string, or {type: string, max_length: 200}")
    unknown = [str(one) for one in given if one not in _OTHERS and one not in _LIMITS]
    if unknown:
        known = ", ".join([*_OTHERS, *_LIMITS])
        raise InvalidInput(place, f"{unknown[0][:60]!r} is not one of {known}")
    inner: list[str] = []
    sensitive = _switch(given, "sensitive", place, default=False)
    kind = _kind(given, place, depth, inner)
    required = _switch(given, "required", place, default="default" not in given)
    if required and "default" in given:
        raise InvalidInput(place, "a required field has no default")
    default = given.get("default")
    if not required:
        if default is None:
            kind = cast("Any", kind) | None if kind is not Any else kind
        else:
            default = _default(kind, default, place)
    paths = (name,) if sensitive else tuple(f"{name}.{one}" for one in inner)
    return FieldDeclaration(name, kind, required, default, paths)


def _kind(given: Mapping[str, object], place: str, depth: int, inner: list[str]) -> object:
    """Return the type; what is sensitive inside an object is added to ``inner``."""
    word = given.get("type", "object" if "fields" in given else "string")
    if word not in _TYPES and word not in _CONTAINERS:
        known = ", ".join([*_TYPES, *_CONTAINERS])
        raise InvalidInput(place, f"type {str(word)[:60]!r} is not one of {known}")
    if "one_of" in given:
        return _choice(given["one_of"], str(word), place)
    if word == "array":
        items = fields_declared({"items": given.get("items", "any")}, place, depth + 1)[0]
        kind: object = list[items.kind]  # type: ignore[name-defined]
    elif word == "object" and "fields" in given:
        inside = fields_declared(given["fields"], place, depth + 1)
        inner += [path for one in inside for path in one.sensitive]
        return class_of(place, inside)
    elif word == "object":
        return dict[str, object]
    else:
        kind = _TYPES[str(word)]
    return _limited(kind, given, str(word), place)


def _limited(kind: object, given: Mapping[str, object], word: str, place: str) -> object:
    limits: dict[str, object] = {}
    for name, (option, words) in _LIMITS.items():
        if name not in given:
            continue
        if word not in words:
            raise InvalidInput(place, f"{name} is for {' and '.join(words)}, not for {word}")
        limits[option] = given[name]
    if not limits:
        return kind
    if "pattern" in limits and (longest := longest_text(given["pattern"], place)) is not None:
        most = limits.setdefault("max_length", longest)
        if isinstance(most, int) and most > longest:
            problem = f"max_length is more than {longest}, the most for such a pattern: lower it"
            raise InvalidInput(place, f"{problem}, or begin the pattern with ^")
    make: Callable[..., msgspec.Meta] = msgspec.Meta
    try:
        meta = make(**limits)
        made = Annotated[kind, meta]  # type: ignore[valid-type]
        msgspec.json.Decoder(cast("Any", made))
    except (TypeError, ValueError, re.error) as error:
        raise InvalidInput(place, f"a limit is wrong: {error}") from None
    return made


def _choice(values: object, word: str, place: str) -> object:
    if (
        not isinstance(values, list)
        or not values
        or word not in ("string", "integer")
        or not all(type(one) is (str if word == "string" else int) for one in values)
    ):
        raise InvalidInput(place, f"one_of is a list of {word} values")
    return Literal[tuple(values)]


def _default(kind: object, default: object, place: str) -> object:
    try:
        return msgspec.convert(default, cast("Any", kind), builtin_types=(date, datetime))
    except msgspec.ValidationError as error:
        raise InvalidInput(place, f"the default does not fit: {error}") from None


def _switch(given: Mapping[str, object], name: str, place: str, *, default: bool) -> bool:
    value = given.get(name, default)
    if type(value) is not bool:
        raise InvalidInput(place, f"{name} is true or false")
    return value
