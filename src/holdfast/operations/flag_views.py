"""Flags, as people see them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.model.flags import KNOWN_FLAGS


class FlagView(msgspec.Struct, frozen=True):
    """A flag for people; one that is not set has its default."""

    name: str
    on: bool
    is_set: bool
    what: str


def flag_views(found: Mapping[str, bool]) -> list[FlagView]:
    """Return the flags that are set, and those that Holdfast itself follows, by name."""
    known = {flag.name: flag for flag in KNOWN_FLAGS}
    return [
        FlagView(
            name,
            found.get(name, flag is not None and flag.on),
            is_set=name in found,
            what="" if flag is None else flag.what,
        )
        for name in sorted({*found, *known})
        for flag in [known.get(name)]
    ]
