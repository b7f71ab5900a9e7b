"""Events, projections, keys and the audit over HTTP, with a daemon that projects beside the API."""

import contextlib
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.rig import Rig, until

from .test_server import WHO, served

CATALOG = """
events:
  book.added:
    entity: book
    text: "{actor} added {title}"
    fields: {book_id: string, title: string}
"""
PROJECTIONS = """
projections:
  titles:
    events: [book.added]
    key: [tenant, book]
    columns:
      tenant: {from: tenant}
      book: {from: entity_id}
      title: {from: data.title, type: text, search: true}
"""


def library(directory: Path) -> Rig:
    """Return a store whose programs know these events and projections."""
    rig = Rig(directory)
    for name, text in (("catalog", CATALOG), ("projections", PROJECTIONS)):
        (directory / f"{name}.yaml").write_text(text)
        rig.env[f"HOLDFAST_{name.upper()}"] = str(directory / f"{name}.yaml")
    return rig


def test_events_projections_and_keys_on_postgresql(server18, tmp_path):
    """One life of each resource, with a daemon that projects."""
    with server18.bare() as database, contextlib.closing(library(tmp_path)) as rig:
        rig.env["HOLDFAST_STORE"] = server18.store(database)
        assert rig.command("migrate").returncode == 0
        the_life_of_a_library(rig)


def test_events_projections_and_keys_beside_the_owner_of_a_directory(tmp_path):
    """The server reads the tables of the owner, and no other process writes them."""
    with contextlib.closing(library(tmp_path)) as rig:
        the_life_of_a_library(rig)


def the_life_of_a_library(rig: Rig) -> None:
    rig.run().ready()
    made = rig.command("keys", "create", "root", "--role", "admin", *WHO)
    root = {"authorization": f"Bearer {made.stdout.strip()}"}
    server, at = served(rig)
    body = {"name": "shop", "roles": ["responder"], "tenants": ["acme"], "why": "x"}
    key = httpx.post(f"{at}/v2/keys", headers=root, json=body)
    shop = {"authorization": f"Bearer {key.json()['data']['text']}"}

    def data(path: str, key: dict[str, str] = root) -> Any:
        got = httpx.get(f"{at}/v2{path}", headers=key)
        assert got.status_code == 200, got.text
        return got.json()["data"]

    event = {"event_type": "book.added", "payload": {"book_id": "b1", "title": "Dune"}}
    added = httpx.post(f"{at}/v2/events", headers=shop, json=event)
    assert added.status_code == 201, added.text
    fix = {"why": "a typo", "set": {"payload.title": "Emma"}}
    fixed = httpx.post(at + added.headers["location"] + "/correct", headers=shop, json=fix)
    assert fixed.status_code == 201, fixed.text
    until(
        lambda: [one["title"] for one in data("/projections/titles/rows", shop)] == ["Emma"], "rows"
    )
    until(lambda: len(data("/chronicle", shop)) == 2, "entries")
    found = data("/chronicle?search=emma", shop)
    assert [one["text"] for one in found] == ["shop added Emma"]
    started = httpx.post(f"{at}/v2/projections/titles/rebuild", headers=root, json={"why": "x"})
    assert started.status_code == 202, started.text
    place = started.headers["location"].removeprefix("/v2")
    until(lambda: data(place)["phase"] == "done", "it is rebuilt")
    back = httpx.post(f"{at}/v2{place}/rollback", headers=root, json={"why": "x"})
    assert (back.status_code, back.json()["data"]["generation"]) == (200, 1), back.text
    assert [one["title"] for one in data("/projections/titles/rows", shop)] == ["Emma"]
    for action, state in (("pause", "paused"), ("resume", "live")):
        url = f"{at}/v2/projections/titles/{action}"
        got = httpx.post(url, headers=root, json={"why": "x"})
        assert got.json()["data"]["state"] == state, got.text
    assert [one["event_type"] for one in data("/events", shop)] == ["book.added"] * 2
    assert [one["tenant"] for one in data("/tenants")] == ["acme", "default"]
    gone = httpx.delete(at + key.headers["location"] + "?why=x", headers=root)
    assert gone.status_code == 200
    assert httpx.get(f"{at}/v2/me", headers=shop).status_code == 401
    assert data("/audit:verify")["whole"] is True
    assert data("/audit?action=event.correct")[0]["reason"] == "a typo"
    server.stop()
