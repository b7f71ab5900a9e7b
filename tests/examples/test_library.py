"""The example ``examples/library``: its one command on both stores, and its web application."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.docs.pages import blocks_of, commands_of, matches
from tests.engines.postgres.servers import Databases

EXAMPLE = Path(__file__).parents[2] / "examples" / "library"
REQUESTS = """
from fastapi.testclient import TestClient
from sqlalchemy import event
from sqlalchemy.orm import Session
from library import web

{change}
with TestClient(web.web, raise_server_exceptions=False) as client:
    def answer(path, **body):
        return client.post(path, json=body, headers={{"X-User": "Ann"}}).status_code

    assert answer("/libraries", name="Kept") == 201
    assert answer("/libraries", name="") == 422
    assert answer("/libraries/7/bookshelves", name="Nowhere") == 404
    assert answer("/libraries/1/bookshelves", name="Top") == 201
    assert answer("/bookshelves/1/books", title="Emma") == 201
    assert answer("/books/1/tags", tag="love") == 201
    assert answer("/books/1/tags", tag="love") == 409

    @event.listens_for(Session, "before_commit")
    def fail(session):
        raise RuntimeError("the commit fails")

    assert answer("/libraries", name="Lost") == 500
"""
EVENTS = "SELECT event_type FROM holdfast.chronicle_events ORDER BY position"


def environment(database: str | None) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOLDFAST_", "OUTBOX_", "DATABASE_"))
    }
    return kept if database is None else kept | {"DATABASE_URL": database}


def run(*words: str, database: str | None = None) -> subprocess.CompletedProcess[str]:
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=EXAMPLE,
        env=environment(database),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, complained = process.communicate(timeout=110)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # and what it has started
            raise
    return subprocess.CompletedProcess(words, process.returncode, said, complained)


@pytest.fixture(params=["embedded", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[str | None]:
    if request.param == "embedded":
        yield None
        return
    server: Databases = request.getfixturevalue("server18")
    with server.bare() as found:
        yield server.store(found)


def test_the_one_command_tells_the_whole_story(database):
    done = run("-m", "library", "demo", database=database)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    for line in (
        "Bo renamed 石头记 to 红楼梦",
        "minutes: book_cards holds integer there, not a fl",
        "done 1, failed again 0",
        "book_cards is rebuilt: 8 events in ",
        "generation 2 is live; the one before had 2 with another hash",
        "No event was lost, and nobody edited a row by hand.",
    ):
        assert line in said, said
    assert said.split("chronicle search 红楼")[1].split("#")[0].count("红楼梦") == 2


def test_control_without_the_fix_the_demo_fails():
    """What is replayed fails again: the command says so, and the demo ends."""
    done = run("-c", "from library import demo; demo.Demo.mend = lambda self: None; demo.main()")
    assert done.returncode == 1, done.stdout
    assert "This is not so: `holdfast replay " in done.stderr


@contextlib.contextmanager
def started(line: str, directory: Path, said: str) -> Iterator[str]:
    """Run a command of the page until the end; yield what it says when it has started."""
    log = directory / f"{line.split(maxsplit=1)[0]}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *line.split()],
            cwd=directory,
            env=environment(None) | {"HOLDFAST_METRICS_PORT": "off", "PYTHONUNBUFFERED": "1"},
            stdout=output,
            stderr=output,
        )
    try:
        while not (found := re.search(said, log.read_text("utf-8"))):
            assert process.poll() is None, log.read_text("utf-8")
            time.sleep(0.05)
        yield found[0]
    finally:
        process.terminate()
        process.wait(60)


def test_what_its_readme_has_one_type_by_hand(tmp_path):
    directory = tmp_path / "library"
    shutil.copytree(EXAMPLE, directory)
    _command, run_both, typed = blocks_of("examples/library/README.md")
    worker, web = (one.line for one in commands_of(run_both.text))
    so_far, programs = "", Path(sys.executable).parent
    with (
        started(worker, directory, "workers: "),
        started(f"{web} --port 0", directory, r"127.0.0.1:\d+") as address,
    ):
        for command in commands_of(typed.text):
            line = command.line.replace("localhost:8000", address)
            if line.startswith("post()"):
                so_far = f"{line}\n"
                continue
            looks = not line.startswith("post ")  # a worker may need a moment
            while True:
                done = subprocess.run(
                    ["/bin/bash", "-c", so_far + line],
                    cwd=directory,
                    env=environment(None) | {"PATH": f"{programs}:{os.environ['PATH']}"},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                if matches(command.output, done.stdout):
                    break
                assert looks, (command, done.stdout)
                time.sleep(0.1)


def after_requests(server: Databases, change: str = "") -> tuple[list[str], list[str]]:
    """Return the libraries and the events that are there after some requests."""
    with server.bare() as database:
        store = server.store(database)
        assert run("-m", "holdfast", "migrate", database=store).returncode == 0
        done = run("-c", REQUESTS.format(change=change), database=store)
        assert done.returncode == 0, done.stderr
        with psycopg.connect(store) as connection:
            libraries = [name for (name,) in connection.execute("SELECT name FROM libraries")]
            events = [kind for (kind,) in connection.execute(EVENTS)]
    return libraries, events


def test_a_row_and_its_event_are_one_transaction(server18):
    libraries, events = after_requests(server18)
    assert libraries == ["Kept"]
    assert events == ["library.opened", "bookshelf.added", "book.added", "book.tagged"]


def test_control_an_event_of_its_own_outlives_the_row(server18):
    libraries, events = after_requests(server18, change="web.ON_POSTGRESQL = False")
    assert libraries == ["Kept"]
    assert events.count("library.opened") == 2
