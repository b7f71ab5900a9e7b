"""As a program: on a terminal and without one, with bytes that are no text, and real daemons."""

import asyncio
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import dead

from .conftest import Daemon

WHY = ("--by", "ops", "--reason", "why")


def on_a_terminal(
    directory, *args: str, keys: str = "", until: str | None = None, **environ: str
) -> tuple[int, str]:
    """Run a command on a terminal of its own; return its exit code and what it showed.

    ``until`` is what it must have shown before it is interrupted.
    """
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    kept |= {"TERM": "xterm-256color", "COLUMNS": "120", **environ}
    terminal, end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *args],
        cwd=directory,
        env=kept,
        stdin=end,
        stdout=end,
        stderr=end,
        start_new_session=True,
    ) as process:
        os.close(end)
        os.write(terminal, keys.encode())
        shown = ""
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            if not select.select([terminal], [], [], 1.0)[0]:
                continue
            try:
                part = os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
            shown += part.decode("utf-8", "replace")
            if until is not None and until in shown:
                process.send_signal(signal.SIGINT)
                until = None
        os.close(terminal)
        code = process.wait(20)
    return code, shown


def test_on_a_terminal_it_asks_and_no_is_no(closed_shop, here):
    command = ("jobs", "purge", "--status", "failed", *WHY)
    code, shown = on_a_terminal(here, *command, keys="n\n")
    assert (code, "Purge 6 jobs? [y/N]" in shown) == (1, True)
    assert closed_shop.statuses()["d1"] == "dead"
    code, shown = on_a_terminal(here, *command, keys="y\n")
    assert (code, "6 jobs purged" in shown) == (0, True)
    assert "d1" not in closed_shop.statuses()


def test_on_a_terminal_a_missing_reason_is_asked_for(closed_shop, here):
    code, shown = on_a_terminal(here, "queues", "pause", "mail", "--by", "me", keys="too much\n")
    assert (code, "Why:" in shown) == (0, True)
    assert closed_shop.json("audit", "list")[0]["reason"] == "too much"


def test_colours_are_for_terminals_that_want_them(closed_shop, here):
    _, coloured = on_a_terminal(here, "dead", "list")
    assert "\x1b[31mdead" in coloured
    _, plain = on_a_terminal(here, "dead", "list", NO_COLOR="1")
    assert "\x1b[" not in plain
    assert "\x1b[" not in closed_shop.run("dead", "list").stdout


def test_long_work_shows_how_far_it_is(here):
    async def bury() -> None:
        engine = await JournalEngine.open(here / "data")
        await engine.enqueue([NewJob(task="t") for _ in range(3_000)])
        jobs = (await engine.claim(queues=["default"], worker="w", limit=3_000)).jobs
        await engine.settle([dead(job, Failure.of("timeout", "no")) for job in jobs])
        await engine.close()

    asyncio.run(bury())
    code, shown = on_a_terminal(here, "replay", "--limit", "3000", *WHY)
    assert (code, "3,000 jobs pending again" in shown) == (0, True)
    assert re.search(r"replay.*/3000", shown)


def test_top_on_a_terminal_draws_until_it_is_interrupted(closed_shop, here):
    code, shown = on_a_terminal(here, "top", "--interval", "200ms", until="upstream_5xx")
    assert code == 0
    assert "Traceback" not in shown
    assert "upstream_5xx" in shown


@pytest.mark.parametrize("args", [("jobs", "show"), ("queues", "pause"), ("dead", "note", "d1")])
def test_bytes_that_are_no_text_are_refused_in_a_sentence(closed_shop, here, args):
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "holdfast",
            *args,
            b"\xff\xfe",
            *(() if "show" in args else WHY[:2]),
        ],
        cwd=here,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 2, found.stderr
    assert found.stderr
    assert b"Traceback" not in found.stderr


def test_a_daemon_of_several_processes_drains_in_all_of_them(tmp_path):
    daemon = Daemon(tmp_path, "--processes", "2", "-w", "2", "--lease-seconds", "1")
    try:
        jobs = json.dumps([{"id": f"s{n}", "task": "slow"} for n in range(4)])
        daemon.run("enqueue", stdin=jobs)
        wait_for(lambda: json.loads(daemon.run("status", "--json").stdout)["in_flight"] == 4)
        assert daemon.run("workers", "drain", *WHY).exit_code == 0
        more = json.dumps(
            [{"id": f"m{n}", "task": "mail", "payload": {"to": "x"}} for n in range(3)]
        )
        daemon.run("enqueue", stdin=more)
        for n in range(4):
            daemon.run("jobs", "cancel", f"s{n}", *WHY)
        wait_for(lambda: json.loads(daemon.run("status", "--json").stdout)["in_flight"] == 0)
        assert json.loads(daemon.run("status", "--json").stdout)["pending"] == 3
        assert daemon.run("workers", "resume", *WHY).exit_code == 0
        wait_for(lambda: json.loads(daemon.run("status", "--json").stdout)["completed"] == 3)
    finally:
        assert daemon.stop() == 0


def wait_for(reached) -> None:
    give_up = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.mark.parametrize(("named", "printed"), [("psycopg.pool", ""), ("other", "raw\n")])
def test_what_the_driver_logs_is_not_printed_by_a_command(tmp_path, named, printed):
    program = (
        "import logging; from click.testing import CliRunner; from holdfast.cli.main import main;"
        "assert CliRunner().invoke(main, ['status']).exit_code == 0;"
        f"logging.getLogger('{named}').warning('raw')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr == printed
