"""What can be wrong with a request: one documented type each, and which error is which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.model import errors


class ProblemType(msgspec.Struct, frozen=True):
    """A kind of problem (RFC 9457); ``docs/problems.md`` has a section for each."""

    name: str
    status: int
    title: str
    retryable: bool = False
    registered: str = ""
    """Its address, if it is a type that others have registered."""

    @property
    def uri(self) -> str:
        """What ``type`` says."""
        return self.registered or f"/problems/{self.name}"


class FieldError(msgspec.Struct, frozen=True):
    """What is wrong with one field; ``pointer`` is a JSON pointer, or the name of a parameter."""

    pointer: str
    code: str
    detail: str


class RequestRefused(Exception):
    """A request that cannot be answered as it is."""

    def __init__(
        self,
        name: str,
        detail: str,
        *,
        fields: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.type = TYPES[name]
        self.detail = detail
        self.fields = list(fields)
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})
        self.api_version = ""
        """The version that refuses, if it is not the current one."""


TYPES: Mapping[str, ProblemType] = {
    one.name: one
    for one in (
        ProblemType("malformed-request", 400, "It is not a request of HTTP"),
        ProblemType("malformed-json", 400, "The body is not JSON"),
        ProblemType("invalid-cursor", 400, "The cursor is not of this list"),
        ProblemType("unknown-parameter", 400, "A parameter is not known here"),
        ProblemType("tenant-required", 400, "The key reaches several tenants"),
        ProblemType("unauthenticated", 401, "No valid key"),
        ProblemType("forbidden", 403, "No role of the key grants this"),
        ProblemType("not-found", 404, "There is no such thing within reach"),
        ProblemType("method-not-allowed", 405, "The resource has no such method"),
        ProblemType("not-acceptable", 406, "There is no such format"),
        ProblemType("request-timeout", 408, "The request took too long to arrive", retryable=True),
        ProblemType("duplicate-id", 409, "The id is taken"),
        ProblemType("illegal-transition", 409, "It is in the wrong state"),
        ProblemType("stale-version", 409, "The version in the body is not the current one"),
        ProblemType("selection-changed", 409, "The plan does not hold any more"),
        ProblemType("lease-lost", 409, "The lease is not held any more"),
        ProblemType("conflict", 409, "It conflicts with what is stored"),
        ProblemType("sunset", 410, "This version of the API has ended"),
        ProblemType("precondition-failed", 412, "If-Match is not the current version"),
        ProblemType("too-large", 413, "It is over a limit"),
        ProblemType("unsupported-media-type", 415, "The body is not application/json"),
        ProblemType("misdirected-request", 421, "The server does not have this name"),
        ProblemType("invalid-input", 422, "A field is invalid"),
        ProblemType("why-required", 422, "Say why it is done"),
        ProblemType("fix-required", 422, "Say what was fixed"),
        ProblemType("filter-too-broad", 422, "No index narrows the filter"),
        ProblemType("idempotency-key-reused", 422, "Another request had this Idempotency-Key"),
        ProblemType("plan-required", 428, "Plan it first"),
        ProblemType("precondition-required", 428, "Give If-Match, or a version in the body"),
        ProblemType("too-many-streams", 429, "Too many streams at once", retryable=True),
        ProblemType(
            "quota-exceeded",
            429,
            "Over a limit of the key or the tenant",
            retryable=True,
            registered="https://iana.org/assignments/http-problem-types#quota-exceeded",
        ),
        ProblemType("headers-too-large", 431, "The headers are over a limit"),
        ProblemType("internal", 500, "A bug in Holdfast"),
        ProblemType("unavailable", 503, "The store is not available", retryable=True),
        ProblemType("storage-full", 507, "The store has no room"),
    )
}

TYPES_OF_SERVER: Mapping[int, str] = {
    TYPES[name].status: TYPES[name].uri
    for name in (
        "malformed-request",
        "request-timeout",
        "too-large",
        "misdirected-request",
        "headers-too-large",
        "internal",
        "unavailable",
    )
}
"""The types of what the server refuses before the application sees it, by status."""

_OF_ERRORS: Mapping[type[errors.HoldfastError], str] = {
    errors.HoldfastError: "internal",
    errors.InvalidInput: "invalid-input",
    errors.TooLarge: "too-large",
    errors.AccessDenied: "not-found",
    errors.Forbidden: "forbidden",
    errors.JobNotFound: "not-found",
    errors.EventNotFound: "not-found",
    errors.UnknownGroup: "not-found",
    errors.UnknownProjection: "not-found",
    errors.UnknownKey: "not-found",
    errors.UnknownOperation: "not-found",
    errors.UnknownQueue: "not-found",
    errors.UnknownSchedule: "not-found",
    errors.DuplicateId: "duplicate-id",
    errors.IllegalTransition: "illegal-transition",
    errors.StaleVersion: "stale-version",
    errors.ChangedMeanwhile: "conflict",
    errors.EventConflict: "conflict",
    errors.LeaseLost: "lease-lost",
    errors.RebuildRunning: "conflict",
    errors.PlanOutdated: "selection-changed",
    errors.UnknownTask: "invalid-input",
    errors.StorageError: "unavailable",
    errors.StorageFull: "storage-full",
    errors.Unavailable: "unavailable",
    errors.EngineClosed: "unavailable",
}
_RETRY_SECONDS = "1"


def refusal_of(error: errors.HoldfastError) -> RequestRefused:
    """Return the problem that an error of Holdfast is to who asked."""
    name = next(_OF_ERRORS[kind] for kind in type(error).__mro__ if kind in _OF_ERRORS)
    if name == "internal":
        return RequestRefused(name, "the log of the server says more of this request")
    if isinstance(error, errors.InvalidInput) and error.field == "cursor":
        name = "invalid-cursor"
    fields: list[FieldError] = []
    extra: dict[str, object] = {}
    headers: dict[str, str] = {}
    detail = str(error)
    if isinstance(error, errors.InvalidInput):
        fields = [FieldError(_pointer(error.field), error.code, error.problem)]
    if isinstance(error, errors.Forbidden):
        extra = {"required_permission": error.permission}
    if name == "not-found":
        detail = "there is no such thing within the reach of this key"
    if TYPES[name].retryable:
        headers = {"retry-after": _RETRY_SECONDS}
    return RequestRefused(name, detail, fields=fields, headers=headers, extra=extra)


def _pointer(field: str) -> str:
    """Return ``/2/queue`` for ``job 3: queue``, as a batch names what is wrong in it."""
    place, colon, name = field.partition(": ")
    if colon and place.startswith("job ") and place[4:].isdigit():
        return f"/{int(place[4:]) - 1}/{name}"
    return f"/{field}"
