"""Checks of the arguments of verbs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from msgspec.structs import replace

from holdfast.model.access import Caller
from holdfast.model.actions import Action, AnyAction
from holdfast.model.audit import Attribution, AuditFilter
from holdfast.model.effects import ScheduleState
from holdfast.model.errors import AccessDenied, InvalidInput
from holdfast.model.event import MAX_APPEND, NewEvent
from holdfast.model.event_search import EventFilter
from holdfast.model.fleet import (
    MAX_ANNOUNCED_SECONDS,
    CommandAnswer,
    WorkerCommand,
    WorkerProcess,
)
from holdfast.model.group_life import GroupChange
from holdfast.model.job import Edit, State, check_id, check_seconds, check_size
from holdfast.model.operation import NewOperation, OperationChange, members
from holdfast.model.policy import QueuePolicy
from holdfast.model.search import Filter, check_page
from holdfast.model.subscription import Subscription

from .contract import MAX_CLAIM, HeldJob

T = TypeVar("T")


def check_limit(limit: int) -> None:
    """Raise ``InvalidInput`` unless it is a whole number within the limits."""
    if type(limit) is not int or not 1 <= limit <= MAX_CLAIM:
        raise InvalidInput("limit", f"{limit!r} is not a whole number from 1 to {MAX_CLAIM:,}")


def check_chain(chain: int) -> None:
    """Raise ``InvalidInput`` unless it is a whole number within the limits."""
    check_size("chain", chain, 1, MAX_CLAIM)


def check_audit_page(wanted: AuditFilter, after: int, limit: int) -> None:
    """Raise ``InvalidInput`` unless these ask for a page of the audit."""
    if type(wanted) is not AuditFilter:
        raise InvalidInput("wanted", f"a {type(wanted).__name__} is not an AuditFilter")
    wanted.check()
    check_size("after", after, 0)
    check_page(limit)


def check_access(tenant: str, scope: str, caller: Caller) -> None:
    """Raise ``AccessDenied`` if the caller may not have jobs there, or ``InvalidInput``."""
    if caller.tenant is not None and tenant != caller.tenant:
        raise AccessDenied("tenant", tenant)
    if not isinstance(scope, str):
        raise InvalidInput("scope", f"{scope!r} is not text")
    if not caller.can_access(tenant, scope):
        raise AccessDenied("scope", scope)


class CheckedNames(tuple[str, ...]):
    """Names that were checked, each once, and in which a name is found without a search.

    A worker may serve a hundred thousand queues: it passes the same object with every claim until
    it finds another queue, so that a claim does not look at each of them.
    """

    as_set: frozenset[str]
    names_hash: int

    def __hash__(self) -> int:
        return self.names_hash

    def __contains__(self, name: object) -> bool:
        return name in self.as_set


def check_names(field: str, names: Collection[str]) -> CheckedNames:
    """Return these names, each once, or raise ``InvalidInput``."""
    if isinstance(names, CheckedNames):
        return names
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise InvalidInput(field, f"{names!r} is not a collection of names")
    checked = CheckedNames(dict.fromkeys([check_id(name, field) for name in names]))
    checked.as_set = frozenset(checked)
    checked.names_hash = tuple.__hash__(checked)
    return checked


def check_all(field: str, items: Iterable[T], kind: type[T]) -> list[T]:
    """Return these items as a list, or raise ``InvalidInput`` if one is not of this kind."""
    if type(items) is list:
        found: list[T] = items
    elif isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise InvalidInput(field, f"a {type(items).__name__} is not a sequence")
    else:
        found = list(items)
    for item in found:
        if not isinstance(item, kind):
            raise InvalidInput(field, f"a {type(item).__name__} is not a {kind.__name__}")
    return found


_HELD_JOB = ("id", "tenant", "token", "max_processing_seconds")


def check_held(items: Iterable[HeldJob]) -> list[HeldJob]:
    """Return these as a list, or raise ``InvalidInput`` if one is not a held job.

    ``isinstance`` of a protocol would cost twenty microseconds for each.
    """
    found: list[HeldJob] = check_all("held", items, object)  # type: ignore[arg-type]
    for item in found:
        for name in _HELD_JOB:
            if not hasattr(item, name):
                raise InvalidInput("held", f"a {type(item).__name__} is not a HeldJob")
    return found


def check_filter(wanted: Filter) -> Filter:
    """Return the filter, or raise ``InvalidInput`` if it is not valid."""
    _check_kind("wanted", wanted, Filter)
    wanted.check()
    return wanted


def for_states(wanted: Filter, states: frozenset[State]) -> Filter:
    """Return the filter, restricted to the states in which the action is allowed."""
    wanted = check_filter(wanted)
    asked = frozenset(wanted.states) & states if wanted.states else states
    if not asked:
        names = ", ".join(sorted(states))
        raise InvalidInput("states", f"this is for jobs that are {names}")
    return replace(wanted, states=tuple(sorted(asked)))


def check_attribution(attribution: Attribution) -> None:
    """Raise ``InvalidInput`` unless it names who and why."""
    _check_kind("operation", attribution, Attribution)
    attribution.check()


def check_process(
    process: WorkerProcess, ttl_seconds: float, answers: Iterable[CommandAnswer]
) -> list[CommandAnswer]:
    """Return the answers of a process that announces itself, or raise ``InvalidInput``."""
    _check_kind("process", process, WorkerProcess)
    process.check()
    check_seconds("ttl_seconds", ttl_seconds, MAX_ANNOUNCED_SECONDS)
    return check_all("answers", answers, CommandAnswer)


def check_command(
    command: WorkerCommand,
    process_ids: Collection[str],
    attribution: Attribution,
    ttl_seconds: float,
    caller: Caller,
) -> list[str]:
    """Return the processes that a command is for, or raise what is wrong with it."""
    _check_kind("command", command, WorkerCommand)
    command.check()
    check_attribution(attribution)
    check_seconds("ttl_seconds", ttl_seconds, MAX_ANNOUNCED_SECONDS)
    targets = check_names("process_ids", process_ids)
    if not targets:
        raise InvalidInput("process_ids", "name the processes that are to get the command")
    if not caller.unlimited:
        raise AccessDenied("workers", command.action)  # it affects every tenant's work
    return list(targets)


def check_may_sample(caller: Caller) -> None:
    """Raise ``AccessDenied`` if the caller is confined: samples are of all tenants together."""
    if not caller.unlimited:
        raise AccessDenied("queue", "samples")


def check_sampling(every_seconds: float, caller: Caller) -> None:
    """Raise what is wrong with a request for a sample."""
    check_seconds("every_seconds", every_seconds)
    check_may_sample(caller)


def check_action(action: AnyAction) -> None:
    """Raise ``InvalidInput`` unless it is a valid action."""
    if not isinstance(action, Action):
        raise InvalidInput("action", f"a {type(action).__name__} is not an Action")
    action.check()


def check_operation(new: NewOperation, attribution: Attribution) -> None:
    """Raise ``InvalidInput`` unless the operation is valid, and names who and why."""
    _check_kind("operation", new, NewOperation)
    check_action(new.action)
    check_filter(new.wanted)
    new.check()
    members(new.action, new.wanted, 0)
    check_attribution(attribution)


def check_operation_change(change: OperationChange, attribution: Attribution) -> None:
    """Raise ``InvalidInput`` unless the change is valid, and names who and why."""
    _check_kind("change", change, OperationChange)
    change.check()
    check_attribution(attribution)


def check_edit(changes: Edit, max_payload_bytes: int) -> None:
    """Raise ``InvalidInput`` unless the edit is valid."""
    _check_kind("changes", changes, Edit)
    changes.check(max_payload_bytes)


def check_policy(policy: QueuePolicy | None) -> None:
    """Raise ``InvalidInput`` unless the policy is valid."""
    if policy is not None:
        _check_kind("policy", policy, QueuePolicy)
        policy.check()


def check_group_change(group_id: str, change: GroupChange) -> None:
    """Raise ``InvalidInput`` unless this can be a change to a group."""
    check_id(group_id, "group")
    if type(change) is not GroupChange:
        raise InvalidInput("change", f"a {type(change).__name__} is not a GroupChange")
    change.check()


def check_switch(on: bool | None) -> None:  # noqa: FBT001
    """Raise ``InvalidInput`` unless it is true, false or None."""
    if on is not None and type(on) is not bool:
        raise InvalidInput("on", f"{on!r} is not true, false or nothing")


def check_schedule(schedule: ScheduleState | None) -> None:
    """Raise ``InvalidInput`` unless it is a schedule or None."""
    if schedule is not None:
        _check_kind("schedule", schedule, ScheduleState)


def check_events(events: Iterable[NewEvent]) -> list[NewEvent]:
    """Return the events of one append, or raise ``InvalidInput``."""
    found = check_all("events", events, NewEvent)
    if len(found) > MAX_APPEND:
        raise InvalidInput(
            "events",
            f"{len(found):,} events, and one commit takes at most {MAX_APPEND:,}: append them in "
            "several calls",
        )
    return found


def check_event_filter(wanted: EventFilter) -> EventFilter:
    """Return the filter with its ids in lower case, or raise ``InvalidInput``."""
    _check_kind("wanted", wanted, EventFilter)
    wanted.check()
    return replace(wanted, ids=tuple(one.lower() for one in wanted.ids)) if wanted.ids else wanted


def check_subscription(
    name: str, subscription: Subscription | None, attribution: Attribution, caller: Caller
) -> None:
    """Raise what is wrong with a change of a subscription."""
    check_id(name, "name")
    if subscription is not None:
        _check_kind("subscription", subscription, Subscription)
        subscription.check()
        if subscription.name != name:
            raise InvalidInput("name", f"{name!r} is not {subscription.name!r}, its own name")
    check_attribution(attribution)
    if not caller.unlimited:
        raise AccessDenied("subscription", name)  # it affects every tenant's work


def _check_kind(field: str, value: object, kind: type) -> None:
    if type(value) is not kind:
        raise InvalidInput(field, f"a {type(value).__name__} is not of type {kind.__name__}")
