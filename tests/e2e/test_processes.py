"""``--processes 3``: they share the work, and each may be killed."""

import asyncio
import errno
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from holdfast.cli.main import main
from holdfast.daemon.daemon import Daemon as Owner
from holdfast.daemon.rpc.app import Route
from holdfast.model.fleet import ProcessSlots
from holdfast.model.job import State
from holdfast.settings import Settings
from holdfast.worker.registry import Registry

from .rig import (
    HOLDFAST,
    PATIENCE_SECONDS,
    POISON,
    Daemon,
    Rig,
    alive,
    numbered,
    parent,
    until,
)

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


# --- what operators ask of all of them ------------------------------------------------------------

WHY = ("--by", "ops", "--reason", "rush hour")


def governed(rig: Rig, text: str) -> tuple[Daemon, Path]:
    """Start two processes that go by a settings file."""
    settings = rig.directory / "settings.yaml"
    settings.write_text(text)
    command = (HOLDFAST, "--config", str(settings))
    return rig.run("--processes", "2", command=command), settings


def processes(rig: Rig) -> dict[str, dict[str, int] | None]:
    done = rig.command("status", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, int] | None] = json.loads(done.stdout)["processes"]
    return found


def test_a_drain_waits_for_what_runs_in_worker_processes_and_a_stop_counts_it(rig):
    daemon = rig.run("--processes", "2", "-w", "1")
    for number in range(2):
        gate = str(rig.directory / f"gate-{number}")
        rig.enqueue("gated", [str(number)], payload={"gate": gate})
    until(lambda: rig.ledger.begun().total() == 2, "one runs in each")
    shares = holders(rig)
    both = {"slots": 1, "busy": 1, "draining": False}
    until(lambda: processes(rig) == {"1": both, "2": both}, "each says what it is at")
    listed = rig.command("workers", "list").stdout
    assert "slots: all queues: 1, in each of 2 processes (2 in total)\n" in listed
    assert rig.command("top", "--once").stdout.startswith("slots 2/2")
    (own,), (other,) = shares.pop(daemon.pid), *shares.values()
    (rig.directory / f"gate-{own}").touch()
    rig.wait_for([own], State.COMPLETED)
    early = rig.command("workers", "drain", "--wait", "200ms", *WHY)
    assert (early.returncode, early.stdout) == (
        *(5,),
        "draining: no new jobs, 1 job still running\n",
    )
    again = rig.command("workers", "drain", *WHY, "--json")
    assert [run["job_id"] for run in json.loads(again.stdout)["running"]] == [other]
    (rig.directory / f"gate-{other}").touch()
    late = rig.command("workers", "drain", "--wait", "20s", *WHY)
    assert (late.returncode, late.stdout) == (
        *(0,),
        "draining: no new jobs, 0 jobs still running\n",
    )
    assert rig.jobs([other])[other].state is State.COMPLETED
    rig.command("workers", "resume", *WHY)
    rig.enqueue("gated", ["a", "b"], payload={"gate": str(rig.gate)})
    until(lambda: rig.ledger.begun().total() == 4, "both claim again")
    daemon.signal(signal.SIGTERM)
    until(lambda: "stopping: 2 running" in daemon.output, "it says what it waits for")
    rig.gate.touch()
    assert daemon.exit_code() == 0, daemon.errors


def test_a_drain_is_not_done_before_every_process_has_heard_of_it(rig):
    daemon = rig.run("--processes", "2", "-w", "1")
    rig.enqueue("gated", ["a", "b"], payload={"gate": str(rig.gate)})
    until(lambda: rig.ledger.begun().total() == 2, "one runs in each")
    other = next(pid for pid in holders(rig) if pid != daemon.pid)
    rig.gate.touch()
    rig.wait_for(["a", "b"], State.COMPLETED)
    os.kill(other, signal.SIGSTOP)
    try:
        deaf = rig.command("workers", "drain", "--wait", "200ms", *WHY)
        assert (deaf.returncode, "some processes" in deaf.stderr) == (5, True)
    finally:
        os.kill(other, signal.SIGCONT)
    heard = rig.command("workers", "drain", "--wait", "20s", *WHY)
    assert heard.returncode == 0, heard.stderr
    daemon.stop()


def test_a_reload_of_something_else_leaves_resized_slots_alone_in_every_process(rig):
    daemon, settings = governed(rig, "worker_count: 1\n")
    ids = rig.enqueue("gated", numbered("held", 9), payload={"gate": str(rig.gate)})
    until(lambda: rig.ledger.begun().total() == 2, "one runs in each")
    said = rig.command("workers", "resize", "3", *WHY).stdout
    assert said == "all queues: 3 slots in each of 2 processes\n"
    until(lambda: rig.ledger.begun().total() == 6, "three run in each")
    settings.write_text("worker_count: 1\nmax_attempts: 7\n")
    daemon.signal(signal.SIGHUP)
    until(lambda: "daemon.reloaded" in daemon.errors, "it has read them")
    rig.command("workers", "drain", *WHY)  # whoever has heard of it has heard of the rest
    until(lambda: (processes(rig)["2"] or {}).get("draining"), "it was heard")
    assert {one and one["slots"] for one in processes(rig).values()} == {3}
    rig.command("workers", "resume", *WHY)
    victim = next(pid for pid in holders(rig) if pid != daemon.pid)
    os.kill(victim, signal.SIGKILL)
    until(lambda: rig.ledger.begun().total() == 9, "who takes its place has three as well")
    settings.write_text("worker_count: 4\nmax_attempts: 7\n")
    daemon.signal(signal.SIGHUP)
    until(lambda: rig.ledger.begun().total() == 11, "the settings change them in each")
    rig.command("workers", "resize", "5", *WHY)
    until(lambda: rig.ledger.begun().total() == 12, "all of them run")
    rig.gate.touch()
    rig.wait_for(ids, State.COMPLETED)
    daemon.stop()


def test_the_slots_of_a_queue_are_resized_in_every_process(rig):
    daemon, _settings = governed(rig, "queues: default:1\n")
    ids = rig.enqueue("gated", numbered("held", 6), payload={"gate": str(rig.gate)})
    until(lambda: rig.ledger.begun().total() == 2, "one runs in each")
    rig.command("workers", "resize", "3", "--queue", "default", *WHY)
    until(lambda: rig.ledger.begun().total() == 6, "three run in each")
    assert sorted(len(jobs) for jobs in holders(rig).values()) == [3, 3]
    rig.gate.touch()
    rig.wait_for(ids, State.COMPLETED)
    daemon.stop()


async def second_of(daemon: Owner) -> ProcessSlots:
    """Return what the second process of a daemon says first."""
    assert daemon.slots_control is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (found := list(daemon.slots_control.processes.values())[1]) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found


class DrainedAtTheStart(Owner):
    """A daemon that somebody drains as soon as it listens, before its processes are started."""

    async def _serve_metrics(self, routes: Mapping[str, Route]) -> None:
        await super()._serve_metrics(routes)
        await asyncio.to_thread(
            CliRunner().invoke,
            main,
            ["--store", self.settings.store, "workers", "drain", *WHY],
            catch_exceptions=False,
        )


async def test_a_drain_that_comes_while_the_daemon_starts_reaches_every_process(tmp_path):
    settings = Settings(
        store=str(tmp_path / "s"), processes=2, metrics_port=None, stall_seconds=None
    )

    daemon = DrainedAtTheStart(Registry(), settings)
    await daemon.start()
    try:
        assert (await second_of(daemon)).draining
    finally:
        await daemon.stop()


def test_a_process_that_cannot_be_started_is_tried_again_and_that_is_said(
    monkeypatch, caplog, tmp_path
):
    failures = [OSError(errno.EMFILE, "Too many open files"), BlockingIOError("try again")]
    start = asyncio.create_subprocess_exec

    async def sometimes(*words: Any, **options: Any) -> asyncio.subprocess.Process:
        if failures:
            raise failures.pop()
        return await start(*words, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", sometimes)
    monkeypatch.setattr("holdfast.daemon.processes._RESTART_SECONDS", 0.0)
    settings = Settings(
        store=str(tmp_path / "s"), processes=2, metrics_port=None, stall_seconds=None
    )

    async def scenario() -> None:
        daemon = Owner(Registry(), settings)
        await daemon.start()
        try:
            await second_of(daemon)
        finally:
            await daemon.stop()

    asyncio.run(scenario())
    said = [one for one in caplog.records if "worker.process_not_started" in one.getMessage()]
    assert len(said) == 2
