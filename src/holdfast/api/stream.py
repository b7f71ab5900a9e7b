"""``/stream``: what changes, as server-sent events: hints to look again, never what is there."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import msgspec

from holdfast.engines.clock import monotonic
from holdfast.model.change_feed import AUDIT, JOBS, OPERATIONS, QUEUE
from holdfast.model.errors import AccessDenied, HoldfastError
from holdfast.model.permissions import Permission
from holdfast.operations.change_watch import ChangeWatch

from .call import ApiCall, Route, invalid
from .problems import RequestRefused
from .streaming import Parts, StreamedAnswer

EVENT_STREAM = "text/event-stream"
KEEP_ALIVE_SECONDS = 15.0
CHECK_RIGHTS_SECONDS = 30.0
MOST_SECONDS = 30 * 60.0
MAX_STREAMS = 500
MAX_STREAMS_OF_A_KEY = 20
MAX_TOPICS_OF_A_STREAM = 50
_RETRY = b"retry: 3000\n\n"
_KEEP_ALIVE = b": still here\n\n"
_OF_THE_STORE = {OPERATIONS: Permission.JOB_READ, AUDIT: Permission.AUDIT_READ}


class ChangedTopic(msgspec.Struct, frozen=True):
    """The data of an event: look at this topic again. An empty topic: look at everything again."""

    topic: str
    seq: str


async def stream_changes(call: ApiCall) -> StreamedAnswer:
    """Send an event whenever one of the topics has changed."""
    topics = list(dict.fromkeys(call.values("topic")))
    if not 0 < len(topics) <= MAX_TOPICS_OF_A_STREAM:
        raise invalid("topic", f"give 1 to {MAX_TOPICS_OF_A_STREAM}")
    for topic in topics:
        await _check_topic(call, topic)
    return StreamedAnswer(
        content_type=EVENT_STREAM,
        parts=_events(call, call.watch, topics),
        headers={"x-accel-buffering": "no"},
    )


async def _check_topic(call: ApiCall, topic: str) -> None:
    needed = _OF_THE_STORE.get(topic)
    if needed is not None:
        await call.require(needed)
        if not call.principal.caller.unlimited:
            raise AccessDenied("topic", topic)
    elif topic != JOBS and not (topic.startswith(QUEUE) and len(topic) > len(QUEUE)):
        known = [JOBS, f"{QUEUE}NAME", *_OF_THE_STORE]
        near = difflib.get_close_matches(topic[:100], known, 1)
        meant = f"; is {near[0]!r} meant?" if near else ""
        raise invalid("topic", f"{topic[:100]!r} is not one of {', '.join(known)}{meant}")


async def _events(call: ApiCall, watch: ChangeWatch, topics: Sequence[str]) -> Parts:
    key_id, reach = call.principal.key_id, call.principal.caller
    if watch.watchers >= MAX_STREAMS:
        raise _too_many(f"this server has {MAX_STREAMS} streams")
    if watch.watchers_of(key_id) >= MAX_STREAMS_OF_A_KEY:
        raise _too_many(f"this key has {MAX_STREAMS_OF_A_KEY} streams")
    async with watch.watching(key_id):
        yield _RETRY
        seen = _last_seen(call.headers.get("last-event-id"), watch)
        sent = checked = begun = monotonic()
        while not (why := _ended(call, watch, begun)):
            parts: list[bytes] = []
            if seen < watch.known_from:
                parts = [_event(watch, "resync", "")]
            else:
                changed = watch.changed(topics, reach, seen)
                parts = [_event(watch, "changed", topic) for topic in changed]
            seen, now = watch.number, monotonic()
            if not parts and now - sent >= KEEP_ALIVE_SECONDS:
                parts = [_KEEP_ALIVE]
            if parts:
                yield b"".join(parts)
                sent = now
            if now - checked >= CHECK_RIGHTS_SECONDS:
                checked = now
                if not await _still_allowed(call, topics):
                    why = "rights"
                    break
            await watch.wait(seen, KEEP_ALIVE_SECONDS / 3)
        yield _event(watch, "goodbye", why)


def _ended(call: ApiCall, watch: ChangeWatch, begun: float) -> str:
    """Return why a stream is to end, if it is."""
    if watch.closed or call.draining():
        return "closing"
    if call.principal.key_id in watch.revoked:
        return "rights"
    return "time" if monotonic() - begun >= MOST_SECONDS else ""


async def _still_allowed(call: ApiCall, topics: Sequence[str]) -> bool:
    """Whether the key still counts and grants what the stream shows; if nobody knows, not."""
    try:
        principal = await call.authenticate_again()
        principal.require(Permission.COUNTS_READ)
        for topic in topics:
            if (needed := _OF_THE_STORE.get(topic)) is not None:
                principal.require(needed)
    except (RequestRefused, HoldfastError):
        return False
    return principal.caller == call.principal.caller


def _last_seen(header: str | None, watch: ChangeWatch) -> int:
    """Return the number after which events are due; -1: nobody knows."""
    if header is None:
        return watch.number
    life, _dash, number = header.partition("-")
    if life != watch.life or not (number.isascii() and number.isdigit() and len(number) <= 18):
        return -1
    return int(number) if int(number) <= watch.number else -1


def _event(watch: ChangeWatch, kind: str, topic: str) -> bytes:
    number = str(watch.number)
    data = msgspec.json.encode(ChangedTopic(topic, number))
    if kind == "goodbye":
        data = msgspec.json.encode({"why": topic})
    return b"id: %b-%b\nevent: %b\ndata: %b\n\n" % (
        watch.life.encode(),
        number.encode(),
        kind.encode(),
        data,
    )


def _too_many(detail: str) -> RequestRefused:
    return RequestRefused("too-many-streams", detail, headers={"retry-after": "10"})


ROUTES = (
    Route(
        operation_id="streamChanges",
        method="GET",
        path="/stream",
        handle=stream_changes,
        permission=Permission.COUNTS_READ,
        summary="Tell what changes, as server-sent events",
        parameters=("topic",),
        media=(EVENT_STREAM,),
        envelope=False,
    ),
)
