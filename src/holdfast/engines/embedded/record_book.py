"""Records in an embedded engine; see ``model.record``."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.audit import Attribution
from holdfast.model.effects import Effect, RecordSet
from holdfast.model.errors import ChangedMeanwhile, InvalidInput
from holdfast.model.record import MAX_RECORDS, Record

from .core import EmbeddedCore


class RecordBook:
    """Each method decides on records; its arguments are checked already."""

    def __init__(self, core: EmbeddedCore) -> None:
        self._core = core
        self._records = core.state.records

    def find(self, kind: str, names: Sequence[str], now_us: int) -> list[Record]:
        """Return the records of a kind, or those of these names, by name."""
        if names:
            found = [self._records.get((kind, name)) for name in sorted(set(names))]
        else:
            found = [self._records[one] for one in sorted(self._records) if one[0] == kind]
        return [one for one in found if one is not None and not one.expired(now_us)]

    def set(
        self,
        kind: str,
        name: str,
        after: Record | None,
        expected: Record | None,
        attribution: Attribution,
        now_us: int,
    ) -> None:
        """Store a record if it is as expected until then; those that expired are dropped."""
        found = self.find(kind, [name], now_us)
        if (found[0] if found else None) != expected:
            raise ChangedMeanwhile(kind, name)
        others = [one for one in self._records.values() if one.kind == kind and one.name != name]
        expired = [one for one in others if one.expired(now_us)]
        if after is not None and len(others) - len(expired) >= MAX_RECORDS:
            raise InvalidInput(kind, f"there are {MAX_RECORDS:,} already: remove some first")
        effects: list[Effect] = [RecordSet(now_us, kind, name, after)]
        effects += [RecordSet(now_us, kind, one.name, None) for one in expired]
        self._core.commit([*effects, *self._core.audited(attribution.audit, now_us)])
