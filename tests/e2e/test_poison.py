"""Jobs that do their worst: each ends as it must, and no other job suffers for it."""

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.model.job import Job, NewJob, State

from .rig import HERE, POISON, Daemon, Rig, alive, numbered, until

BYSTANDERS = 50
TIMEOUT_SECONDS = 1.0
SETTINGS: dict[str, Any] = {
    "task_timeout_seconds": TIMEOUT_SECONDS,
    "stall_seconds": 1.0,
    "base_backoff_seconds": 0.02,
    "memory_limit_bytes": 400_000_000,
}

DEAD, COMPLETED = State.DEAD, State.COMPLETED
CRASHES = {
    # task: how it ends, for which reason, with how many losses
    "exit_async": (DEAD, "worker_lost", 3),
    "exit_thread": (DEAD, "worker_lost", 3),
    "segfault_async": (DEAD, "worker_lost", 3),
    "segfault_thread": (DEAD, "worker_lost", 3),
    # Only in a process of its own can its time-out end it.
    "spin_async": (DEAD, "timeout", 2),
    "exit_in_the_background": (DEAD, "unexpected", 2),
}
EXIT_CODES = {
    "exit_async": 9,
    "exit_thread": 0,
    "segfault_async": -signal.SIGSEGV,
    "segfault_thread": -signal.SIGSEGV,
    "exit_in_the_background": 1,
    # And spin_async none: the watchdog puts a new program into the same process.
}
NUISANCES = {
    "exit_process": (DEAD, "worker_lost", 3),
    "segfault_process": (DEAD, "worker_lost", 3),
    "hog_process": (DEAD, "unexpected", 0),
    "spin_process": (DEAD, "timeout", 0),
    "huge_message": (DEAD, "unexpected", 0),
    "huge_message_process": (DEAD, "unexpected", 0),
    "huge_traceback": (DEAD, "unexpected", 0),
    "unreadable_error": (DEAD, "unexpected", 0),
    "system_exit_async": (DEAD, "unexpected", 0),
    "system_exit_thread": (DEAD, "unexpected", 0),
    "system_exit_process": (DEAD, "unexpected", 0),
    "interrupt_async": (DEAD, "unexpected", 0),
    "interrupt_thread": (DEAD, "unexpected", 0),
    "swallow_for_ever": (DEAD, "timeout", 0),
    "cancel_itself": (DEAD, "unexpected", 0),
    "typed": (DEAD, "payload_invalid", 0),
    "long_farewell": (DEAD, "y" * 99 + "…", 0),
    "swallow_once": (COMPLETED, "", 0),
    "ask_the_operator_process": (COMPLETED, "", 0),
    "not_json": (COMPLETED, "", 0),
    "treacherous_result": (COMPLETED, "", 0),
}
PAYLOADS = {"typed": {"number": "seven"}}


class Supervisor:
    """Starts the daemon again whenever it ends, as systemd would."""

    def __init__(self, rig: Rig, *flags: str) -> None:
        self.exit_codes: list[int] = []
        self._start = lambda: rig.run(*flags, app=POISON, **SETTINGS)
        self._daemon = self._start()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep)

    def __enter__(self) -> "Supervisor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def daemon(self) -> Daemon:
        return self._daemon

    def _keep(self) -> None:
        while not self._over.wait(0.01):
            if self._daemon.gone():
                self.exit_codes.append(self._daemon.exit_code())
                self._daemon = self._start()


def ordinary(prefix: str, count: int) -> list[NewJob]:
    """Return jobs that do no harm, a few of them in threads and in child processes."""
    tasks = ("quick",) * 8 + ("blocking",) * 4 + ("computing",)
    return [
        NewJob(task=tasks[number % len(tasks)], id=job_id, payload={"seconds": 0.01})
        for number, job_id in enumerate(numbered(prefix, count))
    ]


def among_others(
    rig: Rig, task: str, *, max_processing_seconds: float | None = None
) -> tuple[Job, list[Job]]:
    """Enqueue the poison in the midst of ordinary jobs; return it and them when all is over."""
    jobs = ordinary(f"beside-{task}", BYSTANDERS)
    poison = NewJob(
        task=task,
        id=task,
        payload=PAYLOADS.get(task, {}),
        max_attempts=3,
        max_processing_seconds=max_processing_seconds,
    )
    jobs.insert(BYSTANDERS // 2, poison)
    ids = [receipt.id for receipt in rig.ask(lambda engine: engine.enqueue(jobs))]
    rig.wait_for(ids, COMPLETED, DEAD)
    found = rig.jobs(ids)
    return found.pop(task), list(found.values())


def check(job: Job, expected: tuple[State, str, int]) -> None:
    reason = "" if job.failure is None else job.failure.error_reason
    assert (job.state, reason, job.losses) == expected, job
    if job.failure is not None:
        assert len(job.failure.message) <= 2_000
        assert len(job.failure.traceback) <= 16_000


@pytest.fixture(scope="module")
def patient(tmp_path_factory, byte_code) -> Iterator[tuple[Rig, Daemon]]:
    """One daemon that has to live through all nuisances."""
    rig = Rig(tmp_path_factory.mktemp("patient"), byte_code)
    yield rig, rig.run(app=POISON, **SETTINGS)
    rig.close()


@pytest.mark.parametrize("task", NUISANCES)
def test_a_job_that_only_hurts_itself_ends_beside_fifty_others(patient, task):
    rig, daemon = patient
    job, others = among_others(rig, task)
    check(job, NUISANCES[task])
    assert {other.state for other in others} == {COMPLETED}
    assert {other.attempt for other in others} == {1}, "nobody else was disturbed"
    assert not daemon.gone(), daemon.errors


def test_a_thread_that_never_ends_is_left_behind(rig):
    daemon = rig.run(app=POISON, **SETTINGS)
    # The next run waits for the thread, up to the cap.
    job, others = among_others(rig, "spin_thread", max_processing_seconds=4 * TIMEOUT_SECONDS)
    check(job, (DEAD, "timeout", 0))
    assert {other.state for other in others} == {COMPLETED}
    daemon.stop()


@pytest.mark.parametrize("task", CRASHES)
def test_a_job_that_takes_the_daemon_down_is_buried_and_fifty_others_are_not(rig, task):
    with Supervisor(rig) as supervisor:
        job, others = among_others(rig, task)
        check(job, CRASHES[task])
        assert {other.state for other in others} == {COMPLETED}
        expected = [EXIT_CODES[task]] * 2 if task in EXIT_CODES else []
        assert supervisor.exit_codes == expected
    supervisor.daemon.stop()
    assert rig.ledger.begun()[task] == 3


def test_all_of_them_at_once_bury_no_other_job(rig):
    poison = [
        NewJob(task=task, id=task, payload=PAYLOADS.get(task, {}), max_attempts=3)
        for task in CRASHES
    ]
    others = ordinary("beside", 100)
    mixed = [*others[:50], *poison, *others[50:]]
    with Supervisor(rig):
        ids = [receipt.id for receipt in rig.ask(lambda engine: engine.enqueue(mixed))]
        rig.wait_for(ids, COMPLETED, DEAD, seconds=90.0)
        found = rig.jobs(ids)
    assert {job_id for job_id, job in found.items() if job.state is DEAD} == set(CRASHES)
    assert rig.ledger.ended().keys() >= {job.id for job in others}


def test_results_that_are_too_much_for_one_step_are_recorded_all_the_same(rig):
    daemon = rig.run("-w", "90", app=POISON)
    ids = rig.enqueue("large_result", numbered("large", 90), payload={"gate": str(rig.gate)})
    until(lambda: rig.ledger.begun().total() == 90, "all of them run")
    rig.gate.touch()
    rig.wait_for(ids, COMPLETED)
    assert {len(job.result or b"") for job in rig.jobs(ids[:8]).values()} == {250_002}
    assert rig.ledger.begun().total() == 90, "none ran twice"
    daemon.stop()


def test_the_time_that_a_child_takes_to_start_is_not_the_time_of_its_job(rig):
    daemon = rig.run("-t", "1s", app=str(HERE / "slow_to_import.py"))
    ids = rig.enqueue("computing", numbered("slow", 2), max_attempts=1)
    rig.wait_for(ids, COMPLETED, DEAD)
    assert {job.state for job in rig.jobs(ids).values()} == {COMPLETED}
    daemon.stop()


def test_a_child_that_is_timed_out_takes_with_it_what_it_started(rig):
    daemon = rig.run(app=POISON, **SETTINGS)
    rig.enqueue("start_a_sleeper", ["parent"], max_attempts=1)
    rig.wait_for(["parent"], DEAD)
    sleepers = [entry.attempt for entry in rig.ledger.read() if entry.what == "sleeper"]
    assert len(sleepers) == 1
    until(lambda: not alive(sleepers[0]), "the sleeper is gone")
    daemon.stop()
