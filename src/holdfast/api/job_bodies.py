"""Jobs as the API takes them and shows them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.operations.inputs import JobInput
from holdfast.operations.views import JobView

MAX_BATCH = 1_000


class NewJobBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job to create."""

    task: str
    payload: dict[str, object] = {}
    id: str | None = None
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    delay_seconds: float | None = None
    run_at: datetime | None = None
    expires_seconds: float | None = None
    unique: str | None = None
    key: str | None = None
    depends_on: tuple[str, ...] = ()
    hold: bool = False
    scope: str = ""

    def input(self, tenant: str) -> JobInput:
        """Return it as operations take it."""
        return JobInput(
            task=self.task,
            payload=self.payload,
            id=self.id,
            queue=self.queue,
            priority=self.priority,
            max_attempts=self.max_attempts,
            delay=self.delay_seconds,
            run_at=self.run_at,
            expires=self.expires_seconds,
            unique=self.unique,
            key=self.key,
            depends_on=self.depends_on,
            hold=self.hold,
            tenant=tenant,
            scope=self.scope,
        )


JOB_EXAMPLE = {
    "task": "send_mail",
    "id": "mail-1",
    "queue": "mail",
    "payload": {"to": "ann@example.org"},
    "max_attempts": 5,
}


class JobBatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to create in one commit: all, or none."""

    jobs: list[NewJobBody]
    on_duplicate: str = "refuse"
    """``refuse``, or ``skip`` those whose id exists."""


class JobEditBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a job that is not running; what is left out stays."""

    why: str
    payload: dict[str, object] | None = None
    priority: int | None = None
    max_attempts: int | None = None
    run_at: datetime | None = None
    version: int | None = None
    """The version that is changed; or give If-Match."""


class JobActionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why something is done to a job."""

    why: str


class JobReplayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a dead letter is run again, and what was fixed."""

    why: str
    fixed: str = ""


class JobReceipt(msgspec.Struct, frozen=True):
    """A job that was enqueued, or existed."""

    id: str
    tenant: str
    existing: bool


class JobResult(msgspec.Struct, frozen=True):
    """The result of a job, once it has one."""

    id: str
    status: str
    finished: bool
    result: msgspec.Raw


Shown = dict[str, msgspec.Raw]
HIDDEN = frozenset({"payload", "result"})
"""The fields of a job that are shown only if they are asked for."""


def shown(view: JobView, *, payload: bool) -> Shown:
    """Return a job as the API shows it: its payload and result only if they are asked for."""
    fields = msgspec.json.decode(msgspec.json.encode(view), type=Shown)
    if not payload:
        for name in HIDDEN:
            fields.pop(name, None)
    fields.setdefault("tenant", msgspec.Raw(msgspec.json.encode(view.tenant)))
    return fields
