"""Compiles a filter that is written as one line, such as ``queue:mail age>2h -reason:timeout``.

The same word again, or a comma, means or; different words mean and; a minus means not. Ages become
times: a compiled filter means the same later. ``filter_format`` prints a filter in this form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from .errors import InvalidInput
from .failure import LEAST_STATUS, MOST_STATUS, FailureClass
from .filter_terms import Term, nearest, terms_of
from .filter_words import OLD_STATES, PAYLOAD, WORDS, WordKind
from .job import State
from .moments import is_age, moment_us
from .payload_condition import BAD_JSON, PayloadCondition, decoded_json
from .search import Filter

T = TypeVar("T")
Fields = dict[str, object]

_ATTEMPTS = re.compile(r"([0-9]{1,19})(?:(\+)|-([0-9]{1,19})|\.\.([0-9]{1,19}))?")
_DEAD = (State.DEAD, State.ARCHIVED)
_PLAIN_OPERATORS = frozenset({":", "=", "!="})


def compile_filter(text: str, now_us: int) -> Filter:
    """Return the filter; ages count back from ``now_us``.

    Raise ``InvalidInput`` naming the condition that is wrong, its place, and what may be meant.
    """
    wanted = Filter()
    without: list[Filter] = []
    died: Term | None = None
    for term in terms_of(text):
        condition = _condition(term, now_us)
        died = term if term.word == "died" else died
        try:
            condition.check()
        except InvalidInput as error:
            raise term.refused(error.problem) from None
        if term.negated:
            without.append(condition)
        else:
            wanted = _joined(wanted, condition, term)
    wanted = replace(wanted, without=_unique(without))
    return wanted if died is None else _dead_only(wanted, died)


def _dead_only(wanted: Filter, died: Term) -> Filter:
    """Return the filter for those that died then, not for others that finished."""
    if died.negated:
        raise died.refused("only those that died can be asked for; for all write -finished")
    states = tuple(state for state in wanted.states or _DEAD if state in _DEAD)
    if not states:
        raise died.refused("only dead letters have died, and the filter asks for another status")
    return replace(wanted, states=states)


def _condition(term: Term, now_us: int) -> Filter:
    make: Callable[..., Filter] = Filter
    if term.word == PAYLOAD:
        _check_operator(term)
        return Filter(payload=(PayloadCondition.of(term.path, *map(_json, _values(term))),))
    kind, field = WORDS[term.word]
    if kind is WordKind.NUMBER:
        return make(**_attempts(term))
    if kind in (WordKind.AGE, WordKind.TIME):
        return make(**_times(term, field, now_us))
    _check_operator(term)
    texts = [value.text for value in term.values]
    if kind is WordKind.STATES:
        return Filter(states=_unique(_state(term, text) for text in texts))
    if kind is WordKind.CLASSES:
        return Filter(classes=_unique(_class(term, text) for text in texts))
    if kind is WordKind.STATUS_CODES:
        return Filter(statuses=_unique(_status_code(term, text) for text in texts))
    if kind is WordKind.ONE:
        if len(texts) > 1:
            raise term.refused(f"give one {term.word}; put quotes around a text with a comma")
        return make(**{field: texts[0]})
    return make(**{field: _unique(texts)})


def _status_code(term: Term, text: str) -> int:
    if text == "none":
        return 0
    if not (text.isascii() and text.isdecimal() and LEAST_STATUS <= int(text) <= MOST_STATUS):
        raise term.refused(f"{text!r} is not an HTTP status code such as 503, or none")
    return int(text)


def _joined(wanted: Filter, condition: Filter, term: Term) -> Filter:
    """Return a filter with one more condition."""
    changes: Fields = {}
    for field in Filter.__struct_fields__:
        new, old = getattr(condition, field), getattr(wanted, field)
        if new in (None, ()):
            continue
        if old in (None, ()) or new == old:
            changes[field] = new
        elif field == "payload":
            changes[field] = _with_payload(old, new[0])
        elif isinstance(new, tuple):
            changes[field] = _unique([*old, *new])
        elif field.endswith(("_from", "_from_us")):
            changes[field] = max(old, new)
        elif field.endswith(("_to", "_to_us")):
            changes[field] = min(old, new)
        else:
            raise term.refused(f"there is another {term.word} already: give one")
    return replace(wanted, **changes)


def _with_payload(
    conditions: tuple[PayloadCondition, ...], new: PayloadCondition
) -> tuple[PayloadCondition, ...]:
    if all(one.path != new.path for one in conditions):
        return (*conditions, new)
    return tuple(
        PayloadCondition(one.path, _unique([*one.values, *new.values]))
        if one.path == new.path
        else one
        for one in conditions
    )


def _check_operator(term: Term) -> None:
    if term.operator not in _PLAIN_OPERATORS:
        raise term.refused(f"{term.word} has no {term.operator}: write {term.word}:VALUE")


def _one_value(term: Term) -> str:
    if len(term.values) > 1:
        raise term.refused(f"give one value for {term.word}")
    return term.values[0].text


def _values(term: Term) -> list[str]:
    return [value.written for value in term.values]


def _json(written: str) -> object:
    """Return a value of the payload: JSON, or a text without quotes."""
    try:
        return decoded_json(written)
    except BAD_JSON:
        return written


def _state(term: Term, text: str) -> State:
    name = text.lower().replace("-", "_")
    if name in OLD_STATES:
        return OLD_STATES[name]
    try:
        return State(name)
    except ValueError:
        known = [*State, *OLD_STATES]
        raise term.refused(f"{text!r} is not a status; {nearest(name, known)}") from None


def _class(term: Term, text: str) -> FailureClass:
    try:
        return FailureClass(text.lower())
    except ValueError:
        raise term.refused(f"{text!r} is not a class; {nearest(text, [*FailureClass])}") from None


def _attempts(term: Term) -> Fields:
    text = _one_value(term)
    found = _ATTEMPTS.fullmatch(text)
    if found is None:
        raise term.refused("give a number, or a range such as 2-5 or 3+")
    least, more, most, below = found.groups()
    number = int(least)
    if term.operator in _PLAIN_OPERATORS:
        if more:
            return {"attempts_from": number}
        if below:
            return {"attempts_from": number, "attempts_to": int(below)}
        return {"attempts_from": number, "attempts_to": int(most or least) + 1}
    if more or most or below:
        raise term.refused(f"give one number behind {term.operator}")
    return _bound("attempts", "", term.operator, number)


def _times(term: Term, field: str, now_us: int) -> Fields:
    text = _one_value(term)

    def read(one: str) -> int:
        if WORDS[term.word].kind is WordKind.AGE and not is_age(one):
            raise term.refused(f"{one!r} is not an age such as 30m, 2h or 1d12h")
        try:
            return moment_us(term.word, one, now_us)
        except InvalidInput as error:
            raise term.refused(error.problem) from None

    if term.operator in _PLAIN_OPERATORS:
        first, dots, last = text.partition("..")
        if not dots:
            example = "age>2h" if term.word == "age" else f"{term.word}<2h"
            raise term.refused(f"say before or after, as in {example}, or a range FROM..TO")
        ends = sorted((read(first), read(last))) if is_age(first) else (read(first), read(last))
        return {f"{field}_from_us": ends[0], f"{field}_to_us": ends[1]}
    # More than two hours ago is before that time.
    operator = term.operator.translate(_TURNED) if is_age(text) else term.operator
    return _bound(field, "_us", operator, read(text))


_TURNED = str.maketrans("<>", "><")


def _bound(field: str, unit: str, operator: str, number: int) -> Fields:
    if operator.startswith(">"):
        return {f"{field}_from{unit}": number + (operator == ">")}
    return {f"{field}_to{unit}": number + (operator == "<=")}


def _unique(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))
