"""Two filters as one, which finds what both find."""

from __future__ import annotations

from msgspec.structs import replace

from .errors import InvalidInput
from .payload_condition import PayloadCondition, decoded_json, is_same_json
from .search import Filter, folded

_NAMES = ("ids", "states", "queues", "tasks", "keys", "error_reasons", "classes", "statuses")
_SINGLE = ("tenant", "fingerprint", "replay_run")


class _NothingFound(Exception):
    """No job meets both."""


def intersection(one: Filter, other: Filter) -> Filter:
    """Return the filter for the jobs that both find; raise ``InvalidInput`` if none tells that."""
    try:
        changes: dict[str, object] = {
            field: _common(getattr(one, field), getattr(other, field)) for field in _NAMES
        }
        for field in _SINGLE:
            changes[field] = _same(getattr(one, field), getattr(other, field))
        changes["scope"] = _narrower(one.scope, other.scope)
        changes["workers"] = _workers(one.workers, other.workers)
        changes["payload"] = _payload(one.payload, other.payload)
    except _NothingFound:
        return replace(one, created_to_us=0)
    changes["text"] = _text(one.text, other.text)
    for field in ("attempts_from", "created_from_us", "finished_from_us"):
        changes[field] = _end(getattr(one, field), getattr(other, field), highest=True)
    for field in ("attempts_to", "created_to_us", "finished_to_us"):
        changes[field] = _end(getattr(one, field), getattr(other, field), highest=False)
    changes["without"] = tuple(dict.fromkeys([*one.without, *other.without]))
    found = replace(one, **changes)
    found.check()
    return found


def _common(ours: tuple[object, ...], theirs: tuple[object, ...]) -> tuple[object, ...]:
    if not ours or not theirs:
        return ours or theirs
    return _some([value for value in ours if value in theirs])


def _some(values: list[object]) -> tuple[object, ...]:
    if not values:
        raise _NothingFound
    return tuple(dict.fromkeys(values))


def _same(ours: str | None, theirs: str | None) -> str | None:
    if ours is None or theirs is None:
        return theirs if ours is None else ours
    if ours != theirs:
        raise _NothingFound
    return ours


def _narrower(ours: str | None, theirs: str | None) -> str | None:
    if ours is None or theirs is None or f"{theirs}/".startswith(f"{ours}/"):
        return ours if theirs is None else theirs
    if f"{ours}/".startswith(f"{theirs}/"):
        return ours
    raise _NothingFound


def _workers(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[object, ...]:
    if not ours or not theirs:
        return ours or theirs
    pairs = [(one, other) for one in ours for other in theirs]
    pairs += [(other, one) for one, other in pairs]
    return _some([longer for longer, shorter in pairs if f"/{longer}".endswith(f"/{shorter}")])


def _payload(
    ours: tuple[PayloadCondition, ...], theirs: tuple[PayloadCondition, ...]
) -> tuple[PayloadCondition, ...]:
    found = {condition.path: condition for condition in ours}
    for condition in theirs:
        known = found.get(condition.path)
        if known is not None:
            both = [
                value
                for value in known.values
                if any(_is_same(value, other) for other in condition.values)
            ]
            if not both:
                raise _NothingFound
            condition = PayloadCondition(condition.path, tuple(both))  # noqa: PLW2901
        found[condition.path] = condition
    return tuple(found.values())


def _is_same(one: str, other: str) -> bool:
    return is_same_json(decoded_json(one), decoded_json(other))


def _text(ours: str | None, theirs: str | None) -> str | None:
    if ours is None or theirs is None or folded(ours) in folded(theirs):
        return ours if theirs is None else theirs
    if folded(theirs) in folded(ours):
        return ours
    raise InvalidInput("text", f"{ours!r} and {theirs!r}: only one text can be looked for")


def _end(ours: int | None, theirs: int | None, *, highest: bool) -> int | None:
    if ours is None or theirs is None:
        return theirs if ours is None else ours
    return max(ours, theirs) if highest else min(ours, theirs)
