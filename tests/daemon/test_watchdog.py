"""What holds the event loop up, and what is done about it."""

import asyncio
import json
import math
import subprocess
import sys
import threading

import pytest

from holdfast.daemon.watchdog import Watchdog
from holdfast.engines.structured_log import LogMessage

STALL_SECONDS = 0.1
LOOKS = 12
"""It looks four times in that time: this is three times as long."""


@pytest.mark.parametrize("disk", [True, False])
def test_a_loop_that_waits_for_the_disk_is_not_started_over_and_any_other_is(disk: bool):
    looks: list[None] = []
    released = threading.Event()
    acted: list[None] = []

    def excused() -> bool:
        looks.append(None)
        if len(looks) == LOOKS:
            released.set()
        return disk

    def act() -> None:
        acted.append(None)
        released.set()

    async def hang() -> None:
        watchdog = Watchdog(STALL_SECONDS, act, excused)
        watchdog.start()
        assert released.wait(30)
        watchdog.stop()

    asyncio.run(hang())
    assert bool(acted) is not disk


@pytest.mark.parametrize("blocked_seconds", [0.1, math.inf])
def test_what_blocks_the_loop_is_logged_once_while_it_does(blocked_seconds: float, caplog):
    looks: list[None] = []
    enough = threading.Event()

    def excused() -> bool:
        looks.append(None)
        if len(looks) == 4 * LOOKS:
            enough.set()
        return False

    async def block() -> None:
        watchdog = Watchdog(8 * STALL_SECONDS * LOOKS, excused=excused, blocked_seconds=0.1)
        watchdog._blocked_seconds = blocked_seconds
        watchdog.start()
        assert enough.wait(30)
        watchdog.stop()

    asyncio.run(block())
    found = [one for one in caplog.records if isinstance(one.msg, LogMessage)]
    if blocked_seconds == math.inf:
        assert found == [], "the control: nothing is logged if nothing watches"
        return
    (record,) = found
    assert record.msg.event == "worker.loop_blocked"
    assert 0.1 <= record.msg.fields["seconds"] < 30
    assert " block\n" in record.msg.fields["trace"]
    assert "job" not in record.msg.fields


async def test_a_loop_that_waits_is_not_blocked(caplog):
    looks: list[None] = []

    def excused() -> bool:
        looks.append(None)
        return False

    watchdog = Watchdog(None, excused=excused, blocked_seconds=0.5)
    watchdog.start()
    async with asyncio.timeout(30):
        while len(looks) < LOOKS:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)
    watchdog.stop()
    assert caplog.records == []


APP = """
import asyncio, pathlib, sys, time
from holdfast import Holdfast
app = Holdfast("s")
gate = pathlib.Path("gate")

@app.task(timeout=600)
async def holds(nested: bool, process: int) -> None:
    async def wait_without_awaiting() -> None:
        while not gate.exists():
            time.sleep(0.01)
    if process == 2 and "holdfast.daemon.worker_process" not in sys.orig_argv:
        while not gate.exists():
            await asyncio.sleep(0.01)
    await (asyncio.gather(wait_without_awaiting()) if nested else wait_without_awaiting())
"""


@pytest.mark.parametrize(("nested", "process"), [(False, 1), (True, 1), (False, 2)])
def test_the_task_that_blocks_the_loop_of_a_process_is_named_while_it_does(
    tmp_path, nested, process
):
    (tmp_path / "holding.py").write_text(APP)
    flags = ("--metrics-port", "off", "--workers", "1", "--processes", str(process))
    holdfast = [sys.executable, "-m", "holdfast"]
    daemon = subprocess.Popen(
        [*holdfast, "run", "holding.py", *flags],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        payload = {"nested": nested, "process": process}
        jobs = [{"id": f"j{n}", "task": "holds", "payload": payload} for n in range(process)]
        subprocess.run(
            [*holdfast, "--app", "holding.py", "enqueue"],
            input=json.dumps(jobs),
            cwd=tmp_path,
            check=True,
            text=True,
        )
        assert daemon.stderr is not None
        found = next(
            record
            for record in map(json.loads, daemon.stderr)
            if record["event"] == "worker.loop_blocked"
        )
        assert found["task"] == "holds"
        assert found["job"] in {job["id"] for job in jobs}
        assert (found["pid"] == daemon.pid) is (process == 1)
        assert 1.0 <= found["seconds"] < 30
        line = APP[: APP.index("time.sleep")].count("\n") + 1
        assert f"{tmp_path}/holding.py:{line} wait_without_awaiting" in found["trace"]
        (tmp_path / "gate").touch()
        daemon.terminate()
        daemon.communicate(timeout=60)
        assert daemon.returncode == 0
    finally:
        daemon.kill()
