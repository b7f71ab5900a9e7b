"""Mistakes that the simulation must find, and how it tells of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from holdfast.daemon import daemon
from holdfast.testing.simulation import BrokenPromise, simulate
from holdfast.worker.worker import Worker

from .broken import Hurried, Unfenced, hasty

WITHIN = 300
SAME = range(5)


def find(run) -> str:
    """Return what the first seed that finds the mistake has to say."""
    for seed in range(WITHIN):
        try:
            run(seed)
        except BrokenPromise as broken:
            return str(broken)
    pytest.fail(f"not found in {WITHIN} seeds")


def test_a_settle_that_is_not_fenced_is_found():
    assert re.search(r"stale token|lost|twice", find(lambda seed: simulate(seed, journal=Unfenced)))


def test_answers_before_the_disk_has_it_are_found():
    found = find(lambda seed: simulate(seed, scenario=hasty(seed)))
    assert re.search(r"was told of|is lost", found)


def test_taking_leases_before_renewing_them_is_found(monkeypatch):
    monkeypatch.setattr(daemon, "LeaseLoop", Hurried)
    assert "the owner's own worker, which runs it" in find(simulate)


def test_an_error_that_is_caught_and_logged_is_a_broken_promise_all_the_same(monkeypatch):
    async def look_for_queues(_worker):
        raise ZeroDivisionError

    monkeypatch.setattr(Worker, "look_for_queues", look_for_queues)
    assert "ZeroDivisionError" in find(simulate)


def test_a_broken_promise_says_what_happened_and_how_to_see_it_again():
    said = find(lambda seed: simulate(seed, journal=Unfenced))
    seed = re.match(r"seed (\d+): ", said)
    assert seed is not None
    assert len(said.splitlines()) > 20
    command = f"python -m holdfast.testing.simulation --seed {seed[1]} --trace"
    assert said.splitlines()[-1] == f"again, by itself: {command}"
    again = subprocess.run(
        [sys.executable, *command.split()[1:]], capture_output=True, text=True, check=False
    )
    # By itself nothing is sabotaged: the same storm, and every promise kept.
    assert again.returncode == 0, again.stdout
    assert f"seed {seed[1]}: kept every promise" in again.stdout
    assert "run.begin" in again.stdout


def test_the_same_seed_does_the_same_in_whatever_process():
    here = [simulate(seed).hash for seed in SAME]
    assert [simulate(seed).hash for seed in SAME] == here
    assert len(set(here)) == len(SAME)
    elsewhere = subprocess.run(
        [
            sys.executable,
            "-m",
            "holdfast.testing.simulation",
            "--seeds",
            str(len(SAME)),
            "--hashes",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "4711"},
    ).stdout
    assert re.findall(r"[0-9a-f]{64}", elsewhere) == here
