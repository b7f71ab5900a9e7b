"""Operations as the API takes them: what is asked for, and the plan that was seen."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.model.actions import (
    AnyAction,
    ArchiveJobs,
    CancelJobs,
    EditJobs,
    PurgeJobs,
    ReplayJobs,
    RestoreJobs,
    RetargetJobs,
)
from holdfast.model.job import MICROSECONDS
from holdfast.model.payload_paths import Assignment
from holdfast.operations.operation_views import OperationPlan, ReasonCount

from .call import invalid
from .job_bodies import Shown, shown
from .problems import RequestRefused

VERBS = ("replay", "archive", "restore", "cancel", "purge", "edit", "retarget")
MAX_WITHOUT_PLAN = 100
"""On how many named jobs an operation may be started that was not planned."""
DEFAULT_LIMIT = 1_000
_SIMPLE: Mapping[str, AnyAction] = {
    "archive": ArchiveJobs(),
    "restore": RestoreJobs(),
    "purge": PurgeJobs(),
}
_PLAN_ID = re.compile(r"plan-([0-9]{1,16})-([0-9]{1,12})-([0-9a-f]{16})")


class OperationBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An operation on many jobs, to plan (``dry_run``) or to start."""

    verb: str
    filter: dict[str, str | list[str]] | None = None
    """The conditions of ``GET /jobs``, by name; an empty one finds everything."""
    ids: list[str] = []
    limit: int | None = DEFAULT_LIMIT
    """How many jobs at most, the oldest first; null: all."""
    why: str = ""
    fixed: str = ""
    """What was fixed: a replay takes deterministic failures too."""
    task: str = ""
    """The task that a retarget gives the jobs to."""
    set: dict[str, object] = {}
    """What an edit sets, by path: ``payload.locale``."""
    unset: list[str] = []
    rate: str | None = None
    """At most so many per time, such as ``100/m``."""
    canary: int = 0
    abort_above: float | None = None
    """Stop if more than this share fails again, from 0 to 1."""
    dry_run: bool = False
    plan_id: str = ""
    """The plan that was seen; without one only up to a hundred named jobs."""

    def action(self) -> AnyAction:
        """Return what is to be done; raise ``RequestRefused``."""
        if self.verb not in VERBS:
            raise invalid("verb", f"it is one of {', '.join(VERBS)}")
        for name, verb in (("fixed", "replay"), ("task", "retarget"), ("set", "edit")):
            if getattr(self, name) and self.verb != verb:
                raise invalid(name, f"it is for {verb} alone")
        action: AnyAction = _SIMPLE.get(self.verb, CancelJobs())
        if self.verb == "replay":
            action = ReplayJobs(fixed=self.fixed)
        elif self.verb == "retarget":
            action = RetargetJobs(self.task)
        elif self.verb == "edit":
            sets = [Assignment(path, msgspec.json.encode(one)) for path, one in self.set.items()]
            action = EditJobs((*sets, *map(Assignment, self.unset)))
        action.check()
        return action

    def conditions(self) -> dict[str, tuple[str, ...]]:
        """Return the conditions by name, each with its values."""
        if self.filter is None and not self.ids:
            raise invalid("filter", "give a filter, or ids; an empty filter finds everything")
        return {
            name: (value,) if isinstance(value, str) else tuple(value)
            for name, value in (self.filter or {}).items()
        }


class PlanId(msgspec.Struct, frozen=True):
    """A plan that somebody has seen: its moment, its count, and what it was for.

    It is not stored: whoever starts it sends the same request again.
    """

    as_of_us: int
    would: int
    request: str
    """A digest of what decides on which jobs it acts, and how."""

    @classmethod
    def of(cls, body: OperationBody, plan: OperationPlan) -> PlanId:
        """Return the id of a plan."""
        return cls(round(plan.as_of.timestamp() * MICROSECONDS), plan.would, _digest(body))

    @classmethod
    def read(cls, body: OperationBody) -> PlanId | None:
        """Return the plan that a body names, None without one; raise ``RequestRefused``."""
        if not body.plan_id:
            return None
        found = _PLAN_ID.fullmatch(body.plan_id)
        if found is None:
            raise invalid("plan_id", "it is not one that a plan was given")
        plan = cls(int(found[1]), int(found[2]), found[3])
        if plan.request != _digest(body):
            raise RequestRefused("selection-changed", "the plan is of another request: plan again")
        return plan

    def __str__(self) -> str:
        return f"plan-{self.as_of_us}-{self.would}-{self.request}"


class PlannedOperation(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation would do at one moment; nothing was changed."""

    plan_id: str
    """Send the same request with it, and without ``dry_run``, within an hour to start it."""
    verb: str
    as_of: datetime
    would: int
    """How many jobs it would act on."""
    matched: int
    """How many jobs the filter finds in a state that the verb is for."""
    exact: bool
    """Whether all were counted; otherwise there are at least so many."""
    skipped: Mapping[str, int]
    """How many it would leave alone, by reason."""
    reasons: list[ReasonCount]
    """The dead letters among them by error_reason, the most frequent first."""
    held_behind: int
    limit: int | None
    expected_seconds: float | None
    samples: list[Shown]
    ids: list[str]

    @classmethod
    def of(cls, body: OperationBody, plan: OperationPlan) -> PlannedOperation:
        """Return a plan as the API shows it."""
        return cls(
            plan_id=str(PlanId.of(body, plan)),
            verb=plan.action,
            as_of=plan.as_of,
            would=plan.would,
            matched=plan.matched,
            exact=plan.exact,
            skipped=plan.skipped,
            reasons=plan.reasons,
            held_behind=plan.held_behind,
            limit=plan.limit,
            expected_seconds=plan.expected_seconds,
            samples=[shown(job, payload=False) for job in plan.jobs],
            ids=plan.ids,
        )


class OperationActionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why an operation is paused, resumed or aborted."""

    why: str = ""


class OperationRateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Another rate for an operation; null: none."""

    rate: str | None
    why: str = ""
    version: int | None = None
    """The version that is changed; or give If-Match."""


def _digest(body: OperationBody) -> str:
    parts = [
        body.verb,
        sorted(body.conditions().items()),
        body.ids,
        body.limit,
        body.fixed,
        body.task,
        sorted(body.set.items(), key=lambda item: item[0]),
        body.unset,
    ]
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]
