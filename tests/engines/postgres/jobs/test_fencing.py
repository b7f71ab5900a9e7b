"""A worker that lost a job cannot settle it, with any outcome, however late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast.model import outcome
from holdfast.model.errors import LeaseLost
from holdfast.model.job import Job, State
from tests.engines.postgres.connection.test_pipeline import wired
from tests.engines.postgres.scenarios import FAILURE, Case


async def zombie(case: Case, make: Callable[[Job], outcome.Outcome], **fields: Any) -> None:
    """A job is lost, and claimed by another worker; then its first one speaks."""
    [job] = await case.held(estimated_seconds=0.001, **fields)
    await asyncio.sleep(0.002)
    await case.beside.reclaim()
    [again] = (await case.claim(case.beside, limit=1)).jobs
    assert again.id == job.id
    [answer] = await case.beside.settle([make(job)])
    assert isinstance(answer, LeaseLost)
    assert (await case.jobs())[job.id].state is State.IN_FLIGHT
    assert await case.beside.settle([outcome.completed(again)]) == [None]


ZOMBIES: list[tuple[Callable[[Job], outcome.Outcome], dict[str, Any]]] = [
    (outcome.completed, {}),
    (outcome.completed, {"key": "k"}),
    (lambda job: outcome.retry(job, FAILURE), {}),
    (lambda job: outcome.dead(job, FAILURE), {}),
]


def wake_zombies(url: str, which: Sequence[int]) -> None:
    async def main() -> None:
        async with wired(url) as (case, _proxy):
            for number in which:
                case.again(f"zombie-{number}", lambda: None)
                make, fields = ZOMBIES[number]
                await zombie(case, make, **fields)

    asyncio.run(main())


def test_who_lost_a_job_cannot_settle_it_any_more(server18):
    with server18.fresh() as url:
        wake_zombies(url, range(len(ZOMBIES)))


@pytest.mark.parametrize("number", [0, 1])  # an attempt that failed cannot even be written twice
def test_a_settle_that_is_not_fenced_is_found_out(server18, rewritten, number):
    def unfenced(name: str, text: str) -> str:
        if name not in ("complete", "lock_held"):
            return text
        # The program looks at the token of what is held, too: let that be whatever is said.
        return text.replace("AND j.token = o.token", "").replace(
            "j.token, j.worker", "o.token, j.worker"
        )

    rewritten(unfenced)
    with server18.fresh() as url, pytest.raises(AssertionError):
        wake_zombies(url, [number])
