"""Told to stop with much in flight, told twice, and told to read the settings again."""

import json
import signal
import time

import pytest

from holdfast.model.job import State

from .rig import HOLDFAST, POISON, Daemon, Rig, numbered, until

SLOTS = 64
DRAIN_SECONDS = 1.0
MARGIN_SECONDS = 2.0
STOPS = [signal.SIGTERM, signal.SIGINT]


def fill(rig: Rig) -> tuple[list[str], list[str]]:
    """Have every slot busy; return the jobs that end soon, and those that do not."""
    payload = {"gate": str(rig.gate)}
    soon = rig.enqueue("quick", numbered("soon", 8), payload={"seconds": 0.6})
    soon += rig.enqueue("blocking", numbered("soon-thread", 4), payload={"seconds": 0.6})
    later = rig.enqueue("gated", numbered("long", 36), payload=payload)
    later += rig.enqueue("gated_blocking", numbered("long-thread", 14), payload=payload)
    later += rig.enqueue("gated_computing", numbered("long-child", 2), payload=payload)
    assert len(soon) + len(later) == SLOTS
    return soon, later


def busy(rig: Rig, ids: list[str]) -> None:
    until(lambda: rig.ledger.begun().keys() >= set(ids), "all of them run")


def run_again(rig: Rig, ids: list[str]) -> Daemon:
    """Start once more with the gate open; all of these must run now."""
    before = rig.ledger.begun()
    rig.gate.touch()
    daemon = rig.run("-w", str(SLOTS))
    rig.wait_for(ids, State.COMPLETED)
    again = rig.ledger.begun() - before
    assert set(again) == set(ids)
    return daemon


@pytest.mark.parametrize("number", STOPS)
def test_a_stop_with_64_in_flight_hands_back_what_does_not_end_in_time(rig, number):
    daemon = rig.run("-w", str(SLOTS), "--drain-seconds", str(DRAIN_SECONDS))
    soon, later = fill(rig)
    busy(rig, soon + later)
    asked_at = time.monotonic()
    daemon.signal(number)
    assert daemon.exit_code() == 0, daemon.errors
    assert time.monotonic() - asked_at < DRAIN_SECONDS + MARGIN_SECONDS
    left = rig.left()
    assert {left[job_id].state for job_id in soon} == {State.COMPLETED}
    assert {left[job_id].state for job_id in later} == {State.PENDING}
    assert {left[job_id].attempt for job_id in later} == {0}, "no attempt was charged"
    assert {left[job_id].losses for job_id in later} == {0}
    assert "stopping: " in daemon.output
    assert daemon.output.endswith("holdfast stopped\n")
    run_again(rig, later).stop()
    assert {job.attempt for job in rig.left().values()} == {1}


@pytest.mark.parametrize("number", STOPS)
def test_a_second_signal_ends_it_at_once_and_the_work_runs_again(rig, number):
    daemon = rig.run("-w", str(SLOTS), "--drain-seconds", "60")
    soon, later = fill(rig)
    busy(rig, soon + later)
    rig.wait_for(soon, State.COMPLETED)
    daemon.signal(number)
    until(lambda: "stopping: " in daemon.output, "it says so")
    asked_at = time.monotonic()
    daemon.signal(number)
    assert daemon.exit_code() not in (0, None)
    assert time.monotonic() - asked_at < 1.0
    left = rig.left()
    assert {left[job_id].state for job_id in later} == {State.IN_FLIGHT}
    run_again(rig, later).stop()


def test_a_stop_waits_no_longer_than_for_the_last_one(rig):
    daemon = rig.run("-w", str(SLOTS), "--drain-seconds", "60")
    _soon, later = fill(rig)
    busy(rig, later)
    daemon.signal(signal.SIGTERM)
    until(lambda: "stopping: " in daemon.output, "it says so")
    opened_at = time.monotonic()
    rig.gate.touch()
    assert daemon.exit_code() == 0, daemon.errors
    assert time.monotonic() - opened_at < 10.0
    assert {job.state for job in rig.left().values()} == {State.COMPLETED}


@pytest.mark.parametrize("task", ["swallow_for_ever", "in_a_pool", "chatter"])
def test_nothing_that_a_task_does_can_hold_up_a_stop(rig, task):
    daemon = rig.run("-t", "300s", "--drain-seconds", "0.5", app=POISON)
    ids = rig.enqueue(task, numbered(task, 4))
    busy(rig, ids)
    asked_at = time.monotonic()
    daemon.signal(signal.SIGTERM)
    assert daemon.exit_code() == 0, daemon.errors
    assert time.monotonic() - asked_at < 0.5 + MARGIN_SECONDS
    found = {(job.state, job.attempt) for job in rig.left().values()}
    assert found == {(State.PENDING, 0)}


def test_a_hangup_reads_the_settings_again_and_changes_the_number_of_workers(rig):
    settings = rig.directory / "settings.yaml"
    settings.write_text("worker_count: 2\n")
    command = (HOLDFAST, "--config", str(settings))
    daemon = rig.run(command=command)
    ids = rig.enqueue("gated", numbered("held", 12), payload={"gate": str(rig.gate)})
    until(lambda: rig.ledger.begun().total() == 2, "two run")
    settings.write_text("worker_count: 7\n")
    daemon.signal(signal.SIGHUP)
    until(lambda: rig.ledger.begun().total() == 7, "seven run")
    assert slots(rig) == {"": 7}
    settings.write_text("worker_count: many\n")
    daemon.signal(signal.SIGHUP)
    until(lambda: "daemon.reload_refused" in daemon.errors, "nonsense is refused")
    assert "worker_count" in daemon.errors
    assert slots(rig) == {"": 7}
    settings.write_text("worker_count: 1\n")
    daemon.signal(signal.SIGHUP)
    until(lambda: slots(rig) == {"": 1}, "it shrinks")
    assert rig.ledger.begun().total() == 7, "what runs goes on"
    rig.gate.touch()
    rig.wait_for(ids, State.COMPLETED)
    after = [entry for entry in rig.ledger.read() if entry.job in ids[7:]]
    running = 0
    for entry in after:
        running += 1 if entry.what == "begin" else -1
        assert running <= 1, "one after another"
    assert {entry.pid for entry in rig.ledger.entries} == {daemon.pid}, "the same process"
    daemon.stop()


def slots(rig: Rig) -> dict[str, int]:
    done = rig.command("status", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)["slots"]
    return found


def test_a_stop_while_it_starts_is_heeded(rig):
    daemon = rig.run()
    until(lambda: "holdfast started" in daemon.output, "it starts")
    daemon.signal(signal.SIGTERM)
    assert daemon.exit_code() == 0, daemon.errors
    assert daemon.output.splitlines()[-1] == "holdfast stopped"
