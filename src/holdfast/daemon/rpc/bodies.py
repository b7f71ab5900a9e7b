"""Request bodies of the operations that the command line asks of an owner."""

from __future__ import annotations

import msgspec

from holdfast.engines.contract import OnDuplicate
from holdfast.model.access import DEFAULT_TENANT
from holdfast.operations.attribution import Author
from holdfast.operations.bulk import OperationRequest
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


class CheckPayloadsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Check what this edit or retarget would leave against the tasks of the daemon."""

    request: OperationRequest
