"""``queues``, ``workers``, ``schedules``, ``flags`` and ``audit``, with the daemon up and down."""

import json
import re
import sqlite3
import time

import pytest

from .shop import owner_of

WHY = ("--by", "ops", "--reason", "rush hour")


# --- queues ------------------------------------------------------------------------------------


def test_queues_are_listed_with_what_they_hold_and_allow(shop):
    found = {one["queue"]: one for one in shop.json("queues", "list")}
    assert set(found) == {"default", "keys", "mail", "slow"}
    assert found["mail"]["counts"]["dead"] == 5
    assert found["mail"]["policy"]["paused"] is False
    assert re.search(
        r"^mail +1 +1 +1 +1 +5 +no limits$", shop.run("queues", "list").stdout, re.MULTILINE
    )
    assert len(shop.run("queues", "list", "--ndjson").stdout.splitlines()) == 4


def test_a_queue_is_paused_and_resumed(shop):
    assert shop.run("queues", "pause", "mail", *WHY).stdout == "mail: paused\n"
    assert "paused" in shop.run("queues", "list").stdout
    assert shop.run("queues", "resume", "mail", *WHY).stdout == "mail: no limits\n"
    assert "paused" not in shop.run("queues", "list").stdout
    assert "--reason" in shop.run("queues", "pause", "mail", code=2).stderr


def test_a_policy_is_set_one_thing_at_a_time(shop):
    first = shop.json("queues", "set", "mail", "--max-in-flight", 5, "--rate", "10/m", *WHY)
    assert (first["policy"]["max_in_flight"], first["policy"]["rate"]) == (5, "10/1m")
    shop.run("queues", "set", "mail", "--max-per-tenant", 2, "--fair", "--no-ordered", *WHY)
    said = shop.run("queues", "set", "mail", "--rate", "none", "--max-per-key", 1, *WHY).stdout
    assert said == (
        "mail: max in flight 5, max per key 1, max per tenant 2, fair, keys in any order\n"
    )
    found = shop.json("queues", "list")
    policy = next(one["policy"] for one in found if one["queue"] == "mail")
    assert (policy["rate"], policy["fair"], policy["ordered"]) == (None, True, False)
    assert shop.run("queues", "set", "mail", "--default", *WHY).stdout == "mail: no limits\n"


@pytest.mark.parametrize(
    "bad",
    [
        (),
        ("--max-in-flight", "many"),
        ("--max-in-flight", "0"),
        ("--max-per-key", "-1"),
        ("--rate", "10"),
        ("--rate", "0/s"),
        ("--rate", "10/0s"),
        ("--rate", "10/fortnight"),
        ("--rate", "x/s"),
        ("--max-per-tenant", "99999999999"),
    ],
)
def test_a_policy_that_makes_no_sense_changes_nothing(closed_shop, bad):
    before = closed_shop.run("queues", "list", "--json").stdout
    closed_shop.run("queues", "set", "mail", *bad, *WHY, code=2)
    assert closed_shop.run("queues", "list", "--json").stdout == before


# --- workers -----------------------------------------------------------------------------------


def test_workers_are_those_who_are_live_and_those_who_hold_leases(shop):
    found = shop.json("workers", "list")
    one, *live = found["workers"]
    assert [(idle["leases"], idle["slots"], idle["queues"]) for idle in live] == (
        [(0, 8, ["later"])] if shop.owned else []
    )
    assert (one["worker"], one["leases"], one["tasks"]) == ("far/w1", 1, {"mail": 1})
    assert found["slots"] == ({"later": 8} if shop.owned else {})
    text = shop.run("workers", "list").stdout
    assert re.search(r"^far/w1 +1 +\S+ ago +in \d+m\d+s +mail 1", text, re.MULTILINE)
    if shop.owned:
        live_row = r"^own/\S+ +\S+ +\d+ +\S+ +0/8 +claims +\d+s ago +later +.*mail"
        assert re.search(live_row, text, re.MULTILINE)
    line, *lines = shop.run("workers", "list", "--ndjson").stdout.splitlines()
    assert (json.loads(line)["worker"], len(lines)) == ("far/w1", int(shop.owned))


def test_slots_are_resized_and_drained_where_a_daemon_runs(shop):
    if not shop.owned:
        for command in (("resize", 3, *WHY), ("drain", *WHY), ("resume", *WHY)):
            assert "no daemon runs" in shop.run("workers", *command, code=5).stderr
        return
    assert "give a reason" in shop.run("workers", "resize", 3, "--queue", "later", code=2).stderr
    assert shop.json("workers", "list")["slots"] == {"later": 8}
    resize = ("workers", "resize", 3, *WHY)
    assert shop.run(*resize, "--queue", "later").stdout == "later: 3 slots\n"
    assert shop.json("workers", "list")["slots"] == {"later": 3}
    assert "no slots are reserved for ''" in shop.run(*resize, code=2).stderr
    last = shop.json("audit", "list")[-1]
    assert (last["action"], last["user_id"], last["reason"], last["changes"]) == (
        *("worker.resize", "ops", "rush hour"),
        {"slots": 3, "queue": "later", "workers": [last["resource_id"]]},
    )
    named = last["resource_id"]
    assert (
        "no live worker is called 'x'; there are"
        in shop.run(*resize, "--worker", "x", code=2).stderr
    )
    shop.run("workers", "log-level", "warning", "--worker", named, *WHY)
    assert shop.json("audit", "list")[-1]["changes"] == {"level": "warning", "workers": [named]}
    assert "0 jobs still running" in shop.run("workers", "drain", "--wait", "5s", *WHY).stdout
    assert shop.json("workers", "list")["draining"] is True
    assert "draining: it claims nothing" in shop.run("workers", "list").stdout
    shop.run("enqueue", stdin='{"id":"late","task":"tick"}')
    assert shop.json("jobs", "show", "late")["status"] == "pending"
    assert shop.run("workers", "resume", *WHY).stdout == "claiming again\n"
    give_up = time.monotonic() + 20
    while shop.json("jobs", "show", "late")["status"] != "completed":
        assert time.monotonic() < give_up
    assert [one["action"] for one in shop.json("audit", "list")][-3:] == [
        "worker.log_level",
        "worker.drain",
        "worker.resume",
    ]


# --- schedules ---------------------------------------------------------------------------------


def test_schedules_are_known_after_a_run_and_can_be_left_out(closed_shop):
    shop = closed_shop
    none = shop.run("schedules", "list")
    assert "no schedules: " in none.stderr
    assert "known: none" in shop.run("schedules", "skip", "nightly", *WHY, code=3).stderr
    with owner_of(shop.path):
        (found,) = shop.json("schedules", "list")
        assert (found["name"], found["task"], found["paused"]) == ("nightly", "tick", False)
        first = found["next_at"]
        assert first.endswith("-01-01T03:00:00Z")
        skipped = shop.json("schedules", "skip", "nightly", *WHY)
        assert (skipped["skip_until"], skipped["next_at"] > first) == (first, True)
    # And without a daemon.
    again = shop.json("schedules", "skip", "nightly", *WHY)
    assert again["skip_until"] == skipped["next_at"]
    assert shop.run("schedules", "pause", "nightly", *WHY).stdout == "nightly is paused\n"
    assert "paused" in shop.run("schedules", "list").stdout
    with owner_of(shop.path):  # what a person decided outlasts a restart
        (line,) = shop.run("schedules", "list", "--ndjson").stdout.splitlines()
        assert json.loads(line)["paused"] is True
        back = shop.json("schedules", "resume", "nightly", *WHY)
        assert (back["paused"], back["skip_until"], back["next_at"]) == (False, None, first)
    assert [one["action"] for one in shop.json("audit", "list")] == ["schedule.set"] * 4


def test_a_schedule_is_run_by_hand(shop, here):
    if shop.owned:
        done = shop.run("schedules", "run", "nightly", *WHY)
    else:
        assert "or give --app" in shop.run("schedules", "run", "nightly", *WHY, code=5).stderr
        (here / "nightly_app.py").write_text(
            "from holdfast import Holdfast\n"
            "app = Holdfast()\n"
            "@app.cron('0 3 * * *', name='nightly')\n"
            "@app.task\n"
            "async def tick() -> None: ...\n"
        )
        done = shop.run("schedules", "run", "nightly", "--app", "nightly_app.py", *WHY)
        shop.run("schedules", "run", "other", "--app", "nightly_app.py", *WHY, code=3)
    made = re.fullmatch(r"(cron/nightly/\d+) enqueued\n", done.stdout)
    assert made
    assert shop.json("jobs", "show", made[1])["status"] in ("pending", "in_flight", "completed")
    if shop.owned:
        assert "known: nightly" in shop.run("schedules", "run", "x", *WHY, code=3).stderr


# --- flags -------------------------------------------------------------------------------------


def test_flags_are_switched_and_taken_away(shop):
    assert shop.run("flags", "list").stdout.splitlines() == [
        "FLAG                      STATE          WHAT IT DOES",
        "auto_replay               on (default)   transient dead letters go back by themselves",
        "auto_replay/rate_limited  off (default)  those of a rate limit too",
        "outage_mode               on (default)   jobs wait while what they need is out",
    ]
    assert shop.run("flags", "set", "auto_replay", "off", *WHY).stdout == "auto_replay is off\n"
    assert shop.json("flags", "set", "b", "OFF", *WHY) == {"name": "b", "on": False}
    assert [(one["name"], one["on"], one["is_set"]) for one in shop.json("flags", "list")] == [
        ("auto_replay", False, True),
        ("auto_replay/rate_limited", False, False),
        ("b", False, True),
        ("outage_mode", True, False),
    ]
    assert len(shop.run("flags", "list", "--ndjson").stdout.splitlines()) == 4
    assert "auto_replay               off  " in shop.run("flags", "list").stdout
    assert shop.run("flags", "set", "b", "unset", *WHY).stdout == "b is unset\n"
    assert "b" not in [one["name"] for one in shop.json("flags", "list")]
    shop.run("flags", "set", "b", "maybe", *WHY, code=2)
    shop.run("flags", "set", "", "on", *WHY, code=2)


# --- outages -----------------------------------------------------------------------------------


def test_outages_are_started_shown_and_ended(shop):
    assert shop.run("outages", "list").stderr == "no outages\n"
    assert shop.run("outages", "start", "mail", *WHY).stdout.startswith("mail: out since 20")
    shop.run("outages", "start", "mail", *WHY, code=2)
    assert "no queue needs 'mial'" in shop.run("outages", "start", "mial", *WHY, code=2).stderr
    [found] = shop.json("outages", "list")
    assert (found["dependency"], found["phase"], found["queues"]) == ("mail", "out", ["mail"])
    assert found["waiting"] == shop.json("status")["pending"] - _pending_elsewhere(shop)
    assert re.search(r"^mail: out since .* UTC, \d+ waiting, next probe ", line_of(shop))
    assert len(shop.json("status")["outages"]) == 1
    assert "outage:    mail: out since" in shop.run("status").stdout
    assert re.search(r"^mail .* mail is out; ", shop.run("queues", "list").stdout, re.MULTILINE)
    [queue] = [one for one in shop.json("queues", "list") if one["queue"] == "mail"]
    assert queue["outage"] is True
    assert shop.json("outages", "end", "mail", *WHY)["phase"] == "ended"
    shop.run("outages", "end", "mail", *WHY, code=2)
    assert shop.json("outages", "list") == []
    assert re.search(r"^mail: out from .* UTC for ", shop.run("outages", "list", "--ended").stdout)
    assert len(shop.run("outages", "list", "--ended", "--ndjson").stdout.splitlines()) == 1
    actions = [one["action"] for one in shop.json("audit", "list")]
    assert actions == ["outage.start", "outage.end"]


def line_of(shop) -> str:
    return str(shop.run("outages", "list").stdout).rstrip()


def _pending_elsewhere(shop) -> int:
    queues = shop.json("queues", "list")
    return sum(one["counts"]["pending"] for one in queues if one["queue"] != "mail")


# --- audit -------------------------------------------------------------------------------------


def test_the_audit_is_a_chain_whose_head_can_be_noted(shop):
    assert shop.run("audit", "list").stderr == "no entries\n"
    shop.run("queues", "pause", "mail", *WHY)
    whole = shop.run("audit", "verify").stdout
    head = re.search(r"head (1:[0-9a-f]{64})", whole)
    assert head
    shop.run("queues", "resume", "mail", "--by", "ann", "--reason", "over")
    assert shop.json("audit", "verify", "--head", head[1])["count"] == 2
    assert [one["user_id"] for one in shop.json("audit", "list", "--by", "ann")] == ["ann"]
    assert len(shop.json("audit", "list", "--after", 1)) == 1
    assert len(shop.json("audit", "list", "--resource", "mail", "--limit", 1)) == 1
    assert re.search(
        r"^2 .* ann +queue.policy +mail +over$", shop.run("audit", "list").stdout, re.MULTILINE
    )
    other = head[1][:-1] + ("0" if head[1][-1] != "0" else "1")
    found = shop.json("audit", "verify", "--head", other, code=1)
    assert found["said"] == "entry 1 does not match the given head"
    assert (
        "entries were removed"
        in shop.run("audit", "verify", "--head", f"9:{'0' * 64}", code=1).stdout
    )
    shop.run("audit", "verify", "--head", "nonsense", code=2)


def test_the_audit_is_searched_and_an_entry_is_shown_as_a_difference(shop):
    shop.run("queues", "pause", "mail", "--by", "ann", "--reason", "Too loud")
    shop.run("queues", "set", "mail", "--rate", "5/m", "--by", "bob", "--reason", "less")
    shop.run("flags", "set", "fast", "on", "--by", "ann", "--reason", "try")
    shop.run("jobs", "cancel", "p1", "p2", "--by", "eve", "--reason", "not wanted")

    def numbers(*words: object) -> list[int]:
        return [one["number"] for one in shop.json("audit", "list", *words)]

    assert numbers() == [1, 2, 3, 4, 5]  # an operation has an entry for its end too
    assert numbers("--newest") == [5, 4, 3, 2, 1]
    assert numbers("--newest", "--limit", 2) == [5, 4]
    assert numbers("--newest", "--after", 3) == [2, 1]
    assert numbers("--by", "ann", "--by", "eve") == [1, 3, 4, 5]
    assert numbers("--action", "queue.") == [1, 2]
    assert numbers("--type", "queue", "--resource", "mail", "--text", "loud") == [1]
    assert numbers("--type", "flag") == [3]
    assert numbers("--type", "job") == [4]
    assert numbers("--type", "operation") == [5]
    assert numbers("--since", "1h") == [1, 2, 3, 4, 5]
    assert numbers("--until", "1h") == []
    assert numbers("--tenant", "acme") == []
    assert shop.run("audit", "list", "--ndjson", "--by", "bob").stdout.count("\n") == 1
    shop.run("audit", "list", "--since", "yesterday-ish", code=2)

    shown = shop.run("audit", "show", 1).stdout
    assert shown.endswith("- paused: false\n+ paused: true\n")
    assert "\nwhy:           Too loud\n" in shown
    assert shop.run("audit", "show", 2).stdout.endswith("- rate: null\n+ rate: [5,60.0]\n")
    begun, ended = shop.run("audit", "show", 4).stdout, shop.run("audit", "show", 5).stdout
    assert "\nids:           p1, p2\nids_count:     2\n" in begun
    assert "\nwhat:          operation.completed\n" in ended
    assert "\nacted:         2\n" in ended
    assert shop.json("audit", "show", 3)["changes"]["after"] == {"on": True}
    missing = shop.run("audit", "show", 9, code=2)
    assert "the audit has no entry 9" in missing.stderr


def test_an_audit_that_was_altered_is_found_out(closed_shop):
    for queue in ("a", "b", "c"):
        closed_shop.run("queues", "pause", queue, "--new", *WHY)
    assert closed_shop.json("audit", "verify")["whole"] is True
    with sqlite3.connect(closed_shop.path / "cold.sqlite") as database:
        database.execute("DELETE FROM audit WHERE rowid = (SELECT min(rowid) + 1 FROM audit)")
    database.close()
    found = closed_shop.json("audit", "verify", code=1)
    assert found["whole"] is False
    assert "does not follow" in found["said"]


@pytest.mark.parametrize("words", [("pause",), ("resume",), ("set", "--fair")])
def test_a_queue_that_nobody_knows_is_refused_with_a_suggestion(shop, words):
    name, *options = words
    refused = shop.run("queues", name, "mial", *options, *WHY, code=3)
    assert refused.stderr == (
        "holdfast: no queue is named 'mial'; did you mean 'mail'? For a queue whose first job "
        "comes later, add --new\n"
    )
    far = shop.run("queues", name, "nothing-like-it", *options, *WHY, code=3)
    # A daemon subscribes the chronicle, whose queue is known from then on.
    known = "chronicle, default, keys, " if shop.owned else "default, keys, "
    assert f"; known: {known}" in far.stderr
    assert {one["queue"] for one in shop.json("queues", "list")} == {
        *("default", "keys", "mail", "slow")
    }
    assert shop.json("audit", "list") == []


def test_a_queue_without_jobs_is_paused_if_that_is_meant(shop):
    assert shop.run("queues", "pause", "soon", "--new", *WHY).stdout == "soon: paused\n"
    assert shop.run("queues", "resume", "soon", *WHY).stdout == "soon: no limits\n"
    shop.run("queues", "set", "fast", "--new", "--rate", "5/s", *WHY)
    shop.run("queues", "set", "fast", "--fair", *WHY)


def test_the_queue_of_a_task_is_known_to_its_daemon(shop):
    # No job is in it. A daemon says which queues its tasks have; without one nobody does.
    shop.run("queues", "pause", "later", *WHY, code=0 if shop.owned else 3)
    shop.run("queues", "pause", "default", *WHY)


def test_status_counts_blocked_jobs(shop):
    lines = shop.run("status").stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        *("pending", "in_flight", "completed", "dead", "blocked")
    ]
    assert lines[-1] == "blocked:   1"
    assert shop.json("status")["blocked"] == 1


@pytest.mark.parametrize("body", ["'not json'", "'[1]'", "x'ff'", "body || ' '"])
def test_an_audit_entry_that_cannot_be_read_is_named_as_altered(closed_shop, body):
    for queue in ("a", "b", "c"):
        closed_shop.run("queues", "pause", queue, "--new", *WHY)
    with sqlite3.connect(closed_shop.path / "cold.sqlite") as database:
        database.execute(f"UPDATE audit SET body = {body} WHERE number = 2")  # noqa: S608
    database.close()
    found = closed_shop.json("audit", "verify", code=1)
    assert (found["whole"], found["count"]) == (False, 1)
    assert "entry 2 cannot be read" in found["said"]
    assert "altered after entry 1: entry 2" in closed_shop.run("audit", "verify", code=1).stdout
    listed = closed_shop.run("audit", "list", code=5)
    assert "entry 2 of the audit was altered" in listed.stderr
