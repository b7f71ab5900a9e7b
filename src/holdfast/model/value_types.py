"""Which types a task's parameters and result may have, and how JSON carries their values.

A type is given as ``msgspec.inspect`` describes it. Pydantic is recognised by the classes of an
application that uses it, and is never imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

import msgspec
from msgspec import inspect as types

from .json_values import changed_by_json, with_article

_ARRAYS = (types.ListType, types.VarTupleType, types.SetType, types.FrozenSetType)
_OBJECTS = (types.StructType, types.DataclassType, types.TypedDictType, types.NamedTupleType)
_WRITTEN_AS_TEXT = (
    bytes,
    bytearray,
    memoryview,
    date,
    time,
    timedelta,
    UUID,
    Decimal,
    Enum,
)
_USE = (
    "use a type that JSON has, a dataclass, a msgspec.Struct or a model of pydantic 2; or store "
    "the data elsewhere and pass a reference to it"
)


def is_model(kind: object) -> bool:
    """Whether this is a model class of pydantic 2."""
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return (
        isinstance(base, type)
        and isinstance(kind, type)
        and issubclass(kind, base)
        and hasattr(kind, "model_validate_json")
    )


def encode_hook(value: object) -> object:
    """Encode a value that msgspec does not know: a pydantic model, by its own rules."""
    if is_model(type(value)):
        dump = value.model_dump_json  # type: ignore[attr-defined]
        return msgspec.Raw(dump(by_alias=True, round_trip=True).encode())
    raise TypeError(f"JSON cannot carry {with_article(type(value))}: {_USE}")


def decode_hook(kind: type, value: object) -> object:
    """Make a value of a class that msgspec does not know."""
    if not is_model(kind):
        return value  # annotated as object: any value
    validate = kind.model_validate_json  # type: ignore[attr-defined]
    try:
        return validate(msgspec.json.encode(value))
    except ValueError as error:
        raise ValueError(_in_one_line(error)) from None


def _in_one_line(error: ValueError) -> str:
    """Return the text of a pydantic ValidationError: each field and its problem."""
    problems = error.errors(include_url=False)  # type: ignore[attr-defined]
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in problems)


def unsupported(info: types.Type, place: str) -> str | None:
    """Return why JSON cannot carry values of this type, and what to use; None if it can."""
    for kind, where in _custom_types(info, place, set()):
        if kind is object or is_model(kind):
            continue
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        if any(base.__module__.partition(".")[0] == "pydantic" for base in kind.__mro__):
            return f"{where} is {name}, and only models of pydantic 2 are supported"
        return f"{where} is {name}: {_USE}"
    return None


def _custom_types(info: object, place: str, seen: set[object]) -> Iterator[tuple[type, str]]:
    """Find the classes in a type that msgspec does not know, and where they are."""
    if isinstance(info, types.CustomType):
        yield info.cls, place
    elif isinstance(info, _OBJECTS):
        if info.cls not in seen:  # its fields may refer to itself
            seen.add(info.cls)
            for field in info.fields:
                yield from _custom_types(field.type, f"{place}.{field.name}", seen)
    else:
        for inner in _inner_types(info):
            yield from _custom_types(inner, place, seen)


def _inner_types(info: object) -> Iterator[object]:
    if isinstance(info, types.DictType):
        yield from (info.key_type, info.value_type)
    elif isinstance(info, _ARRAYS):
        yield info.item_type
    elif isinstance(info, types.TupleType):
        yield from info.item_types
    elif isinstance(info, types.UnionType):
        yield from info.types
    elif isinstance(info, types.Metadata):
        yield info.type


def needs_check(info: object, seen: frozenset[object] = frozenset()) -> bool:
    """Whether the encoder may change a value of this type without an error."""
    if isinstance(info, types.AnyType | types.StrType):
        return True
    if isinstance(info, types.CustomType):
        return info.cls is object
    if isinstance(info, _OBJECTS):
        inside = seen | {info.cls}
        return info.cls not in seen and any(needs_check(one.type, inside) for one in info.fields)
    return any(needs_check(inner, seen) for inner in _inner_types(info))


def changed(value: object, info: object, place: str) -> str | None:
    """Return which part of the value would come back as something else; None if none would.

    That is possible where the type says nothing (any value), and where it says text: the encoder
    writes bytes, dates, UUIDs and others as text. Other mistakes fail when the payload is decoded.
    """
    if isinstance(info, types.Metadata):
        return changed(value, info.type, place)
    if isinstance(info, types.AnyType | types.CustomType):
        anything = isinstance(info, types.AnyType) or info.cls is object
        return changed_by_json(value, place) if anything else None
    if isinstance(info, types.StrType):
        converted = isinstance(value, _WRITTEN_AS_TEXT) and not isinstance(value, str)
        return f"{place} is {with_article(type(value))}, not str" if converted else None
    if isinstance(info, types.UnionType):
        return _changed_in_union(value, info, place)
    if isinstance(info, types.DictType) and isinstance(value, dict) and _has_text_keys(info):
        for key in value:
            if not isinstance(key, str):
                return f"{place} has the key {key!r}, which is not str"
    for part, inner, where in _parts(value, info, place):
        if (found := changed(part, inner, where)) is not None:
            return found
    return None


def _changed_in_union(value: object, info: types.UnionType, place: str) -> str | None:
    for one in info.types:
        if isinstance(one, types.AnyType) or next(_parts(value, one, place), None) is not None:
            return changed(value, one, place)
        # A union has one type that is written as text, or none.
        if isinstance(one, types.StrType) and isinstance(value, _WRITTEN_AS_TEXT):
            return changed(value, one, place)
    return None


def _parts(value: object, info: object, place: str) -> Iterator[tuple[object, object, str]]:
    """Return the items of a container, each with its type and its place."""
    if isinstance(info, _ARRAYS) and isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield item, info.item_type, f"{place}[{index}]"
    elif isinstance(info, types.TupleType) and isinstance(value, list | tuple):
        for index, (item, inner) in enumerate(zip(value, info.item_types, strict=False)):
            yield item, inner, f"{place}[{index}]"
    elif isinstance(info, types.DictType) and isinstance(value, dict):
        for key, item in value.items():
            yield key, info.key_type, f"the key {key!r} of {place}"
            yield item, info.value_type, f"{place}[{key!r}]"
    elif isinstance(info, _OBJECTS):
        for field in info.fields:
            if isinstance(value, dict):
                if field.encode_name in value:
                    inside = f"{place}[{field.encode_name!r}]"
                    yield value[field.encode_name], field.type, inside
            elif isinstance(value, info.cls) and hasattr(value, field.name):
                yield getattr(value, field.name), field.type, f"{place}.{field.name}"


def _has_text_keys(info: types.DictType) -> bool:
    return isinstance(info.key_type, types.StrType | types.AnyType | types.CustomType)
