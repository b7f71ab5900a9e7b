"""A worker is stopped past its lease and wakes up when its job is somebody else's."""

import signal
import sys

from holdfast.model.job import Job, State

from .rig import HERE, HOLDFAST, Daemon, Rig, until

LEASE_SECONDS = "1"


def worker(rig: Rig, name: str) -> Daemon:
    return rig.start([sys.executable, str(HERE / "remote_worker.py"), name, LEASE_SECONDS])


def wake_a_zombie(rig: Rig, command=(HOLDFAST,)) -> tuple[Job, str, list[str]]:
    """Return the job in the end, what the zombie said, and the types of the job's records.

    The zombie's task comes to its end as soon as it runs again; the other worker still holds the
    job then, and completes it later. Each waits for a gate of its own.
    """
    daemon = rig.run("--queue", "elsewhere", command=command).ready()
    rig.enqueue("gated", ["job"], queue="remote", payload={"gate": str(rig.gate)})
    zombie = worker(rig, "zombie")
    until(lambda: rig.ledger.begun()["job"] == 1, "the zombie has it")
    zombie.signal(signal.SIGSTOP)
    # Nobody touches the zombie's job until its lease has run out, and then the owner does.
    rig.wait_for(["job"], State.PENDING)
    other = worker(rig, "other")
    until(lambda: rig.ledger.begun()["job"] == 2, "the other one has it")
    rig.gate.with_name("gate-zombie").touch()
    zombie.signal(signal.SIGCONT)
    until(lambda: zombie.output or rig.all_in(["job"], State.COMPLETED), "the late ack came")
    rig.gate.with_name("gate-other").touch()
    rig.wait_for(["job"], State.COMPLETED)
    job = rig.jobs(["job"])["job"]
    for process in (zombie, other):
        process.kill()
    daemon.stop()
    types = [str(record["type"]) for record in rig.records() if record["type"] != "EXTEND"]
    return job, zombie.output, types


def test_the_late_ack_of_a_zombie_is_refused_and_counted_and_the_job_is_completed_once(rig):
    job, said, types = wake_a_zombie(rig)
    assert said.startswith("refused 1 ")
    assert job.result == b'"other"'
    assert types == ["ENQUEUE", "DISPATCH", "TIMEOUT", "DISPATCH", "ACK"]
    assert job.losses == 1


def test_without_the_guard_the_zombie_would_complete_what_is_not_its_own(rig):
    unsafe = (sys.executable, str(HERE / "unsafe.py"), "trust_everybody")
    job, said, _types = wake_a_zombie(rig, unsafe)
    assert said == ""
    assert job.result == b'"zombie"'
