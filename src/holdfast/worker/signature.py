"""A task's parameters as a JSON object: checked when it is enqueued, typed when it runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from types import UnionType
from typing import Any, Union, Unpack, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
import msgspec.inspect

from holdfast.model.errors import InvalidInput, PayloadInvalid
from holdfast.model.job import BAD_PAYLOAD
from holdfast.model.json_values import NOT_FINITE, has_non_finite
from holdfast.model.signals import Signal
from holdfast.model.value_types import (
    changed,
    decode_hook,
    encode_hook,
    needs_check,
    unsupported,
)

_ENCODE = msgspec.json.Encoder(enc_hook=encode_hook).encode
_NEVER_NULL = (str, int, float, bool, bytes, datetime, date, UUID, Decimal)
_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD


class Signature:
    """Turns a call into a payload and back.

    The payload has one field per given argument; the function's defaults fill in the rest.
    Values are JSON; the annotations tell how to decode dates, UUIDs, decimals, dataclasses,
    structs and pydantic models. Where there is no annotation, only what JSON carries unchanged is
    accepted.
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
        self._rest_type = hints.get(self._rest, Any)
        if get_origin(self._rest_type) is Unpack:
            self._rest_type = hints[self._rest] = Any  # only a type checker knows the names
        self._changeable: dict[str, msgspec.inspect.Type] = {}
        try:
            fields = [
                self._field(parameter, hints.get(parameter.name, Any))
                for parameter in parameters.values()
            ]
            model = msgspec.defstruct(
                "Arguments",
                [field for field in fields if field[0] != self._rest],
                kw_only=True,
                forbid_unknown_fields=not self._open,
            )
            self._decoder: msgspec.json.Decoder[msgspec.Struct] = _decoder_of(model)
        except TypeError as error:
            problem = f"JSON cannot carry a parameter of {name!r}: {error}"
            raise InvalidInput("task", problem) from None
        self._names = {field[0] for field in fields} - {self._rest}
        self._in_order = tuple(parameters) if self._takes_in_order() else ()
        # Then a payload that decodes has no NaN, which the encoder writes as null.
        self._never_null = all(hints.get(name) in _NEVER_NULL for name in self._in_order)
        self._needed = sum(p.default is inspect.Parameter.empty for p in parameters.values())
        self._result_decoder = _result_decoder(hints.get("return", Any))

    def encode(self, args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
        """Return the payload of this call, or raise ``InvalidInput`` as the call itself would."""
        if not kwargs and self._needed <= len(args) <= len(self._in_order):
            values: dict[str, object] = dict(zip(self._in_order, args, strict=False))
            if self._never_null:
                self._check_unchanged(values)
                try:
                    payload = _ENCODE(values)
                    self._decoder.decode(payload)
                except BAD_PAYLOAD:
                    pass  # the checks below name the problem
                else:
                    return payload
        else:
            values = self._bound(args, kwargs)
        return self.encode_fields(values)

    def encode_fields(self, values: Mapping[str, object]) -> bytes:
        """Return the payload with these fields, or raise ``PayloadInvalid`` naming the bad one."""
        self._check_unchanged(values)
        try:
            payload = _ENCODE(values)
        except BAD_PAYLOAD:
            raise self._bad_value(values) from None
        if b"null" in payload and has_non_finite(values):
            raise self._bad_value(values)
        # Encoders over-allocate and shrink in place: copy, so that the slack is not kept.
        payload = bytes(memoryview(payload))
        self.check(payload)
        return payload

    def result(self, stored: bytes) -> object:
        """Return a stored result as the type that the function declares, if JSON can carry it.

        Raise ``msgspec.ValidationError`` if it is another type.
        """
        return self._result_decoder.decode(stored)

    def check(self, payload: bytes) -> None:
        """Raise ``PayloadInvalid`` unless the task can be called with this payload."""
        self._read(payload)
        if self._open:
            self._read_rest(payload)

    def arguments(self, payload: bytes) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the arguments to call the function with."""
        values = self._decode(payload)
        if self._plain:
            return (), values
        if self._open:
            values[self._rest] = self._read_rest(payload)
        bound = inspect.BoundArguments(self._signature, values)
        bound.apply_defaults()  # a gap must not shift positional arguments
        return bound.args, bound.kwargs

    def takes(self, name: str) -> bool:
        """Whether a field of this name may be in the payload."""
        return self._open or name in self._names

    def _check_unchanged(self, values: Mapping[str, object]) -> None:
        """Raise ``PayloadInvalid`` if the task would get something else than a value given here."""
        for name, value in values.items():
            if type(name) is not str:
                raise PayloadInvalid("payload", f"{self._name}: {name!r} names no argument")
            info = self._changeable.get(name if name in self._names else self._rest)
            if info is None or type(value) is str:
                continue
            try:
                problem = changed(value, info, f"argument {name}")
            except RecursionError:
                problem = f"argument {name} is nested too deeply"
            if problem is not None:
                advice = "annotate the parameter with its type, or convert the value first"
                raise PayloadInvalid("payload", f"{self._name}: {problem}: {advice}")

    def _bad_value(self, values: Mapping[str, object]) -> PayloadInvalid:
        """Return the error that names the argument which JSON cannot carry."""
        for name, value in values.items():
            try:
                if b"null" not in _ENCODE({name: value}) or not has_non_finite(value):
                    continue
                problem = NOT_FINITE
            except BAD_PAYLOAD as error:
                problem = str(error) or type(error).__name__
            return PayloadInvalid("payload", f"{self._name}: argument {name}: {problem}")
        return PayloadInvalid("payload", f"{self._name}: not a JSON object")

    def _field(self, parameter: inspect.Parameter, annotation: object) -> tuple[str, type, object]:
        """Return the field for a parameter; one with a default is optional."""
        name = parameter.name
        hint: Any = annotation
        default: object = msgspec.NODEFAULT
        if parameter.kind is _VAR_POSITIONAL:
            hint, default = list[hint], msgspec.UNSET
        elif parameter.default is not inspect.Parameter.empty:
            default = msgspec.UNSET
        try:
            _decoder_of(hint)
            info = msgspec.inspect.type_info(hint)
        except TypeError as error:
            raise TypeError(f"{name!r}: {error}") from None
        if (problem := unsupported(info, repr(name))) is not None:
            raise TypeError(problem)
        if needs_check(info):
            self._changeable[name] = info
        return name, hint, default

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

    def _read_rest(self, payload: bytes) -> dict[str, object]:
        """Return the arguments of ``**``, as the type that the function declares for them."""
        everything = msgspec.json.decode(payload, type=dict[str, object])
        rest = {key: value for key, value in everything.items() if key not in self._names}
        if self._rest_type in (Any, object):
            return rest
        try:
            kind: Any = self._rest_type
            typed: dict[str, object] = msgspec.convert(rest, dict[str, kind], dec_hook=decode_hook)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise PayloadInvalid("payload", f"{self._name}: {error}") from None
        return typed

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


def _decoder_of(kind: object) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=decode_hook)


def _result_decoder(hint: object) -> msgspec.json.Decoder[Any]:
    """Return the decoder of results: of any JSON if the declared type cannot be carried."""
    if get_origin(hint) in (Union, UnionType):
        kept = tuple(one for one in get_args(hint) if not _is_signal(one))
        hint = Union[kept] if kept else Any  # noqa: UP007 - made from a tuple
    if _is_signal(hint):
        return _decoder_of(Any)
    try:
        known = unsupported(msgspec.inspect.type_info(hint), "it") is None
        return _decoder_of(hint if known else Any)
    except TypeError:
        return _decoder_of(Any)


def _is_signal(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, Signal)
