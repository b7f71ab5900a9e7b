"""What the command line asks an owner for, as it is sent."""

from __future__ import annotations

import msgspec

from holdfast.engines.contract import OnDuplicate
from holdfast.model.access import DEFAULT_TENANT
from holdfast.operations.inputs import JobInput
from holdfast.operations.operation_types import Who


class EnqueueRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Take these jobs."""

    jobs: list[JobInput]
    on_duplicate: OnDuplicate = "refuse"


class HistoryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Show this job and what happened to it."""

    id: str
    tenant: str = DEFAULT_TENANT


class DrainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Claim no more, or again."""

    who: Who
    on: bool


class RunScheduleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Enqueue the job of this schedule now."""

    name: str
    who: Who


class ResizeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Have this many slots."""

    who: Who
    slots: int
    queue: str = ""


class ReloadRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read the settings again."""

    who: Who
