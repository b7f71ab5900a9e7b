"""Upcasters: the data of an old version of an event made that of the next version, on read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from .errors import InvalidInput

Upcaster = Callable[[dict[str, object]], Mapping[str, object]]
"""Takes the data of a version and returns that of the next one."""
STEPS = ("rename", "default", "drop")


class UpcastSteps(msgspec.Struct, frozen=True):
    """An upcaster of a catalog file: steps in order. Paths have dots: ``before.title``."""

    steps: tuple[tuple[str, Mapping[str, object]], ...]

    def __call__(self, data: dict[str, object]) -> Mapping[str, object]:
        """Return the data of the next version."""
        for kind, arguments in self.steps:
            for path, argument in arguments.items():
                if kind == "default":
                    _set(data, path, argument, only_if_missing=True)
                    continue
                found, value = _take(data, path)
                if found and kind == "rename":
                    _set(data, str(argument), value)
        return data


def steps_of(declared: object) -> UpcastSteps:
    """Return the upcaster that a catalog file declares; raise ``InvalidInput`` if it is none."""
    if not isinstance(declared, list) or not all(isinstance(one, Mapping) for one in declared):
        raise InvalidInput("upcast", "give a list of steps such as - rename: {old: new}")
    steps: list[tuple[str, Mapping[str, object]]] = []
    for one in declared:
        for kind, arguments in one.items():
            steps.append((str(kind), _arguments(kind, arguments)))
    return UpcastSteps(tuple(steps))


def _arguments(kind: object, arguments: object) -> Mapping[str, object]:
    if kind not in STEPS:
        raise InvalidInput("upcast", f"{str(kind)[:60]!r} is not one of {', '.join(STEPS)}")
    if kind == "drop" and isinstance(arguments, list):
        arguments = dict.fromkeys(arguments)
    if not isinstance(arguments, Mapping) or not all(
        isinstance(path, str) and path for path in arguments
    ):
        shape = "a list of names" if kind == "drop" else "names with their values"
        raise InvalidInput("upcast", f"{kind} takes {shape}")
    if kind == "rename" and not all(isinstance(name, str) and name for name in arguments.values()):
        raise InvalidInput("upcast", "rename takes old names with their new names")
    return cast("Mapping[str, object]", arguments)


def _take(data: dict[str, object], path: str) -> tuple[bool, object]:
    """Remove what is at this path, and return whether it was there, and what it was."""
    *parents, name = path.split(".")
    inside: object = data
    for part in parents:
        inside = inside.get(part) if isinstance(inside, dict) else None
    if not isinstance(inside, dict) or name not in inside:
        return False, None
    return True, inside.pop(name)


def _set(
    data: dict[str, object], path: str, value: object, *, only_if_missing: bool = False
) -> None:
    """Set what is at this path, if the object that it is in exists."""
    *parents, name = path.split(".")
    inside: object = data
    for part in parents:
        inside = inside.get(part) if isinstance(inside, dict) else None
    if isinstance(inside, dict) and not (only_if_missing and name in inside):
        inside[name] = value
