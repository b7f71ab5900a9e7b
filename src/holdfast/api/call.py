"""One call of the API: who makes it, for which tenant, with which parameters and body."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast.model.access import DEFAULT_TENANT
from holdfast.model.errors import AccessDenied, Forbidden, JobNotFound
from holdfast.model.job import Job, check_id
from holdfast.model.permissions import Permission
from holdfast.model.principal import Principal
from holdfast.operations.access.denials import DenialLog
from holdfast.operations.attribution import Author
from holdfast.operations.change_watch import ChangeWatch
from holdfast.operations.cursor_secret import CursorSecret
from holdfast.operations.operations import Operations

from .declarations import Declarations
from .problems import FieldError, RequestRefused
from .streaming import BodyStream, StreamedAnswer

if TYPE_CHECKING:
    from .idempotency import KeyedCall

T = TypeVar("T")

MAX_BODY_BYTES = 8 << 20
MAX_DEPTH = 64
_STRING = re.compile(r'"(?:[^"\\]|\\.?)*+(?:"|\Z)', re.DOTALL)
"""One that does not end goes to the end of the text: so nothing is looked at twice."""
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a call is answered."""

    data: object
    status: int = 200
    meta: Mapping[str, object] = {}
    headers: Mapping[str, str] = {}


class ApiCall:
    """A call by somebody who has proved who they are."""

    def __init__(
        self,
        operations: Operations,
        principal: Principal,
        denials: DenialLog,
        cursor_secret: CursorSecret,
        *,
        operation_id: str,
        path: Mapping[str, str],
        query: Sequence[tuple[str, str]],
        headers: Mapping[str, str],
        body: bytes,
        stream: BodyStream,
        watch: ChangeWatch,
        authenticate_again: Callable[[], Awaitable[Principal]],
        draining: Callable[[], bool],
        declared: Declarations,
    ) -> None:
        self.operations = operations
        self.principal = principal
        self.declared = declared
        self.cursor_secret = cursor_secret
        self.operation_id = operation_id
        self.path = path
        self.headers = headers
        self.draining = draining
        """Whether the server is about to end: what waits is to end too."""
        self.tenant = principal.caller.tenant or DEFAULT_TENANT
        """The tenant of a job that is named by its id."""
        self.keyed: KeyedCall | None = None
        """Set if it has an Idempotency-Key."""
        self._denials = denials
        self.query = query
        self._body = body
        self.watch = watch
        self.authenticate_again = authenticate_again
        """Returns who calls now, for what lasts long; raises ``RequestRefused``."""
        self.stream = stream
        """The body, for a route that reads it while it arrives."""

    async def require(self, permission: Permission, *, everything: bool = False) -> None:
        """Raise ``Forbidden`` unless a role of the key grants this; denials are audited.

        With ``everything`` raise ``AccessDenied`` if the reach of the call is limited.
        """
        try:
            self.principal.require(permission)
            if everything:
                self.principal.require_everything(permission)
        except (Forbidden, AccessDenied):
            await self.denied(permission)
            raise

    async def denied(self, permission: Permission) -> None:
        """Have it audited that this was refused."""
        await self._denials.denied(self.principal, permission)

    async def job(self) -> Job:
        """Return the job that the path or the parameter ``id`` names, or raise ``JobNotFound``."""
        job_id = self.path.get("id", "") or self.value("id")
        check_id(job_id)
        job = (await self.operations.engine.get([job_id], tenant=self.tenant))[0]
        if job is None:
            raise JobNotFound(job_id)
        return job

    def author(self, why: str) -> Author:
        """Return who does it, and why; raise ``RequestRefused`` without a reason."""
        if not why.strip():
            text = "say why: it is recorded with the change"
            fields = [FieldError("/why", "why_required", text)]
            raise RequestRefused("why-required", f"why: {text}", fields=fields)
        return Author(self.principal.name, why)

    def values(self, name: str) -> tuple[str, ...]:
        """Return every value of a parameter."""
        return tuple(value for given, value in self.query if given == name)

    def value(self, name: str, default: str = "") -> str:
        """Return the value of a parameter that is given once at most."""
        found = self.values(name)
        if len(found) > 1:
            raise invalid(name, "give it once")
        return found[0] if found else default

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return the value of a parameter that is a whole number."""
        text = self.value(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) <= 9):
            raise invalid(name, f"{text[:60]!r} is not a whole number")
        if not least <= int(text) <= most:
            raise invalid(name, f"give {least} to {most}")
        return int(text)

    def check_parameters(self, known: Sequence[str]) -> None:
        """Refuse a parameter that is not known: a typing error would find too much."""
        for name, _value in self.query:
            if name not in known:
                near = difflib.get_close_matches(name[:100], known, 1)
                meant = f"; is {near[0]!r} meant?" if near else ""
                text = f"{name[:100]!r} is not one of {', '.join(known) or 'none'}{meant}"
                raise RequestRefused("unknown-parameter", text)

    def translated(
        self, body: object = None, query: Sequence[tuple[str, str]] | None = None
    ) -> ApiCall:
        """Return this call with another body or query, for the handler of another version."""
        call = copy.copy(self)
        if body is not None:
            call._body = msgspec.json.encode(body)  # noqa: SLF001 - of its own copy
        if query is not None:
            call.query = query
        return call

    def canonical_body(self) -> bytes:
        """Return the body in a form that does not depend on spaces and the order of fields."""
        if not self._body:
            return b""
        _check_depth(self._body)
        try:
            return msgspec.json.encode(msgspec.json.decode(self._body), order="sorted")
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise RequestRefused("malformed-json", f"the body is not JSON: {error}") from None

    @property
    def media(self) -> str:
        """The type of the body, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def body(self, kind: type[T]) -> T:
        """Return the body; raise ``RequestRefused`` if it is not JSON, or not this."""
        media = self.media
        if media != "application/json" and not media.endswith("+json"):
            raise RequestRefused("unsupported-media-type", "send content-type: application/json")
        return decoded(self._body, kind)


Handle = Callable[[ApiCall], Awaitable[Answer | StreamedAnswer]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A method of a resource. Its ``operation_id`` is stable."""

    operation_id: str
    method: str
    path: str
    """Below ``/v2``, and below ``/v2/tenants/{tenant}``."""
    handle: Handle
    permission: Permission | None
    """What a key needs; None: nothing but to count."""
    summary: str
    parameters: Sequence[str] = ()
    body: object = None
    """The type of the body; of one that is streamed, that of a line."""
    example: object = None
    """A body, as JSON has it; of one that is streamed, a line."""
    streams_body: bool = False
    """Whether it reads the body while it arrives."""
    answers: object = object
    """The type of ``data``."""
    media: Sequence[str] = ()
    """What it may answer with other than JSON in an envelope."""
    envelope: bool = True
    """Whether it may answer with that."""
    statuses: Sequence[int] = (200,)
    other_answers: Mapping[int, object] = {}
    """The type of ``data`` where a status has another one."""
    everything: bool = False
    """Whether it concerns all tenants: for a call of limited reach it does not exist."""
    takes_key: bool = True
    """Whether a change may have an Idempotency-Key."""
    repeat: Callable[[ApiCall], Answer] | None = None
    """Answers a repeat whose answer is not stored; without it the resource is shown as it is."""


def invalid(name: str, problem: str) -> RequestRefused:
    """Return the refusal of a field or a parameter."""
    return RequestRefused(
        "invalid-input",
        f"{name}: {problem}",
        fields=[FieldError(f"/{name}", "invalid_input", problem)],
    )


def decoded(text: bytes, kind: type[T]) -> T:
    """Return what JSON says; raise ``RequestRefused`` if it is not JSON, or not this."""
    _check_depth(text)
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise _invalid_body(str(error)) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise RequestRefused("malformed-json", f"it is not JSON: {error}") from None


def _check_depth(body: bytes) -> None:
    """Refuse what is nested too deep, before it is parsed."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return  # to look for strings costs far more than to parse
    outside = _STRING.sub("", body.decode("latin-1")).encode("latin-1")
    depth = 0
    for bracket in outside.translate(None, _OTHERS):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            text = f"the body is nested deeper than {MAX_DEPTH} levels"
            raise RequestRefused("malformed-json", text)


def _invalid_body(message: str) -> RequestRefused:
    """Return the refusal of a body; msgspec says where: ``… - at `$[0].queue```."""
    problem, _dash, place = message.partition(" - at `$")
    pointer = place.rstrip("`").replace("[", "/").replace("]", "").replace(".", "/")
    return RequestRefused(
        "invalid-input", message, fields=[FieldError(pointer, "invalid_input", problem)]
    )
