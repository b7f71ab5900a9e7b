"""Event types as a catalog file declares them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from .durations import Duration, seconds_of
from .errors import InvalidInput
from .event_fields import class_of, fields_declared
from .event_rules import rule_of_condition
from .event_schema import CHANGE_FIELDS, EventSchema
from .event_type import Change, Coalesce, EventType
from .upcasting import steps_of

MAX_TYPES = 10_000
FOREVER = "forever"
_OPTIONS = (
    "description",
    "entity",
    "entity_id",
    "version",
    "fields",
    "state",
    "key",
    "text",
    "change",
    "retention",
    "coalesce",
    "rules",
    "versions",
)


def types_of(content: object, source: str) -> tuple[list[EventType], list[InvalidInput]]:
    """Return the event types that a file declares, and what is wrong with others."""
    if content is None:
        return [], []
    events = content.get("events") if isinstance(content, Mapping) else None
    if not isinstance(content, Mapping) or not isinstance(events, Mapping) or len(content) != 1:
        problem = "a catalog is `events:` with a mapping of event types, and nothing else"
        return [], [InvalidInput(source, problem)]
    if len(events) > MAX_TYPES:
        return [], [InvalidInput(source, f"more than {MAX_TYPES:,} event types")]
    found: list[EventType] = []
    problems: list[InvalidInput] = []
    for name, declared in events.items():
        try:
            found.append(type_of(str(name), declared, source))
        except InvalidInput as error:
            problems.append(InvalidInput(f"{source}: {name}", f"{error.field}: {error.problem}"))
    return found, problems


def type_of(name: str, declared: object, source: str) -> EventType:
    """Return one event type of a file; raise ``InvalidInput`` naming what is wrong."""
    if not isinstance(declared, Mapping):
        raise InvalidInput("event", "give at least `entity:` and `fields:`")
    for option in declared:
        if option not in _OPTIONS:
            problem = f"{str(option)[:60]!r} is not one of {', '.join(_OPTIONS)}"
            raise InvalidInput("event", problem)
    schema, sensitive = _schema(name, declared)
    event_type = EventType(
        name,
        schema,
        entity=_text(declared, "entity") or _missing("entity"),
        version=_version("version", declared.get("version", 1)),
        description=_text(declared, "description") or "",
        entity_id=_text(declared, "entity_id"),
        key=_text(declared, "key"),
        text=_text(declared, "text"),
        change=cast("Change", declared.get("change", "optional")),
        sensitive=sensitive,
        retention_seconds=retention_of(declared.get("retention", FOREVER)),
        coalesce=coalesce_of(declared.get("coalesce")),
        rules=tuple(
            rule_of_condition(_mapping(one, "rules"), schema)
            for one in _list(declared.get("rules", []), "rules")
        ),
        source=source,
    )
    _add_versions(event_type, _mapping(declared.get("versions", {}), "versions"))
    return event_type


def retention_of(value: object) -> float | None:
    """Return for how many seconds events of a type are kept; None: for ever."""
    if value in (None, FOREVER):
        return None
    if isinstance(value, bool) or not isinstance(value, Duration):
        raise InvalidInput("retention", f"{str(value)[:60]!r} is not forever or a time such as 90d")
    seconds = seconds_of("retention", value)
    if seconds <= 0:
        raise InvalidInput("retention", "give more than 0, such as 90d, or forever")
    return seconds


def coalesce_of(value: object) -> Coalesce | None:
    """Return which events of a type are one; None: each is its own."""
    if value is None:
        return None
    given = _mapping(value, "coalesce")
    window = given.get("window")
    by = _list(given.get("by", []), "coalesce")
    if not given.keys() <= {"window", "by"} or not isinstance(window, str | int | float):
        raise InvalidInput("coalesce", "it is {window: 5m, by: [NAME, …]}")
    seconds = seconds_of("coalesce", window)
    if seconds <= 0:
        raise InvalidInput("coalesce", "give a window of more than 0, such as 5m")
    return Coalesce(seconds, tuple(str(one) for one in by))


def _schema(name: str, declared: Mapping[str, object]) -> tuple[EventSchema, tuple[str, ...]]:
    fields = fields_declared(declared.get("fields", {}), "fields")
    for field in fields:
        if field.name in CHANGE_FIELDS:
            problem = "is stored beside the payload: say `state:` with its fields"
            raise InvalidInput(f"fields.{field.name}", problem)
    sensitive = [path for one in fields for path in one.sensitive]
    if "state" in declared:
        state = {"fields": declared["state"], "required": False}
        both = fields_declared({"before": state, "after": state}, "state")
        sensitive += [path for one in both for path in one.sensitive]
        fields += both
    return EventSchema(class_of(name, fields), name), tuple(sensitive)


def _add_versions(event_type: EventType, versions: Mapping[str, object]) -> None:
    for number, declared in versions.items():
        version = _version("versions", number)
        given = _mapping(declared, f"versions.{version}")
        if not given.keys() <= {"fields", "state", "upcast"} or "upcast" not in given:
            problem = "it is `upcast:` with steps to the next version, and `fields:` if they matter"
            raise InvalidInput(f"versions.{version}", problem)
        schema = None
        if "fields" in given or "state" in given:
            named = {str(name): value for name, value in given.items()}
            schema, _sensitive = _schema(event_type.name, named)
        event_type.add_upcaster(version, steps_of(given["upcast"]), schema)
    if missing := event_type.missing_upcasters():
        problem = f"version {missing[0]} has no `upcast:`: events of it could not be read"
        raise InvalidInput("versions", problem)


def _version(field: str, value: object) -> int:
    if type(value) is not int or value < 1:
        raise InvalidInput(field, f"{str(value)[:60]!r} is not a whole number from 1 up")
    return value


def _text(declared: Mapping[str, object], name: str) -> str | None:
    value = declared.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(name, "it is a text: put it in quotes")
    return value


def _mapping(value: object, field: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidInput(field, "it is a mapping")
    return value


def _list(value: object, field: str) -> list[object]:
    if not isinstance(value, list):
        raise InvalidInput(field, "it is a list")
    return value


def _missing(field: str) -> str:
    raise InvalidInput(field, "is required: what events of this type are about, such as book")
