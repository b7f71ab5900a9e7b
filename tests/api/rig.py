"""The API in this process, on an engine, with keys of any role and reach."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import httpx

from holdfast.api.application import ApiApplication
from holdfast.api.limits import LimitOptions
from holdfast.api.oidc import TokenVerifier
from holdfast.api.request_handler import ServiceOptions
from holdfast.engines.contract import Engine
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.event import NewEvent
from holdfast.model.failure import Failure
from holdfast.model.fleet import CommandAnswer, ProcessSlots, WorkerProcess
from holdfast.model.job import NewJob
from holdfast.model.outcome import dead
from holdfast.model.permissions import Role
from holdfast.model.principal import local_principal
from holdfast.model.projection import RebuildMode
from holdfast.operations.attribution import Author
from holdfast.operations.keys import KeyOperations, KeyRequest
from holdfast.operations.projections import ProjectionOperations

from .library import declarations

WHO = Author("ann", "a test")


class Api:
    """Makes keys, and calls with them."""

    def __init__(
        self,
        engine: Engine,
        limits: LimitOptions | None = None,
        tokens: TokenVerifier | None = None,
        looking: Engine | None = None,
    ) -> None:
        self.engine = engine
        options = ServiceOptions(
            default_max_attempts=3,
            limits=limits or LimitOptions(),
            declared=declarations(),
            tokens=tokens,
        )
        self.application = ApiApplication(engine, options, looking)
        transport = httpx.ASGITransport(self.application)  # type: ignore[arg-type]
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        self._made = 0
        self.rebuild_id = ""
        """The last rebuild."""

    async def key(
        self,
        *roles: Role,
        tenants: Sequence[str] = ("acme",),
        scopes: Sequence[str] = (),
        name: str = "",
        rate: int = 0,
    ) -> str:
        """Return the text of a new key; without a name it is ``key1``, ``key2``, …"""
        self._made += not name
        request = KeyRequest(
            name=name or f"key{self._made}",
            roles=list(roles),
            tenants=tenants,
            scopes=scopes,
            requests_per_minute=rate,
        )
        keys = KeyOperations(self.engine, local_principal("ann"))
        return (await keys.create(request, WHO)).text

    async def call(
        self,
        key: str,
        method: str,
        path: str,
        *,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request with a key."""
        sent = {"authorization": f"Bearer {key}", **(headers or {})}
        if body is None:
            return await self.http.request(method, path, headers=sent)
        if isinstance(body, bytes):
            sent = {"content-type": "application/x-ndjson", **sent}
            return await self.http.request(method, path, headers=sent, content=body)
        return await self.http.request(method, path, headers=sent, json=body)

    async def event(
        self, event_id: str, tenant: str, scope: str = "", title: str = "Ulysses"
    ) -> None:
        """Store an event of a book."""
        new = NewEvent(
            event_type="book.added",
            entity_type="book",
            entity_id="b1",
            actor_id="ann",
            id=event_id,
            tenant=tenant,
            scope=scope,
            payload={"book_id": "b1", "title": title},
        )
        await self.engine.append([new])

    async def project(self) -> None:
        """Fill the tables of all projections with the events that there are."""
        known = declarations()
        projections = ProjectionOperations(self.engine, known.projections, known.read)
        for name in known.projections:
            started = await projections.start(name, RebuildMode.GENERATION, WHO)
            assert (await projections.drive(name, started.id)).phase == "done"
            self.rebuild_id = started.id

    @contextlib.asynccontextmanager
    async def worker(self, name: str) -> AsyncIterator[None]:
        """Have a live worker that says done to every command."""
        process = WorkerProcess(
            id=f"life-of-{name}",
            name=name,
            host="host",
            pid=1,
            version="1",
            started_at_us=1,
            slots={"": 4},
            processes={name: ProcessSlots(4, 0, draining=False)},
            task_queues=("mail@smtp",),
        )
        await self.engine.announce(process, ttl_seconds=60)

        async def answer() -> None:
            answers: list[CommandAnswer] = []
            while True:
                sent = await self.engine.announce(process, ttl_seconds=60, answers=answers)
                answers = [CommandAnswer(one.id, process.id) for one in sent]
                await asyncio.sleep(0.01)

        answering = asyncio.create_task(answer())
        try:
            yield
        finally:
            answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answering

    async def dead_letter(
        self, job_id: str, tenant: str = "acme", scope: str = "", text: str = ""
    ) -> None:
        """Make a job and have it fail for good."""
        job = NewJob(
            task="t", id=job_id, tenant=tenant, queue="dead", scope=scope, payload={"text": text}
        )
        await self.engine.enqueue([job])
        claim = await self.engine.claim(queues=["dead"], worker="w")
        failure = Failure.of("timeout", f"took long {job_id}")
        await self.engine.settle([dead(claim.jobs[0], failure)])


@contextlib.asynccontextmanager
async def opened(
    engine: Engine | None = None,
    limits: LimitOptions | None = None,
    tokens: TokenVerifier | None = None,
) -> AsyncIterator[Api]:
    """Open the API on an engine, by default one in memory."""
    api = Api(engine or MemoryEngine(), limits, tokens)
    async with api.http:
        yield api
    await api.engine.close()
