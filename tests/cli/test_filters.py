"""Filters in one line, orders and counts, on commands of every kind."""

import json

import pytest


def listed(shop, *args):
    found = json.loads(shop.run(*args, "--json").stdout)
    return [job["id"] for job in found["jobs"]]


def test_a_filter_in_one_line_narrows_the_other_options(shop):
    everything = listed(shop, "jobs", "list")
    mail = listed(shop, "jobs", "list", "--where", "queue:mail")
    assert set(mail) == {"d1", "d2", "d3", "x1", "x2", "done", "flying", "held", "p1"}
    assert listed(shop, "jobs", "list", "-q", "-queue:mail") == [
        one for one in everything if one not in mail
    ]
    assert listed(shop, "jobs", "list", "--queue", "mail", "-q", "status:pending") == ["p1"]
    assert listed(shop, "jobs", "list", "--queue", "mail", "-q", "queue:slow") == []
    assert listed(shop, "jobs", "list", "-q", "payload.to=ann") == ["p1"]
    assert listed(shop, "jobs", "list", "-q", "worker:w1 status:processing") == ["flying"]
    assert listed(shop, "dead", "list", "-q", '"isbn"') == ["x1", "x2"]
    assert listed(shop, "dead", "list", "-q", "-class:deterministic died<1h queue:mail") == [
        "d1",
        "d2",
        "d3",
    ]
    groups = json.loads(shop.run("dead", "groups", "-q", "-queue:mail", "--json").stdout)
    assert [group["queue"] for group in groups] == ["keys"]


def test_actions_take_the_same_filter(shop):
    why = ("--by", "ops", "--reason", "why")
    where = ("--where", "reason:upstream_5xx queue:mail -id:d2")
    assert shop.run("replay", *where, *why).stdout == "2 jobs pending again\n"
    done = shop.run("dead", "archive", "-q", "id:d2", *why, "--yes")
    assert done.stdout == "1 job archived\n"
    assert shop.run("dead", "restore", "-q", '"503"', *why).stdout == "1 job dead again\n"
    assert shop.run("jobs", "cancel", "-q", "tenant:acme -task:t", *why, "--yes").stdout == (
        "1 job cancelled, or asked to stop if in flight\n"
    )
    assert (
        shop.run("jobs", "purge", "-q", "status:cancelled", *why, "--yes").stdout
        == "1 job purged\n"
    )
    assert listed(shop, "jobs", "list", "-q", "tenant:acme") == ["other"]
    entries = json.loads(shop.run("audit", "list", "--json").stdout)
    replay = next(one for one in entries if one["action"] == "job.replay")
    assert "upstream_5xx" in json.dumps(replay)
    assert "without" in json.dumps(replay), "the audit says what was left out"


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("quue:mail", "did you mean 'queue'?"),
        ("queue:mail rason:x", "'rason:x' at character 12"),
        ("status:ded", "did you mean 'dead'?"),
        ("mail", 'to look for a text write "mail"'),
    ],
)
def test_a_wrong_filter_is_explained(shop, where, said):
    result = shop.run("jobs", "list", "--where", where, code=2)
    assert "--where" in result.stderr
    assert said in result.stderr


def test_a_status_that_a_command_is_not_for_is_refused(shop):
    for command in ("list", "count"):
        result = shop.run("dead", command, "-q", "status:pending", code=2)
        assert "jobs that are dead" in result.stderr


def test_how_a_filter_looks_is_printed(shop):
    result = shop.run("jobs", "list", "--where", "help")
    assert result.exit_code == 0
    assert "payload.user.id=42" in result.stdout


def test_lists_have_an_order(shop):
    finished = listed(shop, "jobs", "list", "--order", "finished")
    assert set(finished) == {"d1", "d2", "d3", "x1", "x2", "done", "k1"}
    assert listed(shop, "jobs", "list", "--order", "-finished") == finished[::-1]
    assert set(listed(shop, "jobs", "list", "--order", "run_at")).isdisjoint(finished)
    first = json.loads(shop.run("jobs", "list", "--limit", "2", "--json").stdout)
    for more in ("--order=-attempts", "--oldest", "--where=queue:mail"):
        result = shop.run("jobs", "list", more, "--cursor", first["cursor"], code=2)
        assert "another filter or order" in result.stderr
    both = shop.run("jobs", "list", "--newest", "--order", "created", code=2)
    assert "not both" in both.stderr


def test_a_list_by_age_goes_on_with_its_cursor(shop):
    args = ("jobs", "list", "--where", "age<1h", "--limit", "5")
    first = json.loads(shop.run(*args, "--json").stdout)
    rest = listed(shop, *args, "--limit", "50", "--cursor", first["cursor"])
    assert [*(job["id"] for job in first["jobs"]), *rest] == listed(shop, "jobs", "list")


def test_jobs_are_counted(shop):
    assert shop.run("jobs", "count").stdout == "13 jobs\n"
    assert shop.run("jobs", "count", "-q", "queue:mail", "--cap", "3").stdout == (
        "more than 3 jobs\n"
    )
    assert shop.run("dead", "count", "-q", "class:deterministic").stdout == "2 jobs\n"
    assert shop.run("dead", "count", "--archived").stdout == "0 jobs\n"
    found = json.loads(shop.run("dead", "count", "--cap", "2", "--json").stdout)
    assert found == {"value": 2, "capped": True}
