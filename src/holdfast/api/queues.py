"""``/queues/{queue}`` and ``/outages``: what governs which jobs may start."""

from __future__ import annotations

import zlib

import msgspec

from holdfast.engines.contract import Counts
from holdfast.model.errors import ChangedMeanwhile
from holdfast.model.permissions import Permission
from holdfast.model.policy import DEFAULT_POLICY, QueuePolicy, rate_of
from holdfast.operations.outages import OutageView
from holdfast.operations.policy_views import PolicyView

from .call import Answer, ApiCall, Handle, Route, invalid
from .conditions import expected_version, shown_unless_known, tag_of
from .problems import RequestRefused


class QueueDetail(msgspec.Struct, frozen=True):
    """A queue: how many jobs it has in each state within reach, and its limits."""

    queue: str
    counts: Counts | None
    """None: it has no jobs within reach."""
    policy: PolicyView | None
    """None: the key may not see it."""


class PolicyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The limits of a queue; what is left out is as the default has it."""

    paused: bool = False
    max_in_flight: int | None = None
    max_per_tenant: int | None = None
    max_per_key: int | None = None
    rate: str | None = None
    fair: bool = False
    ordered: bool = True
    keep_payload: bool | None = None

    def policy(self) -> QueuePolicy:
        """Return it as a store keeps it."""
        policy = QueuePolicy(
            paused=self.paused,
            max_in_flight=self.max_in_flight,
            max_per_tenant=self.max_per_tenant,
            max_per_key=self.max_per_key,
            rate=None if self.rate is None else rate_of("rate", self.rate),
            fair=self.fair,
            ordered=self.ordered,
            keep_payload=self.keep_payload,
        )
        policy.check()
        return policy


class QueuePolicyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole policy of a queue; null is the default one."""

    policy: PolicyBody | None
    why: str = ""


class QueueActionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a queue is paused or resumed."""

    why: str = ""


class OutageBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why an outage is started or ended."""

    why: str = ""
    new: bool = False
    """No queue needs the dependency yet, and it is meant."""


def _version(policy: QueuePolicy) -> int:
    """Return what If-Match compares: it is another number for another policy."""
    return zlib.crc32(msgspec.json.encode(PolicyView.of(policy)))


async def show_queue(call: ApiCall) -> Answer:
    """Return one queue; its ETag is for ``PUT policy``."""
    queue, policies = call.path["queue"], {}
    counts = (await call.operations.engine.counts()).get(queue)
    if known := call.principal.may(Permission.JOB_READ):
        policies = dict(await call.operations.policies())
    if counts is None and queue not in policies:
        raise RequestRefused("not-found", "there is no such queue within the reach of this key")
    policy = policies.get(queue, DEFAULT_POLICY)
    detail = QueueDetail(queue, counts, PolicyView.of(policy) if known else None)
    return shown_unless_known(call, detail, _version(policy) if known else 0)


async def set_policy(call: ApiCall) -> Answer:
    """Replace the policy that the caller has seen.

    ``If-None-Match: *`` is for a queue that has none, and perhaps no jobs yet.
    """
    asked = call.body(QueuePolicyBody)
    who, queue = call.author(asked.why), call.path["queue"]
    policies = await call.operations.policies()
    before = policies.get(queue, DEFAULT_POLICY)
    if call.headers.get("if-none-match", "").strip() == "*":
        matches = queue not in policies
    else:
        expected = expected_version(call, None)
        if queue not in policies and queue not in await call.operations.engine.counts():
            text = "there is no such queue: for a new one give If-None-Match: *"
            raise RequestRefused("not-found", text)
        matches = expected == _version(before)
    if not matches:
        raise RequestRefused("precondition-failed", "its policy is not the one that you have seen")
    after = None if asked.policy is None else asked.policy.policy()
    try:
        await call.operations.replace_policy(queue, after, who, expected=before)
    except ChangedMeanwhile as error:
        raise RequestRefused("precondition-failed", str(error)) from None
    return _changed(after or DEFAULT_POLICY)


def _changed(policy: QueuePolicy) -> Answer:
    view = PolicyView.of(policy)
    return Answer(data=view, headers={"etag": tag_of(_version(policy), view)})


def _pausing(*, paused: bool) -> Handle:
    async def handle(call: ApiCall) -> Answer:
        who = call.author(call.body(QueueActionBody).why)
        known = await call.operations.fleet.task_queues()
        changes = {"paused": paused}
        queue = call.path["queue"]
        policy = await call.operations.change_policy(queue, changes, who, also_known=known)
        return _changed(policy)

    return handle


async def list_outages(call: ApiCall) -> Answer:
    """Return the outages that last; with ``ended`` before them the last ones that do not."""
    ended = call.value("ended", "false")
    if ended not in ("true", "false"):
        raise invalid("ended", "it is true or false")
    return Answer(data=await call.operations.outages(ended=ended == "true"))


def _outage(*, on: bool) -> Handle:
    async def handle(call: ApiCall) -> Answer:
        asked = call.body(OutageBody)
        who = call.author(asked.why)
        known = await call.operations.fleet.task_queues()
        dependency = call.path["dependency"]
        out = {one.dependency for one in await call.operations.engine.outages()}
        if on == (dependency in out):
            text = f"{dependency!r} is {'out already' if on else 'not out'}"
            raise RequestRefused("illegal-transition", text)
        view = await call.operations.set_outage(
            dependency, who, on=on, new=asked.new, also_known=known
        )
        return Answer(data=view)

    return handle


def _pause_route(name: str, *, paused: bool, summary: str) -> Route:
    return Route(
        operation_id=f"{name}Queue",
        method="POST",
        path=f"/queues/{{queue}}/{name}",
        handle=_pausing(paused=paused),
        permission=Permission.QUEUE_PAUSE,
        summary=summary,
        body=QueueActionBody,
        example={"why": "the provider is slow"},
        answers=PolicyView,
        everything=True,
    )


def _outage_route(name: str, *, on: bool, summary: str) -> Route:
    return Route(
        operation_id=f"{name}Outage",
        method="POST",
        path=f"/outages/{{dependency}}/{name}",
        handle=_outage(on=on),
        permission=Permission.OUTAGE_SET,
        summary=summary,
        body=OutageBody,
        example={"why": "their status page", "new": True},
        answers=OutageView,
        everything=True,
    )


ROUTES = (
    Route(
        operation_id="getQueue",
        method="GET",
        path="/queues/{queue}",
        handle=show_queue,
        permission=Permission.COUNTS_READ,
        summary="Return a queue with its counts and limits",
        answers=QueueDetail,
        statuses=(200, 304),
    ),
    Route(
        operation_id="setQueuePolicy",
        method="PUT",
        path="/queues/{queue}/policy",
        handle=set_policy,
        permission=Permission.QUEUE_POLICY,
        summary="Replace the limits of a queue",
        body=QueuePolicyBody,
        example={"policy": {"max_in_flight": 2, "rate": "10/m"}, "why": "they are heavy"},
        answers=PolicyView,
        everything=True,
    ),
    _pause_route("pause", paused=True, summary="Start no more jobs of a queue"),
    _pause_route("resume", paused=False, summary="Start jobs of a queue again"),
    Route(
        operation_id="listOutages",
        method="GET",
        path="/outages",
        handle=list_outages,
        permission=Permission.JOB_READ,
        summary="List dependencies that are out, and what waits",
        parameters=("ended",),
        answers=list[OutageView],
        everything=True,
    ),
    _outage_route("start", on=True, summary="Hold the jobs of a dependency back"),
    _outage_route("end", on=False, summary="End an outage"),
)
