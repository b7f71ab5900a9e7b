"""``holdfast serve`` as a process: on a directory and on PostgreSQL, stopped and killed."""

import asyncio
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from holdfast.api.problems import TYPES_OF_SERVER
from holdfast.http.allowed_hosts import AllowedHosts
from holdfast.http.asgi import AsgiHandler, AsgiMessage, Receive, Send
from holdfast.http.limits import HttpLimits
from holdfast.http.listeners import bind_port
from holdfast.http.server import serving
from tests.e2e.rig import HOLDFAST, Daemon, Rig, until
from tests.settings.observing import CERTIFICATES

WHO = ("--by", "ann", "--reason", "a test")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def new_key(rig: Rig, role: str = "responder") -> dict[str, str]:
    done = rig.command("keys", "create", f"a {role}", "--role", role, "--tenant", "acme", *WHO)
    assert done.returncode == 0, done.stderr
    return {"authorization": f"Bearer {done.stdout.strip()}"}


def served(rig: Rig, *flags: str) -> tuple[Daemon, str]:
    """Start the server on a free port; return it with its address."""
    server = rig.start([HOLDFAST, "serve", "--port", "0", *flags])
    found = until(
        lambda: server.gone() or re.search(r"is at (https?://\S+)", server.output), "it listens"
    )
    assert isinstance(found, re.Match), server.errors
    return server, found[1]


def test_what_was_acknowledged_is_there_after_a_kill(rig):
    owner = rig.run().ready()
    key = new_key(rig)
    server, at = served(rig)
    made = httpx.post(f"{at}/v2/jobs", headers=key, json={"task": "later", "id": "a/b"})
    assert made.status_code == 201, made.text
    server.kill()
    server, at = served(rig)
    got = httpx.get(at + made.headers["location"], headers=key)
    assert got.json()["data"]["id"] == "a/b"
    owner.stop()
    assert httpx.get(f"{at}/health/live").status_code == 200
    ready = httpx.get(f"{at}/health/ready", timeout=20)
    assert (ready.status_code, ready.json()["status"]) == (503, "unhealthy")
    late = httpx.get(f"{at}/v2/jobs", headers=key, timeout=20)
    assert (late.status_code, late.json()["type"]) == (503, "/problems/unavailable")
    assert late.headers["retry-after"] == "1"
    rig.run().ready()
    until(lambda: httpx.get(f"{at}/health/ready", timeout=20).status_code == 200, "it is ready")
    server.stop()


def test_a_stop_finishes_what_is_in_progress(rig):
    rig.run().ready()
    key = new_key(rig)
    server, at = served(rig)
    port = int(at.rpartition(":")[2])
    body = b'{"task":"later","id":"a"}'
    head = f"POST /v2/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    head += "content-type: application/json\r\nexpect: 100-continue\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
        peer.sendall(f"{head}authorization: {key['authorization']}\r\n\r\n".encode())
        assert peer.recv(1_000).startswith(b"HTTP/1.1 100"), "it reads the body"
        server.signal(signal.SIGTERM)
        until(lambda: refuses(port), "it takes no more")
        peer.sendall(body)
        assert peer.recv(1_000).startswith(b"HTTP/1.1 201")
    assert server.exit_code() == 0
    job = rig.ask(lambda engine: engine.get(["a"], tenant="acme"))[0]
    assert job is not None


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def test_an_address_that_others_reach_needs_a_key_in_the_store(rig):
    rig.run().ready()
    refused = rig.command("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104
    assert refused.returncode == 2
    assert "there is no key yet" in refused.stderr
    new_key(rig)
    server = rig.start([HOLDFAST, "serve", "--host", "0.0.0.0", "--port", "0"])  # noqa: S104
    until(lambda: "is at http://0.0.0.0:" in server.output, "it listens")
    server.stop()


def test_the_front_bounds_bodies_and_names(rig):
    rig.run().ready()
    key = new_key(rig)
    server, at = served(rig)
    got = httpx.get(f"{at}/v2/me", headers={**key, "host": "evil.example"})
    assert got.status_code == 421
    big = {**key, "content-type": "application/json"}
    got = httpx.post(f"{at}/v2/jobs", headers=big, content=b" " * ((8 << 20) + 1))
    assert got.status_code == 413
    server.stop()


def test_on_postgresql(server18, tmp_path):
    with server18.bare() as database:
        made = Rig(tmp_path)
        made.env["HOLDFAST_STORE"] = server18.store(database)
        try:
            assert made.command("migrate").returncode == 0
            key = new_key(made)
            server, at = served(made)
            body = {"task": "t", "id": "a", "payload": {"n": 1}}
            assert httpx.post(f"{at}/v2/jobs", headers=key, json=body).status_code == 201
            got = httpx.get(f"{at}/v2/jobs/a?include=payload", headers=key)
            assert got.json()["data"]["payload"] == {"n": 1}
            tag = {**key, "if-match": got.headers["etag"]}
            edit = {"priority": 2, "why": "a test"}
            changed = httpx.patch(f"{at}/v2/jobs/a", headers=tag, json=edit)
            assert changed.json()["data"]["version"] == 2, changed.text
            again = httpx.patch(f"{at}/v2/jobs/a", headers=tag, json=edit)
            assert again.status_code == 412
            listed = httpx.get(f"{at}/v2/jobs?q=queue:default", headers=key)
            assert [job["id"] for job in listed.json()["data"]] == ["a"]
            gone = httpx.delete(f"{at}/v2/jobs/a?why=enough", headers=key)
            assert gone.json()["data"]["status"] == "cancelled"
            queues = httpx.get(f"{at}/v2/queues", headers=key)
            assert queues.json()["data"][0]["counts"]["cancelled"] == 1
            server.stop()
        finally:
            made.close()


def test_plain_commands_import_no_server():
    modules = "sys, holdfast.cli.main, holdfast.cli.commands.jobs"
    code = f"import {modules}; print('holdfast.api' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


async def early_answers(types: Mapping[int, str]) -> dict[int, str]:
    """Return the types of what the server refuses before the application sees it, by status."""
    seen: dict[int, str] = {}
    limits = HttpLimits(max_body_bytes=10, head_seconds=0.01)
    sock = bind_port("127.0.0.1", 0)
    handler = AsgiHandler(unasked, types)
    hosts = AllowedHosts((), "--allowed-host")
    async with serving(handler, sockets=[sock], limits=limits, hosts=hosts):
        for request in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"nonsense\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: localhost\r\n",
            b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 11\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: evil.example\r\n\r\n",
            b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 101 + b"\r\n",
        ):
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            writer.write(request)
            head, _end, body = (await reader.read()).partition(b"\r\n\r\n")
            assert b"application/problem+json" in head
            seen[int(head.split()[1])] = json.loads(body).get("type", "")
            writer.close()
    return seen


async def unasked(_scope: AsgiMessage, _receive: Receive, _send: Send) -> None:
    raise RuntimeError("the application is not asked")


async def test_what_the_server_refuses_early_has_a_type_of_the_catalogue():
    seen = await early_answers(TYPES_OF_SERVER)
    assert seen == {status: TYPES_OF_SERVER[status] for status in (400, 408, 413, 421, 431)}


async def test_control_without_the_catalogue_it_has_none():
    assert set((await early_answers({})).values()) == {""}


def test_over_tls(rig):
    rig.run().ready()
    key = new_key(rig)
    certificate = str(CERTIFICATES / "first.crt")
    files = ("--tls-cert", certificate, "--tls-key", str(CERTIFICATES / "first.key"))
    server, at = served(rig, *files)
    assert at.startswith("https://")
    at = at.replace("127.0.0.1", "localhost")
    with httpx.Client(verify=ssl.create_default_context(cafile=certificate)) as trusted:
        made = trusted.post(f"{at}/v2/jobs", headers=key, json={"task": "t", "id": "a"})
    assert made.status_code == 201
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{at}/v2/me", headers=key)
    rig.env["HOLDFAST_API_KEY"] = key["authorization"].split()[1]
    rig.env["HOLDFAST_STORE"] = at
    refused = rig.command("jobs", "list")
    assert refused.returncode == 5
    assert "api_ca_file" in refused.stderr
    rig.env["HOLDFAST_API_CA_FILE"] = certificate
    listed = rig.command("jobs", "list", "--json")
    assert '"a"' in listed.stdout, listed.stderr
    server.stop()
