"""The chronicle as its user types it: append, run, look, replay, rebuild; on both stores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.engines.postgres.servers import Databases, store_of

EVENTS, BAD = 500, (17, 200, 411)
OUTBOX = {
    "OUTBOX_WORKER_ID": "c1",
    "OUTBOX_METRICS_PORT": "0",
    "OUTBOX_BATCH_SIZE": "50",
    "OUTBOX_POLL_INTERVAL_SECONDS": "0.2",
    "OUTBOX_LEASE_SECONDS": "30",
    "OUTBOX_MAX_ATTEMPTS": "10",
    "OUTBOX_BASE_BACKOFF_SECONDS": "0.5",
    "OUTBOX_MAX_BACKOFF_SECONDS": "30",
    "OUTBOX_RECLAIM_INTERVAL_SECONDS": "5",
    "OUTBOX_MAX_PROCESSING_SECONDS": "600",
    "OUTBOX_RUN_SECONDS": "10",
}
FIRST = """
events:
  book.renamed:
    description: A book has another title.
    entity: book
    text: "{actor} renamed {entity}"
    fields:
      name: {type: string, required: false}
"""
BROKEN = """
events:
  book.renamed:
    description: A book has another title.
    entity: book
    version: 2
    text: "{actor} renamed {entity}: {title}"
    fields:
      title: string
    versions:
      1:
        fields:
          name: {type: string, required: false}
        upcast:
          - rename: {name: title}
"""
"""Not every event of the first version has a name."""
MENDED = BROKEN + "          - default: {title: unknown}\n"


class Desk:
    """A directory in which a person types commands."""

    def __init__(self, path: Path, environment: dict[str, str]) -> None:
        self.path = path
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HOLDFAST_", "OUTBOX_", "DATABASE_"))
        }
        self.environment = kept | OUTBOX | environment
        self.deploy(FIRST)
        lines = []
        for number in range(EVENTS):
            bad = number in BAD
            payload = {} if bad else {"name": f"失败的书 {number}"}
            lines.append(
                json.dumps(
                    {
                        "event_type": "book.renamed",
                        "entity_id": f"bad-{number}" if bad else f"b{number % 60}",
                        "actor_user_id": "anna",
                        "payload": payload,
                        "occurred_at": f"2026-11-01T10:{number // 60:02}:{number % 60:02}Z",
                    }
                )
            )
        (path / "events.ndjson").write_text("\n".join(lines) + "\n")

    def deploy(self, catalog: str) -> None:
        (self.path / "catalog.yaml").write_text(catalog)

    def run(self, *words: object, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *map(str, words)],
            cwd=self.path,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout

    def json(self, *words: object, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code))

    def statuses(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for one in self.json("projections", "outbox", "chronicle", "--limit", 1_000)["rows"]:
            counts[one["status"]] = counts.get(one["status"], 0) + 1
        return counts

    def digest(self) -> tuple[int, str]:
        """Return how many entries there are, and all of them by id."""
        found = self.json("chronicle", "list", "--limit", 1_000)["entries"]
        return len(found), json.dumps(sorted(found, key=lambda one: one["id"]))


@pytest.fixture(params=["journal", "postgresql"])
def desk(
    request: pytest.FixtureRequest, tmp_path: Path, server18: Databases
) -> Iterator[tuple[Desk, str | None]]:
    if request.param == "journal":
        yield Desk(tmp_path, {"HOLDFAST_STORE": "./data"}), None
        return
    with server18.fresh() as database:
        url = store_of(database)
        dialect = url.replace("postgresql://", "postgresql+psycopg://", 1)
        yield Desk(tmp_path, {"DATABASE_URL": dialect}), url


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()  # type: ignore[call-overload]


def test_append_run_replay_and_rebuild(desk: tuple[Desk, str | None]) -> None:
    person, url = desk
    if url is not None:
        person.run("migrate")
    assert "500 events stored" in person.run("events", "append", "--file", "events.ndjson")
    person.deploy(BROKEN)
    person.run("run", "--projection", "chronicle")
    assert person.statuses() == {"done": 497, "failed": 3}
    assert person.digest()[0] == 497
    if url is not None:
        by_status = "select status, count(*) from chronicle_outbox_events group by 1 order by 1"
        assert rows(url, by_status) == [("done", 497), ("failed", 3)]
        assert rows(url, "select count(*) from chronicle_entries") == [(497,)]
    kept = person.run("replay", "--limit", 100, "--by", "ops", "--reason", "fix applied", code=4)
    assert "3 deterministic kept: add --fixed 'what'" in kept
    fixed = ("--limit", 100, "--by", "ops", "--reason", "fix applied", "--fixed", "mapping")
    person.run("replay", *fixed)
    assert person.statuses() == {"done": 497, "pending": 3}
    if url is not None:
        replayed = rows(
            url,
            "select distinct replay_count, last_replayed_at is not null, last_replayed_by,"
            " last_replayed_reason from chronicle_outbox_events where status = 'pending'",
        )
        assert replayed == [(1, True, "ops", "fix applied (fixed: mapping)")]
    person.run("rebuild", "chronicle", "--truncate", "--by", "ops")
    in_place = person.digest()
    assert in_place[0] == 497
    person.run("rebuild", "chronicle", "--truncate", "--emit-outbox", "--by", "ops")
    person.run("run", "--projection", "chronicle", "--run-seconds", "6s")
    assert person.digest() == in_place
    person.deploy(MENDED)
    person.run("replay", *fixed)
    person.run("run", "--projection", "chronicle", "--run-seconds", "6s")
    assert person.digest()[0] == 500
    assert len(person.json("chronicle", "search", "失败", "--limit", 1_000)["entries"]) == 497
