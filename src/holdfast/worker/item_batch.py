"""The items of one call of a batch task, and what its result says about each."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.errors import PayloadInvalid
from holdfast.model.job import Job
from holdfast.model.outcome import Outcome

from .item_signature import ItemSignature
from .registry import TaskSpec
from .verdicts import Verdicts


class ItemBatch:
    """Decodes the items of a batch; one that cannot be decoded fails alone."""

    def __init__(self, task: TaskSpec, jobs: Sequence[Job], verdicts: Verdicts) -> None:
        self.items: list[object] = []
        """What the function is called with."""
        self.jobs: list[Job] = []
        """The jobs of these items."""
        self._task = task
        self._all = jobs
        self._verdicts = verdicts
        self._bad: dict[int, Outcome] = {}
        signature = task.signature
        if not isinstance(signature, ItemSignature):
            raise TypeError(f"{task.name} is not a batch task")
        for job in jobs:
            try:
                self.items.append(signature.item(job.payload))
                self.jobs.append(job)
            except PayloadInvalid as error:
                self._bad[job.token] = verdicts.of_error(job, task, error)

    def outcomes(self, value: object) -> list[Outcome]:
        """Return the outcome of each job, in order, if the function returned this value."""
        found = iter(self._verdicts.of_values(self.jobs, self._task, value))
        return [self._bad.get(job.token) or next(found) for job in self._all]
