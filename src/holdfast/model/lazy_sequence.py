"""Lists that are made as far as they are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar, overload

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """A list of so many items, each made once, when it or a later one is first looked at."""

    def __init__(self, items: Iterable[T], count: int) -> None:
        """Take what makes the items; what it raises is raised to whoever looks, each time."""
        self._to_come = iter(items)
        self._made: list[T] = []
        self._count = count
        self._failed: Exception | None = None

    def make_all(self) -> None:
        """Make all that is still to come: here, and now."""
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
        yield from self._up_to(self._count)  # not before the first is asked for

    def _up_to(self, end: int) -> list[T]:
        if end > len(self._made):
            if self._failed is not None:
                raise self._failed  # what makes them has ended there
            try:
                self._made.extend(islice(self._to_come, end - len(self._made)))
            except Exception as error:
                self._failed = error
                raise
            if end > len(self._made):
                raise ValueError(f"there are {len(self._made)} items, not {self._count}")
        return self._made
