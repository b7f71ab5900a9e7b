"""Mistakes that the simulation must find, and how it reports them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from holdfast.daemon import daemon
from holdfast.model.operation_ledger import OperationLedger
from holdfast.testing.simulation import BrokenPromise, simulate
from holdfast.worker.worker import Worker

from .broken import AppliesTwice, ForgetsAJob, ReclaimsFirst, Unfenced, unsynced

MAX_SEEDS = 300
REPEATED_SEEDS = range(5)


def find(run, first=0) -> str:
    """Return the report of the first seed, from this one on, that finds the mistake."""
    for seed in range(first, first + MAX_SEEDS):
        try:
            run(seed)
        except BrokenPromise as broken:
            return str(broken)
    pytest.fail(f"not found in {MAX_SEEDS} seeds")


def test_a_settle_that_is_not_fenced_is_found():
    assert re.search(r"stale token|lost|twice", find(lambda seed: simulate(seed, journal=Unfenced)))


def test_answers_before_the_sync_are_found():
    found = find(lambda seed: simulate(seed, scenario=unsynced(seed)))
    assert re.search(r"was acknowledged|is lost", found)


def test_reclaiming_leases_before_renewing_them_is_found(monkeypatch):
    monkeypatch.setattr(daemon, "LeaseLoop", ReclaimsFirst)
    assert "the owner's own worker, which runs it" in find(simulate)


def test_an_event_without_one_of_its_jobs_is_found():
    found = find(lambda seed: simulate(seed, journal=ForgetsAJob))
    assert "committed without their jobs" in found


def test_an_event_that_is_applied_twice_is_found():
    found = find(lambda seed: simulate(seed, journal=AppliesTwice), first=10)
    assert re.search(r"events of .* are in the projection, not", found)


def test_an_operation_that_does_not_count_its_outcomes_is_found(monkeypatch):
    monkeypatch.setattr(OperationLedger, "count", lambda *_args: None)
    assert "and had Outcomes" in find(simulate)


def test_an_error_that_is_caught_and_logged_is_a_broken_promise(monkeypatch):
    async def look_for_queues(_worker):
        raise ZeroDivisionError

    monkeypatch.setattr(Worker, "look_for_queues", look_for_queues)
    assert "ZeroDivisionError" in find(simulate)


def test_a_broken_promise_reports_the_last_events_and_how_to_reproduce_it():
    report = find(lambda seed: simulate(seed, journal=Unfenced))
    seed = re.match(r"seed (\d+): ", report)
    assert seed is not None
    assert len(report.splitlines()) > 20
    command = f"python -m holdfast.testing.simulation --seed {seed[1]} --trace"
    assert report.splitlines()[-1] == f"reproduce with: {command}"
    again = subprocess.run(
        [sys.executable, *command.split()[1:]], capture_output=True, text=True, check=False
    )
    # Without the mistake the same faults break no promise.
    assert again.returncode == 0, again.stdout
    assert f"seed {seed[1]}: kept every promise" in again.stdout
    assert "run.begin" in again.stdout


def test_a_seed_has_the_same_trace_in_every_process():
    here = [simulate(seed).hash for seed in REPEATED_SEEDS]
    assert [simulate(seed).hash for seed in REPEATED_SEEDS] == here
    assert len(set(here)) == len(REPEATED_SEEDS)
    elsewhere = subprocess.run(
        [
            sys.executable,
            "-m",
            "holdfast.testing.simulation",
            "--seeds",
            str(len(REPEATED_SEEDS)),
            "--hashes",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "4711"},
    ).stdout
    assert re.findall(r"[0-9a-f]{64}", elsewhere) == here
