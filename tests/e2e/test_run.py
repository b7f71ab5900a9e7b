"""Starting, and not starting: what ``holdfast run`` says and how it exits."""

import http.client
import socket
import sys
import time

import pytest

from holdfast import Holdfast
from holdfast.model.errors import InvalidInput

from .rig import APP, HERE, HOLDFAST, until


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


NAMED_STORE = """
from holdfast import Holdfast
app = Holdfast("named/store")

@app.task
async def greet(name: str) -> str:
    return f"hello {name}"
"""
PRODUCER = """
from shop_app import app, greet
print(greet.enqueue_sync("you").result_sync())
app.close_sync()
"""


@pytest.fixture
def shop(rig, monkeypatch):
    """An application in an empty directory that names its store."""
    monkeypatch.chdir(rig.directory)
    (rig.directory / "shop_app.py").write_text(NAMED_STORE)
    (rig.directory / "producer.py").write_text(PRODUCER)
    rig.store = rig.directory / "named" / "store"
    return rig


def test_run_uses_the_store_that_the_application_names(shop):
    shop.env.pop("HOLDFAST_STORE")
    daemon = shop.run(app="shop_app.py").ready()
    assert "holdfast started: store named/store " in daemon.output
    assert not (shop.directory / "data").exists()
    producer = shop.start([sys.executable, "producer.py"])
    assert producer.exit_code() == 0, producer.errors
    assert producer.output == "hello you\n"
    counted = shop.command("--app", "shop_app.py", "status")
    assert "completed: 1" in counted.stdout
    daemon.stop()
    assert "named/store" not in daemon.errors.split("journal.opened")[0], "no contradiction is said"


@pytest.mark.parametrize(
    ("flags", "runs_on", "said"),
    [
        ((), "named/store", "elsewhere (environment HOLDFAST_STORE) is not used"),
        (("--store", "flagged"), "flagged", "flagged (flag --store) is used, and the application "),
    ],
)
def test_a_contradiction_about_the_store_is_said_at_the_start(shop, flags, runs_on, said):
    shop.env["HOLDFAST_STORE"] = "elsewhere"
    daemon = shop.run(app="shop_app.py", command=(HOLDFAST, *flags)).ready()
    assert daemon.output.startswith(f"holdfast started: store {runs_on} ")
    assert said in daemon.errors
    assert not (shop.directory / "elsewhere").exists()
    daemon.stop()


def test_a_producer_without_an_owner_says_where_it_looked_and_what_to_start(shop):
    other = shop.run(app=None).ready()  # on the store of the environment
    producer = shop.start([sys.executable, "producer.py"])
    assert producer.exit_code() != 0
    assert f"no answer on {shop.store}/holdfast.sock" in producer.errors
    assert f"start one with `holdfast --store {shop.store} run`" in producer.errors
    assert "If it runs already, it has another store" in producer.errors
    other.stop()


@pytest.fixture
def taken_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_nothing_is_started_or_left_behind_if_the_port_is_taken(rig, taken_port, processes):
    flags = ("--metrics-port", str(taken_port), "--processes", processes)
    daemon = rig.run(*flags, app=None)
    assert daemon.exit_code() == 2
    assert f"metrics_port: 127.0.0.1 port {taken_port} cannot be used" in daemon.errors
    assert daemon.output == ""
    assert not rig.store.exists()


async def test_a_running_application_leaves_nothing_behind_if_the_port_is_taken(
    tmp_path, taken_port
):
    app = Holdfast(tmp_path / "s")
    with pytest.raises(InvalidInput, match="metrics_port"):
        async with app.running(metrics_port=taken_port):
            raise AssertionError("it runs")
    assert not (tmp_path / "s").exists()


def test_started_is_said_when_the_ports_answer(rig):
    daemon = rig.run("--metrics-port", "0", app=None)
    until(lambda: "holdfast started" in daemon.output, "it is up")
    until(lambda: "metrics: http" in daemon.output, "it says where")
    address = daemon.output.partition("metrics: http://")[2].partition("/metrics\n")[0]
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", "/metrics")
    assert connection.getresponse().status == 200
    connection.close()
    daemon.stop()


def test_a_second_owner_of_the_same_port_is_told_of_the_store_not_of_the_port(rig):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    first = rig.run("--metrics-port", port, app=None).ready()
    second = rig.run("--metrics-port", port, app=None)
    assert second.exit_code() == 5
    assert f"is owned by process {first.pid}" in second.errors
    third = rig.run("--metrics-port", port, app=None)
    first.stop()
    third.ready().stop()
