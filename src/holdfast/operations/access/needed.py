"""Which permission an action needs, where its arguments decide that."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from holdfast.model.actions import (
    Action,
    AnyAction,
    ArchiveJobs,
    CancelJobs,
    ConfirmJobs,
    EditJobs,
    NoteJobs,
    PurgeJobs,
    ReplayJobs,
    RestoreJobs,
    RetargetJobs,
)
from holdfast.model.permissions import Permission
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy

MAX_PLAIN = 1_000
"""On how many jobs at once somebody without ``job.bulk`` may act."""

_NEEDED: Mapping[type[Action], Permission] = {
    ReplayJobs: Permission.JOB_REPLAY,
    ArchiveJobs: Permission.JOB_ARCHIVE,
    RestoreJobs: Permission.JOB_ARCHIVE,
    CancelJobs: Permission.JOB_CANCEL,
    PurgeJobs: Permission.JOB_PURGE,
    ConfirmJobs: Permission.JOB_CONFIRM,
    NoteJobs: Permission.JOB_NOTE,
    EditJobs: Permission.JOB_EDIT,
    RetargetJobs: Permission.JOB_EDIT,
}

_ENTERED: Mapping[str, Permission] = {
    "event.correct": Permission.EVENT_CORRECT,
    "event.import": Permission.EVENT_APPEND,
    "schedule.run": Permission.SCHEDULE_RUN,
    "config.reload": Permission.SETTINGS_RELOAD,
}
"""Entries that operations write beside what they do; others come with the change itself."""


def needed_for(action: AnyAction, limit: int | None) -> list[Permission]:
    """Return what an action on up to so many jobs needs; None: on any number."""
    if isinstance(action, ReplayJobs) and action.fixed:
        needed = [Permission.JOB_REPLAY_FIXED]
    else:
        needed = [_NEEDED[type(action)]]
    if limit is None or limit > MAX_PLAIN:
        needed.append(Permission.JOB_BULK)
    return needed


def needed_for_entry(action: str) -> Permission:
    """Return what somebody needs who has done this, to have it entered into the audit."""
    return _ENTERED.get(action, Permission.KEY_MANAGE)


def only_pauses(before: QueuePolicy | None, after: QueuePolicy | None) -> bool:
    """Whether a change of a policy is only about pausing the queue, or resuming it."""
    if before is None:
        return False  # what was there before is not known
    changed = after or DEFAULT_POLICY
    return replace(changed, paused=before.paused) == before
