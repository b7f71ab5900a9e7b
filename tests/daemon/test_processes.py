"""``--processes 3``: they share the work, and each may be killed."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.model.job import State

from .rig import HOLDFAST, POISON, Daemon, Rig, alive, numbered, parent, until

PROCESSES = 3
SLOTS = 4


def start(rig: Rig, *flags: str, app: str = POISON) -> Daemon:
    return rig.run("--processes", str(PROCESSES), "-w", str(SLOTS), *flags, app=app)


def fill(rig: Rig, task: str = "gated") -> list[str]:
    """Have every slot of every process busy; return the jobs."""
    payload = {"gate": str(rig.gate)}
    ids = rig.enqueue(task, numbered("held", PROCESSES * SLOTS), payload=payload)
    until(lambda: rig.ledger.begun().keys() >= set(ids), "all of them run")
    return ids


def holders(rig: Rig) -> dict[int, list[str]]:
    """Return which process runs which jobs, by its last word on them."""
    last = {entry.job: entry for entry in rig.ledger.read()}
    found: dict[int, list[str]] = {}
    for job_id, entry in last.items():
        if entry.what == "begin":
            found.setdefault(entry.pid, []).append(job_id)
    return found


def runs(rig: Rig, job_id: str, times: int) -> None:
    until(lambda: rig.ledger.begun()[job_id] == times, f"{job_id} runs: run {times}")


@contextmanager
def killed_in_the_end(rig: Rig, what: str) -> Iterator[None]:
    """See to it that no process survives that a task has noted as its own."""
    try:
        yield
    finally:
        for entry in rig.ledger.read():
            if entry.what == what:
                with suppress(ProcessLookupError):
                    os.kill(entry.attempt, signal.SIGKILL)


def test_three_processes_share_the_work(rig):
    daemon = start(rig)
    ids = fill(rig)
    shares = holders(rig)
    assert daemon.pid in shares
    assert sorted(len(jobs) for jobs in shares.values()) == [SLOTS] * PROCESSES
    rig.gate.touch()
    rig.wait_for(ids, State.COMPLETED)
    assert rig.ledger.begun().total() == len(ids)
    daemon.stop()
    until(lambda: not any(alive(pid) for pid in shares), "all of them are gone", seconds=2.0)


def test_the_jobs_of_a_killed_worker_process_run_again_and_another_takes_its_place(rig):
    daemon = start(rig)
    ids = fill(rig)
    shares = holders(rig)
    victim = next(pid for pid in shares if pid != daemon.pid)
    killed_at = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    again = shares[victim]
    until(lambda: all(rig.ledger.begun()[job_id] == 2 for job_id in again), "they run again")
    # No slot was free: they had to wait for the process that takes the place of theirs.
    assert time.monotonic() - killed_at < 5.0
    others = {entry.pid for entry in rig.ledger.read()[-SLOTS:]}
    assert len(others) == 1
    assert others.isdisjoint(shares)
    rig.gate.touch()
    rig.wait_for(ids, State.COMPLETED)
    found = rig.jobs(ids)
    assert {job_id for job_id, job in found.items() if job.losses} == set(again)
    assert rig.ledger.begun().total() == len(ids) + SLOTS
    daemon.stop()
    messages = [str(r["effect"]) for r in rig.records() if r["type"] == "TIMEOUT"]
    assert len(messages) == SLOTS
    assert all("worker_lost" in message for message in messages)


def test_worker_processes_do_not_outlive_a_killed_owner(rig):
    daemon = start(rig)
    ids = fill(rig)
    shares = holders(rig)
    daemon.kill()
    until(lambda: not any(alive(pid) for pid in shares), "all of them are gone", seconds=2.0)
    rig.gate.touch()
    daemon = start(rig)
    rig.wait_for(ids, State.COMPLETED)
    assert {job.losses for job in rig.jobs(ids).values()} == {1}
    daemon.stop()


def test_what_a_task_has_forked_keeps_nobody_alive_and_no_owner_out(rig):
    with killed_in_the_end(rig, "fork"):
        daemon = start(rig)
        ids = fill(rig, "fork_and_wait")
        until(lambda: len(forks(rig)) == len(ids), "they forked")
        shares = holders_of_forks(rig)
        daemon.kill()
        until(lambda: not any(alive(pid) for pid in shares), "all of them are gone", seconds=3.0)
        assert all(alive(pid) for pid in forks(rig)), "copies of the owner are still there"
        rig.gate.touch()
        daemon = start(rig)
        rig.wait_for(ids, State.COMPLETED)
        daemon.stop()


def forks(rig: Rig) -> list[int]:
    return [entry.attempt for entry in rig.ledger.read() if entry.what == "fork"]


def holders_of_forks(rig: Rig) -> set[int]:
    return {entry.pid for entry in rig.ledger.read() if entry.what == "fork"}


def test_what_a_task_has_forked_does_not_hide_the_death_of_its_process(rig):
    with killed_in_the_end(rig, "fork"):
        daemon = start(rig)
        fill(rig, "fork_and_wait")
        until(lambda: len(forks(rig)) == PROCESSES * SLOTS, "they forked")
        victim = next(pid for pid in holders_of_forks(rig) if pid != daemon.pid)
        os.kill(victim, signal.SIGKILL)
        more = PROCESSES * SLOTS + SLOTS
        until(lambda: len(forks(rig)) == more, "its jobs run again", seconds=5.0)
        rig.gate.touch()
        daemon.stop()


def test_tasks_that_read_the_standard_input_do_not_get_the_word_of_the_owner(rig):
    daemon = start(rig)
    ids = fill(rig, "ask_the_operator")
    rig.gate.touch()
    rig.wait_for(ids, State.COMPLETED, State.DEAD)
    assert {job.result for job in rig.jobs(ids).values()} == {b'""'}
    daemon.stop()


def test_a_job_whose_process_is_killed_again_and_again_is_never_buried_for_it(rig):
    daemon = rig.run("--processes", "2", "-w", "1")
    rig.enqueue("gated", ["bystander"], payload={"gate": str(rig.gate)})
    for deaths in range(1, 6):
        runs(rig, "bystander", deaths)
        (pid,) = holders(rig)
        if deaths > 2:
            pid = parent(pid)  # it runs alone, in a child of a worker process
        if pid == daemon.pid:
            daemon.kill()
            daemon = rig.run("--processes", "2", "-w", "1")
        else:
            os.kill(pid, signal.SIGKILL)
    runs(rig, "bystander", 6)
    rig.gate.touch()
    rig.wait_for(["bystander"], State.COMPLETED, State.DEAD)
    job = rig.jobs(["bystander"])["bystander"]
    assert (job.state, job.losses, job.attempt) == (State.COMPLETED, 2, 3)
    daemon.stop()


def test_what_a_task_starts_in_any_process_can_be_terminated(rig):
    daemon = start(rig)
    ids = fill(rig, "terminate_a_sleeper")
    rig.gate.touch()
    rig.wait_for(ids, State.COMPLETED, State.DEAD)
    assert {job.result for job in rig.jobs(ids).values()} == {b"-15"}
    daemon.stop()


def test_a_stop_drains_every_process_and_charges_nobody(rig):
    daemon = start(rig, "--drain-seconds", "1")
    fill(rig)
    shares = holders(rig)
    asked_at = time.monotonic()
    daemon.signal(signal.SIGTERM)
    assert daemon.exit_code() == 0, daemon.errors
    assert time.monotonic() - asked_at < 3.0
    assert not any(alive(pid) for pid in shares)
    found = {(job.state, job.attempt, job.losses) for job in rig.left().values()}
    assert found == {(State.PENDING, 0, 0)}


def test_a_hangup_changes_the_number_of_workers_in_every_process(rig):
    settings = rig.directory / "settings.yaml"
    settings.write_text("worker_count: 1\n")
    daemon = rig.run("--processes", "2", command=(HOLDFAST, "--config", str(settings)))
    ids = rig.enqueue("gated", numbered("held", 12), payload={"gate": str(rig.gate)})
    until(lambda: rig.ledger.begun().total() == 2, "one runs in each")
    settings.write_text("worker_count: 5\n")
    daemon.signal(signal.SIGHUP)
    until(lambda: rig.ledger.begun().total() == 10, "five run in each")
    assert sorted(len(jobs) for jobs in holders(rig).values()) == [5, 5]
    settings.write_text("worker_count: 2\n")
    daemon.signal(signal.SIGHUP)
    victim = next(pid for pid in holders(rig) if pid != daemon.pid)
    os.kill(victim, signal.SIGKILL)
    until(lambda: rig.ledger.begun().total() == 12, "who takes its place has two as well")
    rig.gate.touch()
    rig.wait_for(ids, State.COMPLETED)
    daemon.stop()
