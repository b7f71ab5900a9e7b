"""Paths into a payload, such as ``payload.user.locale``, and edits along them."""

from __future__ import annotations

import msgspec

from .errors import InvalidInput
from .job import encode_payload

ROOT = "payload"
MAX_PATH_PARTS = 32
MAX_ASSIGNMENTS = 100
_PATH_LIMIT = 1_000
_OBJECT = msgspec.json.Decoder(dict[str, object])


class Assignment(msgspec.Struct, frozen=True, array_like=True):
    """One change of a payload: the JSON value at a path; None removes what is there."""

    path: str
    value: bytes | None = None

    def check(self) -> None:
        """Raise ``InvalidInput`` naming what is wrong."""
        parts_of(self.path)
        if self.value is not None:
            try:
                msgspec.json.decode(self.value)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise InvalidInput(self.path, f"its value is not JSON ({error})") from None


class NoSuchPath(Exception):
    """A payload has nothing at this path that could be changed."""


def parts_of(path: str) -> list[str]:
    """Return the parts of a path below ``payload``, or raise ``InvalidInput``."""
    if type(path) is not str or len(path) > _PATH_LIMIT:
        raise InvalidInput("path", f"give a text of at most {_PATH_LIMIT:,} characters")
    root, *parts = path.split(".")
    if root != ROOT or not parts or not all(parts) or len(parts) > MAX_PATH_PARTS:
        raise InvalidInput("path", f"{path!r} is not a path such as {ROOT}.user.locale")
    return parts


def assign(payload: bytes, assignments: tuple[Assignment, ...]) -> bytes:
    """Return the payload after these changes, in order; raise ``NoSuchPath``.

    A missing object on the way is made; a list is entered by a number that it has.
    """
    value: object = _OBJECT.decode(payload)
    for one in assignments:
        new = None if one.value is None else msgspec.json.decode(one.value)
        value = _changed(value, parts_of(one.path), new, remove=one.value is None, path=one.path)
    if not isinstance(value, dict):
        raise NoSuchPath(ROOT)
    return encode_payload(value)


def value_at(payload: bytes, path: str) -> object:
    """Return the value at a path, or raise ``NoSuchPath``."""
    value: object = _OBJECT.decode(payload)
    for part in parts_of(path):
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            raise NoSuchPath(path)
    return value


def same_json(one: bytes, other: bytes) -> bool:
    """Whether two payloads mean the same."""
    return one == other or _OBJECT.decode(one) == _OBJECT.decode(other)


def _changed(value: object, parts: list[str], new: object, *, remove: bool, path: str) -> object:
    first, *rest = parts
    if isinstance(value, list):
        items = list(value)
        if not first.isdecimal() or int(first) >= len(items):
            raise NoSuchPath(path)
        if rest:
            items[int(first)] = _changed(items[int(first)], rest, new, remove=remove, path=path)
        elif remove:
            del items[int(first)]
        else:
            items[int(first)] = new
        return items
    if not isinstance(value, dict) or (remove and first not in value):
        raise NoSuchPath(path)
    fields = dict(value)
    if rest:
        fields[first] = _changed(fields.get(first, {}), rest, new, remove=remove, path=path)
    elif remove:
        del fields[first]
    else:
        fields[first] = new
    return fields
