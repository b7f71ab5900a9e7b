"""schemathesis, all checks: requests made from the OpenAPI document, valid and not, by two tenants.

A third tenant has jobs of its own, with a text that must never be seen.
"""

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.api import authentication
from holdfast.api.problems import TYPES_OF_SERVER
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.http.asgi import AsgiHandler
from holdfast.http.limits import HttpLimits
from holdfast.http.listeners import bind_port
from holdfast.http.server import serving
from holdfast.model.access import Caller
from holdfast.model.api_key import ApiKey
from holdfast.model.permissions import Role

from .rig import Api
from .schema_checks import FOREIGN

ROOT = Path(__file__).parents[2]
LONG = "HOLDFAST_TEST_EXAMPLES" in os.environ
EXAMPLES = os.environ.get("HOLDFAST_TEST_EXAMPLES", "3")
PHASES = "examples,coverage,fuzzing,stateful" if LONG else "examples,coverage,stateful"
"""By default the cases that follow from the document; ``make soak`` makes up others."""
PEERS = ("acme", "zeta")
CONFIGURATION = f"""
[auth.wfc]
path = "auth.json"
peers = {json.dumps(PEERS)}
[checks.positive_data_acceptance]
# What is well formed may still be about nothing that exists, or not be allowed as things stand.
expected-statuses = ["2xx", 400, 404, 409, 412, 413, 422, 428]
[[operations]]
include-operation-id = ["ingestEvents", "ingestJobs"]
# It answers line by line: what is wrong with one is in the answer.
checks.negative_data_rejection.enabled = false
[[operations]]
include-operation-id = "createKey"
# A key that would reach more than the one that makes it is well formed, and forbidden.
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 403, 404, 409, 413, 422]
"""


async def _plant(api: Api, directory: Path) -> None:
    auth = []
    for tenant in PEERS:
        key = await api.key(Role.ADMIN, Role.WORKER, tenants=(tenant,))
        headers = [{"name": "Authorization", "value": f"Bearer {key}"}]
        auth.append({"name": tenant, "fixedHeaders": headers})
        await api.dead_letter(f"{tenant}-letter", tenant)
    await api.dead_letter(FOREIGN, "other", "", FOREIGN)
    (directory / "auth.json").write_text(json.dumps({"auth": auth}))
    (directory / "schemathesis.toml").write_text(CONFIGURATION)


@contextlib.contextmanager
def listening(directory: Path) -> Iterator[str]:
    """Serve an API with some jobs, in a thread; return its address."""
    sock = bind_port("127.0.0.1", 0)
    started, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        api = Api(MemoryEngine())
        await _plant(api, directory)
        limits = HttpLimits(max_body_bytes=8 << 20)
        async with serving(
            AsgiHandler(api.application, TYPES_OF_SERVER), sockets=[sock], limits=limits
        ):
            started.set()
            await stop.wait()
        await api.engine.close()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    port = sock.getsockname()[1]
    thread.start()
    try:
        assert started.wait(30)
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


def run(directory: Path, at: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run schemathesis with every check."""
    seed = str(random.SystemRandom().randrange(1 << 32))
    print("seed", seed)  # noqa: T201 - shown when the test fails
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml"]
    options = ["--checks", "all", "--seed", seed, "--max-examples", EXAMPLES, "--no-color"]
    hooks = {"SCHEMATHESIS_HOOKS": "tests.api.schema_checks", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, "run", f"{at}/v2/openapi.json", *options, "--phases", PHASES, *flags],
        cwd=directory,
        env={**os.environ, **hooks},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(3600 if LONG else 180)
def test_every_answer_is_as_the_document_says(tmp_path):
    with listening(tmp_path) as at:
        done = run(tmp_path, at, "--continue-on-failure")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert "object_level_authorization` will not run" not in done.stdout + done.stderr


def test_control_a_key_that_reaches_every_tenant_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(authentication, "_reach", _no_reach)
    with listening(tmp_path) as at:
        done = run(tmp_path, at, "--include-operation-id", "listJobs")
    assert done.returncode == 1, done.stdout
    assert "nothing_of_another_tenant_is_shown" in done.stdout or FOREIGN in done.stdout


def _no_reach(key: ApiKey, tenant: str | None) -> Caller:
    return Caller()
