"""``holdfast dump`` and ``load``: with the daemon up, and without it."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from holdfast.cli.commands import dump as dump_module
from holdfast.engines.dump import keys as dumped_keys
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.model.errors import StoreMoved
from holdfast.settings import Settings
from holdfast.stores.opening import own_journal
from holdfast.stores.tombstone import leave_tombstone

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


def test_keys_are_not_loaded_unless_that_is_asked_for(here, hold):
    enqueue(hold, "a")
    made = hold("keys", "create", "ci", "--role", "viewer", "--by", "ann", "--reason", "a test")
    assert made.exit_code == 0, made.output
    assert hold("dump", "all.dump").exit_code == 0
    done = hold("--store", "copy", "load", "all.dump")
    assert "1 key left out: make new ones, or load with --keep-keys" in done.output
    assert json.loads(hold("--store", "copy", "keys", "list", "--json").output) == []
    assert hold("--store", "same", "load", "all.dump", "--keep-keys").exit_code == 0
    (kept,) = json.loads(hold("--store", "same", "keys", "list", "--json").output)
    assert kept["name"] == "ci"
    assert hold("dump", "shown.dump", "--redact").exit_code == 0
    done = hold("--store", "shown", "load", "shown.dump", "--json", "--keep-keys")
    assert json.loads(hold("--store", "shown", "keys", "list", "--json").output) == []


def test_control_keys_that_are_loaded_are_noticed(here, hold, monkeypatch):
    monkeypatch.setattr(dumped_keys, "without_keys", lambda batches, _left_out: batches)
    with pytest.raises(AssertionError):
        test_keys_are_not_loaded_unless_that_is_asked_for(here, hold)


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


def test_a_dump_goes_through_a_pipe(here, hold):
    enqueue(hold, "a", "b")
    done = hold("dump", "-")
    assert done.exit_code == 0
    assert "2 jobs; sha256 " in done.stderr
    assert not Path("-").exists()
    loaded = hold("--store", "copy", "load", "-", stdin=done.stdout_bytes)
    assert (loaded.exit_code, loaded.output) == (
        0, "copy: 2 jobs, 2 of them unfinished: they continue with `holdfast run`\n",
    )  # fmt: skip
    cut = hold("--store", "other", "load", "-", stdin=done.stdout_bytes[:-20])
    assert cut.exit_code != 0
    assert "manifest" in cut.output
    assert not Path("other/log").exists()


def test_the_counts_of_a_dump_have_their_plurals(here, hold):
    enqueue(hold, "a")
    for queue in ("mail", "slow"):
        hold(
            "queues",
            "set",
            queue,
            "--new",
            "--max-in-flight",
            "2",
            "--by",
            "ann",
            "--reason",
            "test",
        )
    done = hold("dump", "all.dump")
    assert "2 audit entries, 1 job, 2 policies; sha256" in done.output


async def test_a_daemon_that_waited_for_the_owner_that_moved_it_is_refused(here):
    settings = Settings(store=str(here / "old"))
    owner = await own_journal(settings)
    waiting = asyncio.create_task(own_journal(settings))
    await asyncio.sleep(0)  # it has looked for the mark before the directory was moved
    leave_tombstone(settings, Settings(store=str(here / "new")))
    await owner.close()
    with pytest.raises(StoreMoved):
        await waiting
    assert LocalDisk(str(here / "old")).owner() is None


def test_a_directory_that_was_moved_says_so_and_is_not_used(here, hold):
    enqueue(hold, "a", "b")
    done = hold("move", "--from", "data", "--to", "new", "--yes")
    assert "data is marked as moved: it will not run any more" in done.output
    place = str(here / "new")
    for command in (
        ("run", "--run-seconds", "1s", "--metrics-port", "off"),
        ("enqueue",),
        ("status",),
        ("jobs", "list"),
        ("dump", "old.dump"),
        ("move", "--from", "data", "--to", "third", "--yes"),
    ):
        stdin = json.dumps({"task": "mail"}) if command == ("enqueue",) else None
        refused = hold(*command, stdin=stdin)
        assert refused.exit_code == 5, (command, refused.output)
        assert f"was moved to {place} on " in refused.output
        assert "remove data/MOVED" in refused.output.replace("./data", "data")
    assert hold("journal", "verify").exit_code == 0, "it can still be inspected"
    assert "pending:   2" in hold("--store", "new", "status").output
    Path("data/MOVED").unlink()
    assert "pending:   2" in hold("status").output


def test_a_tombstone_that_cannot_be_read_refuses_too(here, hold):
    enqueue(hold, "a")
    Path("data/MOVED").write_bytes(b"\xff")
    refused = hold("status")
    assert refused.exit_code == 5
    assert "was moved to another store" in refused.output


def test_an_unfinished_dump_is_made_anew_and_never_through_a_link(here, hold, monkeypatch):
    enqueue(hold, "a")
    victim = here / "victim"
    victim.write_text("precious")
    (here / "all.dump.guessed.part").symlink_to(victim)
    with monkeypatch.context() as guess:
        guess.setattr("holdfast.cli.commands.dump.secrets.token_hex", lambda _count: "guessed")
        done = hold("dump", "all.dump")
    assert done.exit_code == 5
    assert "all.dump.guessed.part cannot be written" in done.output
    assert victim.read_text() == "precious"
    assert hold("dump", "all.dump").exit_code == 0
    assert (here / "all.dump").stat().st_mode & 0o777 == 0o600
    assert not (here / "all.dump").is_symlink()


def test_control_a_dump_that_follows_links_writes_to_their_target(here, hold, monkeypatch):
    flags = dump_module._NEW & ~os.O_EXCL
    monkeypatch.setattr(dump_module, "_NEW", flags)
    with pytest.raises(AssertionError):
        test_an_unfinished_dump_is_made_anew_and_never_through_a_link(here, hold, monkeypatch)
