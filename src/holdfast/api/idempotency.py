"""``Idempotency-Key``: a change that is sent twice is made once, and answered the same.

What tells a repeat is committed with the change; see ``operations.once``. An answer that is known
before the change is in that record. Any other is stored right after it; if the server ends in
between, or if it is large, a repeat shows the resource as it is by then.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.engines.clock import SystemClock
from holdfast.model.audit import Attribution
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import RANDOM_BYTES, uuid7s
from holdfast.model.job import MICROSECONDS, NAME_LIMIT
from holdfast.model.record import Record
from holdfast.model.visible_text import is_visible_ascii
from holdfast.operations.once import OnceEngine
from holdfast.operations.views import date_of

from .call import Answer, ApiCall, Route, invalid
from .problems import RequestRefused
from .streaming import StreamedAnswer

KIND = "once"
KEPT_SECONDS = 24 * 3_600
MAX_STORED_BYTES = 4_096
HEADER = "idempotency-key"
_CHANGING = ("POST", "PUT", "PATCH", "DELETE")
_STORES = Attribution("holdfast", "the answer of a request with an Idempotency-Key")


class StoredAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of a request and its answer."""

    fingerprint: str
    at_us: int
    request_id: str
    status: int = 0
    """0: the answer is not here."""
    data: msgspec.Raw = msgspec.Raw(b"null")
    meta: dict[str, object] = {}
    headers: dict[str, str] = {}


def idempotency_key(route: Route, headers: Mapping[str, str]) -> str | None:
    """Return the key of a request that changes something, if it has one."""
    key = headers.get(HEADER)
    if key is None or route.method not in _CHANGING:
        return None
    if not route.takes_key:
        raise invalid("Idempotency-Key", "this route takes none: it would not be kept")
    if not is_visible_ascii(key) or not 0 < len(key) <= NAME_LIMIT:
        problem = f"give 1 to {NAME_LIMIT} visible ASCII characters, once"
        raise invalid("Idempotency-Key", problem)
    return key


class KeyedCall:
    """A call that has a key of its own."""

    def __init__(
        self, engine: OnceEngine, call: ApiCall, route: Route, key: str, request_id: str
    ) -> None:
        """``engine`` is the one below the operations of the call."""
        self._engine = engine
        self._call = call
        self._route = route
        scope = [call.tenant, call.principal.key_id, route.operation_id, key]
        owner = hashlib.sha256(call.tenant.encode()).hexdigest()[:16]
        self._name = f"{owner}/{hashlib.sha256(msgspec.json.encode(scope)).hexdigest()}"
        asked = [dict(call.path), sorted(call.query), call.canonical_body().decode()]
        fingerprint = hashlib.sha256(msgspec.json.encode(asked, order="sorted")).hexdigest()
        self.shape: Callable[[Answer], Answer] = lambda answer: answer
        """Turns what is foreseen into the shape of an older version."""
        self._answer = StoredAnswer(fingerprint, SystemClock().now_us(), request_id)
        engine.record = self._record()

    def job_ids(self, count: int) -> Sequence[str]:
        """Return ids for new jobs: a repeat has the same."""
        random = hashlib.shake_256(self._name.encode()).digest(RANDOM_BYTES * count)
        return uuid7s(self._answer.at_us, random)

    def foresee(self, answer: Answer) -> None:
        """Have the answer committed with the change: it is this one, unless nothing changes."""
        self._answer = self._with(self.shape(answer))
        self._engine.record = self._record()

    async def answer(self) -> Answer:
        """Answer as before, or make the change and store its answer."""
        self._call.keyed = self
        stored = await self._stored()
        if stored is not None:
            return await self._again(stored)
        try:
            answer = await self._route.handle(self._call)
            if isinstance(answer, StreamedAnswer):
                raise TypeError("a route that streams its answer takes no key")
        except (HoldfastError, RequestRefused):
            # The same request may have come twice at once: then the other one has changed it.
            stored = await self._stored()
            if stored is None:
                raise
            return await self._again(stored)
        if self._engine.committed:
            await self._keep(answer)
        return self._shown(answer, self._answer)

    async def _stored(self) -> StoredAnswer | None:
        found = await self._engine.records(KIND, [self._name])
        if not found:
            return None
        stored = msgspec.json.decode(found[0].value, type=StoredAnswer)
        if stored.fingerprint != self._answer.fingerprint:
            text = "another request had this Idempotency-Key within 24 hours: choose a new one"
            raise RequestRefused("idempotency-key-reused", text)
        return stored

    async def _again(self, stored: StoredAnswer) -> Answer:
        """Return the answer of the first request."""
        self._answer = stored
        if stored.status:
            answer = Answer(
                data=stored.data, status=stored.status, meta=stored.meta, headers=stored.headers
            )
        else:
            answer = await self._as_it_is()
        headers = {**answer.headers, "idempotency-replayed": "true"}
        return self._shown(replace(answer, headers=headers), stored)

    async def _as_it_is(self) -> Answer:
        """Return what the change was made to, as it is now; nothing if it may not be seen."""
        from .routing import resource_of  # noqa: PLC0415 - the routes import what handles them

        if self._route.repeat is not None:
            return self._route.repeat(self._call)
        shown = Answer(data=None)
        resource = resource_of(self._route)
        if resource is not None:
            with contextlib.suppress(HoldfastError, RequestRefused):
                found = await resource.handle(self._call)
                shown = found if isinstance(found, Answer) else shown
        return replace(shown, status=self._route.statuses[0])

    async def _keep(self, answer: Answer) -> None:
        before = self._record()
        self._answer = self._with(answer)
        after = self._record()
        if after != before:
            with contextlib.suppress(HoldfastError):  # the change is made: a repeat shows it
                await self._engine.set_record(KIND, self._name, after, _STORES, expected=before)

    def _with(self, answer: Answer) -> StoredAnswer:
        data = msgspec.Raw(msgspec.json.encode(answer.data))
        whole = replace(
            self._answer,
            status=answer.status,
            data=data,
            meta=dict(answer.meta),
            headers=dict(answer.headers),
        )
        if len(msgspec.json.encode(whole)) <= MAX_STORED_BYTES:
            return whole
        return StoredAnswer(whole.fingerprint, whole.at_us, whole.request_id)

    def _record(self) -> Record:
        value = msgspec.json.encode(self._answer).decode()
        expires_at_us = self._answer.at_us + KEPT_SECONDS * MICROSECONDS
        return Record(KIND, self._name, value, expires_at_us)

    @staticmethod
    def _shown(answer: Answer, of: StoredAnswer) -> Answer:
        """Return the answer with the time and the id of the request that made the change."""
        told = {"timestamp": date_of(of.at_us), "request_id": of.request_id}
        return replace(answer, meta={**answer.meta, **told})
