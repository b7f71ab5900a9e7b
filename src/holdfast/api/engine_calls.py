"""The engine protocol over the API: workers and producers on other machines.

The calls are those of the socket (``engines.protocol``). Each is made on the engine as the key may
use it, so what a role and its reach do not grant is refused here as everywhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from holdfast.daemon.rpc.dispatch import Dispatcher, request_problem
from holdfast.engines.contract import Engine
from holdfast.engines.protocol import messages
from holdfast.model.principal import Principal
from holdfast.operations.access.denials import DenialLog
from holdfast.operations.access.engine import AuthorizedEngine

from .problems import RequestRefused

_TENANTS = "/v2/tenants/"

EngineResponse = tuple[int, str, bytes]


class EngineCalls:
    """Answers calls of the protocol for keys."""

    def __init__(self, engine: Engine, denials: DenialLog) -> None:
        self._engine = engine
        self._denials = denials
        self._dispatcher = Dispatcher(engine, remote=True)

    def stop(self) -> None:
        """End the claims that wait, and refuse new ones."""
        self._dispatcher.stop()

    async def answer(
        self,
        method: str,
        path: str,
        body: bytes,
        principal: Principal,
        disconnected: Callable[[], Awaitable[None]],
    ) -> EngineResponse:
        """Answer one request; an error is an answer too."""
        if method != "POST":
            text = "it has POST"
            raise RequestRefused("method-not-allowed", text, headers={"allow": "POST"})
        if not path.startswith(messages.PREFIX):
            detail = f"{path[:100]} is of another version of the protocol than {messages.VERSION}"
            return _response(request_problem(messages.NOT_FOUND, detail, (messages.VERSION,)))
        engine = AuthorizedEngine(self._engine, principal, self._denials)
        if path == messages.CALLS_PATH:
            return _response(await self._dispatcher.answer_all(body, engine))
        verb = path[len(messages.PREFIX) :]
        return _response(await self._dispatcher.answer(verb, body, disconnected, engine))


def engine_path(raw_path: bytes) -> tuple[str | None, str] | None:
    """Return the tenant that the path names and the path of the protocol; None: it is another."""
    path, tenant = raw_path.decode("latin-1"), None
    if path.startswith(_TENANTS):
        name, _slash, rest = path[len(_TENANTS) :].partition("/")
        path, tenant = f"/{rest}", unquote(name, errors="replace")
    return (tenant, path) if path.startswith(messages.ROOT) else None


def _response(answer: messages.BatchedAnswer) -> EngineResponse:
    packed = answer.status in (messages.OK, messages.REFUSED)
    return answer.status, messages.MSGPACK if packed else messages.PROBLEM_JSON, answer.body
