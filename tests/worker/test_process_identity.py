"""What identifies a process, and the proof that another one has ended."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.model.fleet import WorkerProcess
from holdfast.worker import process_identity as identity

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


def entry(pid: int, ticks: int, **fields: Any) -> WorkerProcess:
    """Return the entry of a process on this machine."""
    defaults: dict[str, Any] = {
        "host": identity.host_name(),
        "machine": identity.machine_identity(),
        "version": "1.0",
        "started_at_us": 0,
        "slots": {},
        "processes": {"a": None},
        "pids": {"a": (pid, ticks)},
    }
    return WorkerProcess(
        id="life", name="a", pid=pid, started_ticks=ticks, **{**defaults, **fields}
    )


@pytest.fixture
def ended():
    """A process that has ended, as it was."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = entry(child.pid, identity.started_ticks(child.pid))
        assert not identity.is_gone(found)
        child.kill()
        yield child, found


def test_a_process_that_has_ended_is_gone_even_before_its_parent_looks(ended):
    child, found = ended
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert Path(f"/proc/{child.pid}").exists()
    assert identity.is_gone(found)
    child.wait()
    assert identity.is_gone(found)
    assert identity.gone_workers(found) == ["a"]


def test_another_process_of_the_same_pid_does_not_count_as_the_old_one():
    ticks = identity.started_ticks(os.getpid())
    assert not identity.is_gone(entry(os.getpid(), ticks))
    assert identity.is_gone(entry(os.getpid(), ticks - 1))


@pytest.mark.parametrize(
    "unknown",
    [{"host": "another"}, {"machine": "another kernel"}, {"machine": ""}, {"started_ticks": 0}],
    ids=str,
)
def test_what_cannot_be_proven_is_not_gone(ended, unknown):
    child, found = ended
    child.wait()
    assert identity.is_gone(found)
    assert not identity.is_gone(replace(found, **unknown))


def test_a_process_that_is_hidden_is_not_gone(monkeypatch):
    """With ``hidepid`` the processes of other users are not in /proc."""
    monkeypatch.setattr(identity, "started_ticks", lambda _pid: 0)
    monkeypatch.setattr(Path, "read_bytes", lambda path: (_ for _ in ()).throw(OSError(path)))
    assert not identity.is_gone(entry(os.getpid(), 5))


def test_where_the_kernel_does_not_tell_nothing_is_proven(monkeypatch, ended):
    child, found = ended
    child.wait()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert identity.machine_identity() == ""
    assert not identity.is_gone(found)


def test_with_the_proc_of_another_namespace_nothing_is_proven(monkeypatch, ended):
    """A container may have that of its host: the pids there are others."""
    child, found = ended
    child.wait()
    assert identity.is_gone(found)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert identity.machine_identity() == ""
    assert not identity.is_gone(found)


def test_each_worker_process_is_looked_at_by_itself(ended):
    child, found = ended
    child.wait()
    living = os.getpid(), identity.started_ticks(os.getpid())
    both = replace(found, pids={**found.pids, "a-2": living})
    assert identity.gone_workers(both) == ["a"]
