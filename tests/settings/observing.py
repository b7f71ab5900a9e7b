"""What a setting does, seen from outside: one observation for each, of settings of any kind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.api.server import ApiOptions, api_options, token_verifier
from holdfast.daemon.daemon import Daemon
from holdfast.daemon.worker_settings import worker_options
from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.contract import Engine
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.engines.socket_path import socket_path
from holdfast.model.errors import DuplicateId, HoldfastError, InvalidInput
from holdfast.model.failure import Failure
from holdfast.model.job import MICROSECONDS, Job, NewJob, State
from holdfast.model.outage import DependencyReport
from holdfast.model.outcome import completed, retry
from holdfast.operations.catalog_files import read_catalog
from holdfast.operations.inputs import JobInput
from holdfast.projections.registry import chosen, declared
from holdfast.settings import Settings, load
from holdfast.stores.opening import own_journal, remote_endpoint
from holdfast.worker.app_loader import load_registry
from holdfast.worker.builtin_tasks import SIMULATE
from holdfast.worker.registry import Registry
from tests.api.issuer import Issuer
from tests.worker.world import World, spec_of

T = TypeVar("T")
APP = str(Path(__file__).parent / "app.py")
PATIENCE_SECONDS = 30.0


def settings_of(**said: object) -> Settings:
    """Return settings that differ from the defaults only in this, and open no port."""
    return load(environ={}, flags={"metrics_port": "off", "stall_seconds": "off", **said}).settings


async def until(
    condition: Callable[[], Awaitable[T]],
    what: str,
    *,
    seconds: float = PATIENCE_SECONDS,
    every_seconds: float = 0.005,
) -> T:
    give_up = asyncio.get_running_loop().time() + seconds
    while not (found := await condition()):
        assert asyncio.get_running_loop().time() < give_up, f"not within time: {what}"
        await asyncio.sleep(every_seconds)
    return found


@contextlib.asynccontextmanager
async def daemon_of(
    settings: Settings, lines: list[str] | None = None, registry: Registry | None = None
) -> AsyncIterator[tuple[Daemon, Engine]]:
    """A daemon in this process, and a client of it."""
    said: list[str] = [] if lines is None else lines
    daemon = Daemon(registry or Registry(), settings, say=said.append)
    await daemon.start()
    client = ClientEngine(socket_path(settings.store))
    try:
        yield daemon, client
    finally:
        await daemon.stop()
        await client.close()


async def in_flight(engine: Engine, ids: list[str], least: int = 1) -> list[Job]:
    """Wait until so many of these are in flight, and return them."""

    async def look() -> list[Job]:
        found = [job for job in await engine.get(ids) if job and job.state is State.IN_FLIGHT]
        return found if len(found) >= least else []

    return await until(look, f"{least} in flight")


def long_jobs(count: int) -> list[NewJob]:
    payload = {"seconds": 600, "fail_rate": 0}
    return [NewJob(task=SIMULATE, id=f"j{n}", payload=payload) for n in range(count)]


# --- places and the store -----------------------------------------------------------------------


def made(**said: object) -> list[str]:
    """The directories that a daemon of these settings makes."""

    async def look() -> None:
        async with daemon_of(settings_of(**said)):
            pass

    before = set(Path().rglob("*"))
    asyncio.run(look())
    return sorted(str(path) for path in set(Path().rglob("*")) - before if path.is_dir())


def syncs(monkeypatch: pytest.MonkeyPatch, **said: object) -> bool:
    """Whether an enqueue is answered only when the disk has said that it keeps it."""
    may_say_so = threading.Event()
    may_say_so.set()
    sync = LocalDisk.sync

    def held(disk: LocalDisk, fd: int) -> None:
        may_say_so.wait(PATIENCE_SECONDS)
        sync(disk, fd)

    monkeypatch.setattr(LocalDisk, "sync", held)

    async def look() -> bool:
        engine = await own_journal(settings_of(**said))
        may_say_so.clear()
        enqueueing = asyncio.ensure_future(engine.enqueue([NewJob(task="t")]))
        answered, _ = await asyncio.wait([enqueueing], timeout=10.0 if said else 0.3)
        may_say_so.set()
        await enqueueing
        await engine.close()
        return not answered

    return asyncio.run(look())


def starts_without_history(**said: object) -> bool:
    """Whether it starts when finished work is there no more."""

    async def look() -> bool:
        engine = await own_journal(settings_of())
        await engine.enqueue([NewJob(task="t", id="a")])
        claim = await engine.claim(queues=["default"], worker="w")
        await engine.settle([completed(claim.jobs[0])])
        await engine.close()
        _damage_history()
        try:
            engine = await own_journal(settings_of(**said))
        except HoldfastError:
            return False
        await engine.close()
        return True

    return asyncio.run(look())


def _damage_history() -> None:
    for path in Path("data").glob("cold.sqlite*"):
        path.write_bytes(b"damaged" * 1_000)


def id_is_free_again(**said: object) -> bool:
    """Whether the id of a finished job can be used again within a moment."""

    async def look() -> bool:
        engine = await own_journal(settings_of(**said))
        await engine.enqueue([NewJob(task="t", id="a")])
        claim = await engine.claim(queues=["default"], worker="w")
        await engine.settle([completed(claim.jobs[0])])
        give_up = asyncio.get_running_loop().time() + (5.0 if said else 0.2)
        taken = False
        while not taken and asyncio.get_running_loop().time() < give_up:
            try:
                taken = bool(await engine.enqueue([NewJob(task="t", id="a")]))
            except DuplicateId:
                await asyncio.sleep(0.01)
        await engine.close()
        return taken

    return asyncio.run(look())


def finished_jobs_kept(**said: object) -> int:
    """How many of eight finished jobs of 16 KiB each are kept."""

    async def look() -> int:
        engine = await own_journal(settings_of(**said))
        for number in range(8):
            new = NewJob(task="t", payload={"text": f"{number}" * 16_384})
            await engine.enqueue([new])
            claim = await engine.claim(queues=["default"], worker="w")
            await engine.settle([completed(claim.jobs[0])])
        await engine.find(limit=1)
        counts = await engine.counts()
        await engine.close()
        return counts["default"].completed

    return asyncio.run(look())


def segments_kept(**said: object) -> int:
    """How many segments are kept after four snapshots."""

    async def look() -> None:
        engine = await own_journal(settings_of(**said))
        for _ in range(4):
            await engine.enqueue([NewJob(task="t")])
            await engine.compact()
        await engine.close()

    asyncio.run(look())
    return len(list(Path("data/log").glob("*.kept")))


def payload_of_a_finished_job(**said: object) -> bytes:
    """What is kept of the payload of a finished job."""

    async def look() -> bytes:
        engine = await own_journal(settings_of(**said))
        await engine.enqueue([NewJob(task="t", id="a", payload={"n": 1})])
        claim = await engine.claim(queues=["default"], worker="w")
        await engine.settle([completed(claim.jobs[0])])
        [job] = await engine.get(["a"])
        await engine.close()
        assert job is not None
        return job.payload

    return asyncio.run(look())


def attempts_charged_in_an_outage(**said: object) -> int:
    """How many attempts a failure costs a while after an outage began."""

    async def look() -> int:
        engine = await own_journal(settings_of(**said))
        await engine.enqueue([NewJob(task="t", id="a")])
        claim = await engine.claim(queues=["default"], worker="w")
        await engine.report_outage([DependencyReport("default", tripped=True)])
        await asyncio.sleep(0.01)
        await engine.settle([retry(claim.jobs[0], Failure.of("timeout", "no answer"))])
        [job] = await engine.get(["a"])
        await engine.close()
        assert job is not None
        return job.attempt

    return asyncio.run(look())


def lease_of(**said: object) -> float:
    """How long a job is held by a claim that asks for 30 seconds."""

    async def look() -> float:
        engine = await own_journal(settings_of(**said))
        await engine.enqueue([NewJob(task="t")])
        job = (await engine.claim(queues=["default"], worker="w", lease_seconds=30.0)).jobs[0]
        await engine.close()
        return (job.lease_until_us - job.claimed_at_us) / MICROSECONDS

    return asyncio.run(look())


# --- the worker, in virtual time ----------------------------------------------------------------


def in_virtual_time(scenario: Callable[[World], Awaitable[T]], **said: object) -> T:
    world = World()
    world.options = worker_options(settings_of(**said))

    async def run(world: World) -> T:
        world.start()
        try:
            return await scenario(world)
        finally:
            await world.stop(0.0)

    return world.run(run)


def at_once(**said: object) -> int:
    async def scenario(world: World) -> int:
        world.registry.add_task(spec_of(world.busy))
        await world.enqueue("busy", 20, payload={"seconds": 1})
        await world.until_state(completed=20)
        return world.most_running

    return in_virtual_time(scenario, **said)


def largest_claim(**said: object) -> int:
    async def scenario(world: World) -> int:
        world.registry.add_task(spec_of(world.busy))
        await world.enqueue("busy", 20, payload={"seconds": 1})
        await world.until_state(completed=20)
        return max(world.engine.demands)

    return in_virtual_time(scenario, **said)


def claims_in_ten_seconds(**said: object) -> int:
    async def scenario(world: World) -> int:
        before = world.engine.calls["claim"]
        await asyncio.sleep(10.0)
        return world.engine.calls["claim"] - before

    return in_virtual_time(scenario, **said)


def queues_served(**said: object) -> list[str]:
    async def scenario(world: World) -> list[str]:
        world.registry.add_task(spec_of(world.busy, queue="mail"))
        for queue in ("mail", "slow"):
            await world.enqueue("busy", queue=queue, payload={"seconds": 0})
        await asyncio.sleep(5.0)
        counts = await world.engine.counts()
        return sorted(queue for queue, count in counts.items() if count.completed)

    return in_virtual_time(scenario, **said)


async def failed(world: World, job_id: str) -> list[Job]:
    job = await world.job(job_id)
    return [] if job.failure is None else [job]


def timed_out_after(**said: object) -> float:
    async def scenario(world: World) -> float:
        world.registry.add_task(spec_of(world.busy))
        started = asyncio.get_running_loop().time()
        [job_id] = await world.enqueue("busy", payload={"seconds": 6_000})
        failing = until(lambda: failed(world, job_id), "it fails", seconds=1_000, every_seconds=0.1)
        [job] = await failing
        assert job.failure is not None
        assert job.failure.error_reason == "timeout"
        return float(round(asyncio.get_running_loop().time() - started))

    return in_virtual_time(scenario, **said)


def held_for(**said: object) -> float:
    async def scenario(world: World) -> float:
        world.registry.add_task(spec_of(world.busy))
        [job_id] = await world.enqueue("busy", payload={"seconds": 1})
        [job] = await in_flight(world.engine, [job_id])
        return (job.lease_until_us - job.claimed_at_us) / MICROSECONDS

    return in_virtual_time(scenario, **said)


def waits_after_a_failure(**said: object) -> bool:
    async def scenario(world: World) -> bool:
        async def fail() -> None:
            raise ConnectionError("it is away")

        world.registry.add_task(spec_of(fail))
        [job_id] = await world.enqueue("fail", max_attempts=2)
        while (job := await world.job(job_id)).failure is None:  # noqa: ASYNC110 - no time passes
            await asyncio.sleep(0)
        return job.state is State.PENDING and job.run_at_us > world.clock.now_us()

    return in_virtual_time(scenario, **said)


def first_waits_differ(**said: object) -> bool:
    async def scenario(world: World) -> bool:
        async def fail() -> None:
            raise ConnectionError("it is away")

        world.registry.add_task(spec_of(fail))
        waits = set()
        for job_id in await world.enqueue("fail", 3):
            [job] = await until(lambda job_id=job_id: failed(world, job_id), "it fails")  # type: ignore[misc]
            waits.add(job.run_at_us)
        return len(waits) > 1

    return in_virtual_time(scenario, **said)


# --- the daemon ---------------------------------------------------------------------------------


def worker_names(**said: object) -> list[str]:
    """Who holds the jobs that run, when there are more than one process can run at once."""

    async def look() -> list[str]:
        settings = settings_of(drain_seconds=0, task_timeout_seconds=600, **said)
        count = 8 * settings.processes
        async with daemon_of(settings) as (_daemon, engine):
            jobs = long_jobs(count)
            await engine.enqueue(jobs)
            found = await in_flight(engine, [str(job.id) for job in jobs], count)
            return sorted({job.worker for job in found})

    return asyncio.run(look())


def event_types(**said: object) -> list[str]:
    Path("events.yaml").write_text("events: {book.read: {entity: book}}")
    return list(read_catalog(settings_of(**said).catalog).checked().types)


def projections(**said: object) -> list[str]:
    Path("views.yaml").write_text(
        "projections: {titles: {key: [id], columns: {id: {from: entity_id}}}}"
    )
    Path("catalog.yaml").write_text("events: {book.read: {entity: book}}")
    return sorted(declared(None, settings_of(**said)))


def projections_applied(**said: object) -> list[str]:
    Path("views.yaml").write_text(
        "projections: {titles: {key: [id], columns: {id: {from: entity_id}}}}"
    )
    Path("catalog.yaml").write_text("events: {book.read: {entity: book}}")
    settings = settings_of(projections="views.yaml", **said)
    return sorted(chosen(declared(None, settings), settings.only_projections))


def task_of_a_job_that_names_none(**said: object) -> str:
    async def look() -> str:
        registry = load_registry(APP)
        async with daemon_of(settings_of(**said), registry=registry) as (daemon, engine):
            assert daemon._operations is not None
            [receipt] = await daemon._operations.enqueue([JobInput({})])
            [job] = await engine.get([receipt.id])
            assert job is not None
            return job.task

    return asyncio.run(look())


def attempts_of_a_new_job(**said: object) -> int:
    async def look() -> int:
        async with daemon_of(settings_of(**said)) as (daemon, engine):
            assert daemon._operations is not None
            [receipt] = await daemon._operations.enqueue([JobInput({}, queue="nobody's")])
            [job] = await engine.get([receipt.id])
            assert job is not None
            return job.max_attempts

    return asyncio.run(look())


def next_step_of(loop: str, **said: object) -> float:
    """How many seconds after a step a loop wants to be called again."""

    async def look() -> float:
        async with daemon_of(settings_of(**said)) as (daemon, _engine):
            return float(await attrgetter(loop)(daemon).step(0)) / MICROSECONDS

    return asyncio.run(look())


def state_after_a_stop(**said: object) -> str:
    """What becomes of a job that has half a second to go when the daemon stops."""

    async def look() -> str:
        settings = settings_of(**said)
        payload = {"seconds": 0.5, "fail_rate": 0}
        async with daemon_of(settings) as (_daemon, engine):
            await engine.enqueue([NewJob(task=SIMULATE, id="a", payload=payload)])
            await in_flight(engine, ["a"])
        engine_again = await own_journal(settings)
        [job] = await engine_again.get(["a"])
        await engine_again.close()
        assert job is not None
        return job.state.value

    return asyncio.run(look())


def flags_of_the_store(**said: object) -> dict[str, bool]:
    async def look() -> dict[str, bool]:
        async with daemon_of(settings_of(**said)) as (_daemon, engine):
            return dict(await engine.flags())

    return asyncio.run(look())


def metrics_at(**said: object) -> list[str]:
    """Where metrics are served, seen by asking there."""

    async def look() -> list[str]:
        lines: list[str] = []
        async with daemon_of(settings_of(**said), lines):
            urls = [line.split()[1] for line in lines if line.startswith("metrics:")]
            for url in urls:
                answer = await asyncio.to_thread(urllib.request.urlopen, url, timeout=10)
                with answer:
                    assert b"queue_depth" in answer.read()
            return [url.rpartition(":")[0] for url in urls]

    return asyncio.run(look())


CERTIFICATES = Path(__file__).parents[1] / "http" / "certificates"


def metrics_answer(host: str = "localhost", **said: object) -> int | str:
    """The status of the metrics, asked by this name; or the setting that is refused."""
    Path("token").write_text("0123456789abcdef\n")
    for name in ("first.crt", "first.key"):
        Path(name).write_bytes((CERTIFICATES / name).read_bytes())

    async def look() -> int:
        lines: list[str] = []
        async with daemon_of(settings_of(metrics_port=0, **said), lines):
            (url,) = (line.split()[1] for line in lines if line.startswith("metrics:"))
            request = urllib.request.Request(url, headers={"Host": host})  # noqa: S310 - our own
            trust = (
                None if url.startswith("http:") else ssl.create_default_context(cafile="first.crt")
            )
            try:
                answer = await asyncio.to_thread(
                    urllib.request.urlopen, request, timeout=10, context=trust
                )
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                return int(answer.status) + (trust is not None) * 1_000

    try:
        return asyncio.run(look())
    except InvalidInput as error:
        return error.field


# --- the HTTP API, and a store behind one --------------------------------------------------------


def api(**said: object) -> ApiOptions:
    """How the process beside a daemon serves the API."""
    return api_options(settings_of(**said))


def token_grants(without: str, **said: object) -> object:
    """Return what a token grants by these settings, or which of them is refused."""
    issuer = Issuer()
    Path("jwks.json").write_text(issuer.document())
    needed = {**issuer.settings("jwks.json"), "api_oidc_roles": "ops=operator,sre=responder"}
    needed.pop(without, None)
    more = {"groups": ["sre"], "areas": ["library:42"], "libraries": "beta"}
    try:
        verifier = token_verifier(settings_of(**{**needed, **said}))
    except InvalidInput as error:
        return error.problem
    if verifier is None:
        return None
    key = asyncio.run(verifier.key(issuer.token(more)))
    return key.roles, key.tenants, key.scopes


def serves_api(**said: object) -> bool:
    """Whether a daemon says where its API is."""

    async def look() -> bool:
        lines: list[str] = []
        async with daemon_of(settings_of(**said), lines):
            return any(line.startswith("API: http://127.0.0.1:") for line in lines)

    return asyncio.run(look())


def remote_key(**said: object) -> str:
    """Return the key that is sent to a store behind an API, or the setting that is refused."""
    Path("key").write_text("0123456789abcdef\n")
    try:
        endpoint = remote_endpoint(settings_of(store="https://localhost:1", **said))
    except InvalidInput as error:
        return error.field
    head = endpoint.head("/", 0).decode()
    return head.partition("Bearer ")[2].partition("\r\n")[0]


def trusts_first(**said: object) -> bool:
    """Whether the certificate of the tests is trusted for a store behind an API."""
    Path("first.crt").write_bytes((CERTIFICATES / "first.crt").read_bytes())
    endpoint = remote_endpoint(settings_of(store="https://localhost:1", **said), "key")
    assert endpoint._tls is not None
    first = ssl.create_default_context(cafile="first.crt").get_ca_certs()
    return all(one in endpoint._tls.get_ca_certs() for one in first)


# --- a process of its own -----------------------------------------------------------------------


def processed(*words: str, **said: object) -> subprocess.CompletedProcess[str]:
    """Run a daemon to its end, by the environment."""
    environ = {"metrics_port": "off", "run_seconds": "0.05", **said}
    names = {f"HOLDFAST_{field.upper()}": str(value) for field, value in environ.items()}
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "run", *words],
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def logged(**said: object) -> list[str]:
    """How it logs: each line's kind."""
    done = processed(**said)
    assert done.returncode == 0, done.stderr
    return ["json" if _is_json(line) else "text" for line in done.stderr.splitlines()]


def event_loop(**said: object) -> list[str]:
    """What the owner and the other worker process run on."""
    told = Path("told")
    told.mkdir(exist_ok=True)
    said |= {"processes": 2, "tell_loop": told, "metrics_port": "off"}
    names = {f"HOLDFAST_{field.upper()}": str(value) for field, value in said.items()}
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", str(Path(__file__).with_name("app.py"))],
        env={**os.environ, **names},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as daemon:
        while len(list(told.iterdir())) < 2:
            assert daemon.poll() is None, daemon.stderr
            time.sleep(0.01)
        daemon.terminate()
        daemon.communicate(timeout=60)
    kinds = sorted(file.read_text() for file in told.iterdir())
    for file in told.iterdir():
        file.unlink()
    return kinds


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def ends_by_itself(**said: object) -> bool:
    """Whether a daemon that nobody stops is gone a moment after it was up."""
    names = {f"HOLDFAST_{field.upper()}": str(value) for field, value in said.items()}
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", "--metrics-port", "off"],
        env={**os.environ, **names},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as daemon:
        assert daemon.stdout is not None
        assert any(line.startswith("workers:") for line in daemon.stdout)
        try:
            return daemon.wait(PATIENCE_SECONDS if said else 0.2) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            daemon.kill()


def notices_a_hanging_task(**said: object) -> bool:
    """Whether somebody notices that a task holds the event loop for a while."""
    done = processed(APP, "--run-seconds", "30", "--drain-seconds", "0", **said, hang="1")
    assert done.returncode == 0, done.stderr
    return "the event loop has not moved" in done.stderr


def end_of_a_task(task: str, payload: dict[str, float], **said: object) -> str:
    """What becomes of a task in a process of its own that takes much memory or time."""

    async def look() -> str:
        settings = settings_of(task_timeout_seconds=60, **said)
        async with daemon_of(settings, registry=load_registry(APP)) as (_daemon, engine):
            job = NewJob(task=task, id="a", payload=payload, max_attempts=1)
            await engine.enqueue([job])

            async def finished() -> Any:
                [found] = await engine.get(["a"])
                return found if found and found.state.finished else None

            return str((await until(finished, "it ends")).state.value)

    return asyncio.run(look())
