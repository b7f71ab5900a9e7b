"""A working life under the three roles of a server: each command by who is meant to type it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.exit_codes import EXIT_UNAVAILABLE
from tests.cli.conftest import invoke
from tests.engines.postgres.load import ServerRig
from tests.engines.postgres.roles import VIEWS, RoleDatabases, as_user, execute
from tests.engines.postgres.servers import store_of

from .rig import Daemon, until

APP = """
from pathlib import Path
from holdfast import Dead, Holdfast

app = Holdfast()

@app.task
def flaky() -> None:
    if not Path("fixed").exists():
        raise Dead("not yet", error_reason="not_yet")

@app.task
def quick() -> None:
    pass

@app.cron("* * * * * *", overlap="allow")
@app.task
def tick() -> None:
    Path("ticked").touch()
"""
CATALOG = """
events:
  book.renamed:
    entity: book
    state: {title: string}
    text: '{actor} renamed {entity} to {after.title}'
    change: before_and_after
"""
PROJECTIONS = """
projections:
  titles:
    version: 1
    events: [book.renamed]
    key: [book]
    columns:
      book: {from: entity_id}
      title: {from: after.title, type: text, search: true}
"""
WHY = ("--by", "ops", "--reason", "test")
JOBS = [{"task": "quick", "id": "q"}, {"task": "flaky", "id": "f"}]
EVENT = {
    "event_type": "book.renamed",
    "entity_id": "1",
    "actor_user_id": "anna",
    "before": {"title": "Emma"},
    "after": {"title": "Ulysses"},
}
READ = (
    *("status", "top --once", "chronicle list", "chronicle search Ulysses", "chronicle stats"),
    *("catalog list", "catalog show book.renamed", "projections list", "projections show titles"),
    *("projections rows titles", "projections outbox titles", "workers list", "operations list"),
    *("dead groups", "dead list", "queues list", "queues series default", "jobs explain f"),
    *("jobs show f", "events list", "schedules list", "audit list", "audit show 1"),
    *("audit verify", "validate", "dump out.dump"),
)


class Server:
    """A server with roles; commands by users that have one of them."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, user: str, line: str, *more: str, stdin: object = None, code: int = 0) -> str:
        text = None if stdin is None else json.dumps(stdin)
        store = store_of(as_user(self.url, user))
        result = invoke("--store", store, *line.split(), *more, stdin=text)
        assert result.exit_code == code, f"{user}: {line}: {result.output}"
        return result.output


@pytest.fixture
def server(roles18: RoleDatabases, tmp_path, monkeypatch) -> Iterator[Server]:
    for name, text in (
        ("app.py", APP),
        ("catalog.yaml", CATALOG),
        ("projections.yaml", PROJECTIONS),
    ):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_PROJECTION_SCHEMA", VIEWS)
    with roles18.fresh() as url:
        yield Server(url)


def live(server: Server, daemon: Daemon) -> None:
    """Enqueue, fail, replay, append, rebuild, pause: all under the run role."""
    server.run("runner", "enqueue", stdin=JOBS)
    until(lambda: "f" in server.run("reader", "dead list"), "one is dead")
    Path("fixed").touch()
    server.run("runner", "replay f --fixed it", *WHY)
    until(lambda: "completed" in server.run("reader", "jobs show f"), "it works now")
    server.run("runner", "events append", stdin=EVENT)
    until(lambda: "Ulysses" in server.run("reader", "projections rows titles"), "it is applied")
    server.run("runner", "rebuild titles", *WHY, "--app", "app.py")
    until(lambda: "live     2" in server.run("reader", "projections list"), "it is rebuilt")
    until(Path("ticked").exists, "the schedule runs")
    for line in ("schedules pause tick", "queues pause default", "queues resume default"):
        server.run("runner", line, *WHY)
    days = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'holdfast.history'::regclass"
    until(lambda: execute(server.url, days) != [(1,)], "it prunes: there are days ahead")
    for problem in ("permission denied", "Traceback", "lacks"):
        assert problem not in daemon.output + daemon.errors


def test_jobs_run_under_the_run_role_and_people_look_under_the_read_role(
    server, tmp_path, byte_code
):
    rig = ServerRig(tmp_path, as_user(server.url, "runner"), byte_code)
    try:
        daemon = rig.run(app="app.py", projection_schema=VIEWS).ready()
        live(server, daemon)
        for line in READ:
            assert "denied" not in server.run("reader", line), line
        said = server.run("reader", "schedules run tick --app app.py", *WHY, code=EXIT_UNAVAILABLE)
        assert "GRANT holdfast_run TO reader" in said
        daemon.stop()
    finally:
        rig.close()


def test_a_dump_is_loaded_and_a_store_moved_under_the_migrate_role(server, roles18, tmp_path):
    server.run("runner", "enqueue", stdin=JOBS)
    server.run("reader", "dump out.dump")
    with roles18.fresh() as second, roles18.fresh() as third:
        loaded, moved = Server(second), Server(third)
        said = loaded.run("runner", "load out.dump", code=EXIT_UNAVAILABLE)
        assert "permission denied for table loading" in said
        said = loaded.run("reader", "load out.dump", code=EXIT_UNAVAILABLE)
        assert "holdfast_run TO reader" in said
        assert execute(second, "SELECT FROM holdfast.jobs") == []
        loaded.run("migrator", "migrate")
        loaded.run("migrator", "load out.dump")
        places = [store_of(as_user(url, "migrator")) for url in (second, third)]
        loaded.run("migrator", "move", "--from", places[0], "--to", places[1], "--yes")
        for one in (loaded, moved):
            assert {"q", "f"} <= set(one.run("reader", "jobs list").split())
            one.run("reader", "validate")
