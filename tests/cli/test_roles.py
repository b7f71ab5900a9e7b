"""Every command under the read role: those that look do, and the others say what to grant."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import dead
from tests.engines.postgres.roles import RoleDatabases, as_user
from tests.engines.postgres.servers import store_of

from .conftest import invoke

WHY = ("--by", "ops", "--reason", "test", "--yes")
READING = (
    *("status", "doctor", "validate", "audit list", "audit verify", "dump out.dump"),
    *("dead list", "dead count", "dead groups", "dead show d", "events list", "flags list"),
    *("jobs list", "jobs count", "jobs explain p", "jobs show p", "operations list"),
    *("outages list", "projections list", "queues list", "queues series default"),
    *("schedules list", "workers list", "migrate", "migrate --sql --roles"),
)
CHANGING = (
    *("enqueue", "queues pause default", "queues resume default", "flags set f on"),
    *("jobs cancel p", "jobs purge d", "jobs reclaim p", "dead archive d", "dead note d text"),
    *("replay d", "outages start db", "schedules pause s"),
)


@pytest.fixture(scope="module")
def store(roles18: RoleDatabases) -> Iterator[str]:
    """A store with a pending and a dead job, for a user that may only read."""

    async def fill(url: str) -> None:
        engine = await PostgresEngine.open(url)
        try:
            await engine.enqueue([NewJob(task="t", id="d")])
            [job] = (await engine.claim(queues=["default"], worker="w")).jobs
            await engine.settle([dead(job, Failure.of("timeout", "slow"))])
            await engine.enqueue([NewJob(task="t", id="p")])
        finally:
            await engine.close()

    with roles18.fresh() as url:
        asyncio.run(fill(as_user(url, "runner")))
        yield store_of(as_user(url, "reader"))


@pytest.mark.parametrize("line", READING)
def test_who_may_read_can_look_at_everything(store, here, line):
    result = invoke("--store", store, *line.split())
    assert "lacks" not in result.output
    assert "permission denied" not in result.output
    assert result.exit_code == 0 or (line == "doctor" and "sync: fsync is off" in result.output)


@pytest.mark.parametrize("line", CHANGING)
def test_who_may_read_is_told_what_to_grant_to_change_something(store, here, line):
    words = line.split()
    more = () if words[0] == "enqueue" else WHY
    result = invoke("--store", store, *words, *more, stdin='{"task": "t"}')
    for options in (WHY[:-1], WHY[:2]):  # not every command has all of these
        if "No such option" in result.output:
            result = invoke("--store", store, *words, *options)
    assert result.exit_code == 5, result.output
    assert "GRANT holdfast_run TO reader" in result.output
