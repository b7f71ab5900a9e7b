"""Secrets that callers send are in no log, no problem and no audit entry."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.rig import Rig, until

from .test_server import new_key, served

CANARY = "canary-0f3a91c7"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def requests(at: str, key: dict[str, str]) -> Iterator[httpx.Response]:
    """Send a secret in every place that a request has, right ones and wrong ones."""
    header = key["authorization"]
    letters = header[:-1] + ("a" if header[-1] != "a" else "b")
    wrong = [f"Bearer {CANARY}", f"Basic {CANARY}", letters, f"{header} {CANARY}", CANARY]
    for one in wrong:
        yield httpx.get(f"{at}/v2/jobs", headers={"authorization": one})
    yield httpx.get(f"{at}/v2/jobs?key={CANARY}", headers=key)
    payload = {"password": CANARY, "deep": [{"token": CANARY}]}
    good = {"task": "t", "payload": payload}
    yield httpx.post(f"{at}/v2/jobs", headers=key, json=good)
    yield httpx.post(f"{at}/v2/jobs", headers=key, json={**good, "id": "twice"})
    yield httpx.post(f"{at}/v2/jobs", headers=key, json={**good, "id": "twice"})
    for bad in ({"priority": "x"}, {"unknown": 1}, {"queue": "\x00"}, {"max_attempts": -1}):
        yield httpx.post(f"{at}/v2/jobs", headers=key, json={**good, **bad})
    sent = {**key, "content-type": "application/json", "cookie": f"session={CANARY}"}
    broken = json.dumps(good)[:-2].encode()
    for content in (broken, b"[" * 100_000, f'"{CANARY}"'.encode()):
        yield httpx.post(f"{at}/v2/jobs", headers=sent, content=content)
    yield httpx.patch(f"{at}/v2/jobs/twice", headers=key, json={"why": "w", "payload": payload})
    edit = {"why": "w", "payload": payload, "version": 1}
    yield httpx.patch(f"{at}/v2/jobs/twice", headers=key, json=edit)


def test_a_canary_is_in_no_log_problem_or_audit_entry(rig):
    rig.env["HOLDFAST_LOG_LEVEL"] = "debug"
    owner = rig.run().ready()
    key = new_key(rig)
    server, at = served(rig)
    answers = list(requests(at, key))
    assert {one.status_code // 100 for one in answers} == {2, 4}, answers
    told = [one.text for one in answers]
    audit = rig.command("audit", "list", "--json")
    assert audit.returncode == 0, audit.stderr
    owner.stop()
    late = httpx.post(f"{at}/v2/jobs", headers=key, json={"task": CANARY}, timeout=20)
    assert late.status_code == 503
    server.stop()
    until(server.gone, "it has ended")
    written = [owner.output, owner.errors, server.output, server.errors]
    secret = key["authorization"].rpartition("_")[2]
    for text in (*told, late.text, audit.stdout, *written):
        assert secret not in text
        assert CANARY not in text, text
