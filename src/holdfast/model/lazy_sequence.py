"""A sequence whose items are made on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar, overload

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """A sequence of known length; each item is made once, when it or a later one is read."""

    def __init__(self, items: Iterable[T], count: int) -> None:
        """Take the source of the items; every access raises what it raises."""
        self._source = iter(items)
        self._made: list[T] = []
        self._count = count
        self._failed: Exception | None = None

    def make_all(self) -> None:
        """Make all remaining items now."""
        self._up_to(self._count)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            start, end, step = at.indices(self._count)
            return self._up_to(end)[start:end] if step == 1 else self[:][at]
        place = range(self._count)[at]
        return self._up_to(place + 1)[place]

    def __iter__(self) -> Iterator[T]:
        yield from self._up_to(self._count)  # lazily, at the first item

    def _up_to(self, end: int) -> list[T]:
        if end > len(self._made):
            if self._failed is not None:
                raise self._failed  # the source has ended with this
            try:
                self._made.extend(islice(self._source, end - len(self._made)))
            except Exception as error:
                self._failed = error
                raise
            if end > len(self._made):
                raise ValueError(f"there are {len(self._made)} items, not {self._count}")
        return self._made
