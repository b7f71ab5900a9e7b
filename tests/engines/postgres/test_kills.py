"""Daemons that share a server are killed at random moments, under producers that never stop."""

import os
import random
import time

import pytest

from tests.e2e.rig import until

from .load import Load, ServerRig, all_problems

KILLS = int(os.environ.get("HOLDFAST_TEST_KILLS", "15"))
KILLS_PER_STORE = 30
JOBS_PER_KILL = 200
LEASE_SECONDS = 3.0
"""How long it takes until interrupted jobs run again: their leases have to end."""


def some_moment(load: Load, victim: int, rng: random.Random) -> None:
    """Wait for a moment in a daemon's start, or in its life."""
    daemon = load.daemons[victim]
    if rng.random() < 0.15:
        moment = daemon.started_at + rng.uniform(0.0, 0.8)
    else:
        daemon.ready()
        moment = time.monotonic() + rng.uniform(0.0, 0.4)
    until(lambda: time.monotonic() >= moment, "a moment")
    assert not daemon.gone(), daemon.errors


@pytest.mark.timeout(120 + 6 * KILLS)
def test_random_kills_lose_nothing_and_record_nothing_twice(durable, tmp_path, byte_code):
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    rng = random.Random(seed)
    for first in range(0, KILLS, KILLS_PER_STORE):
        kills = min(KILLS_PER_STORE, KILLS - first)
        directory = tmp_path / str(first)
        directory.mkdir()
        with durable.databases.fresh() as url:
            rig = ServerRig(directory, url, byte_code)
            load = Load(rig, LEASE_SECONDS)
            try:
                victim = 0
                for _ in range(kills):
                    load.more(JOBS_PER_KILL)
                    if rng.random() < 0.8:
                        victim = 1 - victim  # the new one starts meanwhile
                    some_moment(load, victim, rng)
                    load.replace(victim)
                story = load.finish(kills)
                found = all_problems(rig, story)
            finally:
                load.close()
                rig.close()
        jobs, executions = len(story.states), story.begun.total()
        figures = f"{kills} kills, {jobs} jobs, {executions} executions; {story.complaints[:5]}"
        print(figures)  # noqa: T201 - the figures are the point
        assert found == [], figures
        assert story.complaints == [], figures
        assert jobs >= kills * JOBS_PER_KILL * 0.7, figures  # some were there already: unique
