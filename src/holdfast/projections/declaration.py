"""What a projection is: its name, the events that it wants, its table, and how it applies them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from holdfast.engines.read_models.contract import RowWriter
from holdfast.model.errors import InvalidInput
from holdfast.model.event import Event
from holdfast.model.job import check_name
from holdfast.model.projection import ProjectionState, check_projection_name
from holdfast.model.read_model import ReadModel, Value

DEFAULT_BATCH = 500
DEFAULT_LINGER_SECONDS = 0.05
DEFAULT_LAG_SLO_SECONDS = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

OnFailure = Literal["hold", "skip"]
"""Whether later events of a key wait for one that failed, or go on without it."""


class ProjectedEvent:
    """An event as a projection sees it: of the current version of its type, and decoded."""

    __slots__ = ("_write_text", "data", "event")

    def __init__(
        self, event: Event, data: Mapping[str, object], write_text: Callable[[Event], str]
    ) -> None:
        self.event = event
        self.data = data
        """Its payload, of the current version."""
        self._write_text = write_text

    def __getattr__(self, name: str) -> object:
        """Return what the event itself has: ``entity_id``, ``actor_id``, ``tenant`` …"""
        return getattr(self.event, name)

    @property
    def event_type(self) -> str:
        """The type of the event."""
        return self.event.event_type

    @property
    def entity_id(self) -> str:
        """What it is about."""
        return self.event.entity_id

    @property
    def text(self) -> str:
        """What happened, for people; it is written when it is asked for."""
        return self._write_text(self.event)

    @property
    def before(self) -> Value:
        """What was there before, decoded."""
        return _decoded(self.event.before)

    @property
    def after(self) -> Value:
        """What is there now, decoded."""
        return _decoded(self.event.after)

    @property
    def diff(self) -> Value:
        """What changed, decoded."""
        return _decoded(self.event.diff)

    @property
    def occurred_at(self) -> datetime:
        """When it happened."""
        return _EPOCH + timedelta(microseconds=self.event.occurred_at_us)

    @property
    def created_at(self) -> datetime:
        """When it was stored."""
        return _EPOCH + timedelta(microseconds=self.event.created_at_us)


ApplyEvents = Callable[[Sequence[ProjectedEvent], RowWriter], None]
"""Changes the rows for these events, which come in the order of their keys. It runs in a thread."""


@dataclass(frozen=True, kw_only=True)
class Projection:
    """A declared projection."""

    name: str
    table: ReadModel
    apply: ApplyEvents
    event_types: tuple[str, ...] = ()
    """The types that it wants; none: all."""
    version: int = 1
    """Of the declaration: raise it when what is in the table changes, and rebuild."""
    previous: Projection | None = None
    """The declaration of the version before, for generations that were made by it."""
    batch: int = DEFAULT_BATCH
    linger_seconds: float = DEFAULT_LINGER_SECONDS
    on_failure: OnFailure = "hold"
    max_attempts: int | None = None
    lag_slo_seconds: float = DEFAULT_LAG_SLO_SECONDS

    def check(self) -> None:
        """Raise ``InvalidInput`` naming what is wrong."""
        check_projection_name(self.name)
        self.table.check()
        if not callable(self.apply):
            raise InvalidInput("apply", f"{self.name} has no function that applies events")
        for event_type in self.event_types:
            check_name("events", event_type)
        if self.on_failure not in ("hold", "skip"):
            raise InvalidInput("on_failure", f"{self.on_failure!r} is not hold or skip")
        if type(self.version) is not int or self.version < 1:
            raise InvalidInput("version", f"{self.version!r} is not a whole number from 1")
        previous = self.previous
        if previous is not None:
            if previous.name != self.name or previous.version >= self.version:
                problem = f"of {self.name} must be an earlier version of it"
                raise InvalidInput("previous", problem)
            if previous.table.name != self.table.name:
                raise InvalidInput("previous", f"of {self.name} must have the table of that name")
            previous.check()

    def of_version(self, version: int) -> Projection:
        """Return the declaration for a generation of this version; this one, if it is not known."""
        if version < self.version and self.previous is not None:
            return self.previous.of_version(version)
        return self

    def table_of(self, state: ProjectionState, generation: int) -> ReadModel:
        """Return the table of a generation: that of the version by which it is filled."""
        return self.of_version(state.versions.get(generation, self.version)).table


def _decoded(value: bytes | None) -> Value:
    found: Value = None if value is None else msgspec.json.decode(value)
    return found
