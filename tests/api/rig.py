"""The API in this process, on an engine, with keys of any role and reach."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import httpx

from holdfast.api.application import ApiApplication
from holdfast.engines.contract import Engine
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.failure import Failure
from holdfast.model.job import NewJob
from holdfast.model.outcome import dead
from holdfast.model.permissions import Role
from holdfast.model.principal import local_principal
from holdfast.operations.attribution import Author
from holdfast.operations.keys import KeyOperations, KeyRequest

WHO = Author("ann", "a test")


class Api:
    """Makes keys, and calls with them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.application = ApiApplication(engine, default_max_attempts=3)
        transport = httpx.ASGITransport(self.application)  # type: ignore[arg-type]
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        self._made = 0

    async def key(
        self, *roles: Role, tenants: Sequence[str] = ("acme",), scopes: Sequence[str] = ()
    ) -> str:
        """Return the text of a new key."""
        self._made += 1
        request = KeyRequest(
            name=f"key{self._made}", roles=list(roles), tenants=tenants, scopes=scopes
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
async def opened(engine: Engine | None = None) -> AsyncIterator[Api]:
    """Open the API on an engine, by default one in memory."""
    api = Api(engine or MemoryEngine())
    async with api.http:
        yield api
    await api.engine.close()
