"""A task's parameters as a JSON object: checked when it is enqueued, typed when it runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Union, get_type_hints
from uuid import UUID

import msgspec
import msgspec.inspect

from holdfast.model.errors import InvalidInput, PayloadInvalid
from holdfast.model.job import BAD_PAYLOAD, encode_payload

_ENCODE = msgspec.json.Encoder().encode
_NEVER_NULL = (str, int, float, bool, bytes, datetime, date, UUID, Decimal)
_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD


class Signature:
    """Turns a call into a payload and back.

    The payload has one field per given argument; the function's defaults fill in the rest.
    Values are JSON; the annotations tell how to decode dates, UUIDs, decimals, dataclasses and
    structs.
    """

    def __init__(self, function: Callable[..., object], name: str) -> None:
        """Read the function's parameters; raise ``InvalidInput`` if JSON cannot carry one."""
        self._name = name
        self._signature = inspect.signature(function)
        parameters = self._signature.parameters
        try:
            hints = get_type_hints(_annotated(function), include_extras=True)
        except (NameError, TypeError) as error:
            problem = f"the annotations of {name!r} are unknown: {error}"
            raise InvalidInput("task", problem) from None
        self._plain = all(
            parameter.kind not in (_POSITIONAL_ONLY, _VAR_POSITIONAL, _VAR_KEYWORD)
            for parameter in parameters.values()
        )
        self._open = any(parameter.kind is _VAR_KEYWORD for parameter in parameters.values())
        self._rest = next((p.name for p in parameters.values() if p.kind is _VAR_KEYWORD), "")
        try:
            fields = [
                _field(parameter, hints.get(parameter.name, Any))
                for parameter in parameters.values()
                if parameter.kind is not _VAR_KEYWORD
            ]
            model = msgspec.defstruct(
                "Arguments", fields, kw_only=True, forbid_unknown_fields=not self._open
            )
            self._decoder: msgspec.json.Decoder[msgspec.Struct] = msgspec.json.Decoder(model)
        except TypeError as error:
            problem = f"JSON cannot carry a parameter of {name!r}: {error}"
            raise InvalidInput("task", problem) from None
        self._names = {field[0] for field in fields}
        self._in_order = tuple(parameters) if self._takes_in_order() else ()
        # Then a payload that decodes has no NaN, which the encoder writes as null.
        self._never_null = all(hints.get(name) in _NEVER_NULL for name in self._in_order)
        self._needed = sum(p.default is inspect.Parameter.empty for p in parameters.values())

    def encode(self, args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
        """Return the payload of this call, or raise ``InvalidInput`` as the call itself would."""
        if not kwargs and self._needed <= len(args) <= len(self._in_order):
            values: dict[str, object] = dict(zip(self._in_order, args, strict=False))
            if self._never_null:
                try:
                    payload = _ENCODE(values)
                    self._decoder.decode(payload)
                except BAD_PAYLOAD:
                    pass  # the checks below name the problem
                else:
                    return payload
        else:
            values = self._bound(args, kwargs)
        payload = encode_payload(values)
        self.check(payload)
        return payload

    def check(self, payload: bytes) -> None:
        """Raise ``PayloadInvalid`` unless the task can be called with this payload."""
        self._read(payload)

    def arguments(self, payload: bytes) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the arguments to call the function with."""
        values = self._decode(payload)
        if self._plain:
            return (), values
        if self._open:
            everything = msgspec.json.decode(payload, type=dict[str, object])
            rest = {key: value for key, value in everything.items() if key not in self._names}
            values[self._rest] = rest
        bound = inspect.BoundArguments(self._signature, values)
        bound.apply_defaults()  # a gap must not shift positional arguments
        return bound.args, bound.kwargs

    def takes(self, name: str) -> bool:
        """Whether a field of this name may be in the payload."""
        return self._open or name in self._names

    def _takes_in_order(self) -> bool:
        """Whether positional arguments map one to one to the first parameters."""
        return all(
            parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            for parameter in self._signature.parameters.values()
        )

    def _bound(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidInput("arguments", f"{self._name}: {error}") from None
        values = dict(bound.arguments)
        if self._open:
            self._spread(values)
        return values

    def _spread(self, values: dict[str, object]) -> None:
        """Move the arguments of ``**`` beside the others: each name is one field of the payload."""
        rest = values.pop(self._rest, {})
        if isinstance(rest, dict):
            if twice := sorted(rest.keys() & self._names):
                problem = f"{self._name}: {twice[0]!r} is also the name of a parameter"
                raise InvalidInput("arguments", problem)
            values.update(rest)

    def _read(self, payload: bytes) -> msgspec.Struct:
        try:
            return self._decoder.decode(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise PayloadInvalid("payload", f"{self._name}: {error}") from None

    def _decode(self, payload: bytes) -> dict[str, object]:
        decoded = self._read(payload)
        values = {}
        for field in decoded.__struct_fields__:
            value = getattr(decoded, field)
            if value is not msgspec.UNSET:
                values[field] = value
        return values


def _annotated(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function that has the annotations: for an object, its ``__call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def _field(parameter: inspect.Parameter, hint: object) -> tuple[str, type, object]:
    """Return the field for a parameter; one with a default is optional."""
    if _is_foreign(msgspec.inspect.type_info(hint)):
        raise TypeError(f"{parameter.name!r} is a {getattr(hint, '__name__', hint)}")
    default: object = msgspec.NODEFAULT
    optional: Any = hint
    if parameter.kind is _VAR_POSITIONAL:
        optional, default = list[optional] | msgspec.UnsetType, msgspec.UNSET
    elif parameter.default is not inspect.Parameter.empty:
        optional, default = Union[optional, msgspec.UnsetType], msgspec.UNSET  # noqa: UP007
    return parameter.name, optional, default


def _is_foreign(info: object) -> bool:
    """Whether a type, or one inside it, cannot be carried by JSON."""
    if isinstance(info, msgspec.inspect.CustomType):
        return info.cls is not object  # object: any value
    if isinstance(info, msgspec.inspect.StructType | msgspec.inspect.DataclassType):
        return False  # do not recurse: its fields may refer to itself
    if isinstance(info, tuple | list):
        return any(_is_foreign(item) for item in info)
    fields = info.__struct_fields__ if isinstance(info, msgspec.Struct) else ()
    return any(_is_foreign(getattr(info, field)) for field in fields)
