"""``/workers`` and ``/settings:reload``: the processes that run jobs, and commands to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.model.errors import InvalidInput
from holdfast.model.fleet import WorkerCommand
from holdfast.model.permissions import Permission
from holdfast.operations.fleet import CommandResult
from holdfast.operations.views import WorkerView

from .call import Answer, ApiCall, Handle, Route
from .problems import RequestRefused


class WorkerActionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why workers are drained or resumed, or read their settings again."""

    why: str = ""

    def command(self, action: str) -> WorkerCommand:
        """Return the command."""
        return WorkerCommand(action)


class WorkerResizeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many jobs each process of a daemon runs at once."""

    slots: int
    queue: str = ""
    """The queue whose own slots they are; empty: those for all queues."""
    why: str = ""

    def command(self, action: str) -> WorkerCommand:
        """Return the command."""
        return WorkerCommand(action, slots=self.slots, queue=self.queue)


class WorkerLogLevelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From which level on a daemon logs."""

    level: str
    why: str = ""

    def command(self, action: str) -> WorkerCommand:
        """Return the command."""
        return WorkerCommand(action, level=self.level)


Body = type[WorkerActionBody] | type[WorkerResizeBody] | type[WorkerLogLevelBody]


async def list_workers(call: ApiCall) -> Answer:
    """Return every worker that is live or holds leases, those with the most leases first."""
    return Answer(data=await call.operations.fleet.workers())


async def show_worker(call: ApiCall) -> Answer:
    """Return the processes of a worker, by its name or that of its daemon."""
    name = call.path["worker"]
    found = [one for one in await call.operations.fleet.workers() if name in (one.worker, one.name)]
    if not found:
        raise _unknown()
    return Answer(data=found)


def _commanding(action: str, body: Body) -> Handle:
    async def handle(call: ApiCall) -> Answer:
        asked = call.body(body)
        who, command = call.author(asked.why), asked.command(action)
        command.check()
        fleet = call.operations.fleet
        try:
            targets = await fleet.targets(_names(call))
        except InvalidInput:
            raise _unknown() from None
        return Answer(data=await fleet.command(command, targets, who))

    return handle


def _names(call: ApiCall) -> Sequence[str]:
    """Return the worker that the path names; none: all of them."""
    return [call.path["worker"]] if "worker" in call.path else []


def _unknown() -> RequestRefused:
    return RequestRefused("not-found", "no live worker has this name: see /v2/workers")


def _commands(
    action: str, name: str, body: Body, example: Mapping[str, object], summary: str
) -> tuple[Route, ...]:
    """Return the routes of a command: to one worker, and to all."""
    verb = "setLogLevel" if action == "log_level" else action
    return tuple(
        Route(
            operation_id=f"{verb}{who}",
            method="POST",
            path=path,
            handle=_commanding(action, body),
            permission=Permission.WORKER_COMMAND,
            summary=summary,
            body=body,
            example=example,
            answers=list[CommandResult],
            everything=True,
        )
        for who, path in (
            ("Worker", f"/workers/{{worker}}/{name}"),
            ("Workers", f"/workers:{name}"),
        )
    )


ROUTES = (
    Route(
        operation_id="listWorkers",
        method="GET",
        path="/workers",
        handle=list_workers,
        permission=Permission.JOB_READ,
        summary="List workers, and the leases that they hold",
        answers=list[WorkerView],
        everything=True,
    ),
    Route(
        operation_id="getWorker",
        method="GET",
        path="/workers/{worker}",
        handle=show_worker,
        permission=Permission.JOB_READ,
        summary="Return the processes of a worker",
        answers=list[WorkerView],
        everything=True,
    ),
    *_commands("drain", "drain", WorkerActionBody, {"why": "a release"}, "Claim no more jobs"),
    *_commands("resume", "resume", WorkerActionBody, {"why": "it is out"}, "Claim jobs again"),
    *_commands(
        "resize",
        "resize",
        WorkerResizeBody,
        {"slots": 8, "why": "a long queue"},
        "Change how many jobs run at once",
    ),
    *_commands(
        "log_level",
        "log-level",
        WorkerLogLevelBody,
        {"level": "debug", "why": "it is slow"},
        "Change what is logged",
    ),
    Route(
        operation_id="reloadSettings",
        method="POST",
        path="/settings:reload",
        handle=_commanding("reload", WorkerActionBody),
        permission=Permission.SETTINGS_RELOAD,
        summary="Make every daemon read its settings again",
        body=WorkerActionBody,
        example={"why": "a release"},
        answers=list[CommandResult],
        everything=True,
    ),
)
