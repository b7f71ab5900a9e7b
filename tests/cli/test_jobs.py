"""``enqueue``, ``status`` and ``jobs show``, without a daemon and with one."""

import json
import time
from typing import Any

import pytest
from click.testing import Result

TWO = '[{"id":"a","payload":{"x":1}},{"id":"b","status":"dead","attempt":7}]'


def as_json(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# --- without a daemon --------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["-f", "--file"])
def test_a_file_is_enqueued_and_counted(hold, here, flag):
    (here / "jobs.json").write_text(TWO)
    result = hold("enqueue", flag, "jobs.json")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "2 jobs enqueued\n", "")
    assert hold("status").stdout == (
        "pending:   2\nin_flight: 0\ncompleted: 0\ndead:      0\nblocked:   0\n"
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (TWO, 2),
        ('{"id":"a"}', 1),
        ('{"id":"a"}\n\n{"id":"b"}\n{"id":"c"}\n', 3),
        ('{\n  "id": "a"\n}\n', 1),
        ("", 0),
        ("[]", 0),
    ],
)
def test_standard_input_may_be_an_array_an_object_or_lines(hold, text, count):
    result = hold("enqueue", stdin=text)
    assert result.exit_code == 0
    assert result.stdout == f"{count} job{'' if count == 1 else 's'} enqueued\n"
    assert as_json(hold("status", "--json"))["pending"] == count
    assert hold("enqueue", "-f", "-", stdin="[]").exit_code == 0


def test_ids_are_printed_as_json_if_asked(hold):
    found = as_json(hold("enqueue", "--json", stdin='[{"id":"a"},{}]'))
    assert found[0] == {"id": "a", "admission": "created"}
    assert len(found[1]["id"]) == 36


def test_duplicates_are_refused_and_nothing_is_enqueued(hold):
    hold("enqueue", stdin='{"id":"a"}')
    result = hold("enqueue", stdin='[{"id":"new"},{"id":"a"}]')
    assert (result.exit_code, result.stdout) == (4, "")
    assert "a job with id 'a' exists" in result.stderr
    assert as_json(hold("status", "--json"))["pending"] == 1
    assert hold("enqueue", stdin='[{"id":"x"},{"id":"x"}]').exit_code == 2


def test_duplicates_are_left_out_if_asked(hold):
    hold("enqueue", stdin='{"id":"a"}')
    result = hold("enqueue", "--skip-duplicates", stdin='[{"id":"new"},{"id":"a"}]')
    assert result.exit_code == 0
    assert result.stdout == "1 job enqueued, 1 skipped: they exist already\n"
    assert as_json(hold("status", "--json"))["pending"] == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"id":"a"}\n{"id":oops}\n', "line 2: JSON is malformed"),
        ('{"id":"a"}\n\n{"id":7}\n', "line 3: Expected `str | null`, got `int`"),
        ('[{"id":"a"},{"odd":1}]', "unknown field `odd` - at `$[1]`"),
        ('[{"id":"a"}', "the file: Input data was truncated"),
        ('[{"id":"a"},{"delay":"soon"}]', "job 2: delay: 'soon' is not a duration"),
        ('[{"id":"a"},{"max_attempts":0}]', "job 2: max_attempts: 0 is not"),
        ("7", "the file: Expected `object`"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line_and_nothing_is_enqueued(hold, text, said):
    result = hold("enqueue", stdin=text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert as_json(hold("status", "--json"))["pending"] == 0


def test_bytes_that_are_no_text_are_refused(hold):
    result = hold("enqueue", stdin=b'{"id":"\xff\xfe"}')
    assert result.exit_code == 2


def test_an_application_checks_its_tasks(hold, here):
    (here / "shop_cli.py").write_text(
        "from holdfast import Holdfast\n"
        "app = Holdfast()\n"
        "@app.task(queue='mail')\n"
        "def send(to: str) -> None: ...\n"
    )
    good = '{"id":"a","task":"send","payload":{"to":"ann"}}'
    assert hold("enqueue", "--app", "shop_cli.py", stdin=good).exit_code == 0
    for text, said in [
        ('{"task":"send","payload":{"to":7}}', "job 1: payload: send: Expected `str`"),
        ('{"task":"sned"}', "job 1: task: no task is named 'sned'"),
    ]:
        result = hold("enqueue", "--app", "shop_cli.py", stdin=text)
        assert result.exit_code == 2
        assert said in result.stderr
    assert as_json(hold("jobs", "show", "a", "--json"))["queue"] == "mail"


@pytest.mark.parametrize("args", [(), ("--json",)])
def test_status_of_nothing_is_zeros_and_makes_nothing(hold, here, args):
    result = hold("status", *args)
    assert result.exit_code == 0
    assert "0" in result.stdout
    (here / "empty").mkdir()
    assert hold("--store", "empty", "status", *args).exit_code == 0
    assert sorted(path.name for path in here.iterdir()) == ["empty"]
    assert list((here / "empty").iterdir()) == []


def test_status_as_json_has_every_count_and_the_queues(hold):
    hold("enqueue", stdin='[{"queue":"mail"},{"queue":"mail"},{}]')
    found = as_json(hold("status", "--json"))
    assert (found["pending"], found["in_flight"], found["completed"], found["dead"]) == (3, 0, 0, 0)
    assert [(item["queue"], item["counts"]["pending"]) for item in found["queues"]] == [
        ("default", 1),
        ("mail", 2),
    ]


def test_a_job_is_shown_as_text_and_as_json(hold):
    hold("enqueue", stdin='{"id":"a","queue":"q","payload":{"x":[1,"ü"]}}')
    text = hold("jobs", "show", "a").stdout
    assert "id:            a\n" in text
    assert "status:        pending\n" in text
    assert 'payload:       {"x":[1,"ü"]}\n' in text
    found = as_json(hold("jobs", "show", "a", "--json"))
    assert (found["id"], found["status"], found["payload"]) == ("a", "pending", {"x": [1, "ü"]})
    assert found["attempt"] == 0


@pytest.mark.parametrize("args", [(), ("--json",), ("--tenant", "other")])
def test_a_job_that_is_not_there_is_exit_3(hold, args):
    hold("enqueue", stdin='{"id":"a"}')
    name = "a" if "other" in args else "b"
    result = hold("jobs", "show", name, *args)
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"there is no job {name!r}" in result.stderr


@pytest.mark.parametrize("command", [("status",), ("jobs", "show", "a"), ("enqueue",)])
def test_a_store_in_memory_ends_with_its_process(hold, command):
    result = hold("--store", "memory:", *command, stdin="{}")
    assert result.exit_code == 2
    assert "'memory:' ends with the process that has it" in result.stderr


@pytest.mark.parametrize("command", [("enqueue",), ("status",), ("jobs", "show", "a")])
def test_a_store_that_cannot_be_used_is_a_sentence(hold, here, command):
    (here / "file").write_text("not a directory")
    for store in ("file", "file/below", "/proc/nowhere/data"):
        result = hold("--store", store, *command, stdin="{}")
        if store.startswith("/proc") and command != ("enqueue",):
            continue  # nothing is there, and reading makes nothing
        assert result.exit_code == 5, result.output
        assert store.partition("/")[0] in result.stderr


# --- with a daemon -----------------------------------------------------------------------------


def shown_when(daemon, job_id: str, status: str) -> dict[str, Any]:
    give_up = time.monotonic() + 20
    while True:
        found: dict[str, Any] = as_json(daemon.run("jobs", "show", job_id, "--json"))
        if found["status"] == status:
            return found
        assert time.monotonic() < give_up, found
        time.sleep(0.02)


def test_the_daemon_says_what_it_runs(daemon):
    assert daemon.said[0].startswith(f"holdfast started: store {daemon.store} (sync=always)")
    assert daemon.said[-1] == "workers: 8, queues: all\n"


def test_jobs_reach_a_daemon_that_runs_and_are_done(daemon):
    text = (
        '{"id":"d1","task":"mail","payload":{"to":"ann"}}\n'
        '{"id":"d2","payload":{"type":"mail","to":"bob"}}\n'
    )
    assert daemon.run("enqueue", stdin=text).stdout == "2 jobs enqueued\n"
    found = shown_when(daemon, "d1", "completed")
    assert (found["result"], found["queue"], found["priority"]) == ("sent to ann", "mail", 3)
    assert shown_when(daemon, "d2", "completed")["result"] == "sent to bob"
    text = daemon.run("jobs", "show", "d1").stdout
    assert "result:        sent to ann\n" in text
    result = daemon.run("enqueue", stdin=text)
    assert result.exit_code == 2
    refused = daemon.run("enqueue", stdin='[{"id":"d1"},{"id":"d3"}]')
    assert refused.exit_code == 4
    assert daemon.run("jobs", "show", "d3").exit_code == 3
    skipped = daemon.run("enqueue", "--skip-duplicates", "--json", stdin='{"id":"d1"}')
    assert as_json(skipped) == [{"id": "d1", "admission": "skipped"}]


def test_a_daemon_checks_the_tasks_of_what_it_takes(daemon):
    for text, said in [
        ('[{"id":"e1"},{"task":"nowhere"}]', "job 2: task: no task is named 'nowhere'"),
        (
            '{"task":"mail","payload":{}}',
            "job 1: payload: mail: Object missing required field `to`",
        ),
        ('{"id":"e1","delay":-1}', "job 1: delay"),
    ]:
        result = daemon.run("enqueue", stdin=text)
        assert result.exit_code == 2
        assert said in result.stderr
    assert daemon.run("jobs", "show", "e1").exit_code == 3


def test_an_application_that_is_named_checks_as_well_before_a_daemon_is_asked(daemon, tmp_path):
    path = tmp_path / "stricter.py"
    path.write_text(
        "from holdfast import Holdfast\n"
        "app = Holdfast()\n"
        "@app.task\n"
        "def mail(to: int) -> None: ...\n"
    )
    text = '{"id":"g1","task":"mail","payload":{"to":"ann"}}'
    result = daemon.run("enqueue", "--app", path, stdin=text)
    assert result.exit_code == 2
    assert "job 1: payload: mail: Expected `int`, got `str`" in result.stderr
    assert daemon.run("jobs", "show", "g1").exit_code == 3


def test_what_runs_is_shown_with_its_progress_and_a_failure_with_its_error(daemon):
    daemon.run("enqueue", stdin='[{"id":"s1","task":"slow"},{"id":"f1","task":"fail"}]')
    running = shown_when(daemon, "s1", "in_flight")
    assert running["worker"].startswith("own/")
    found = as_json(daemon.run("status", "--json"))
    assert found["in_flight"] >= 1
    assert found["slots"] == {"": 8}
    give_up = time.monotonic() + 20
    while not (runs := [run for run in found["running"] if run["job_id"] == "s1"]):
        assert time.monotonic() < give_up
        found = as_json(daemon.run("status", "--json"))
    assert (runs[0]["progress_share"], runs[0]["progress_note"]) == (0.5, "half")
    give_up = time.monotonic() + 20
    while "error_reason" not in (shown := as_json(daemon.run("jobs", "show", "f1", "--json"))):
        assert time.monotonic() < give_up
    assert shown["error_reason"] == "unexpected"
    assert "ValueError: this one fails" in shown["last_error"]
    text = daemon.run("jobs", "show", "f1").stdout
    assert "traceback:\n" in text
    assert 'raise ValueError("this one fails")' in text


def test_the_text_of_status_is_the_four_counts_and_the_blocked(daemon):
    names = [line.split(":")[0] for line in daemon.run("status").stdout.splitlines()]
    assert names == ["pending", "in_flight", "completed", "dead", "blocked"]


def test_a_second_daemon_on_the_store_is_refused_and_says_who_has_it(daemon, monkeypatch):
    monkeypatch.setattr("holdfast.stores.opening.own_journal.__defaults__", (0.05,))
    result = daemon.run("run", "--metrics-port", "off", "--run-seconds", "1")
    assert result.exit_code == 5
    assert f"owned by process {daemon.process.pid}" in result.stderr
