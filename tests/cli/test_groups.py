"""``dead groups`` and what a person does with a group, with the daemon up and down."""

import pytest

from holdfast.cli.commands.groups import is_group_id, sparkline

WHY = ("--by", "ann", "--reason", "because")


def group_of(shop, reason: str, queue: str = "mail"):
    found = shop.json("dead", "groups", "--error-reason", reason, "--queue", queue)
    (group,) = found
    return group


def test_the_life_of_a_group(shop):
    group = group_of(shop, "mapping_error")
    name = group["id"]
    assert (group["state"], group["count"], len(group["trend"])) == ("open", 2, 24)
    assert shop.run("dead", "ack", name, *WHY).stdout == f"{name} is acknowledged\n"
    shop.run("dead", "assign", name, "bob", *WHY)
    shop.run("dead", "note", name, "ask the mail team", "--by", "ann")
    assert (
        shop.run("dead", "fixed", name, "--in", "v7", *WHY).stdout
        == f"{name} is fixed, owner bob\n"
    )
    found = shop.json("dead", "group", name)
    assert (found["group"]["fixed_in"], found["group"]["owner"]) == ("v7", "bob")
    assert [job["id"] for job in found["samples"]] == ["x1", "x2"]
    assert [act["action"] for act in found["group"]["acts"]] == [
        *("acknowledge", "assign", "note", "fix")
    ]
    text = shop.run("dead", "group", name).stdout
    for said in ("ann: note: ask the mail team", "ann: fix v7: because", "dead_letters:  2, of 2"):
        assert said in text
    assert f"holdfast replay --group {name} --limit 10 --fixed 'what'" in text
    assert [one["id"] for one in shop.json("dead", "groups", "--state", "fixed")] == [name]
    assert "fixed" in shop.run("dead", "groups").stdout
    assert shop.run("dead", "reopen", name, *WHY).stdout == f"{name} is open, owner bob\n"
    assert shop.run("dead", "assign", name, *WHY).stdout == f"{name} is open\n"
    shop.run("dead", "forget", name, *WHY)
    assert shop.json("dead", "group", name)["group"]["acts"] == []
    actions = [one["action"] for one in shop.json("audit", "list")]
    assert actions[-7:-4] == ["group.acknowledge", "group.assign", "group.note"]


def test_a_muted_group_is_left_out_of_the_table_but_not_of_json(shop):
    name = group_of(shop, "mapping_error")["id"]
    said = shop.run("dead", "mute", name, "--for", "2h", *WHY).stdout
    assert said.startswith(f"{name} is open, muted until 2")
    assert name in [one["id"] for one in shop.json("dead", "groups")]
    result = shop.run("dead", "groups")
    assert name not in result.stdout
    assert result.stderr == "1 muted not shown: add --muted\n"
    assert name in shop.run("dead", "groups", "--muted").stdout
    shop.run("dead", "unmute", name, *WHY)
    assert name in shop.run("dead", "groups").stdout
    for wrong in ((), ("--for", "1h", "--until", "2040-01-01"), ("--until", "2001-01-01")):
        shop.run("dead", "mute", name, *wrong, *WHY, code=2)


def test_commands_take_a_group_as_a_filter(shop):
    name = group_of(shop, "mapping_error")["id"]
    jobs = shop.json("dead", "list", "--group", name)["jobs"]
    assert [job["id"] for job in jobs] == ["x1", "x2"]
    assert {job["group"] for job in jobs} == {name}
    assert len(shop.json("jobs", "list", "--group", name)["jobs"]) == 2
    assert shop.json("dead", "groups", "--group", name)[0]["id"] == name
    shop.run("replay", "--group", name, "--fixed", "it", *WHY)
    assert shop.json("jobs", "show", "x2")["status"] == "pending"
    assert shop.json("jobs", "show", "d1")["status"] == "dead"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("dead", "ack", "g-0000000000", *WHY), 3, "no group of failures has the id"),
        (("dead", "group", "x"), 3, "no group of failures"),
        (("dead", "list", "--group", "g-0000000000"), 3, "no group of failures"),
        (("dead", "note", "g-0000000000", "hm"), 3, "no group of failures"),
        (("dead", "list", "--http-status", "4o4"), 2, "is not an HTTP status such as 404"),
        (("dead", "list", "--http-status", "700"), 2, "is not an HTTP status"),
    ],
)
def test_what_is_unknown_or_wrong_is_refused(shop, args, code, said):
    assert said in shop.run(*args, code=code).stderr


def test_a_group_and_another_filter_that_exclude_each_other_are_refused(shop):
    name = group_of(shop, "mapping_error")["id"]
    result = shop.run("dead", "list", "--group", name, "--queue", "keys", code=2)
    assert f"{name} has 'mail' alone as queues" in result.stderr


def test_who_and_why_are_needed(shop):
    name = group_of(shop, "mapping_error")["id"]
    shop.run("dead", "ack", name, code=2)
    shop.run("dead", "fixed", name, *WHY, code=2)
    assert shop.json("dead", "group", name)["group"]["state"] == "open"


def test_a_sparkline_has_a_bar_for_every_number():
    assert sparkline([0, 1, 4, 8]) == "·▂▅█"
    assert sparkline([0] * 3) == "···"
    assert sparkline([7]) == "█"


def test_the_id_of_a_group_is_told_from_that_of_a_job():
    assert is_group_id("g-0123456789")
    for other in ("g-012345678", "g-01234567890", "g-012345678X", "0123456789ab", "job"):
        assert not is_group_id(other)
