"""Read models on the server of the engine: rows and settled jobs are one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import psycopg
from psycopg import errors as pg

from holdfast.engines.outages import log_changes
from holdfast.engines.postgres.connection.sansio import Row as StoredRow
from holdfast.engines.postgres.errors import CommitUnknown, first_line
from holdfast.engines.postgres.jobs.lost_replies import outcome_unknown
from holdfast.engines.postgres.jobs.settle_statements import Lease, lease_of
from holdfast.engines.postgres.jobs.settler import Settler
from holdfast.engines.postgres.resources import EngineResources
from holdfast.engines.read_models import statements
from holdfast.engines.read_models.contract import (
    Apply,
    Fill,
    FillPosition,
    JobName,
    OnSettled,
    TableDigest,
)
from holdfast.engines.read_models.full_text import tsquery
from holdfast.engines.read_models.query import Aggregate, RowQuery
from holdfast.engines.read_models.statements import POSTGRES, SEARCH_COLUMN, Bound, quoted
from holdfast.model.errors import InvalidInput, LeaseLost, StorageError
from holdfast.model.outcome import Outcome
from holdfast.model.read_model import ReadModel, Row, generation_table

from .relations import ProjectionSchema
from .rows import TableRows, loaded, row_of
from .sessions import Session, Sessions
from .tables import Tables
from .transactions import ApplyFailed, GenerationTransactions, LeasesLost, SettledJobs
from .views import Views

T = TypeVar("T")
_MAX_UNKNOWN = 5
"""How often a batch is tried again whose commit was not answered."""


class PostgresReadModels:
    """See ``ReadModelStore``."""

    def __init__(self, resources: EngineResources, settler: Settler) -> None:
        options = resources.options
        self._resources = resources
        self._settler = settler
        self.on_settled: OnSettled = lambda _outcomes, _answers: None
        self._sessions = Sessions(resources.database)
        self._schema = ProjectionSchema(
            options.projection_schema, options.schema, resources.database.url
        )
        self._tables = Tables(self._schema)
        self._views = Views(self._schema)

    def close(self) -> None:
        """Close the connections."""
        self._sessions.close()

    # --- shape -------------------------------------------------------------------------------

    async def create(self, table: ReadModel, generation: int) -> None:
        """See ``ReadModelStore.create``."""
        table.check()
        await self._sessions.run(lambda session: self._tables.create(session, table, generation))

    async def drop(self, table: ReadModel, generation: int) -> None:
        """See ``ReadModelStore.drop``."""
        await self._sessions.run(lambda session: self._tables.drop(session, table, generation))

    async def generations(self, table: ReadModel) -> list[int]:
        """See ``ReadModelStore.generations``."""
        return await self._sessions.run(lambda session: self._tables.generations(session, table))

    async def truncate(self, table: ReadModel, generation: int, position: FillPosition) -> None:
        """See ``ReadModelStore.truncate``."""

        def empty(session: Session) -> None:
            self._tables.empty(session, table, generation)
            self._transactions(table, generation).put_position(session, position)

        await self._on(table, generation, empty)

    async def publish(self, table: ReadModel, generation: int) -> None:
        """See ``ReadModelStore.publish``."""
        await self._on(
            table, generation, lambda session: self._views.publish(session, table, generation)
        )

    async def publish_outbox(self, projection: str) -> None:
        """See ``ReadModelStore.publish_outbox``."""
        await self._sessions.run(lambda session: self._views.publish_outbox(session, projection))

    # --- write -------------------------------------------------------------------------------

    async def apply(
        self, table: ReadModel, generation: int, apply: Apply, outcomes: Sequence[Outcome]
    ) -> list[LeaseLost | None]:
        """See ``ReadModelStore.apply``."""
        lost: set[Lease] = set()
        left = list(outcomes)
        settled: SettledJobs | None = None
        unknown = 0
        transactions = self._transactions(table, generation)
        while left and settled is None:
            try:
                settled = await self._apply(transactions, apply, left, lost)
            except LeasesLost as error:
                lost |= set(error.leases)
                left = [one for one in left if lease_of(one) not in lost]
            except CommitUnknown as error:
                # If it was committed, the leases are lost in the next try, and found below.
                self._resources.lost_replies.add(left)
                unknown += 1
                if unknown == _MAX_UNKNOWN:
                    raise outcome_unknown("batch of events") from error.__cause__
        done = set() if settled is None else settled.leases
        if settled is not None:
            log_changes(settled.outages, self._resources.clock.now_us())
            self._resources.wake(settled.queues)
        done |= await self._resources.lost_replies.settled(outcomes, done)
        answers = self._settler.answers(outcomes, done)
        self.on_settled(outcomes, answers)
        return answers

    async def _apply(
        self,
        transactions: GenerationTransactions,
        apply: Apply,
        outcomes: Sequence[Outcome],
        lost: Collection[Lease],
    ) -> SettledJobs:
        names = {(tenant, job_id) for tenant, job_id, _token in lost}
        context = self._resources.context()
        return await self._on(
            transactions.table,
            transactions.generation,
            lambda session: transactions.apply_and_settle(session, apply, outcomes, names, context),
            pinned=True,
            idempotent=False,
        )

    async def fill(
        self, table: ReadModel, generation: int, fill: Fill, *, expected: FillPosition | None
    ) -> None:
        """See ``ReadModelStore.fill``."""
        transactions = self._transactions(table, generation)
        fill_all = lambda session: transactions.fill(session, fill, expected)
        try:
            await self._on(table, generation, fill_all, pinned=True, idempotent=False)
        except CommitUnknown as error:
            raise outcome_unknown("step of a rebuild") from error.__cause__

    # --- read --------------------------------------------------------------------------------

    async def covered(
        self, table: ReadModel, generation: int, jobs: Collection[JobName]
    ) -> set[JobName]:
        """See ``ReadModelStore.covered``."""
        transactions = self._transactions(table, generation)
        return await self._on(
            table, generation, lambda session: transactions.covered(session, jobs), pinned=True
        )

    async def position(self, table: ReadModel, generation: int) -> FillPosition | None:
        """See ``ReadModelStore.position``."""
        return await self._on(table, generation, self._transactions(table, generation).position)

    async def digest(self, table: ReadModel, generation: int) -> TableDigest:
        """See ``ReadModelStore.digest``."""

        def digest(session: Session) -> TableDigest:
            session.execute("SET LOCAL statement_timeout = 0")
            return TableRows(session, table, self._source(table, generation)).digest()

        return await self._on(table, generation, digest)

    async def select(self, table: ReadModel, generation: int, query: RowQuery) -> list[Row]:
        """See ``ReadModelStore.select``."""
        query.check(table)
        source = self._source(table, generation)
        text, values = statements.select(table, source, _found(query.search), query, POSTGRES)
        found = await self._fetch(table, generation, (text, values))
        return [row_of(table, one) for one in found]

    async def aggregate(
        self, table: ReadModel, generation: int, query: RowQuery, by: Aggregate
    ) -> list[Row]:
        """See ``ReadModelStore.aggregate``."""
        query.check(table)
        by.check(table)
        source = self._source(table, generation)
        bound = statements.aggregate(source, _found(query.search), query, by, POSTGRES)
        names = [*by.by, *(["day"] if by.day_of else []), "count"]
        found = await self._fetch(table, generation, bound)
        return [dict(zip(names, map(loaded, one), strict=True)) for one in found]

    # --- transactions ------------------------------------------------------------------------

    async def _fetch(self, table: ReadModel, generation: int, bound: Bound) -> list[StoredRow]:
        text, values = bound

        def fetch(session: Session) -> list[StoredRow]:
            try:
                return session.execute(text, values).fetchall()
            except (pg.UndefinedFunction, psycopg.DataError) as error:
                problem = f"{table.name} cannot be asked for that: {first_line(error)}"
                raise InvalidInput("conditions", problem) from error

        return await self._on(table, generation, fetch)

    async def _on(
        self,
        table: ReadModel,
        generation: int,
        work: Callable[[Session], T],
        *,
        pinned: bool = False,
        idempotent: bool = True,
    ) -> T:
        """Run this on the table of a generation, which may not exist."""

        def checked(session: Session) -> T:
            try:
                return work(session)
            except pg.UndefinedTable as error:
                raise StorageError(
                    f"{table.name} has no generation {generation}: rebuild it"
                ) from error
            except pg.UndefinedColumn as error:
                raise StorageError(
                    f"generation {generation} of {table.name} is not as declared "
                    f"({first_line(error)}): start a worker, which adds columns, or rebuild it"
                ) from error

        try:
            return await self._sessions.run(checked, pinned=pinned, idempotent=idempotent)
        except ApplyFailed as failed:
            raise (failed.__cause__ or failed) from None

    def _transactions(self, table: ReadModel, generation: int) -> GenerationTransactions:
        return GenerationTransactions(table, generation, self._source(table, generation))

    def _source(self, table: ReadModel, generation: int) -> str:
        return self._schema.sql(generation_table(table.name, generation))


def _found(search: str) -> Bound:
    if not search:
        return "TRUE", []
    return f"{quoted(SEARCH_COLUMN)} @@ %s::tsquery", [tsquery(search)]
