"""What a verb checks of its arguments before it looks at anything else."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from holdfast.model.errors import InvalidInput
from holdfast.model.job import check_id

from .base import MAX_CLAIM

T = TypeVar("T")


def check_limit(limit: int) -> None:
    """Raise ``InvalidInput`` unless it is a whole number that a verb takes."""
    if type(limit) is not int or not 1 <= limit <= MAX_CLAIM:
        raise InvalidInput("limit", f"{limit!r} is not a whole number from 1 to {MAX_CLAIM:,}")


def check_names(field: str, names: Collection[str]) -> tuple[str, ...]:
    """Return these names, each once, or raise ``InvalidInput``."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise InvalidInput(field, f"{names!r} is not a collection of names")
    return tuple(dict.fromkeys([check_id(name, field) for name in names]))


def check_all(field: str, items: Iterable[T], kind: type[T]) -> list[T]:
    """Return these items as a list, or raise ``InvalidInput`` if one is not of this kind."""
    if type(items) is list:
        found: list[T] = items
    elif isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise InvalidInput(field, f"a {type(items).__name__} is not a sequence")
    else:
        found = list(items)
    for item in found:
        if not isinstance(item, kind):
            raise InvalidInput(field, f"a {type(item).__name__} is not a {kind.__name__}")
    return found
