"""An engine for one request: a record is committed with the first change that is made.

If the record exists, that change raises ``ChangedMeanwhile`` and nothing is done. It covers what
people and services do to jobs, events and what governs them; not records, because the answer about
a key is a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from holdfast.engines.contract import AdminResult, Engine, OnDuplicate, Receipt, Reclaim
from holdfast.engines.forwarding import ForwardingEngine
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.actions import AnyAction
from holdfast.model.audit import Attribution
from holdfast.model.effects import ScheduleState
from holdfast.model.event import EventReceipt, NewEvent
from holdfast.model.fleet import WorkerCommand
from holdfast.model.group_life import GroupChange
from holdfast.model.job import Edit, Job, JobRef, NewJob
from holdfast.model.operation import NewOperation, Operation, OperationChange
from holdfast.model.outage import Outage
from holdfast.model.policy import QueuePolicy
from holdfast.model.projection import ProjectionState
from holdfast.model.record import Record
from holdfast.model.search import FailureGroup, Filter
from holdfast.model.subscription import Subscription

T = TypeVar("T")


class OnceEngine(ForwardingEngine):
    """See ``Engine``, for each verb."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.record: Record | None = None
        """What is committed with the first change."""
        self.committed = False

    async def _change(self, change: Callable[[Record | None], Coroutine[Any, Any, T]]) -> T:
        if self.committed:
            return await change(None)
        done = await change(self.record)
        self.committed = True
        return done

    async def _attributed(
        self, attribution: Attribution, change: Callable[[Attribution], Coroutine[Any, Any, T]]
    ) -> T:
        return await self._change(lambda record: change(replace(attribution, once=record)))

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        caller: Caller = SYSTEM,
        on_duplicate: OnDuplicate = "refuse",
        once: Record | None = None,
    ) -> list[Receipt]:
        """See ``Engine.enqueue``."""
        del once  # its own record goes with it
        return await self._change(
            lambda record: self.engine.enqueue(
                jobs, caller=caller, on_duplicate=on_duplicate, once=record
            )
        )

    async def append(
        self,
        events: Sequence[NewEvent],
        *,
        caller: Caller = SYSTEM,
        once: Record | None = None,
    ) -> list[EventReceipt]:
        """See ``Engine.append``."""
        del once  # its own record goes with it
        return await self._change(
            lambda record: self.engine.append(events, caller=caller, once=record)
        )

    async def operate(
        self,
        action: AnyAction,
        wanted: Filter,
        attribution: Attribution,
        *,
        limit: int = 1_000,
        caller: Caller = SYSTEM,
    ) -> AdminResult:
        """See ``Engine.operate``."""
        return await self._attributed(
            attribution,
            lambda who: self.engine.operate(action, wanted, who, limit=limit, caller=caller),
        )

    async def edit(
        self,
        job: JobRef,
        changes: Edit,
        attribution: Attribution,
        *,
        version: int | None = None,
        caller: Caller = SYSTEM,
    ) -> Job:
        """See ``Engine.edit``."""
        return await self._attributed(
            attribution,
            lambda who: self.engine.edit(job, changes, who, version=version, caller=caller),
        )

    async def reclaim(
        self,
        *,
        limit: int = 1_000,
        forced: Sequence[JobRef] = (),
        attribution: Attribution | None = None,
        every_seconds: float = 0.0,
        caller: Caller = SYSTEM,
    ) -> Reclaim:
        """See ``Engine.reclaim``: a person's names who and why."""
        if attribution is None:
            return await self.engine.reclaim(
                limit=limit, forced=forced, every_seconds=every_seconds, caller=caller
            )
        return await self._attributed(
            attribution,
            lambda who: self.engine.reclaim(
                limit=limit, forced=forced, attribution=who, caller=caller
            ),
        )

    async def set_policy(
        self,
        queue: str,
        policy: QueuePolicy | None,
        attribution: Attribution,
        *,
        expected: QueuePolicy | None = None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_policy``."""
        await self._attributed(
            attribution,
            lambda who: self.engine.set_policy(
                queue, policy, who, expected=expected, caller=caller
            ),
        )

    async def set_flag(
        self, name: str, attribution: Attribution, *, on: bool | None, caller: Caller = SYSTEM
    ) -> None:
        """See ``Engine.set_flag``."""
        await self._attributed(
            attribution, lambda who: self.engine.set_flag(name, who, on=on, caller=caller)
        )

    async def set_schedule(
        self,
        name: str,
        schedule: ScheduleState | None,
        attribution: Attribution,
        *,
        expected: ScheduleState | None = None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_schedule``."""
        await self._attributed(
            attribution,
            lambda who: self.engine.set_schedule(
                name, schedule, who, expected=expected, caller=caller
            ),
        )

    async def set_outage(
        self, dependency: str, attribution: Attribution, *, on: bool, caller: Caller = SYSTEM
    ) -> Outage:
        """See ``Engine.set_outage``."""
        return await self._attributed(
            attribution, lambda who: self.engine.set_outage(dependency, who, on=on, caller=caller)
        )

    async def start_operation(
        self, new: NewOperation, attribution: Attribution, *, caller: Caller = SYSTEM
    ) -> Operation:
        """See ``Engine.start_operation``."""
        return await self._attributed(
            attribution, lambda who: self.engine.start_operation(new, who, caller=caller)
        )

    async def change_operation(
        self,
        operation_id: str,
        change: OperationChange,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> Operation:
        """See ``Engine.change_operation``."""
        return await self._attributed(
            attribution,
            lambda who: self.engine.change_operation(operation_id, change, who, caller=caller),
        )

    async def set_group(
        self,
        group_id: str,
        change: GroupChange,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> FailureGroup | None:
        """See ``Engine.set_group``."""
        return await self._attributed(
            attribution,
            lambda who: self.engine.set_group(group_id, change, who, caller=caller),
        )

    async def set_subscription(
        self,
        name: str,
        subscription: Subscription | None,
        attribution: Attribution,
        *,
        caller: Caller = SYSTEM,
    ) -> Subscription | None:
        """See ``Engine.set_subscription``."""
        return await self._attributed(
            attribution,
            lambda who: self.engine.set_subscription(name, subscription, who, caller=caller),
        )

    async def set_projection(
        self,
        state: ProjectionState,
        attribution: Attribution,
        *,
        expected: ProjectionState | None,
        caller: Caller = SYSTEM,
    ) -> None:
        """See ``Engine.set_projection``."""
        await self._attributed(
            attribution,
            lambda who: self.engine.set_projection(state, who, expected=expected, caller=caller),
        )

    async def command(
        self,
        command: WorkerCommand,
        process_ids: Sequence[str],
        attribution: Attribution,
        *,
        ttl_seconds: float,
        caller: Caller = SYSTEM,
    ) -> str:
        """See ``Engine.command``."""
        return await self._attributed(
            attribution,
            lambda who: self.engine.command(
                command, process_ids, who, ttl_seconds=ttl_seconds, caller=caller
            ),
        )
