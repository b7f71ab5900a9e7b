"""Rows and what goes with them in one transaction: settled jobs, or the position of a rebuild."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from holdfast.engines.outages import OutageChange
from holdfast.engines.postgres import rows as job_rows
from holdfast.engines.postgres.call_context import CallContext
from holdfast.engines.postgres.jobs.settle_statements import Lease, lease_of, settle_full
from holdfast.engines.read_models.contract import Apply, Fill, FillPosition, JobName
from holdfast.engines.read_models.row_buffer import RowBuffer
from holdfast.model.access import SYSTEM
from holdfast.model.errors import ChangedMeanwhile
from holdfast.model.outcome import Outcome
from holdfast.model.read_model import ReadModel, RowKey

from .rows import TableRows
from .sessions import Session

T = TypeVar("T")
_POSITION = msgspec.json.Decoder(FillPosition)


class SettledJobs(NamedTuple):
    """The leases that ended, and the queues in which that changed what can be claimed."""

    leases: set[Lease]
    queues: list[str]
    outages: list[OutageChange]


class LeasesLost(Exception):
    """Some jobs are held by another worker by now: their rows must not be written."""

    def __init__(self, leases: Collection[Lease]) -> None:
        super().__init__(f"{len(leases)} leases lost")
        self.leases = leases


class ApplyFailed(Exception):
    """The projection's own code raised ``__cause__``."""


class GenerationTransactions:
    """What is done in transactions on one generation. One object is for one call.

    It is used again for each try, and locks what the one before has touched in one order.
    """

    def __init__(self, table: ReadModel, generation: int, source: str) -> None:
        self.table = table
        self.generation = generation
        self._source = source
        self._of = {"table_name": table.name, "generation": generation}
        self._touched: list[RowKey] = []

    def apply_and_settle(
        self,
        session: Session,
        apply: Apply,
        outcomes: Sequence[Outcome],
        lost: Collection[JobName],
        context: CallContext,
    ) -> SettledJobs:
        """Change rows, and settle as the last step: until then nothing of the jobs is locked.

        Raise ``LeasesLost`` if an outcome is refused: all of it is to be undone then.
        """
        covered = self.covered(session, [(one.tenant, one.id) for one in outcomes])
        self._change(session, lambda rows: apply(rows, frozenset({*lost, *covered})))
        if covered:
            session.run("drop_covered_jobs", **self._of, **_names(covered))
        settled = SettledJobs(*session.perform(settle_full(outcomes, SYSTEM, context)))
        refused = {lease_of(one) for one in outcomes} - settled.leases
        if refused:
            raise LeasesLost(refused)
        return settled

    def fill(self, session: Session, fill: Fill, expected: FillPosition | None) -> None:
        """Change rows, and store how far the rebuild has come with them."""
        session.lock(f"fill/{self._source}")
        if self.position(session) != expected:
            raise ChangedMeanwhile("rebuild", "" if expected is None else expected.rebuild)
        filled = self._change(session, fill)
        if filled.covered:
            session.run("add_covered_jobs", **self._of, **_names(filled.covered))
        self.put_position(session, filled.position)

    def covered(self, session: Session, jobs: Collection[JobName]) -> set[JobName]:
        """Return those of these jobs whose rows are stored."""
        found = session.run("find_covered_jobs", **self._of, **_names(jobs))
        return {(tenant, job_id) for tenant, job_id in found}

    def position(self, session: Session) -> FillPosition | None:
        """Return how far the rebuild has come."""
        found = session.run("read_fill_position", **self._of)
        return _POSITION.decode(found[0][0]) if found else None

    def put_position(self, session: Session, position: FillPosition) -> None:
        """Store how far the rebuild has come."""
        record = msgspec.json.encode(position).decode()
        session.run("put_fill_position", **self._of, position=record)

    def _change(self, session: Session, change: Callable[[RowBuffer], T]) -> T:
        table = TableRows(session, self.table, self._source)
        rows = RowBuffer(self.table, table.read)
        rows.get_many(self._touched)
        try:
            result = change(rows)
        except Exception as error:
            raise (table.error or ApplyFailed()) from error
        finally:
            self._touched = sorted(rows.keys())
        if table.error is not None:
            raise table.error
        table.write(rows)
        return result


def _names(jobs: Collection[JobName]) -> dict[str, object]:
    return job_rows.names(jobs)
