"""``journal verify``, ``dump`` and ``salvage``."""

import asyncio
import json
from pathlib import Path

import pytest

from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.model import outcome as outcomes
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob

ODD = Failure.of("unexpected", "odd")


async def write_history(path: Path, *, compact: bool) -> None:
    """Have something of every kind that Q3 names happen in a store."""
    options = JournalOptions(segment_bytes=1 << 20)
    engine = await JournalEngine.open(LocalDisk(path), options=options)
    names = ["ack", "retry", "dead", "release", "cancel", "snooze", "lost"]
    await engine.enqueue([NewJob(task="t", id=name, payload={"n": name}) for name in names])
    claim = await engine.claim(queues=["default"], worker="w", limit=10)
    ack, retry, dead, release, cancel, snooze, lost = claim.jobs
    await engine.settle(
        [
            outcomes.completed(ack, b'{"sent":1}'),
            outcomes.retry(retry, ODD, 60),
            outcomes.dead(dead, ODD),
            outcomes.release(release),
            outcomes.cancelled(cancel),
            outcomes.snooze(snooze, 60),
        ]
    )
    await engine.extend([lost], lease_seconds=60)
    await engine.reclaim(forced=[lost])
    await engine.claim(queues=["default"], worker="w", limit=1)
    if compact:
        await engine.compact()
    await engine.close()


@pytest.fixture
def history(here: Path) -> Path:
    asyncio.run(write_history(here / "data", compact=False))
    return here / "data"


def damage(store: Path) -> Path:
    """Flip a byte in the middle of the log's records."""
    (segment,) = sorted((store / "log").iterdir())[:1]
    data = bytearray(segment.read_bytes())
    place = data.index(b"cancel") + 2
    data[place] ^= 0x40
    segment.write_bytes(data)
    return segment


def test_a_whole_log_is_whole(hold, history):
    result = hold("journal", "verify")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "intact"
    assert "1 segment, 0 snapshots" in result.stdout
    assert "7 jobs, closed cleanly" in result.stdout
    report = json.loads(hold("journal", "verify", "--json").stdout)
    assert (report["problems"], report["jobs"], report["closed_in_order"]) == ([], 7, True)


def test_a_damaged_log_is_exit_1_and_names_file_and_place(hold, history):
    segment = damage(history)
    before = segment.read_bytes()
    result = hold("journal", "verify")
    assert result.exit_code == 1
    assert f"damaged: log/{segment.name} is damaged at byte" in result.stdout
    assert "`holdfast journal salvage NEW_DIRECTORY`" in result.stdout
    as_json = hold("journal", "verify", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["problems"]
    assert segment.read_bytes() == before  # looking changes nothing


@pytest.mark.parametrize("command", [("status",), ("jobs", "show", "ack"), ("enqueue",)])
def test_commands_refuse_a_damaged_store_with_a_sentence(hold, history, command):
    damage(history)
    result = hold(*command, stdin="{}")
    assert result.exit_code == 5
    assert "is damaged at byte" in result.stderr


def test_a_dump_has_the_fields_and_names_that_people_know(hold, history):
    lines = [json.loads(line) for line in hold("journal", "dump", "--json").stdout.splitlines()]
    assert {"seq", "type", "job_id", "timestamp", "checksum"} <= set(lines[0])
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    types = {line["type"] for line in lines}
    assert {"ENQUEUE", "DISPATCH", "ACK", "RETRY", "TIMEOUT", "DEAD"} <= types
    assert {"RELEASE", "CANCEL", "SNOOZE", "EXTEND"} <= types
    by_type = {line["type"]: line["job_id"] for line in lines}
    assert (by_type["ACK"], by_type["DEAD"], by_type["TIMEOUT"]) == ("ack", "dead", "lost")
    assert all(len(line["checksum"]) == 8 for line in lines)
    assert abs(lines[0]["timestamp"] - (history / "log").stat().st_mtime) < 60


def test_a_dump_for_people_is_a_line_each(hold, history):
    lines = hold("journal", "dump").stdout.splitlines()
    assert len(lines) == len(hold("journal", "dump", "--json").stdout.splitlines())
    assert lines[0].split()[0] == "1"
    assert lines[0].split()[2:] == ["ENQUEUE", "ack"]


def test_a_dump_of_a_damaged_log_prints_what_is_before_and_then_says_so(hold, history):
    damage(history)
    result = hold("journal", "dump", "--json")
    assert result.exit_code == 5
    assert "is damaged at byte" in result.stderr


def test_a_snapshot_is_printed_with_the_fields_that_people_know(hold, here):
    asyncio.run(write_history(here / "data", compact=True))
    found = json.loads(hold("journal", "dump", "--snapshot").stdout)
    assert {"queue", "in_flight", "completed", "dead", "last_seq", "schema_ver"} <= set(found)
    assert sorted(job["id"] for job in found["queue"]) == ["lost", "retry", "snooze"]
    assert [job["id"] for job in found["in_flight"]] == ["release"]
    assert [job["id"] for job in found["completed"]] == ["ack"]
    assert found["completed"][0]["result"] == {"sent": 1}
    assert [job["id"] for job in found["dead"]] == ["dead"]
    assert found["dead"][0]["payload"] == {"n": "dead"}
    assert hold("journal", "verify").exit_code == 0


def test_before_the_first_snapshot_the_state_of_the_log_is_printed(hold, history):
    found = json.loads(hold("journal", "dump", "--snapshot").stdout)
    assert sorted(job["id"] for job in found["queue"]) == ["lost", "retry", "snooze"]
    assert [job["id"] for job in found["completed"]] == ["ack"]
    last = json.loads(hold("journal", "dump", "--json").stdout.splitlines()[-1])
    assert found["last_seq"] == last["seq"]


def test_salvage_copies_out_what_is_whole_and_leaves_the_rest_alone(hold, history, here):
    damage(history)
    before = {path: path.read_bytes() for path in history.rglob("*") if path.is_file()}
    result = hold("journal", "salvage", "saved")
    assert result.exit_code == 0
    assert result.stdout.startswith("jobs:")
    assert before == {path: path.read_bytes() for path in history.rglob("*") if path.is_file()}
    assert hold("--store", "saved", "journal", "verify").exit_code == 0
    assert hold("--store", "saved", "status").exit_code == 0
    again = hold("journal", "salvage", "saved")
    assert again.exit_code == 2
    assert "is not empty" in again.stderr


def test_salvage_of_a_whole_store_keeps_everything(hold, history):
    report = json.loads(hold("journal", "salvage", "saved", "--json").stdout)
    assert (report["jobs"], report["missing"], report["contradicting"]) == (7, [], 0)
    for name in ("status", "status --json"):
        args = name.split()
        assert hold("--store", "saved", *args).stdout == hold(*args).stdout


@pytest.mark.parametrize(
    "command", [("verify",), ("dump",), ("dump", "--snapshot"), ("salvage", "out")]
)
def test_where_there_is_no_log_there_is_nothing_to_look_at(hold, here, command):
    (here / "empty").mkdir()
    for store in ("nowhere", "empty"):
        result = hold("--store", store, "journal", *command)
        assert result.exit_code == 2
        assert f"there is no log in {store}" in result.stderr
    assert sorted(path.name for path in here.iterdir()) == ["empty"]
    result = hold("--store", "memory:", "journal", *command)
    assert result.exit_code == 2


def test_a_target_that_cannot_be_written_is_a_sentence(hold, history, here):
    (here / "file").write_text("")
    assert hold("journal", "salvage", "file").exit_code == 5
