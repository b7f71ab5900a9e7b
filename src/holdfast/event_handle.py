"""A handle to an event that was appended: its id, and waiting until a projection has it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .binding import Binding
from .model.durations import Duration, seconds_of
from .model.event import EventReceipt
from .projections.wait import wait_until_projected


class EventHandle(msgspec.Struct, eq=False):
    """An event that was appended."""

    id: str
    """The id of the event."""
    tenant: str
    """The tenant that it belongs to."""
    position: int
    """Its position: of two events of one key the later one has the higher."""
    created: bool
    """False: the same event was there already, and nothing was done."""
    _binding: Binding

    def __repr__(self) -> str:
        return f"<event {self.id}>"

    async def wait(self, projection: str, timeout: Duration | None = None) -> None:  # noqa: ASYNC109
        """Return when readers of ``projection`` see the event.

        Raise ``JobFailed`` if it could not be applied, ``ResultTimeout`` if it takes longer than
        ``timeout``: it is applied all the same. Raise ``UnknownProjection``, ``EventNotFound`` if
        it was appended in a transaction that is not committed, or ``InvalidInput`` if the
        projection does not take its type.
        """
        await wait_for_all([self], projection, timeout, self._binding)

    def wait_sync(self, projection: str, timeout: Duration | None = None) -> None:
        """Do what ``wait`` does, from synchronous code."""
        wait_for_all_sync([self], projection, timeout, self._binding)


def event_handle(receipt: EventReceipt, tenant: str, binding: Binding) -> EventHandle:
    """Return a handle to this event."""
    return EventHandle(receipt.id, tenant, receipt.position, receipt.created, binding)


async def wait_for_all(
    events: Iterable[EventHandle],
    projection: str,
    timeout: Duration | None,  # noqa: ASYNC109
    binding: Binding,
) -> None:
    """Return when readers of the projection see all these events."""
    names = [(event.tenant, event.id) for event in events]
    seconds = None if timeout is None else seconds_of("timeout", timeout)
    await binding.call(
        lambda engine: wait_until_projected(engine, projection, names, seconds), waits=True
    )


def wait_for_all_sync(
    events: Iterable[EventHandle], projection: str, timeout: Duration | None, binding: Binding
) -> None:
    """See ``wait_for_all``; for synchronous code."""
    names = [(event.tenant, event.id) for event in events]
    seconds = None if timeout is None else seconds_of("timeout", timeout)
    binding.call_sync(
        lambda engine: wait_until_projected(engine, projection, names, seconds), waits=True
    )
