"""What a user of the API types, on PostgreSQL: versions, edits, a confirmation, a lost server."""

import email.utils
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.test_server import served
from tests.engines.postgres.servers import Server

from .rig import Rig, until

WHO = ("--by", "ann", "--reason", "a test")


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(18)
    try:
        made.start()
        yield made
    finally:
        made.remove()


def key_of(rig: Rig, tenant: str, *flags: str) -> dict[str, str]:
    role = ("--role", "responder", "--tenant", tenant)
    done = rig.command("keys", "create", f"a key of {tenant}", *role, *flags, *WHO)
    assert done.returncode == 0, done.stderr
    return {"authorization": f"Bearer {done.stdout.strip()}"}


def test_both_versions_an_edit_a_confirmation_and_a_lost_server(server, tmp_path: Path):
    rig = Rig(tmp_path)
    rig.env["HOLDFAST_STORE"] = server.url
    try:
        assert rig.command("migrate").returncode == 0
        key = key_of(rig, "acme")
        serving, at = served(rig)
        both_versions(at, key)
        edit_twice(at, key)
        confirm(rig, at, key)
        server.stop(signal.SIGQUIT)
        ready = httpx.get(f"{at}/health/ready", timeout=20)
        assert (ready.status_code, ready.json()["status"]) == (503, "unhealthy")
        assert ready.json()["reason"], ready.text
        assert httpx.get(f"{at}/health/live").json() == {"status": "ok"}
        lost = httpx.get(f"{at}/v2/jobs", headers=key, timeout=60)
        assert lost.status_code == 503
        assert lost.headers["retry-after"]
        server.start()
        until(lambda: httpx.get(f"{at}/health/ready", timeout=20).status_code == 200, "it is back")
        serving.stop()
    finally:
        rig.close()


def both_versions(at: str, key: dict[str, str]) -> None:
    """The older version says that it ends, and when; the current one does not."""
    old = httpx.post(f"{at}/v1/jobs", headers=key, json={"type": "t", "payload": {}})
    assert old.status_code == 201, old.text
    deprecated = old.headers["deprecation"]
    assert deprecated.startswith("@")
    assert int(deprecated[1:]) <= time.time()
    ends = email.utils.parsedate_to_datetime(old.headers["sunset"])
    assert ends.timestamp() > time.time()
    for relation in ("deprecation", "sunset", "successor-version"):
        assert f'rel="{relation}"' in old.headers["link"]
    new = httpx.post(f"{at}/v2/jobs", headers=key, json={"task": "t", "payload": {}})
    assert new.status_code == 201, new.text
    assert {"deprecation", "sunset", "link"}.isdisjoint(new.headers)
    for answer in (old, new):
        assert set(answer.json()) == {"data", "meta", "errors"}
        assert {"api_version", "timestamp"} <= set(answer.json()["meta"])


def edit_twice(at: str, key: dict[str, str]) -> None:
    """Two people edit version 1: the second one is refused."""
    httpx.post(f"{at}/v2/jobs", headers=key, json={"task": "t", "id": "edited"})
    edit = {"priority": 3, "version": 1, "why": "sooner"}
    first = httpx.patch(f"{at}/v2/jobs/edited", headers=key, json=edit)
    second = httpx.patch(f"{at}/v2/jobs/edited", headers=key, json=edit)
    assert [first.status_code, second.status_code] == [200, 409]
    assert second.json()["type"] == "/problems/stale-version"


def confirm(rig: Rig, at: str, key: dict[str, str]) -> None:
    """A held job is let go, with who and why in the audit."""
    httpx.post(f"{at}/v2/jobs", headers=key, json={"task": "t", "id": "held", "hold": True})
    body = {"why": "the invoice was checked"}
    done = httpx.post(f"{at}/v2/jobs/held/confirm", headers=key, json=body)
    assert done.status_code == 200, done.text
    entries = json.loads(rig.command("audit", "list", "--json").stdout)
    [entry] = [one for one in entries if one["reason"] == body["why"]]
    assert (entry["user_id"], entry["resource_id"]) == ("a key of acme", "held"), entry


def test_a_tenant_that_floods_does_not_keep_another_from_working(tmp_path: Path):
    rig = Rig(tmp_path)
    try:
        rig.run().ready()
        calm, loud = key_of(rig, "acme"), key_of(rig, "zeta", "--rate", "60")
        serving, at = served(rig)
        with httpx.Client(base_url=at) as client:
            job = {"task": "later", "queue": "later"}
            statuses = [
                client.post("/v2/jobs", headers=loud, json=job).status_code for _ in range(150)
            ]
            assert statuses.count(201) >= 60, statuses
            assert statuses.count(429) >= 60, statuses
            refused = client.post("/v2/jobs", headers=loud, json=job)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) > 0
            assert refused.json()["type"].endswith("#quota-exceeded")
            for _ in range(50):
                client.post("/v2/jobs", headers=loud, json=job)
                assert client.post("/v2/jobs", headers=calm, json=job).status_code == 201
        serving.stop()
    finally:
        rig.close()
