"""The chains of keys, as the database has them: see ``model.chain``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from holdfast.engines.postgres import rows
from holdfast.engines.postgres.connection.sansio import Row, SansIO, execute
from holdfast.model.job import Job

from .unit_of_work import Key, key_columns, keys_of

FlightOf: TypeAlias = Callable[[Job], Sequence[Job]]
"""Returns the jobs that are in flight as a chain with a job, in order; none if it has no chain."""


def flight_by_key(found: Iterable[Row]) -> FlightOf:
    """Return what finds the chain of a job among these rows of ``find_key_flight``."""
    flight: defaultdict[Key, list[Job]] = defaultdict(list)
    for job in map(rows.job_of, found):
        flight[job.tenant, job.queue, job.ties.key or ""].append(job)
    return lambda job: flight.get((job.tenant, job.queue, job.ties.key or ""), ())


def find_chains(jobs: Iterable[Job]) -> SansIO[FlightOf]:
    """Read the chains of these jobs, whose keys are locked."""
    keys = keys_of(jobs)
    if not keys:
        return lambda _job: ()
    return flight_by_key((yield from execute("find_key_flight", **key_columns(keys))))
