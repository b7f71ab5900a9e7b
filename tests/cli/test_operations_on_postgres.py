"""The commands that act on many jobs, on a PostgreSQL store and without a daemon."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import dead
from tests.engines.postgres.servers import Databases, store_of

from .conftest import invoke

WHY = ("--by", "ops", "--reason", "fix applied")
APP = ("--app", "tests.cli.letters:app")


class Letters:
    """A store with six dead letters of ``mail``, two of them deterministic."""

    def __init__(self, store: str) -> None:
        self.store = store

    def run(self, *words: object, code: int = 0) -> str:
        result = invoke("--store", self.store, *words)
        assert result.exit_code == code, result.output
        return result.stdout

    def json(self, *words: object, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code))

    def replays(self) -> dict[str, int]:
        found = self.json("jobs", "list", "--limit", 100)["jobs"]
        return {job["id"]: job.get("replay_count", 0) for job in found}

    def on_engine(self, work: Callable[[PostgresEngine], Awaitable[Any]]) -> Any:
        async def with_engine() -> Any:
            engine = await PostgresEngine.open(self.store)
            try:
                return await work(engine)
            finally:
                await engine.close()

        return asyncio.run(with_engine())


@pytest.fixture
def letters(server18: Databases, here: object) -> Iterator[Letters]:
    async def put(engine: PostgresEngine) -> None:
        await engine.enqueue([NewJob(task="mail", id=f"l{number}") for number in range(6)])
        jobs = (await engine.claim(queues=["default"], worker="w", limit=9)).jobs
        reasons = {"l0": "business_error", "l1": "business_error"}
        failures = [Failure.of(reasons.get(job.id, "timeout"), "too slow") for job in jobs]
        await engine.settle([dead(*pair) for pair in zip(jobs, failures, strict=True)])

    with server18.fresh() as database:
        found = Letters(store_of(database))
        found.on_engine(put)
        yield found


def test_a_replay_returns_when_all_are_pending_again_each_once(letters):
    text = letters.run("replay", "--limit", 100, *WHY, code=4)
    assert "4 jobs pending again" in text
    assert "2 deterministic kept: add --fixed 'what'" in text
    expected = {"l0": 0, "l1": 0, "l2": 1, "l3": 1, "l4": 1, "l5": 1}
    assert letters.replays() == expected
    [found] = letters.json("operations", "list")
    assert (found["state"], found["acted"], found["waiting"]) == ("completed", 4, 4)
    assert letters.json("replay", "--fixed", "the mapping", *WHY)["done"] == 2
    assert letters.replays() == dict.fromkeys(expected, 1)


def test_a_rate_is_kept_to_and_can_be_changed_while_it_runs(letters):
    name = letters.json("replay", "--rate", "1/h", "--detach", *WHY)["id"]
    step = lambda: letters.on_engine(lambda engine: engine.advance_operation(name))
    assert [step().acted, step().acted] == [1, 0]
    assert sum(letters.replays().values()) == 1
    assert letters.json("operations", "pause", name, *WHY)["state"] == "paused"
    letters.run("operations", "rate", name, "none", *WHY)
    assert step().acted == 0
    letters.run("operations", "resume", name, *WHY)
    assert step().acted == 3
    assert "acted on 4 of" in letters.run("operations", "show", name)


def test_an_aborted_operation_leaves_the_rest_to_the_next(letters):
    older = letters.json("replay", "--rate", "1/h", "--detach", *WHY)["id"]
    left = letters.run("dead", "archive", "--error-reason", "timeout", "-y", *WHY)
    assert f"4 jobs left: taken by {older}" in left
    assert letters.json("operations", "abort", older, *WHY)["state"] == "aborted"
    assert letters.json("dead", "archive", "--error-reason", "timeout", "-y", *WHY)["done"] == 4


def test_letters_are_tried_edited_and_given_to_another_task(letters):
    assert letters.run("dead", "try", *APP) == "6 of 6 would pass\n"
    edit = ("dead", "edit", "l2", "--set", "payload.to=nobody", *WHY, "--yes", *APP)
    assert letters.json(*edit)["done"] == 1
    assert "5 of 6 would pass" in letters.run("dead", "try", *APP)
    wrong = ("dead", "edit", "l3", "--set", "payload.to=5", *WHY, "--yes", *APP)
    letters.run(*wrong, code=2)
    assert letters.json("jobs", "show", "l3")["payload"] == {}
    letters.run("jobs", "retarget", "mail", "report", *WHY, "--yes", *APP, code=2)
    assert letters.json("jobs", "show", "l3")["task"] == "mail"


def test_bad_input_changes_nothing(letters):
    letters.run("replay", "--by", "ops", code=2)
    letters.run("replay", "nobody", *WHY, code=3)
    letters.run("replay", "l2", "--tenant", "acme", *WHY, code=3)
    letters.run("operations", "resume", "op-nobody", *WHY, code=3)
    assert letters.json("operations", "list") == []
    assert set(letters.replays().values()) == {0}
