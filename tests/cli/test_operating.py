"""``jobs``, ``dead`` and ``replay``, each with the daemon up and down."""

import asyncio
import json
import re

import pytest

from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.actions import ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import retry
from holdfast.model.search import Filter

from .shop import DEAD, EVERY_ID

FAILURE = Failure.of("upstream_5xx", "503")
WHY = ("--by", "ops", "--reason", "fix applied")


# --- look --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), EVERY_ID),
        (("--status", "failed"), {*DEAD, "x1", "x2", "k1"}),
        (("--state", "dead", "--status", "done"), {*DEAD, "x1", "x2", "k1", "done"}),
        (("--status", "processing,blocked"), {"flying", "held"}),
        (("--status", "in-flight"), {"flying"}),
        (("--queue", "slow", "--queue", "keys"), {"p2", "k1", "k2"}),
        (("--task", "report"), {"p2"}),
        (("--tenant", "acme"), {"p2", "other"}),
        (("--scope", "library:1"), {"p2"}),
        (("--error-reason", "mapping_error"), {"x1", "x2"}),
        (("--class", "deterministic"), {"x1", "x2"}),
        (("--class", "transient,unknown", "--queue", "mail"), set(DEAD)),
        (("--text", "ISBN"), {"x1", "x2"}),
        (("--attempts", "1+"), {*DEAD, "x1", "x2", "k1", "done", "flying"}),
        (("--attempts", "0", "--queue", "mail"), {"held", "p1"}),
        (("--attempts", "0-1", "--queue", "keys"), {"k1", "k2"}),
        (("--key", "k"), {"k1", "k2"}),
        (("--id", "d1", "--id", "p1", "--id", "nobody"), {"d1", "p1"}),
        (("--created-since", "1h"), EVERY_ID),
        (("--created-until", "1h"), set()),
        (("--since", "1d", "--until", "now"), {*DEAD, "x1", "x2", "k1", "done"}),
        (("--until", "2020-01-01"), set()),
        (("--created-since", "2020-01-01T00:00:00+02:00", "--task", "report"), {"p2"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_list_knows_every_filter(shop, args, expected):
    found = shop.json("jobs", "list", *args)
    assert {job["id"] for job in found["jobs"]} == expected
    assert found["cursor"] == ""


def test_a_list_comes_in_pages_and_in_either_order(shop):
    everything = [job["id"] for job in shop.json("jobs", "list")["jobs"]]
    seen: list[str] = []
    cursor = ""
    while True:
        page = shop.json("jobs", "list", "--limit", 4, "--cursor", cursor)
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert seen == everything
    oldest = [job["id"] for job in shop.json("jobs", "list", "--oldest")["jobs"]]
    assert oldest == everything[::-1]


def test_a_list_is_a_table_for_people_and_lines_for_programs(shop):
    result = shop.run("jobs", "list", "--limit", 2, "--oldest", "--status", "failed")
    assert re.search(r"^ID +STATUS +QUEUE", result.stdout)
    assert re.search(r"^d1 +dead +mail +mail +1/20 +\S+ ago", result.stdout, re.MULTILINE)
    cursor = re.search(r"there are more: add --cursor (\S+)", result.stderr)
    assert cursor
    lines = shop.run("dead", "list", "--ndjson", "--oldest", "--cursor", cursor[1]).stdout
    assert [json.loads(line)["id"] for line in lines.splitlines()] == ["d3", "x1", "x2", "k1"]
    assert "\x1b" not in shop.run("failed", "list").stdout  # whatever an error has in it
    none = shop.run("jobs", "list", "--queue", "nowhere")
    assert (none.stdout, none.stderr) == ("", "no jobs\n")


def test_a_job_is_shown_with_its_history(shop):
    found = shop.json("jobs", "show", "x1")
    assert (found["status"], found["error_reason"]) == ("dead", "mapping_error")
    (attempt,) = found["attempts"]
    assert (attempt["number"], attempt["ending"], attempt["worker"]) == (1, "dead", "far/w1")
    shop.run("dead", "note", "x1", "ask Bob", "--by", "ann")
    text = shop.run("dead", "show", "x1").stdout
    assert re.search(r"finished_at: +2\d{3}-\d\d-\d\dT[\d:.]+Z \(\S+ ago\)", text)
    assert re.search(r"^1 +2.* far/w1 +dead +mapping_error", text, re.MULTILINE)
    assert "note by ann: ask Bob" in text
    assert "\x1b" not in text
    assert shop.run("jobs", "show", "nobody", code=3).stdout == ""
    shop.run("dead", "show", "p2", code=3)
    assert shop.json("jobs", "show", "p2", "--tenant", "acme")["scope"] == "library:1"


def test_dead_letters_are_counted_in_groups(shop):
    found = shop.json("dead", "groups")
    counts = {(one["queue"], one["error_reason"]): one["count"] for one in found}
    assert counts == {
        ("mail", "upstream_5xx"): 3,
        ("mail", "mapping_error"): 2,
        ("keys", "upstream_5xx"): 1,
    }
    (held,) = [one for one in found if one["queue"] == "keys"]
    assert held["held_behind"] == 1
    lines = shop.run("failed", "groups", "--queue", "mail", "--ndjson").stdout.splitlines()
    assert len(lines) == 2
    assert re.search(r"g-[0-9a-f]{10} +2 +mapping_error ", shop.run("dead", "groups").stdout)
    shape = next(one["fingerprint"] for one in found if one["error_reason"] == "mapping_error")
    assert len(shop.json("dead", "list", "--fingerprint", shape)["jobs"]) == 2


# --- replay ------------------------------------------------------------------------------------


def test_replay_brings_back_what_may_pass_and_keeps_what_will_not(shop):
    result = shop.run("replay", "--limit", 100, *WHY, code=4)
    assert result.stdout == "4 jobs pending again\n2 deterministic kept: add --fixed 'what'\n"
    assert shop.statuses()["d1"] == "pending"
    assert shop.statuses()["x1"] == "dead"
    back = shop.json("jobs", "show", "d1")
    assert (back["replay_count"], back["last_replayed_by"]) == (1, "ops")
    assert back["last_replayed_reason"] == "fix applied"
    assert (back["attempt"], back["total_attempts"]) == (0, 1), "its budget is fresh"
    fixed = shop.run("replay", *WHY, "--fixed", "the column is back")
    assert fixed.stdout == "2 jobs pending again\n"
    assert shop.json("replay", *WHY) == {"done": 0, "kept": 0, "ids": []}


@pytest.mark.parametrize(
    ("args", "back", "code"),
    [
        (("--limit", "1"), {"d1"}, 4),
        (("--queue", "keys"), {"k1"}, 0),
        (("--error-reason", "upstream_5xx", "--queue", "mail"), set(DEAD), 0),
        (("--class", "transient"), {*DEAD, "k1"}, 0),
        (("--class", "deterministic"), set(), 4),
        (("--class", "deterministic", "--fixed", "it"), {"x1", "x2"}, 0),
        (("--id", "d2"), {"d2"}, 0),
        (("d2", "x1", "--fixed", "it"), {"d2", "x1"}, 0),
        (("x1",), set(), 4),
        (("--tenant", "acme"), set(), 0),
        (("--since", "1h", "--until", "now", "--queue", "keys"), {"k1"}, 0),
        (("--since", "2099-01-01"), set(), 0),
        (("--text", "503", "--limit", "2"), {"d1", "d2"}, 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_replay_takes_every_filter_and_a_preview_says_the_same(shop, args, back, code):
    before = shop.statuses()
    preview = shop.json("replay", *args, "--dry-run")
    assert {job["id"] for job in preview["jobs"]} == back
    assert shop.statuses() == before
    shop.run("replay", *args, *WHY, code=code)
    changed = {name for name, status in shop.statuses().items() if status != before[name]}
    assert changed == back


def test_replay_needs_to_know_who_and_why(shop):
    before = shop.statuses()
    assert "--reason" in shop.run("replay", "--by", "ops", code=2).stderr
    assert "--reason" in shop.run("replay", "--by", "ops", "--reason", " ", code=2).stderr
    assert "--by" in shop.run("replay", "--by", "", "--reason", "x", code=2).stderr
    assert "--fixed" in shop.run("replay", *WHY, "--fixed", " ", code=2).stderr
    shop.run("replay", "nobody", *WHY, code=3)
    shop.run("replay", "d1", "p1", *WHY, code=4)  # all or none
    assert shop.statuses() == before


def test_more_than_one_commit_holds_is_replayed_to_the_end(closed_shop, monkeypatch):
    monkeypatch.setattr("holdfast.model.operation.CHUNK", 2)
    assert closed_shop.json("replay", *WHY, "--limit", 3, code=4)["done"] == 3
    ids = ["x1", "x2", "k1"]
    done = closed_shop.json("replay", *ids, *WHY, "--fixed", "it")
    assert (done["done"], done["kept"]) == (3, 0)
    kept = closed_shop.json("dead", "archive", *WHY, "--all", "--yes")
    assert kept["done"] == 0


def test_a_job_that_is_back_is_not_brought_back_again(shop):
    assert shop.json("replay", *DEAD, *WHY)["done"] == 3
    shop.run("replay", *DEAD, *WHY, code=4)
    assert shop.json("jobs", "show", "d1")["replay_count"] == 1


# --- what destroys, and what does not ----------------------------------------------------------


def test_cancel_by_id_and_by_filter(shop):
    assert shop.run("jobs", "cancel", "p1", "held", *WHY).stdout.startswith("2 jobs cancelled")
    refused = shop.run("jobs", "cancel", "--tenant", "acme", *WHY, code=2)
    assert "Cancel 2 jobs? No terminal to ask on: add --yes" in refused.stderr
    assert shop.run("jobs", "cancel", "--tenant", "acme", "--dry-run").stdout.startswith(
        "would cancel: 2 jobs; nothing was changed"
    )
    assert shop.statuses()["p2"] == "pending"
    assert shop.json("jobs", "cancel", "--tenant", "acme", "--yes", *WHY)["done"] == 2
    assert "or say --all" in shop.run("jobs", "cancel", *WHY, "--yes", code=2).stderr
    shop.run("jobs", "cancel", "done", *WHY, code=4)
    shop.run("jobs", "cancel", "nobody", *WHY, code=3)
    assert shop.json("jobs", "cancel", "flying", *WHY)["done"] == 1
    assert shop.statuses()["flying"] == "in_flight"  # it is asked to stop
    assert shop.json("jobs", "cancel", "flying", *WHY)["kept"] == 1
    assert shop.json("jobs", "cancel", "--all", "--yes", *WHY)["done"] == 1
    assert shop.json("jobs", "show", "p1")["cancel_reason"] == "fix applied"


def test_purge_always_asks(shop):
    assert "Purge 1 job?" in shop.run("jobs", "purge", "done", *WHY, code=2).stderr
    assert shop.json("jobs", "purge", "done", *WHY, "--dry-run")["would"] == 1
    assert shop.run("jobs", "purge", "done", *WHY, "--yes").stdout == "1 job purged\n"
    shop.run("jobs", "show", "done", code=3)
    assert shop.json("jobs", "purge", "--status", "failed", "--yes", *WHY)["done"] == 6
    shop.run("jobs", "purge", "p1", *WHY, "--yes", code=4)
    assert "dead" not in shop.statuses().values()


def test_archive_and_restore(shop):
    assert shop.run("dead", "archive", "d1", *WHY).stdout == "1 job archived\n"
    assert "Archive 3 jobs?" in shop.run("dead", "archive", "--class", "transient", *WHY,
                                         code=2).stderr  # fmt: skip
    assert shop.json("dead", "archive", "--class", "transient", "-y", *WHY)["done"] == 3
    assert {job["id"] for job in shop.json("dead", "list", "--archived")["jobs"]} == {*DEAD, "k1"}
    assert shop.json("dead", "restore", "d1", "--dry-run")["would"] == 1
    assert shop.run("failed", "restore", "d1", *WHY).stdout.startswith("1 job dead again")
    assert shop.json("dead", "restore", "--all", *WHY)["done"] == 3
    shop.run("dead", "restore", "d1", *WHY, code=4)
    assert shop.json("dead", "list", "--archived") == {"jobs": [], "cursor": ""}


def test_confirm_gives_a_job_the_word_that_it_waits_for(shop):
    assert shop.run("jobs", "confirm", "held", *WHY).stdout == "1 job confirmed\n"
    assert shop.statuses()["held"] == "pending"
    shop.run("jobs", "confirm", "held", *WHY, code=4)
    shop.run("jobs", "confirm", "nobody", *WHY, code=3)
    assert shop.json("jobs", "show", "held")["notes"][0]["kind"] == "confirm"


def test_reclaim_ends_a_lease_now(shop):
    assert shop.run("jobs", "reclaim", "flying", *WHY).stdout == "flying is pending\n"
    found = shop.json("jobs", "show", "flying")
    assert (found["status"], found["losses"], found["error_reason"]) == ("pending", 1, "stuck")
    assert found["last_error"] == "ops ended its lease: fix applied"
    refused = shop.run("jobs", "reclaim", "flying", *WHY, code=4)
    assert "it has none" in refused.stderr
    shop.run("jobs", "reclaim", "nobody", *WHY, code=3)
    assert shop.json("audit", "list", "--action", "job.reclaim")[0]["changes"]["worker"] == "far/w1"


def test_a_payload_can_be_mended_unless_somebody_else_was_faster(shop, here):
    (here / "new.json").write_text('{"to": "bob"}')
    edit = ("jobs", "edit", "p1", "--payload", here / "new.json", *WHY)
    assert shop.run(*edit, "--version", 1).stdout == "p1 is at version 2\n"
    found = shop.json("jobs", "show", "p1")
    assert (found["payload"], found["version"]) == ({"to": "bob"}, 2)
    assert found["notes"][0]["payload_before"] == {"to": "ann"}
    assert "it was changed" in shop.run(*edit, "--version", 1, code=4).stderr
    assert shop.json("jobs", "edit", "x1", "--priority", 5, "--max-attempts", 9, *WHY)["priority"]
    shop.run("jobs", "edit", "flying", "--priority", 5, *WHY, code=4)
    shop.run("jobs", "edit", "nobody", "--priority", 5, *WHY, code=3)
    assert "give something to change" in shop.run("jobs", "edit", "p1", *WHY, code=2).stderr
    for bad in ("[1]", "nonsense", '{"x": NaN}', ""):
        shop.run("jobs", "edit", "p1", "--payload", "-", *WHY, stdin=bad, code=2)
    assert shop.json("jobs", "show", "p1")["version"] == 2


def test_a_note_is_kept_with_who_wrote_it(shop):
    assert shop.run("dead", "note", "d1", "it was the DNS", "--by", "ann").stdout == (
        "noted on 1 job\n"
    )
    (found,) = shop.json("jobs", "show", "d1")["notes"]
    assert (found["kind"], found["by"], found["text"]) == ("note", "ann", "it was the DNS")
    shop.run("dead", "note", "nobody", "x", "--by", "ann", code=3)
    shop.run("dead", "note", "d1", "", "--by", "ann", code=2)


def test_everything_that_people_did_is_in_the_audit_and_no_payload(shop, here):
    (here / "secret.json").write_text('{"password": "hunter2"}')
    shop.run("replay", "--queue", "mail", "--limit", 1, *WHY, code=4)
    shop.run("jobs", "edit", "p1", "--payload", here / "secret.json", *WHY)
    shop.run("jobs", "cancel", "p1", *WHY)
    shop.run("dead", "archive", "d2", "d3", *WHY)
    text = shop.run("audit", "list", "--json").stdout
    assert "hunter2" not in text
    entries = json.loads(text)
    ended = [one for one in entries if one["action"] == "operation.completed"]
    found = [one for one in entries if one not in ended]
    assert [one["action"] for one in found] == [
        "job.replay",
        "job.edit",
        "job.cancel",
        "job.archive",
    ]
    assert {(one["user_id"], one["reason"]) for one in entries} == {("ops", "fix applied")}
    assert found[0]["changes"] == {
        "queues": ["mail"],
        "operation": ended[0]["resource_id"],
        "matched": 5,
        "would": 1,
        "reasons": {"upstream_5xx": 3, "mapping_error": 2},
        "skipped": {"deterministic": 2},
        "samples": ["d1"],
        "limit": 1,
    }
    assert [one["changes"]["acted"] for one in ended] == [1, 1, 2]
    assert found[1]["changes"]["payload"] == ["payload.password", "payload.to"]
    assert found[3]["changes"]["ids"] == ["d2", "d3"]
    assert found[2]["resource_id"] == "p1"


def test_attempts_never_show_as_more_than_the_maximum(here, hold):
    """After a replay the budget is fresh: the attempts of it are shown, and how many there were."""

    async def work() -> None:
        engine = await JournalEngine.open(here / "data")
        await engine.enqueue([NewJob(task="t", id="a", max_attempts=3)])
        for _ in range(3):
            [job] = (await engine.claim(queues=["default"], worker="w")).jobs
            await engine.settle([retry(job, FAILURE)])
        await engine.operate(ReplayJobs(), Filter(ids=("a",)), Attribution("ann", "again"))
        for _ in range(2):
            [job] = (await engine.claim(queues=["default"], worker="w")).jobs
            await engine.settle([retry(job, FAILURE)])
        await engine.close()

    asyncio.run(work())
    for command in (("jobs", "list"), ("jobs", "show", "a")):
        told = json.loads(hold(*command, "--json").stdout)
        [one] = told.get("jobs", [told])
        assert (one["attempt"], one["max_attempts"], one["total_attempts"]) == (2, 3, 5)
    assert " 2/3 (5 in all) " in hold("jobs", "list").output
    shown = hold("jobs", "show", "a").output
    assert re.search(r"^attempt: +2$", shown, re.MULTILINE)
    assert re.search(r"^total_attempts: +5$", shown, re.MULTILINE)

    async def die() -> None:
        engine = await JournalEngine.open(here / "data")
        [job] = (await engine.claim(queues=["default"], worker="w")).jobs
        await engine.settle([retry(job, FAILURE)])
        await engine.close()

    asyncio.run(die())
    assert " 3/3 (6 in all) " in hold("dead", "list").output
