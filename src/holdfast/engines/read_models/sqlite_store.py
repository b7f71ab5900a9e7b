"""Read models beside an embedded engine: a SQLite file for each generation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Protocol, TypeVar

from holdfast.engines.ownership import claim_directory, make_directory
from holdfast.model.errors import LeaseLost, StorageError
from holdfast.model.outcome import Outcome
from holdfast.model.read_model import ReadModel, Row, generation_table

from .contract import Apply, Fill, FillPosition, JobName, OnSettled, TableDigest
from .query import Aggregate, RowQuery
from .sqlite_file import SqliteFile

T = TypeVar("T")
MEMORY = ":memory:"
_SUFFIX = ".sqlite"


class Lease(Protocol):
    """A job and the token of a lease."""

    @property
    def id(self) -> str:
        """The job's id."""

    @property
    def tenant(self) -> str:
        """The job's tenant."""

    @property
    def token(self) -> int:
        """The token."""

    @property
    def max_processing_seconds(self) -> float | None:
        """See ``HeldJob``."""


class LeaseSettler(Protocol):
    """The verbs of an engine that settling rows needs."""

    async def leases(self, held: Sequence[Lease]) -> Sequence[object]:
        """See ``Engine.leases``."""

    async def settle(self, outcomes: Sequence[Outcome]) -> list[LeaseLost | None]:
        """See ``Engine.settle``."""


class OpenGeneration:
    """An open file, and what is to do with it."""

    def __init__(self, file: SqliteFile) -> None:
        self.file = file
        self.lock = asyncio.Lock()
        """From the look at the leases to the settle: so a job whose lease is lost meanwhile is
        either seen here as lost, or seen by its next holder as applied."""
        self.settled: set[JobName] = set()
        """Jobs in the file's list of applied ones that are settled."""


class SqliteReadModels:
    """See ``ReadModelStore``. ``directory`` is where the files are; None keeps all in memory."""

    def __init__(
        self,
        directory: Path | None,
        settler: LeaseSettler,
        threads: Callable[[int, str], Executor] | None = None,
        *,
        writes: bool = True,
    ) -> None:
        """Take ``threads`` to run on, one for each file; None: all runs on the event loop."""
        self.on_settled: OnSettled = lambda _outcomes, _answers: None
        self._directory = directory
        self._settler = settler
        self._threads = threads
        self._writes = writes
        self._open: dict[str, OpenGeneration] = {}
        self._executors: dict[str, Executor] = {}

    # --- shape -------------------------------------------------------------------------------

    async def create(self, table: ReadModel, generation: int) -> None:
        """See ``ReadModelStore.create``."""
        table.check()
        found = await self._generation(table, generation, create=True)
        async with found.lock:
            found.file.table = table
            await self._run(table, generation, found.file.create)

    async def drop(self, table: ReadModel, generation: int) -> None:
        """See ``ReadModelStore.drop``."""
        name = generation_table(table.name, generation)
        found = self._open.pop(name, None)
        if found is not None:
            async with found.lock:
                await self._run(table, generation, found.file.close)
        if self._directory is not None:
            for path in self._directory.glob(f"{name}{_SUFFIX}*"):
                path.unlink()

    async def generations(self, table: ReadModel) -> list[int]:
        """See ``ReadModelStore.generations``."""
        prefix = generation_table(table.name, 0)[:-1]
        names = set(self._open)
        if self._directory is not None and self._directory.is_dir():
            names |= {path.stem for path in self._directory.glob(f"*{_SUFFIX}")}
        numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
        return sorted(int(number) for number in numbers if number.isdecimal())

    async def truncate(self, table: ReadModel, generation: int, position: FillPosition) -> None:
        """See ``ReadModelStore.truncate``."""
        found = await self._generation(table, generation)
        async with found.lock:
            found.settled.clear()
            await self._run(table, generation, lambda: found.file.truncate(position))

    async def publish(self, table: ReadModel, generation: int) -> None:
        """See ``ReadModelStore.publish``: readers are given the generation, so nothing is to do."""

    async def publish_outbox(self, projection: str) -> None:
        """See ``ReadModelStore.publish_outbox``: the command line answers instead."""

    # --- write -------------------------------------------------------------------------------

    async def apply(
        self,
        table: ReadModel,
        generation: int,
        apply: Apply,
        outcomes: Sequence[Outcome],
    ) -> list[LeaseLost | None]:
        """See ``ReadModelStore.apply``."""
        found = await self._generation(table, generation)
        names = [(one.tenant, one.id) for one in outcomes]
        async with found.lock:
            leases = await self._settler.leases([_Held(one) for one in outcomes])
            lost = {
                name
                for name, lease in zip(names, leases, strict=True)
                if isinstance(lease, LeaseLost)
            }
            settled = frozenset(found.settled)

            def write() -> None:
                skipped = frozenset(lost | found.file.applied(names))
                held = [name for name in names if name not in lost]
                found.file.apply(lambda rows: apply(rows, skipped), held, settled)

            await self._run(table, generation, write)
            found.settled -= settled
            answers = await self._settler.settle(outcomes)
            self.on_settled(outcomes, answers)
            found.settled |= {
                name for name, answer in zip(names, answers, strict=True) if answer is None
            }
            return answers

    async def fill(
        self, table: ReadModel, generation: int, fill: Fill, *, expected: FillPosition | None
    ) -> None:
        """See ``ReadModelStore.fill``."""
        found = await self._generation(table, generation)
        async with found.lock:
            await self._run(table, generation, lambda: found.file.fill(fill, expected))

    # --- read --------------------------------------------------------------------------------

    async def covered(
        self, table: ReadModel, generation: int, jobs: Collection[JobName]
    ) -> set[JobName]:
        """See ``ReadModelStore.covered``."""
        found = await self._generation(table, generation)
        return await self._run(table, generation, lambda: found.file.applied(jobs))

    async def position(self, table: ReadModel, generation: int) -> FillPosition | None:
        """See ``ReadModelStore.position``."""
        found = await self._generation(table, generation)
        return await self._run(table, generation, found.file.position)

    async def digest(self, table: ReadModel, generation: int) -> TableDigest:
        """See ``ReadModelStore.digest``."""
        found = await self._generation(table, generation)
        return await self._run(table, generation, found.file.digest)

    async def select(self, table: ReadModel, generation: int, query: RowQuery) -> list[Row]:
        """See ``ReadModelStore.select``."""
        found = await self._generation(table, generation)
        return await self._run(table, generation, lambda: found.file.select(query))

    async def aggregate(
        self, table: ReadModel, generation: int, query: RowQuery, by: Aggregate
    ) -> list[Row]:
        """See ``ReadModelStore.aggregate``."""
        found = await self._generation(table, generation)
        return await self._run(table, generation, lambda: found.file.aggregate(query, by))

    async def close(self) -> None:
        """Close all files."""
        # The threads first: SQLite crashes the process if a connection is closed while it is used.
        for executor in self._executors.values():
            executor.shutdown(wait=True, cancel_futures=True)
        self._executors.clear()
        for found in self._open.values():
            found.file.close()
        self._open.clear()

    # --- files and threads -------------------------------------------------------------------

    async def _generation(
        self, table: ReadModel, generation: int, *, create: bool = False
    ) -> OpenGeneration:
        name = generation_table(table.name, generation)
        found = self._open.get(name)
        if found is None:
            path = MEMORY
            if self._directory is not None:
                file = self._directory / f"{name}{_SUFFIX}"
                if not create and not file.exists():
                    raise StorageError(f"{table.name} has no generation {generation}: rebuild it")
                if not self._directory.exists():
                    make_directory(self._directory)
                claim_directory(self._directory)
                path = str(file)
            elif not create:
                raise StorageError(f"{table.name} has no generation {generation}: rebuild it")
            opened = await self._run(
                table, generation, lambda: SqliteFile(path, table, writes=self._writes)
            )
            found = self._open.setdefault(name, OpenGeneration(opened))
        return found

    async def _run(self, table: ReadModel, generation: int, work: Callable[[], T]) -> T:
        if self._threads is None:
            return work()
        name = generation_table(table.name, generation)
        if name not in self._executors:
            self._executors[name] = self._threads(1, f"holdfast-{name}")
        return await asyncio.get_running_loop().run_in_executor(self._executors[name], work)


class _Held:
    """An outcome as the holder of a lease."""

    max_processing_seconds: float | None = None

    def __init__(self, outcome: Outcome) -> None:
        self.id = outcome.id
        self.tenant = outcome.tenant
        self.token = outcome.token
