"""``holdfast move`` and ``load``, as typed: there and back, stopped in the middle, and refused."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.engines.dump.format import DumpedJob, DumpHead, DumpRecord
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.journal.options import JournalOptions
from holdfast.engines.journal.restore import restore
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.engines.postgres.restore.restore import PART_RECORDS
from holdfast.model.job import NewJob, admit
from holdfast.testing import VirtualClock
from tests.cli.conftest import invoke
from tests.engines.dump.test_dumps import everything, live, told

from .servers import Databases, store_of

PATIENCE_SECONDS = 30.0
REMEMBER = JournalOptions(remember_seconds=1e9)
JOBS = 2 * PART_RECORDS + 100


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("HOLDFAST_", "OUTBOX_")):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def url(server18: Databases) -> Iterator[str]:
    with server18.fresh() as one:
        yield store_of(one)


@pytest.fixture
def another_url(server18: Databases) -> Iterator[str]:
    with server18.fresh() as one:
        yield store_of(one)


def records_of(directory: Path) -> list[DumpRecord]:
    async def run() -> list[DumpRecord]:
        engine = await JournalEngine.open(directory, options=REMEMBER)
        try:
            return await everything(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


def make_store(directory: Path) -> list[DumpRecord]:
    """Have something of everything."""

    async def run() -> None:
        clock = VirtualClock()
        engine = await JournalEngine.open(directory, clock=clock, options=REMEMBER)
        await live(engine, clock)
        await engine.close()

    asyncio.run(run())
    return records_of(directory)


def make_large_store(directory: Path) -> None:
    """Have more than goes over in one part."""
    new = NewJob(task="t", delay_seconds=1e6)
    jobs = [DumpedJob(admit(new, f"j{n}", n, n)) for n in range(1, JOBS + 1)]
    restore(LocalDisk(directory), [[DumpHead("made", 1, JOBS, 0)], jobs])


def typed(*args: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until(condition: Callable[[], object], process: "subprocess.Popen[str]") -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < give_up
        time.sleep(0.02)


def kill(process: "subprocess.Popen[str]", how: signal.Signals = signal.SIGKILL) -> str:
    process.send_signal(how)
    return process.communicate(timeout=PATIENCE_SECONDS)[0]


# --- there and back -----------------------------------------------------------------------------


def test_from_a_directory_to_a_server_to_another_and_back(here, url, another_url):
    records = make_store(here / "data")
    done = invoke("move", "--from", "data", "--to", url, "--yes")
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.output.splitlines()]
    assert ["RECORDS", "FROM", "TO"] in lines
    assert ["job", "11", "11"] in lines
    [[_name, before, after]] = [line for line in lines if line[0] == "sha256"]
    assert before == after
    assert "read back and compared" in done.output
    done = invoke("move", "--from", url, "--to", another_url, "--yes", "--json")
    assert done.exit_code == 0, done.output
    moved = json.loads(done.stdout)
    assert moved["records"]["job"] == 11
    assert moved["sha256"].startswith(before)
    assert invoke("move", "--from", another_url, "--to", "back", "--yes").exit_code == 0
    assert told(records_of(here / "back")) == told(records)
    assert told(records_of(here / "data")) == told(records)  # the source is as it was
    assert sorted(path.name for path in here.iterdir()) == ["back", "data"]
    assert not (here / "back" / "MOVING").exists()
    assert invoke("move", "--from", "back", "--to", "third", "--yes").exit_code == 0
    assert told(records_of(here / "third")) == told(records)


def test_a_dump_is_loaded_into_a_server_and_a_server_is_dumped(here, url):
    records = make_store(here / "data")
    assert invoke("dump", "all.dump").exit_code == 0
    done = invoke("--store", url, "load", "all.dump")
    assert done.exit_code == 0, done.output
    assert "7 of them unfinished: they continue with `holdfast run`" in done.output
    assert invoke("--store", url, "validate").exit_code == 0
    again = invoke("--store", url, "load", "all.dump")
    assert again.exit_code == 2
    assert "is not empty" in again.output
    assert invoke("--store", url, "dump", "again.dump").exit_code == 0
    assert invoke("--store", "copy", "load", "again.dump").exit_code == 0
    unfinished = [one for one in told(records) if "in_flight" in repr(one)]
    assert unfinished
    assert set(map(repr, unfinished)) <= set(map(repr, records_of(here / "copy")))


# --- stopped in the middle ----------------------------------------------------------------------

HOLD_UP = """
CREATE FUNCTION holdfast.hold_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END $$;
CREATE TRIGGER hold_up BEFORE INSERT ON holdfast.jobs FOR EACH ROW
    WHEN (NEW.id = 'j{number}') EXECUTE FUNCTION holdfast.hold_up();
"""
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = %s"


def test_killed_on_its_way_into_a_server_it_goes_on_where_it_was(here, url):
    make_large_store(here / "data")
    move = ("move", "--from", "data", "--to", url, "--yes")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(HOLD_UP.format(number=JOBS - 1).encode())
        connection.execute("SELECT pg_advisory_lock(42)")
        process = typed(*move)

        def held_up() -> bool:
            found = connection.execute(WAITING, ["advisory"]).fetchone()
            return found != (0,)

        until(held_up, process)
        kill(process)
        for args in (("status",), ("jobs", "list"), ("run", "--metrics-port", "off")):
            refused = invoke("--store", url, *args)
            assert refused.exit_code == 5, refused.output
            assert "was interrupted after 10,000 records. Run the same" in refused.output
        connection.execute("SELECT pg_advisory_unlock(42)")
        connection.execute("DROP FUNCTION holdfast.hold_up CASCADE")
    done = invoke(*move, "--json")
    assert done.exit_code == 0, done.output
    moved = json.loads(done.stdout)
    assert (moved["known_records"], moved["records"]) == (2 * PART_RECORDS, {"job": JOBS})
    assert invoke("--store", url, "validate").exit_code == 0
    assert f"pending:   {JOBS}" in invoke("--store", url, "status").output


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_stopped_on_its_way_into_a_directory_it_is_done_again(here, url, how):
    records = make_store(here / "data")
    assert invoke("move", "--from", "data", "--to", url, "--yes").exit_code == 0
    move = ("move", "--from", url, "--to", "back", "--yes")
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE holdfast.audit")
        process = typed(*move)
        until(lambda: connection.execute(WAITING, ["relation"]).fetchone() != (0,), process)
        assert (here / "back.moving" / "MOVING").exists()
        meanwhile = invoke(*move)
        assert meanwhile.exit_code == 5
        assert "is owned by process" in meanwhile.output
        assert kill(process, how) == ("holdfast: interrupted\n" if how is signal.SIGINT else "")
    assert not (here / "back").exists()
    assert invoke(*move).exit_code == 0
    assert told(records_of(here / "back")) == told(records)
    assert not (here / "back.moving").exists()


# --- refused ------------------------------------------------------------------------------------


def test_a_source_that_is_owned_is_not_moved(here, url):
    make_store(here / "data")

    async def run() -> "subprocess.Popen[str]":
        engine = await JournalEngine.open(here / "data", options=REMEMBER)
        process = typed("move", "--from", "data", "--to", url, "--yes")
        await asyncio.to_thread(process.wait)
        await engine.close()
        return process

    process = asyncio.run(run())
    said = process.communicate()[0]
    assert process.returncode == 5
    assert f"is owned by process {os.getpid()}: stop it first" in said
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM holdfast.loading").fetchone() == (0,)


def test_a_target_with_anything_in_it_is_left_alone(here, url):
    make_store(here / "data")
    (here / "full").mkdir()
    (here / "full" / "file").write_text("mine")
    (here / "back.moving").mkdir()
    for target, problem in (
        ("full", "is not empty"),
        ("data", "is the source itself"),
        ("nowhere/below", "is not a directory"),
        ("back", "is in the way"),
        ("memory:", "ends with the process"),
        ("redis://x", "is neither a directory"),
    ):
        done = invoke("move", "--from", "data", "--to", target, "--yes")
        assert done.exit_code == 2, (target, done.output)
        assert problem in done.output, target
    assert (here / "full" / "file").read_text() == "mine"
    assert sorted(path.name for path in here.iterdir()) == ["back.moving", "data", "full"]
    assert invoke("move", "--from", "data", "--to", url, "--yes").exit_code == 0
    (here / "data" / "MOVED").unlink()
    again = invoke("move", "--from", "data", "--to", url, "--yes", "--anew")
    assert again.exit_code == 2
    assert "is not empty: there are rows in attempts, audit, " in again.output


def test_what_is_not_there_is_not_moved_and_not_made(here, url):
    done = invoke("move", "--from", "nowhere", "--to", url, "--yes")
    assert done.exit_code == 2
    assert "there is no store in nowhere" in done.output
    assert not (here / "nowhere").exists()
    make_store(here / "data")
    done = invoke("move", "--from", "data", "--to", url)
    assert done.exit_code == 2
    assert "add --yes" in done.output
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA holdfast CASCADE")
    done = invoke("move", "--from", "data", "--to", url, "--yes")
    assert done.exit_code == 5
    assert "run holdfast migrate" in done.output
