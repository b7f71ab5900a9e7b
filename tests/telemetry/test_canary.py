"""A secret in settings, in the environment and in payloads is found nowhere that people look.

Real daemons, whose jobs fail, time out, die, are killed and are replayed, in both log formats and
with everything that is logged on debug. A control whose task logs its payload turns it red.
"""

from __future__ import annotations

import pytest

from holdfast.engines.contract import AdminResult, Engine
from holdfast.model.actions import ReplayJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.job import State
from holdfast.model.search import Filter
from tests.e2e.rig import Daemon, Rig, until

from .watching import fetch, lines, run

CANARY = "CanaryThatNobodyMaySee"
PAYLOAD = b'{"secret":"%s"}' % CANARY.encode()
SETTINGS = {
    "base_backoff_seconds": 0.01,
    "log_level": "debug",
    "reclaim_interval_seconds": 0.1,
}
DEADLY = ["fails", "fails_in_thread", "fails_in_process", "dies", "hangs", "computes"]
GOOD = ["works", "returns_nonsense", "leaves_a_stray"]


def secretive(rig: Rig) -> None:
    """Put secrets where a daemon could pick them up."""
    rig.env |= {
        "OBSERVE_SECRET": CANARY,
        "DB_PASSWORD": CANARY,
        "HOLDFAST_PASSWORD": CANARY,
        "MY_DATABASE": f"postgresql://app:{CANARY}@db/app",
    }


async def replay(engine: Engine) -> AdminResult:
    entry = AuditEntry("replay", "job", "all", "ops", f'{{"payload":"{CANARY}"}}', "mended")
    await engine.audit([entry])
    return await engine.operate(
        ReplayJobs(fixed="the disk"),
        Filter(states=(State.DEAD,)),
        Attribution("ops", "mended", (entry,)),
    )


def everything(rig: Rig, daemon: Daemon) -> str:
    """Have everything happen twice, stop the daemon, and return all that it has shown."""
    rig.enqueue("works", ["w"], queue="mail", payload=PAYLOAD)
    for task in DEADLY:
        rig.enqueue(task, [f"dead-{task}"], queue="mail", payload=PAYLOAD, max_attempts=2)
    for task in GOOD:
        rig.enqueue(task, [f"good-{task}"], queue="mail", payload=PAYLOAD)
    good, bad = [f"good-{task}" for task in GOOD], [f"dead-{task}" for task in DEADLY]
    rig.wait_for(good, State.COMPLETED)
    rig.wait_for(bad, State.DEAD)
    assert len(rig.ask(replay).jobs) == len(bad)
    rig.wait_for(bad, State.DEAD)
    shown = [fetch(daemon, path)[1] for path in ("/metrics", "/health/ready", "/health/live", "/x")]
    daemon.stop()
    return "\n".join([*shown, daemon.output, daemon.errors])


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_secret_is_found_in_logs_metrics_health_or_output(rig: Rig, log_format: str):
    secretive(rig)
    daemon = run(rig, log_format=log_format, processes=2, **SETTINGS).ready()
    shown = everything(rig, daemon)
    assert CANARY not in shown
    for event in (
        "daemon.started",
        "job.enqueued",
        "job.dispatched",
        "job.settled",
        "job.failed",
        "job.dead",
        "task.result_dropped",
        "audit.entry",
        "daemon.hook_failed",
        "daemon.stopped",
        "Task exception was never retrieved",
        "about to fail",
        "worker.process_started",
    ):
        assert event in shown, f"without {event} nothing is shown by this"
    assert shown.count("audit.entry") == 2, "the entry alone, and that of the replay"


def test_a_task_that_logs_its_payload_is_noticed(rig: Rig):
    """The control: if something is logged, the test above sees it."""
    rig.env["OBSERVE_LEAK"] = "1"
    daemon = run(rig, log_format="json", **SETTINGS).ready()
    rig.enqueue("works", ["w"], queue="mail", payload=PAYLOAD)
    rig.wait_for(["w"], State.COMPLETED)
    until(lambda: CANARY in daemon.errors, "the canary is seen")


def test_lines_of_json_parse_and_name_their_job(rig: Rig):
    daemon = run(rig, log_format="json", **SETTINGS).ready()
    for task in ("fails", "fails_in_process", "hangs"):
        rig.enqueue(task, [task], queue="mail", max_attempts=1)
    rig.wait_for(["fails", "fails_in_process", "hangs"], State.DEAD)
    daemon.stop()
    records = lines(daemon)
    for record in records:
        assert {"event", "level", "logger", "timestamp", "pid"} <= record.keys()
    by_event = {(record["event"], record.get("job")): record for record in records}
    for task in ("fails", "fails_in_process", "hangs"):
        assert ("job.failed", task) not in by_event, "its only attempt is logged once, as dead"
        assert sum((one["event"], one.get("job")) == ("job.dead", task) for one in records) == 1
        assert by_event["job.settled", task]["outcome"] == "dead"
        for event in ("job.dispatched", "job.dead", "job.settled"):
            record = by_event[event, task]
            assert record["queue"] == "mail"
            assert record["task"] == task
            assert record["attempt"] == 1
            assert record["tenant"] == "default"
            assert str(record["worker"]).startswith("own/")
        assert by_event["job.enqueued", task]["level"] == "debug"
    assert by_event["job.dead", "hangs"]["error_reason"] == "timeout"
    own = by_event["about to fail", "fails_in_process"]
    assert own["pid"] != by_event["daemon.started", None]["pid"], "a child process logs too"
    phases = ["daemon.started", "daemon.draining", "daemon.closing", "daemon.stopped"]
    assert [r["event"] for r in records if r["event"] in phases] == phases


@pytest.mark.parametrize(
    "name", ["HOLDFAST_STORE", "HOLDFAST_LEASE_SECONDS", "HOLDFAST_METRICS_HOST"]
)
def test_an_error_about_a_setting_does_not_quote_its_password(rig: Rig, name: str):
    rig.env[name] = f"postgresql://app:{CANARY}@db/app"
    for command in (["run"], ["status"]):
        done = rig.command(*command)
        assert CANARY not in done.stdout + done.stderr
    done = rig.command("run")
    assert done.returncode != 0
    assert "***" in done.stderr
