"""Values that JSON carries unchanged, and what it would change in others."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

NOT_FINITE = "NaN and infinities are not JSON"
_UNCHANGED = frozenset({str, int, bool, type(None)})


def changed_by_json(value: object, place: str) -> str | None:
    """Return what would come back from JSON as something else; None if nothing would.

    Unchanged are None, booleans, finite numbers, text, lists of these, and dicts of these whose
    keys are text. ``place`` is the name of the value in the returned phrase.
    """
    kind = type(value)
    if kind in _UNCHANGED:
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{place} is {value!r}: {NOT_FINITE}"
    if isinstance(value, list):
        for index, item in enumerate(value):
            if (found := changed_by_json(item, f"{place}[{index}]")) is not None:
                return found
        return None
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                return f"{place} has the key {key!r}, which would come back as other text"
            if (found := changed_by_json(item, f"{place}[{key!r}]")) is not None:
                return found
        return None
    return f"{place} is {with_article(kind)}, which would come back as something else"


def has_non_finite(value: object) -> bool:
    """Whether there is a NaN or an infinity in this value: the encoder writes them as null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(has_non_finite(item) for item in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(has_non_finite(item) for item in value)
    if isinstance(value, msgspec.Struct):
        return any(has_non_finite(getattr(value, name)) for name in value.__struct_fields__)
    if hasattr(value, "__dataclass_fields__"):
        return any(
            has_non_finite(getattr(value, name, None)) for name in value.__dataclass_fields__
        )
    return False


def with_article(kind: type) -> str:
    """Return the name of a type as in "a set" and "an Order"."""
    name = kind.__qualname__.rpartition("<locals>.")[2]
    return name if name == "bytes" else f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}"
