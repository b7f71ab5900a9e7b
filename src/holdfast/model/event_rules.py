"""Rules between the fields of an event: conditions of a catalog file, and functions in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar, cast

import msgspec

from .errors import InvalidInput
from .event_schema import EventSchema, value_at

Check = Callable[[object, Mapping[str, object]], None]
"""Takes an event as an object and its data; raises ``InvalidInput`` or ``ValueError``."""
F = TypeVar("F", bound=Callable[..., object])

_MARK = "__holdfast_rule__"


def _below(one: object, other: object) -> bool:
    """Whether a number is below another, a time before another, or a text before another."""
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one < other
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    try:  # of different time zones the texts say nothing
        return datetime.fromisoformat(one) < datetime.fromisoformat(other)
    except (ValueError, TypeError):
        return one < other


_COMPARISONS: Mapping[str, tuple[Callable[[object, object], bool], str]] = {
    "equal": (lambda one, other: one == other, "must be the same as"),
    "not_equal": (lambda one, other: one != other, "must differ from"),
    "less": (_below, "must be less than"),
    "less_or_equal": (lambda one, other: one == other or _below(one, other), "must not exceed"),
}
CONDITIONS = (*_COMPARISONS, "required_if", "required_together", "any_of")
"""The conditions of a catalog file."""


class EventRule(msgspec.Struct, frozen=True):
    """A rule: what it says, and what checks it."""

    text: str
    check: Check


def rule(method: F) -> F:
    """Make this method of an event class a rule: it raises ``ValueError`` if the event is wrong.

    ``@app.event`` finds it. Raise ``InvalidInput(field, problem)`` to name the field.
    """
    setattr(method, _MARK, True)
    return method


def rules_of_class(kind: type) -> list[EventRule]:
    """Return the rules among the methods of an event class."""
    found = {
        name: method
        for base in reversed(kind.__mro__)
        for name, method in vars(base).items()
        if getattr(method, _MARK, False)
    }
    return [rule_of_function(method, name) for name, method in found.items()]


def rule_of_function(function: Callable[..., object], name: str = "") -> EventRule:
    """Return the rule that a function checks: it gets the event as an object."""
    if not callable(function):
        raise InvalidInput("rules", f"{function!r} is not a function")
    label = name or getattr(function, "__name__", "rule")
    doc = (getattr(function, "__doc__", None) or "").strip().partition("\n")[0]

    def check(value: object, _data: Mapping[str, object]) -> None:
        try:
            answer = function(value)
        except InvalidInput:
            raise
        except ValueError as error:
            raise InvalidInput(label, str(error) or "this rule is broken") from None
        if answer is False:
            raise InvalidInput(label, doc or "this rule is broken")

    return EventRule(doc or label, check)


def rule_of_condition(declared: Mapping[str, object], schema: EventSchema) -> EventRule:
    """Return the rule of a catalog file; raise ``InvalidInput`` if it is not one."""
    kinds = [name for name in declared if name in CONDITIONS]
    others = [str(name) for name in declared if name not in CONDITIONS and name != "message"]
    if len(kinds) != 1 or others:
        unknown = f"{others[0][:60]!r} is not a condition; " if others else ""
        raise InvalidInput("rules", f"{unknown}a rule has one of {', '.join(CONDITIONS)}")
    message = declared.get("message")
    if message is not None and not isinstance(message, str):
        raise InvalidInput("rules", "message is a text")
    kind, arguments = kinds[0], declared[kinds[0]]
    make = {"required_if": _required_if, "required_together": _together, "any_of": _any_of}
    if kind in make:
        return make[kind](arguments, schema, message)
    return _comparison(kind, arguments, schema, message)


def _comparison(
    kind: str, arguments: object, schema: EventSchema, message: str | None
) -> EventRule:
    one, other = _paths(kind, arguments, schema, 2)
    holds, words = _COMPARISONS[kind]
    text = message or f"{one} {words} {other}"

    def check(_value: object, data: Mapping[str, object]) -> None:
        left, right = value_at(data, one), value_at(data, other)
        if left is not None and right is not None and not holds(left, right):
            raise InvalidInput(one, message or f"{words} {other}")

    return EventRule(text, check)


def _required_if(arguments: object, schema: EventSchema, message: str | None) -> EventRule:
    given = arguments if isinstance(arguments, Mapping) else {}
    when = given.get("when")
    if given.keys() != {"field", "when"} or not isinstance(when, Mapping) or not when:
        raise InvalidInput("rules", "required_if is {field: NAME, when: {OTHER: VALUE}}")
    [field] = _paths("required_if", [given["field"]], schema, 1)
    _paths("required_if", list(when), schema, len(when))
    conditions = {str(path): value for path, value in when.items()}
    shown = " and ".join(f"{path} is {value}" for path, value in conditions.items())
    text = message or f"{field} is required if {shown}"

    def check(_value: object, data: Mapping[str, object]) -> None:
        if all(value_at(data, path) == value for path, value in conditions.items()) and (
            value_at(data, field) in (None, "")
        ):
            raise InvalidInput(field, message or f"is required if {shown}")

    return EventRule(text, check)


def _together(arguments: object, schema: EventSchema, message: str | None) -> EventRule:
    paths = _paths("required_together", arguments, schema)
    text = message or f"{', '.join(paths)} are given together"

    def check(_value: object, data: Mapping[str, object]) -> None:
        missing = [path for path in paths if value_at(data, path) is None]
        if missing and len(missing) < len(paths):
            raise InvalidInput(missing[0], message or f"is required with {', '.join(paths)}")

    return EventRule(text, check)


def _any_of(arguments: object, schema: EventSchema, message: str | None) -> EventRule:
    paths = _paths("any_of", arguments, schema)
    text = message or f"one of {', '.join(paths)} is required"

    def check(_value: object, data: Mapping[str, object]) -> None:
        if all(value_at(data, path) is None for path in paths):
            raise InvalidInput(paths[0], text)

    return EventRule(text, check)


def _paths(
    kind: str, arguments: object, schema: EventSchema, count: int | None = None
) -> list[str]:
    if (
        not isinstance(arguments, list)
        or not all(isinstance(one, str) for one in arguments)
        or len(arguments) != (count or max(2, len(arguments)))
    ):
        raise InvalidInput("rules", f"{kind} takes {count or 'two or more'} names of fields")
    for path in arguments:
        if not schema.has(path):
            known = ", ".join(schema.names)
            raise InvalidInput("rules", f"{kind}: there is no field {path!r}; there are {known}")
    return cast("list[str]", arguments)
