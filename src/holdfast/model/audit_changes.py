"""What an audit entry says about its change: counts, ids, before and after. Never payloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from .audit import AuditEntry
from .effects import Edited, Effect, ScheduleState
from .job import Job
from .policy import DEFAULT_POLICY, QueuePolicy
from .subscription import Subscription

MAX_AUDITED_IDS = 100
"""How many ids, tenants or paths an entry names at most."""
MAX_PATH_LENGTH = 200
_EDITED = ("priority", "max_attempts", "run_at_us")
_OBJECT = msgspec.json.Decoder(dict[str, object])


def with_facts(
    entries: Sequence[AuditEntry], facts: Mapping[str, object]
) -> tuple[AuditEntry, ...]:
    """Return these entries with what was done added to their changes."""
    return tuple(
        msgspec.structs.replace(
            entry,
            changes=msgspec.json.encode({**_OBJECT.decode(entry.changes), **facts}).decode(),
        )
        for entry in entries
    )


def facts_of(changed: Sequence[tuple[Job, Effect]], kept: int = 0) -> dict[str, object]:
    """Return what an action did: to how many jobs and to which, and what an edit changed."""
    facts: dict[str, object] = {
        "count": len(changed),
        "ids": [job.id for job, _effect in changed[:MAX_AUDITED_IDS]],
    }
    if kept:
        facts["kept"] = kept
    tenants = sorted({job.tenant for job, _effect in changed})
    if len(tenants) > 1:
        facts["tenants"] = tenants[:MAX_AUDITED_IDS]
    edits = [(job, effect.job) for job, effect in changed if isinstance(effect, Edited)]
    if len(edits) == 1:
        before, after = edits[0]
        facts |= difference(_fields(before, _EDITED), _fields(after, _EDITED))
    if edits:
        paths = {path for before, after in edits for path in payload_paths(before, after)}
        facts["payload"] = sorted(paths)[:MAX_AUDITED_IDS]
    return facts


def policy_facts(before: QueuePolicy | None, after: QueuePolicy | None) -> dict[str, object]:
    """Return what a change of a policy changed; None is the default policy."""
    return difference(*(_settings(policy or DEFAULT_POLICY) for policy in (before, after)))


def schedule_facts(before: ScheduleState | None, after: ScheduleState | None) -> dict[str, object]:
    """Return what a change of a schedule changed; None is no schedule."""
    return _setting_facts(before, after)


def subscription_facts(
    before: Subscription | None, after: Subscription | None
) -> dict[str, object]:
    """Return what a change of a subscription changed; None is no subscription."""
    return _setting_facts(before, after)


def _setting_facts(
    before: ScheduleState | Subscription | None, after: ScheduleState | Subscription | None
) -> dict[str, object]:
    old, new = (None if one is None else _settings(one) for one in (before, after))
    if old is None or new is None:
        return {"before": old, "after": new}
    return difference(old, new)


def flag_facts(before: bool | None, after: bool | None) -> dict[str, object]:  # noqa: FBT001
    """Return what switching a flag changed; None is not set."""
    return {"before": {"on": before}, "after": {"on": after}}


def difference(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that differ, as they were and as they are."""
    changed = [name for name in after if before.get(name) != after[name]]
    return {
        "before": {name: before.get(name) for name in changed},
        "after": {name: after[name] for name in changed},
    }


def payload_paths(before: Job, after: Job) -> list[str]:
    """Return the paths of the payload's fields that differ, without any value."""
    if before.payload == after.payload:
        return []
    old, new = (_decoded(job.payload) for job in (before, after))
    return [path[:MAX_PATH_LENGTH] for path in _paths("payload", old, new)]


def _paths(path: str, before: object, after: object) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            if name not in before or name not in after:
                yield f"{path}.{name}"
            else:
                yield from _paths(f"{path}.{name}", before[name], after[name])
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _paths(f"{path}[{place}]", old, new)
    elif before != after or type(before) is not type(after):
        yield path


def _decoded(payload: bytes) -> object:
    return _OBJECT.decode(payload) if payload else {}


def _settings(struct: QueuePolicy | ScheduleState | Subscription) -> dict[str, object]:
    return _fields(struct, struct.__struct_fields__)


def _fields(struct: msgspec.Struct, names: Sequence[str]) -> dict[str, object]:
    return {name: msgspec.to_builtins(getattr(struct, name)) for name in names}
