"""What an engine offers for read models: tables in which applying and settling go together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from holdfast.model.errors import LeaseLost
from holdfast.model.outcome import Outcome
from holdfast.model.read_model import ReadModel, Row, RowKey

from .query import Aggregate, RowQuery

DIRECTORY = "read-models"
"""Where the files of an embedded engine are, in its store."""


class RowWriter(Protocol):
    """The rows of one generation, within one transaction. Use it in the thread that got it."""

    def get(self, key: RowKey) -> Row | None:
        """Return a row as it is now, with what was written here before."""

    def get_many(self, keys: Collection[RowKey]) -> Mapping[RowKey, Row]:
        """Return those of these rows that exist."""

    def upsert(self, row: Row) -> None:
        """Store a row; columns that it does not name become empty."""

    def delete(self, key: RowKey) -> None:
        """Delete a row, if it exists."""

    def attempt(self, change: Callable[[], None]) -> Exception | None:
        """Run this; undo what it changed here if it raises, and return what it raised."""


JobName = tuple[str, str]
"""The tenant and the id of a job."""
Apply = Callable[[RowWriter, frozenset[JobName]], None]
"""Changes rows; whatever it raises undoes all of it. It leaves out these jobs: their lease is lost,
or their rows are stored already."""


class FillPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far the rebuild of a generation has come; stored with the rows it is about."""

    rebuild: str
    cursor: str = ""
    filled: int = 0
    failed: int = 0


class Filled(NamedTuple):
    """What a step of a rebuild has done."""

    position: FillPosition
    covered: Collection[JobName] = ()
    """Jobs that are unfinished, or dead, and whose events were applied: when they run they are only
    settled."""


Fill = Callable[[RowWriter], Filled]
"""Changes rows for events of a rebuild; whatever it raises undoes all of it."""


class TableDigest(msgspec.Struct, frozen=True):
    """How many rows a generation has, and a hash of them that does not depend on their order."""

    rows: int
    hash: str


OnSettled = Callable[[Sequence[Outcome], Sequence[LeaseLost | None]], None]


class ReadModelStore(Protocol):
    """Tables by generation."""

    on_settled: OnSettled
    """Called with what ``apply`` has settled, and the answers."""

    async def create(self, table: ReadModel, generation: int) -> None:
        """Make the table of a generation, or add the columns and indexes that it lacks.

        Raise ``InvalidInput`` if a column has another type, or something of that name is not ours.
        """

    async def drop(self, table: ReadModel, generation: int) -> None:
        """Drop a generation, if it exists."""

    async def generations(self, table: ReadModel) -> list[int]:
        """Return the generations that exist."""

    async def truncate(self, table: ReadModel, generation: int, position: FillPosition) -> None:
        """Delete all rows for a rebuild, and store that it begins here."""

    async def publish(self, table: ReadModel, generation: int) -> None:
        """Let readers of the plain name see this generation from now on."""

    async def publish_outbox(self, projection: str) -> None:
        """Show the jobs of a projection as a view ``<projection>_outbox_events``, if it is SQL."""

    async def apply(
        self,
        table: ReadModel,
        generation: int,
        apply: Apply,
        outcomes: Sequence[Outcome],
    ) -> list[LeaseLost | None]:
        """Apply and settle together; for each outcome None, or the ``LeaseLost`` that refused it.

        No job is applied twice, whatever is interrupted: where rows and jobs are not in one
        transaction, a job whose rows are stored is only settled when it comes again. ``apply``
        may be called several times, each time on rows without its earlier changes.
        """

    async def fill(
        self, table: ReadModel, generation: int, fill: Fill, *, expected: FillPosition | None
    ) -> None:
        """Apply events of a rebuild, and store how far it has come with them.

        Raise ``ChangedMeanwhile`` if it is not at ``expected``: another process goes on with it.
        """

    async def covered(
        self, table: ReadModel, generation: int, jobs: Collection[JobName]
    ) -> set[JobName]:
        """Return those of these jobs whose rows are stored, so that they are only settled."""

    async def position(self, table: ReadModel, generation: int) -> FillPosition | None:
        """Return how far the rebuild of a generation has come."""

    async def digest(self, table: ReadModel, generation: int) -> TableDigest:
        """Count and hash all rows."""

    async def select(self, table: ReadModel, generation: int, query: RowQuery) -> list[Row]:
        """Return the rows that a query finds."""

    async def aggregate(
        self, table: ReadModel, generation: int, query: RowQuery, by: Aggregate
    ) -> list[Row]:
        """Count the rows that a query finds, by the values of some columns."""
