"""Starting, and not starting: what ``holdfast run`` says and how it exits."""

import time

import pytest

from .rig import APP, HERE, until


def test_run_seconds_ends_it_in_order(rig):
    daemon = rig.run("--run-seconds", "1")
    until(lambda: "workers:" in daemon.output, "it is up")
    up_at = time.monotonic()
    assert daemon.exit_code() == 0, daemon.errors
    assert 0.5 < time.monotonic() - up_at < 3.0
    assert daemon.output.endswith("holdfast stopped\n")


def test_a_second_owner_is_told_who_the_first_one_is(rig):
    first = rig.run().ready()
    second = rig.run()
    assert second.exit_code() == 5
    assert time.monotonic() - second.started_at < 8.0
    assert f"is owned by process {first.pid}" in second.errors
    assert second.errors.count("\n") == 1, second.errors
    assert second.output == ""
    rig.enqueue("quick", ["after"])
    until(lambda: rig.ledger.ended()["after"] == 1, "the first one has not noticed")
    first.stop()


def test_a_second_owner_takes_over_from_one_that_is_about_to_leave(rig):
    first = rig.run().ready()
    second = rig.run()
    first.stop()
    second.ready().stop()


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nowhere.py", "there is no file 'nowhere.py'"),
        ("no.such.module:app", "no module is named 'no.such.module'"),
        (f"{APP}:nothing", "has no such attribute"),
        (f"{APP}:begin", "is a function, not a Holdfast application"),
        (str(HERE / "ledger.py"), "has no 'app'"),
        ("broken.py", "cannot be imported"),
        ("raising.py", "cannot be imported"),
        ("leaving.py", "cannot be imported"),
    ],
)
def test_a_wrong_reference_is_one_clear_sentence(rig, monkeypatch, reference, said):
    monkeypatch.chdir(rig.directory)
    for name, text in (
        ("broken.py", "def broken(:\n"),
        ("raising.py", "raise RuntimeError('at import')\n"),
        ("leaving.py", "raise SystemExit(0)\n"),
    ):
        (rig.directory / name).write_text(text)
    daemon = rig.run(app=reference)
    assert daemon.exit_code() == 2, daemon.errors
    assert said in daemon.errors
    assert daemon.errors.startswith("holdfast: ")
    assert daemon.errors.count("\n") == 1, daemon.errors
    assert "Traceback" not in daemon.errors
    assert not rig.store.exists(), "nothing was touched"
