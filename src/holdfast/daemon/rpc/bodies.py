"""Request bodies of the operations that the command line asks of an owner."""

from __future__ import annotations

import msgspec

from holdfast.engines.contract import OnDuplicate
from holdfast.model.access import DEFAULT_TENANT
from holdfast.operations.attribution import Author
from holdfast.operations.inputs import JobInput


class EnqueueBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Enqueue these jobs."""

    jobs: list[JobInput]
    on_duplicate: OnDuplicate = "refuse"


class HistoryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Show this job and its history."""

    id: str
    tenant: str = DEFAULT_TENANT


class RunScheduleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Enqueue the job of this schedule now."""

    name: str
    who: Author
