"""What has changed in a store, by topic: names and marks, never jobs or payloads."""

from __future__ import annotations

import msgspec

from .access import Caller

QUEUE = "queue:"
"""The topic of a queue is this and its name."""
JOBS = "jobs"
OPERATIONS = "operations"
AUDIT = "audit"
MAX_TOPICS = 10_000


class TopicMark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A topic of a tenant, and a mark that differs whenever something in it has changed.

    ``operations`` and ``audit`` are of no tenant.
    """

    tenant: str
    topic: str
    mark: str


class ChangeMarks(msgspec.Struct, frozen=True, array_like=True):
    """The marks of all topics. Marks of another ``feed`` cannot be compared with these."""

    feed: str
    marks: list[TopicMark]

    def within(self, caller: Caller) -> ChangeMarks:
        """Return what a caller may see.

        Of a tenant the marks of that tenant; one with scopes sees only that some job of the tenant
        has changed, not in which queue.
        """
        if caller.unlimited:
            return self
        found = [one for one in self.marks if one.topic.startswith(QUEUE)]
        if caller.tenant is not None:
            found = [one for one in found if one.tenant == caller.tenant]
        if caller.scopes:
            marks = sorted(one.mark for one in found)
            found = [TopicMark(caller.tenant or "", JOBS, ",".join(marks))]
        return ChangeMarks(self.feed, found)
