"""The tasks that apply the events of projections."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.engines.contract import Engine
from holdfast.model.projection import task_of
from holdfast.worker.item_signature import ItemSignature
from holdfast.worker.registry import Execution, Registry, TaskSpec

from .apply import ReadEvent
from .declaration import Projection
from .runner import ProjectionRunner


class EventReference(msgspec.Struct, frozen=True):
    """The payload of a job of a projection."""

    event_id: str


def _apply(events: list[EventReference]) -> None:
    """Stand for the runner, which is called instead."""
    raise NotImplementedError(events)


def add_projection_tasks(
    registry: Registry, engine: Engine, projections: Mapping[str, Projection], read: ReadEvent
) -> None:
    """Add the task of each projection, which applies to the read models of this engine."""
    for projection in projections.values():
        name = task_of(projection.name)
        registry.tasks[name] = TaskSpec(
            name=name,
            function=_apply,
            signature=ItemSignature(_apply, name),
            execution=Execution.LOOP,
            queue=projection.name,
            batch=projection.batch,
            linger_seconds=projection.linger_seconds,
            runner=ProjectionRunner(engine, projection, read),
        )
