"""The part of the engine contract that is about records; see ``model.record``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.model.access import SYSTEM, Caller
from holdfast.model.audit import Attribution
from holdfast.model.record import Record


class RecordEngine(Protocol):
    """The verbs that keep records."""

    async def records(self, kind: str, names: Sequence[str] = ()) -> list[Record]:
        """Return the records of a kind by name, or those of these names that exist."""

    async def set_record(
        self,
        kind: str,
        name: str,
        after: Record | None,
        attribution: Attribution,
        *,
        expected: Record | None,
        caller: Caller = SYSTEM,
    ) -> None:
        """Store a record, or remove it; its audit entries are committed with it.

        Raise ``ChangedMeanwhile`` if it is not ``expected``, None: there must be none;
        ``InvalidInput`` if the kind has ``MAX_RECORDS`` already; ``AccessDenied`` if the reach of
        the caller is limited.
        """
