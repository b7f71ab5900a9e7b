"""A condition on the payload of a job: a path into it, and the JSON values that may be there."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .errors import InvalidInput

MAX_PATH = 32
MAX_VALUES = 100
MAX_VALUE_LENGTH = 1_000

BAD_JSON = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What reading or writing JSON raises."""
_DECODER = msgspec.json.Decoder()
_MISSING = object()


class PayloadCondition(msgspec.Struct, frozen=True, array_like=True):
    """Met if one of these values is at this path. Make it with ``PayloadCondition.of``.

    A part of the path is the name of a field, or the number of an item in a list. Values are equal
    as JSON: 1 is 1.0, and neither "1" nor true.
    """

    path: tuple[str, ...]
    values: tuple[str, ...]
    """The values as JSON texts, in the form that ``json_text`` gives them."""

    @classmethod
    def of(cls, path: Iterable[str], *values: object) -> PayloadCondition:
        """Return the condition for these values."""
        return cls(tuple(path), tuple(map(json_text, values)))

    def check(self) -> None:
        """Raise ``InvalidInput`` if it is malformed."""
        path, values = self.path, self.values
        if type(path) is not tuple or not 0 < len(path) <= MAX_PATH or not all(map(_is_part, path)):
            raise InvalidInput("payload", f"a path has 1 to {MAX_PATH} names, not {path!r}")
        if type(values) is not tuple or not 0 < len(values) <= MAX_VALUES:
            raise InvalidInput("payload", f"give 1 to {MAX_VALUES} values for {'.'.join(path)}")
        for value in values:
            if type(value) is not str or len(value) > MAX_VALUE_LENGTH or not _is_json(value):
                shown = repr(value)[:60]
                raise InvalidInput(
                    "payload", f"{shown} is not JSON of at most {MAX_VALUE_LENGTH:,} characters"
                )

    def matches(self, payload: object) -> bool:
        """Whether one of the values is in this decoded payload."""
        for part in self.path:
            payload = _inside(payload, part)
        return any(is_same_json(payload, decoded_json(value)) for value in self.values)


def json_text(value: object) -> str:
    """Return the value as JSON, in the one form that is compared."""
    return msgspec.json.encode(value).decode()


def decoded_json(text: str) -> object:
    """Return the value of a JSON text, or raise one of ``BAD_JSON``."""
    found: object = _DECODER.decode(text)
    return found


def payload_matches(conditions: Iterable[PayloadCondition], payload: bytes) -> bool:
    """Whether a payload meets all conditions. One that was not kept meets none."""
    try:
        decoded: object = _DECODER.decode(payload)
    except BAD_JSON:
        return False
    return all(condition.matches(decoded) for condition in conditions)


def is_same_json(one: object, other: object) -> bool:
    """Whether two decoded values are the same JSON: numbers by value, true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same_json, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            is_same_json(value, other[name]) for name, value in one.items()
        )
    return one == other


def _inside(value: object, part: str) -> object:
    if isinstance(value, dict):
        return value.get(part, _MISSING)
    if isinstance(value, list) and part.isascii() and part.isdecimal() and len(part) < 10:
        return value[int(part)] if int(part) < len(value) else _MISSING
    return _MISSING


def _is_part(part: object) -> bool:
    return type(part) is str and 0 < len(part) <= MAX_VALUE_LENGTH


def _is_json(text: str) -> bool:
    try:
        return json_text(decoded_json(text)) == text
    except BAD_JSON:
        return False
