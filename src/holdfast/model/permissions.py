"""Who may do what: one table of roles and permissions. What it does not grant is refused."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from .errors import InvalidInput


class Permission(enum.StrEnum):
    """Something that a role may allow."""

    JOB_CREATE = "job.create"
    JOB_CLAIM = "job.claim"
    """Claim jobs, extend their leases and settle them, and be known as a worker."""
    JOB_READ = "job.read"
    """See jobs, queues, failures, events and projections; payloads are left out."""
    COUNTS_READ = "counts.read"
    """See how many jobs there are, and nothing of any of them."""
    PAYLOAD_READ = "payload.read"
    """See payloads, results and the data of events."""
    JOB_NOTE = "job.note"
    JOB_REPLAY = "job.replay"
    """Replay dead letters whose failure may pass by itself."""
    JOB_REPLAY_FIXED = "job.replay_fixed"
    """Replay dead letters with a statement of what was fixed."""
    JOB_CANCEL = "job.cancel"
    JOB_ARCHIVE = "job.archive"
    """Archive dead letters, and restore them."""
    JOB_EDIT = "job.edit"
    JOB_RECLAIM = "job.reclaim"
    JOB_CONFIRM = "job.confirm"
    JOB_PURGE = "job.purge"
    JOB_BULK = "job.bulk"
    """Act on more than a thousand jobs at once."""
    GROUP_SET = "group.set"
    """Acknowledge, assign, mute and close groups of failures, and write notes on them."""
    QUEUE_PAUSE = "queue.pause"
    QUEUE_POLICY = "queue.policy"
    SCHEDULE_RUN = "schedule.run"
    SCHEDULE_SET = "schedule.set"
    FLAG_SET = "flag.set"
    OUTAGE_SET = "outage.set"
    WORKER_COMMAND = "worker.command"
    EVENT_APPEND = "event.append"
    EVENT_CORRECT = "event.correct"
    PROJECTION_REBUILD = "projection.rebuild"
    AUDIT_OWN = "audit.own"
    """See in the audit what oneself did."""
    AUDIT_READ = "audit.read"
    """See in the audit what everybody did."""
    KEY_MANAGE = "key.manage"
    TENANT_MANAGE = "tenant.manage"
    SETTINGS_RELOAD = "settings.reload"
    STORE_DUMP = "store.dump"


class Role(enum.StrEnum):
    """What a credential is for. A credential with several roles may do what any of them may."""

    PRODUCER = "producer"
    WORKER = "worker"
    VIEWER = "viewer"
    OPERATOR = "operator"
    RESPONDER = "responder"
    AUDITOR = "auditor"
    ADMIN = "admin"


_P = Permission
_LOOK = frozenset({_P.JOB_READ, _P.COUNTS_READ})
_PRODUCE = frozenset({_P.JOB_CREATE, _P.EVENT_APPEND})
_OPERATE = (
    _LOOK
    | _PRODUCE
    | {
        _P.JOB_NOTE,
        _P.JOB_REPLAY,
        _P.JOB_CANCEL,
        _P.JOB_ARCHIVE,
        _P.GROUP_SET,
        _P.QUEUE_PAUSE,
        _P.SCHEDULE_RUN,
        _P.AUDIT_OWN,
    }
)
_RESPOND = _OPERATE | {
    _P.PAYLOAD_READ,
    _P.JOB_REPLAY_FIXED,
    _P.JOB_EDIT,
    _P.JOB_RECLAIM,
    _P.JOB_CONFIRM,
    _P.JOB_BULK,
    _P.QUEUE_POLICY,
    _P.SCHEDULE_SET,
    _P.FLAG_SET,
    _P.OUTAGE_SET,
    _P.WORKER_COMMAND,
    _P.EVENT_CORRECT,
    _P.PROJECTION_REBUILD,
}

GRANTED: Mapping[Role, frozenset[Permission]] = {
    Role.PRODUCER: _PRODUCE | {_P.JOB_READ, _P.JOB_CANCEL},
    Role.WORKER: frozenset({_P.JOB_CLAIM}),
    Role.VIEWER: _LOOK,
    Role.OPERATOR: _OPERATE,
    Role.RESPONDER: _RESPOND,
    Role.AUDITOR: frozenset({_P.AUDIT_OWN, _P.AUDIT_READ, _P.COUNTS_READ}),
    Role.ADMIN: frozenset(Permission) - {_P.JOB_CLAIM},
}
"""A role that is not here may do nothing."""


def granted(roles: Iterable[Role]) -> frozenset[Permission]:
    """Return what any of these roles may do."""
    return frozenset[Permission]().union(*(GRANTED.get(role, frozenset()) for role in roles))


def roles_with(permission: Permission) -> list[Role]:
    """Return the roles that may do this."""
    return [role for role in Role if permission in GRANTED[role]]


def roles_of(names: Iterable[str]) -> tuple[Role, ...]:
    """Return the roles of these names, in their order; raise ``InvalidInput``."""
    found: list[Role] = []
    for name in names:
        try:
            found.append(Role(name))
        except ValueError:
            raise InvalidInput("role", f"{name!r} is not one of {', '.join(Role)}") from None
    if not found:
        raise InvalidInput("role", f"give one or more of {', '.join(Role)}")
    return tuple(dict.fromkeys(found))
