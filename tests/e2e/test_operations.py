"""An operation at a rate goes on when the daemon is killed: each member exactly once."""

import json
from functools import partial

from holdfast.model.job import State
from holdfast.model.operation import Operation, Phase

from .rig import Rig, numbered, until

COUNT = 20


def test_a_killed_daemon_goes_on_with_a_replay_and_replays_each_letter_once(rig: Rig) -> None:
    daemon = rig.run().ready()
    ids = rig.enqueue("failing", numbered("letter", COUNT), max_attempts=1)
    rig.wait_for(ids, State.DEAD)
    asked = ("replay", "--rate", "10/s", "--abort-above", "100%", "--detach", "--json")
    started = rig.command(*asked, "--by", "ops", "--reason", "try again")
    assert started.returncode == 0, started.stderr
    name = json.loads(started.stdout)["id"]

    def operation() -> Operation:
        return rig.ask(lambda engine: engine.operation(name))

    def replayed(part: int) -> bool:
        return operation().acted >= part

    for part in (COUNT // 4, COUNT // 2):
        until(partial(replayed, part), f"{part} letters are replayed")
        daemon.kill()
        daemon = rig.run().ready()
    until(lambda: operation().phase is Phase.COMPLETED, "the operation is completed")
    done = operation()
    assert (done.acted, done.outcomes.failed, done.skipped) == (COUNT, COUNT, {})
    replays = [job.replays for job in rig.jobs(ids).values()]
    assert [one and (one.count, one.run) for one in replays] == [(1, name)] * COUNT
    shown = rig.command("operations", "show", name)
    assert f"failed again {COUNT}" in shown.stdout, shown.stderr
    daemon.stop()
