"""``holdfast dump`` and ``load``: with the daemon up, and without it."""

import json
from pathlib import Path

from .conftest import Command


def enqueue(hold: Command, *ids: str) -> None:
    jobs = json.dumps(
        [{"id": job_id, "task": "mail", "payload": {"to": "x"}, "delay": "1h"} for job_id in ids]
    )
    assert hold("enqueue", stdin=jobs).exit_code == 0


def test_a_store_goes_into_a_file_and_comes_out_of_it_as_another(here, hold):
    enqueue(hold, "a", "b")
    done = hold("dump", "all.dump")
    assert done.exit_code == 0, done.output
    assert "all.dump: 2 jobs; sha256 " in done.output
    done = hold("--store", "copy", "load", "all.dump")
    assert (done.exit_code, done.output) == (
        0, "copy: 2 jobs, 2 of them unfinished: they continue with `holdfast run`\n",
    )  # fmt: skip
    assert "pending:   2" in hold("--store", "copy", "status").output
    assert hold("--store", "copy", "journal", "verify").exit_code == 0


def test_the_daemon_goes_on_while_it_is_dumped(here, hold, daemon):
    enqueue(daemon.run, "a", "b", "c")
    done = daemon.run("dump", here / "all.dump")
    assert "3 jobs" in done.output, done.output
    enqueue(daemon.run, "d")
    assert hold("--store", "copy", "load", "all.dump").exit_code == 0
    assert "pending:   3" in hold("--store", "copy", "status").output


def test_what_is_shown_to_others_has_no_payload_in_it_and_does_not_run(here, hold):
    canary = "canary-41d8"
    assert hold("enqueue", stdin=json.dumps({"id": "a", "payload": {"k": canary}})).exit_code == 0
    assert hold("dump", "shown.dump", "--redact").exit_code == 0
    assert hold("--store", "copy", "load", "shown.dump").exit_code == 0
    shown = hold("--store", "copy", "jobs", "show", "a", "--json").output
    assert canary not in shown
    assert '"a"' in shown
    assert canary in hold("jobs", "show", "a", "--json").output
    queues = json.loads(hold("--store", "copy", "queues", "list", "--json").output)
    assert [queue["policy"]["paused"] for queue in queues] == [True]


def test_what_cannot_be_done_is_said_in_a_sentence_and_changes_nothing(here, hold):
    enqueue(hold, "a")
    assert hold("dump", "all.dump").exit_code == 0
    again = hold("dump", "all.dump")
    assert again.exit_code != 0
    assert "exists" in again.output
    into_itself = hold("load", "all.dump")
    assert into_itself.exit_code != 0
    assert "not empty" in into_itself.output
    whole = Path("all.dump").read_bytes()
    Path("cut.dump").write_bytes(whole[:-40])
    cut = hold("--store", "copy", "load", "cut.dump")
    assert cut.exit_code != 0
    assert "not a complete dump" in cut.output
    assert not list(Path("copy").glob("*/*"))
    assert hold("--store", "copy", "load", "all.dump").exit_code == 0
