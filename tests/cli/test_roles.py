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
    *("replay d", "outages start db", "outages end db", "schedules pause s"),
    *("schedules skip s", "schedules resume s", "queues set default --rate 1/s"),
    *(
        "jobs edit p --priority 5",
        "jobs confirm p",
        "jobs retarget t u",
        "dead edit d --set payload.a=1",
    ),
    *(
        "dead restore d",
        "dead ack g-1",
        "dead mute g-1 --for 8h",
        "dead fixed g-1 --in 1.2",
        "dead assign g-1 ann",
    ),
    *(
        "dead forget g-1",
        "dead reopen g-1",
        "dead unmute g-1",
        "events append",
        "events correct e --set payload.a=1",
    ),
    *("operations pause o", "operations resume o", "operations abort o", "operations rate o 1/s"),
    *("workers drain", "workers resume", "workers resize 1", "rebuild chronicle"),
    *("projections remove chronicle", "projections rollback chronicle", "run"),
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
    for options in (WHY[:-1], WHY[:2], ()):  # not every command has all of these
        if "No such option" in result.output:
            result = invoke("--store", store, *words, *options)
    assert result.exit_code == 5, result.output
    assert "GRANT holdfast_run TO reader" in result.output
