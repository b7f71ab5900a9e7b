"""Records in an embedded engine; see ``model.record``."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from itertools import islice

from holdfast.model.effects import Effect, RecordSet
from holdfast.model.errors import ChangedMeanwhile, InvalidInput
from holdfast.model.record import MAX_ONCE, MAX_RECORDS, Record

_DROPPED_AT_ONCE = 2
"""How many old records go with each that is committed with a change: more than come."""


class RecordBook:
    """Each method decides on records; its arguments are checked already."""

    def __init__(self, records: MutableMapping[tuple[str, str], Record]) -> None:
        self._records = records
        self._names: dict[str, dict[str, None]] = {}
        """The names of each kind, those stored first in front."""
        self._owned: dict[str, dict[str, dict[str, None]]] = {}
        """The same for each owner: what a name has before its slash."""
        self._named = 0

    def find(self, kind: str, names: Sequence[str], now_us: int) -> list[Record]:
        """Return the records of a kind, or those of these names, by name."""
        wanted = sorted(set(names)) if names else sorted(self._of_kind(kind))
        found = [self._records.get((kind, name)) for name in wanted]
        return [one for one in found if one is not None and not one.expired(now_us)]

    def set(
        self, kind: str, name: str, after: Record | None, expected: Record | None, now_us: int
    ) -> list[Effect]:
        """Return the effects that store a record if it is as expected until then.

        Where one is added, those that expired are dropped.
        """
        found = self.find(kind, [name], now_us)
        if (found[0] if found else None) != expected:
            raise ChangedMeanwhile(kind, name)
        effects: list[Effect] = [RecordSet(now_us, kind, name, after)]
        if after is None or expected is not None:
            return effects
        others = [self._records[kind, one] for one in self._of_kind(kind) if one != name]
        expired = [one for one in others if one.expired(now_us)]
        if len(others) - len(expired) >= MAX_RECORDS:
            raise InvalidInput(kind, f"there are {MAX_RECORDS:,} already: remove some first")
        return effects + [RecordSet(now_us, kind, one.name, None) for one in expired]

    def once(self, record: Record | None, now_us: int) -> list[Effect]:
        """Return the effects that commit a record with a change; raise if it exists.

        The oldest go if they have expired; if there are too many, the oldest of the owner that has
        the most: who sends very many loses their own.
        """
        if record is None:
            return []
        kind, name = record.kind, record.name
        if self.find(kind, [name], now_us):
            raise ChangedMeanwhile(kind, name)
        names = self._of_kind(kind)
        oldest = [one for one in islice(names, _DROPPED_AT_ONCE) if one != name]
        dropped = [one for one in oldest if self._records[kind, one].expired(now_us)]
        over = len(names) - MAX_ONCE + 1
        if not dropped and over > 0:
            largest = max(self._owned[kind].values(), key=len)
            dropped = [one for one in islice(largest, min(over, _DROPPED_AT_ONCE)) if one != name]
        effects: list[Effect] = [RecordSet(now_us, kind, one, None) for one in dropped]
        return [*effects, RecordSet(now_us, kind, name, record)]

    def took(self, effects: Sequence[RecordSet]) -> None:
        """Take note of changes that were committed."""
        for effect in effects:
            names = self._names.setdefault(effect.kind, {})
            self._named -= len(names)
            if effect.record is None:
                names.pop(effect.name, None)
                self._owned_by(effect.kind, effect.name).pop(effect.name, None)
            else:
                names[effect.name] = None
                self._owned_by(effect.kind, effect.name)[effect.name] = None
            self._named += len(names)

    def _of_kind(self, kind: str) -> dict[str, None]:
        if self._named != len(self._records):  # they were loaded, not committed
            self._names, self._owned = {}, {}
            for one, name in self._records:
                self._names.setdefault(one, {})[name] = None
                self._owned_by(one, name)[name] = None
            self._named = len(self._records)
        return self._names.get(kind, {})

    def _owned_by(self, kind: str, name: str) -> dict[str, None]:
        """Return the names of the owner of this one, the one stored first in front."""
        return self._owned.setdefault(kind, {}).setdefault(name.partition("/")[0], {})
