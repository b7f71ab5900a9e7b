"""The items of a batch task: each is the payload of one job."""

from __future__ import annotations

import collections.abc
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import msgspec.inspect

from holdfast.model.errors import InvalidInput

from .signature import Signature

_SEQUENCES = (list, tuple, collections.abc.Sequence)
_OBJECTS = (
    msgspec.inspect.StructType,
    msgspec.inspect.DataclassType,
    msgspec.inspect.TypedDictType,
    msgspec.inspect.DictType,
)
_BEFORE, _AFTER = b'{"item":', b"}"


class ItemSignature:
    """Turns an item into the payload of its job and back.

    It does what ``Signature`` does. An item that is a JSON object, such as a dataclass, is the
    payload itself; any other is its field ``item``.
    """

    def __init__(self, function: Callable[..., object], name: str) -> None:
        """Read the type of the items; raise ``InvalidInput`` if there is none JSON can carry."""
        try:
            hints = get_type_hints(function, include_extras=True)
        except (NameError, TypeError) as error:
            problem = f"the annotations of {name!r} are unknown: {error}"
            raise InvalidInput("task", problem) from None
        kind = _item_type(function, hints, name)

        def one(item: object) -> None:
            del item

        one.__annotations__ = {"item": kind, "return": _result_type(hints.get("return", Any))}
        self._whole = Signature(one, name)
        self._object = _is_object(kind)
        self._fields = _fields(kind)

    def encode(self, args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
        """Return the payload of this item; its fields may be given by name."""
        if self._object and not args and kwargs and "item" not in kwargs:
            return self.encode_fields(kwargs)
        return self._unwrapped(self._whole.encode(args, kwargs))

    def encode_fields(self, values: Mapping[str, object]) -> bytes:
        """Return the payload with these fields, or raise ``PayloadInvalid`` naming the bad one."""
        if not self._object:
            return self._whole.encode_fields(values)
        return self._unwrapped(self._whole.encode_fields({"item": dict(values)}))

    def check(self, payload: bytes) -> None:
        """Raise ``PayloadInvalid`` unless this is the payload of an item."""
        self._whole.check(self._wrapped(payload))

    def arguments(self, payload: bytes) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the item as the only argument."""
        return (self.item(payload),), {}

    def item(self, payload: bytes) -> object:
        """Return the item, or raise ``PayloadInvalid``."""
        _args, values = self._whole.arguments(self._wrapped(payload))
        return values["item"]

    def result(self, stored: bytes) -> object:
        """Return a stored result as the type that the function declares for one item."""
        return self._whole.result(stored)

    def takes(self, name: str) -> bool:
        """Whether a field of this name may be in the payload."""
        if not self._object:
            return self._whole.takes(name)
        return self._fields is None or name in self._fields

    def _wrapped(self, payload: bytes) -> bytes:
        return b"".join((_BEFORE, payload, _AFTER)) if self._object else payload

    def _unwrapped(self, payload: bytes) -> bytes:
        return payload[len(_BEFORE) : -len(_AFTER)] if self._object else payload


def _item_type(function: Callable[..., object], hints: Mapping[str, object], name: str) -> object:
    parameters = list(inspect.signature(function).parameters.values())
    if parameters:
        hint = hints.get(parameters[0].name)
        needed = [one for one in parameters[1:] if one.default is inspect.Parameter.empty]
        if get_origin(hint) in _SEQUENCES and get_args(hint) and not needed:
            return get_args(hint)[0]
    raise InvalidInput(
        "task",
        f"{name!r} is a batch task: it takes one list of items, annotated with their type, such as "
        "items: list[Document]",
    )


def _result_type(hint: object) -> object:
    """Return the type of one result of a function that returns this."""
    return get_args(hint)[0] if get_origin(hint) in _SEQUENCES and get_args(hint) else Any


def _is_object(kind: object) -> bool:
    if hasattr(kind, "model_fields"):
        return True  # a pydantic model
    try:
        info = msgspec.inspect.type_info(kind)
    except TypeError:
        return False  # the signature tells what is wrong
    return isinstance(info, _OBJECTS) and not getattr(info, "array_like", False)


def _fields(kind: object) -> frozenset[str] | None:
    """Return the names of the fields of an item; None if there may be any."""
    if hasattr(kind, "model_fields"):
        return frozenset(kind.model_fields)
    try:
        info = msgspec.inspect.type_info(kind)
    except TypeError:
        return None
    found = getattr(info, "fields", None)
    return None if found is None else frozenset(one.encode_name for one in found)
