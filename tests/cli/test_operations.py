"""``holdfast operations``, and the commands that start, fix and try: daemon up and down."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import dead
from holdfast.worker.registry import Execution, TaskSpec
from holdfast.worker.signature import Signature

from . import shop as shops
from .conftest import invoke
from .shop import DEAD, OPERATION, Shop, owner_of

WHY = ("--by", "ops", "--reason", "fix applied")
LETTERS = ("l1", "l2", "l3", "l4", "l5")
APP = ("--app", "tests.cli.letters:app")


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.02)


@pytest.fixture
def letters(closed_shop: Shop) -> Shop:
    """The store, with five more dead letters in a queue that its owner serves."""

    async def put() -> None:
        engine = await JournalEngine.open(closed_shop.path)
        like = NewJob(task="tick", queue="later", max_attempts=1)
        await engine.enqueue([replace(like, id=name) for name in LETTERS])
        taken = (await engine.claim(queues=["later"], worker="w", limit=9)).jobs
        failure = Failure.of("timeout", "too slow")
        await engine.settle([dead(job, failure) for job in taken])
        await engine.close()

    asyncio.run(put())
    return closed_shop


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner's task fails, always."""
    declare = shops.registry

    def declared():
        async def tick() -> None:
            raise RuntimeError("still broken")

        found = declare()
        found.tasks["tick"] = TaskSpec(
            "tick", tick, Signature(tick, "tick"), Execution.LOOP, queue="later"
        )
        return found

    monkeypatch.setattr(shops, "registry", declared)


def replays(shop: Shop) -> dict[str, int]:
    found = shop.json("jobs", "list", "--queue", "later", "--limit", 100)["jobs"]
    return {job["id"]: job.get("replay_count", 0) for job in found}


# --- at once -----------------------------------------------------------------------------------


def test_every_operation_is_listed_and_shown(shop):
    result = shop.run("replay", "--queue", "mail", "--error-reason", "upstream_5xx", *WHY)
    assert result.stdout == "3 jobs pending again\n"
    name = result.stderr.split()[-1]
    assert (name[:3], len(name)) == ("op-", 13)
    listed = shop.json("operations", "list")
    assert [(one["id"], one["state"]) for one in listed] == [
        (name, "completed"),
        (OPERATION, "paused"),
    ]
    assert [one["id"] for one in shop.json("operations", "list", "--running")] == [OPERATION]
    assert len(shop.run("operations", "list", "--ndjson").stdout.splitlines()) == 2
    assert f"{name}  completed  replay" in shop.run("operations", "list").stdout
    shown = shop.run("operations", "show", name).stdout
    assert "filter:     states=dead queues=mail" in shown
    assert "acted on 3 of 3\n" in shown
    assert "done 0, failed again 0, cancelled 0, still waiting 3\n" in shown
    assert "new since of the same kind: 0\n" in shown
    for text in (shown, shop.run("operations", "list").stdout):
        assert max(map(len, text.splitlines())) <= 80
    found = shop.json("operations", "show", name)
    assert (found["acted"], found["waiting"], found["matched"]) == (3, 3, 3)


def test_an_operation_is_paused_resumed_changed_and_aborted(shop):
    assert shop.run("operations", "rate", OPERATION, "100/m", *WHY).stdout == (
        f"operation {OPERATION} is paused, at most 100/1m\n"
    )
    assert shop.json("operations", "rate", OPERATION, "none", *WHY)["rate"] is None
    shop.run("operations", "resume", OPERATION, *WHY)
    if not shop.owned:  # otherwise the daemon goes on, and it ends
        shop.run("operations", "pause", OPERATION, *WHY)
        assert shop.json("operations", "abort", OPERATION, *WHY)["state"] == "aborted"
    until(lambda: not shop.json("operations", "list", "--running"), "it has ended")
    refused = shop.run("operations", "resume", OPERATION, *WHY, code=2)
    assert "start another one" in refused.stderr
    actions = [one["action"] for one in shop.json("audit", "list")]
    assert actions[:3] == ["operation.rate", "operation.rate", "operation.resume"]


def test_missing_why_and_unknown_operations_are_refused(shop):
    before = shop.statuses()
    for command in ("pause", "resume", "abort"):
        shop.run("operations", command, OPERATION, "--by", "ops", code=2)
        shop.run("operations", command, "op-nobody", *WHY, code=3)
    shop.run("operations", "show", "op-nobody", code=3)
    shop.run("dead", "edit", "d1", "--set", "payload.a=1", "--yes", "--by", "x", *APP, code=2)
    shop.run("jobs", "retarget", "mail", "report", "--yes", "--by", "x", code=2)
    shop.run("replay", "d1", "--tenant", "acme", *WHY, code=3)
    shop.run("replay", "d1", "--as-of", "2h", *WHY, code=2)
    shop.run("replay", "d1", "--canary", "101", *WHY, code=2)
    assert shop.statuses() == before
    assert [one["id"] for one in shop.json("operations", "list")] == [OPERATION]


def test_a_plan_prints_the_command_that_starts_just_that(shop):
    text = shop.run("replay", "--class", "transient", "--rate", "60/m", "--dry-run").stdout
    assert text.startswith("would replay: 4 jobs; nothing was changed\n")
    assert "1 job held behind them" in text
    assert "it takes about 4s at this rate" in text
    command = shlex.split(text.splitlines()[-1].partition("moment: ")[2])
    assert command[:3] == ["holdfast", "--store", str(shop.path)]
    assert command[-2:] == ["--expect", "4"]
    shop.run("dead", "archive", "d1", *WHY)
    refused = invoke(*command[1:])
    assert refused.exit_code == 4
    assert "the plan counted 4, and now it would be 3 jobs (upstream_5xx 3)" in refused.stderr
    assert shop.statuses()["d2"] == "dead"
    done = shop.json("replay", "d2", "--dry-run")
    as_of = done["as_of"]
    assert shop.json("replay", "d2", "--as-of", as_of, "--expect", 1, *WHY)["done"] == 1


def test_a_plan_shows_reasons_and_what_stays(shop):
    text = shop.run("replay", "--dry-run", *WHY).stdout
    assert "2 deterministic would be kept: add --fixed 'what'" in text
    assert "COUNT  REASON         CLASS\n    4  upstream_5xx   transient\n" in text
    plan = shop.json("replay", "--limit", 1, "--dry-run")
    assert (plan["would"], plan["matched"], plan["skipped"]) == (1, 6, {"deterministic": 2})


# --- at a pace ---------------------------------------------------------------------------------


def test_a_daemon_carries_out_a_canary_and_the_rest(letters):
    with owner_of(letters.path):
        result = letters.run("replay", "--queue", "later", "--canary", 2, "--rate", "50/s", *WHY)
        assert " completed\nacted on 5 of 5\ndone 5, failed again 0" in result.stdout
        assert replays(letters) == dict.fromkeys(LETTERS, 1)
        [found] = letters.json("operations", "list", "--limit", 1)
        assert (found["state"], found["canary"], found["abort_above"]) == ("completed", 2, 0.2)


def test_a_canary_that_fails_aborts_the_rest(letters, failing):
    with owner_of(letters.path):
        asked = ("replay", "--queue", "later", "--canary", 2, *WHY)
        found = letters.json(*asked, code=1)
        assert (found["state"], found["acted"], found["failed_again"]) == ("aborted", 2, 2)
        assert "2 of 2 failed again" in found["note"]
        assert sum(replays(letters).values()) == 2


def test_without_a_daemon_it_goes_on_when_one_runs(letters):
    result = letters.run("replay", "--queue", "later", "--rate", "50/s", *WHY)
    assert "it goes on when a daemon runs" in result.stderr
    assert set(replays(letters).values()) == {0}
    with owner_of(letters.path):
        name = result.stdout.split()[1]
        show = lambda: letters.json("operations", "show", name)
        until(lambda: show()["state"] == "completed", "the daemon carries it out")
        assert (show()["acted"], show()["done"]) == (5, 5)


def test_detached_returns_at_once_and_a_younger_operation_leaves_the_jobs_alone(letters):
    with owner_of(letters.path):
        slow = ("replay", "--queue", "later", "--rate", "1/h", "--detach", *WHY)
        older = letters.json(*slow)["id"]
        until(lambda: letters.json("operations", "show", older)["acted"] == 1, "the first")
        left = letters.run("dead", "archive", "--queue", "later", "-y", *WHY)
        assert left.stdout == f"0 jobs archived\n4 jobs left: taken by {older}\n"
        letters.run("operations", "abort", older, *WHY)
        assert letters.json("dead", "archive", "--queue", "later", "-y", *WHY)["done"] == 4


@pytest.mark.parametrize("pace", [("--limit", 8, "--rate", "2/s"), ()], ids=["paced", "plain"])
def test_letters_that_keep_failing_are_each_replayed_once(letters, failing, pace):
    with owner_of(letters.path):
        letters.run("replay", "l1", "l2", "l3", *pace, *WHY)
        command = ("operations", "list", "--limit", "1")
        again = lambda: letters.json(*command)[0]["failed_again"] == 3
        until(again, "all of them have failed again")
        expected = {"l1": 1, "l2": 1, "l3": 1, "l4": 0, "l5": 0}
        assert replays(letters) == expected
        letters.run("replay", "--error-reason", "unexpected", *pace, *WHY)
        until(again, "all of them have failed again")
        assert replays(letters) == {name: 2 * count for name, count in expected.items()}


# --- fix ---------------------------------------------------------------------------------------


def test_an_edit_is_shown_before_it_is_done(shop):
    edit = ("dead", "edit", "d1", "d2", "--set", "payload.to=bob", *APP)
    shown = shop.run(*edit, "--dry-run").stdout
    assert 'ID  FIELD       BEFORE  AFTER\nd1  payload.to          "bob"\n' in shown
    assert "would edit: 2 jobs; nothing was changed" in shown
    assert "Edit 2 jobs?" in shop.run(*edit, *WHY, code=2).stderr
    assert shop.json("jobs", "show", "d1")["payload"] == {}
    done = shop.run(*edit, *WHY, "--yes").stdout
    assert done.endswith("2 jobs edited\n")
    assert shop.json("jobs", "show", "d1")["payload"] == {"to": "bob"}
    again = shop.json(*edit, "--unset", "payload.none", *WHY, "--yes")
    assert (again["done"], again["skipped"]) == (0, {"no_such_path": 2})
    words = ("--set", "payload.to=5", "--set", 'payload.to="5"')
    shop.run("dead", "edit", "d1", *words, *WHY, "--yes", *APP)
    assert shop.json("jobs", "show", "d1")["payload"] == {"to": "5"}
    assert "bob" not in shop.run("audit", "list", "--json").stdout


def test_an_edit_that_makes_a_payload_invalid_is_refused(shop):
    before = shop.json("jobs", "show", "d1")
    edit = ("dead", "edit", "--error-reason", "upstream_5xx", "--queue", "mail", *WHY, "--yes")
    for wrong in ("payload.to=5", "payload.too=x"):
        refused = shop.run(*edit, "--set", wrong, *APP, code=2)
        assert "payload: of job d1: mail:" in refused.stderr
        assert "(and 2 more)" in refused.stderr
    assert "`$.to`" in shop.run(*edit, "--set", "payload.to=5", *APP, code=2).stderr
    shop.run("dead", "edit", "p1", "--set", "payload.to=x", *WHY, "--yes", *APP, code=4)
    if shop.owned:  # the tasks of the daemon are known
        assert "of job d1" in shop.run(*edit, "--set", "payload.to=x", code=2).stderr
    else:
        found = shop.run(*edit, "--set", "payload.to=x", "--dry-run")
        assert "not checked: no task mail is known here; give --app" in found.stderr
    assert shop.json("jobs", "show", "d1") == before


def test_retarget_gives_jobs_to_another_task(shop):
    retarget = ("jobs", "retarget", "report", "mail", *WHY, "--yes", *APP)
    assert shop.json(*retarget)["done"] == 1
    assert shop.json("jobs", "show", "p2", "--tenant", "acme")["task"] == "mail"
    wrong = shop.run("jobs", "retarget", "mail", "nobody", *WHY, "--yes", *APP, code=2)
    assert "has no task named 'nobody'" in wrong.stderr
    unfit = shop.run("jobs", "retarget", "mail", "report", *WHY, "--yes", *APP, code=2)
    assert "missing required field `count`" in unfit.stderr
    assert shop.json("jobs", "show", "d1")["task"] == "mail"


def test_letters_are_tried_without_running_them(shop):
    assert shop.run("dead", "try", *DEAD, *APP).stdout == "3 of 3 would pass\n"
    statuses = shop.statuses()
    shop.run("dead", "edit", "d1", "--set", "payload.to=nobody", *WHY, "--yes", *APP)
    tried = shop.run("dead", "try", "--queue", "mail", *APP).stdout
    assert tried == "4 of 5 would pass\nd1  mail: LookupError: nobody has no mailbox\n"
    found = shop.json("dead", "try", *APP, "--limit", 2, code=1)
    assert (found["tried"], found["passed"]) == (2, 0)
    [_mail, unknown] = found["problems"]
    assert unknown["problem"] == "no task of this name is in the application"
    shop.run("dead", "try", "d1", *APP, code=1)
    shop.run("dead", "try", "p1", *APP, code=4)
    shop.run("dead", "try", "nobody", *APP, code=3)
    assert "--app" in shop.run("dead", "try", "d1", code=2).stderr
    assert shop.statuses() == statuses


def test_an_async_check_that_says_no_counts(closed_shop):
    async def put() -> None:
        engine = await JournalEngine.open(closed_shop.path)
        for count in (0, 1):
            await engine.enqueue([NewJob(task="report", id=f"r{count}", payload={"count": count})])
        taken = (await engine.claim(queues=["default"], worker="w", limit=9, tasks=["report"])).jobs
        await engine.settle([dead(job, Failure.of("timeout", "")) for job in taken])
        await engine.close()

    asyncio.run(put())
    tried = closed_shop.run("dead", "try", "--task", "report", *APP).stdout
    assert tried == "1 of 2 would pass\nr0  report: its check returned False\n"
