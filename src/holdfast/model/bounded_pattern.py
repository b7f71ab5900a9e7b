"""How long a text may be that a regular expression of an operator sees.

A regular expression holds the interpreter's lock, and Python's engine tries every way to divide a
text among the repeats of a pattern. So a pattern is taken if its choices are few: where a repeat
may go on or end, the next character tells which, or it is a choice that is made once and not inside
another repeat. Each such choice, and a pattern that may begin anywhere, is a factor of the text's
length in the steps that a match takes; the text is limited so that they stay within ``MAX_STEPS``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from .errors import InvalidInput

MAX_PATTERN_LENGTH = 500
MAX_STEPS = 1_000_000
"""The most steps of a match: some 20 milliseconds."""
MAX_DEGREE = 3
"""The most factors of the text's length."""

# There is no public way to a parsed pattern; the tests of this module fail if this one changes.
_sre: Any = importlib.import_module("re._constants")
_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")

_REPEATS = (_sre.MAX_REPEAT, _sre.MIN_REPEAT, _sre.POSSESSIVE_REPEAT)
_SINGLE = (_sre.LITERAL, _sre.NOT_LITERAL, _sre.ANY, _sre.IN)
_ASSERTIONS = (_sre.ASSERT, _sre.ASSERT_NOT)
_COMMON = frozenset(
    [*map(chr, range(256)), *"\u0130\u0131\u017f\u0394\u0436\u0663\u2003\u20ac漢🙂"]
)
"""Characters that stand for all others, beside those that a pattern names."""

Characters = frozenset[str]
Node = Any
"""What the parser makes of a pattern has no public type."""
Parts = Sequence[tuple[Node, Node]]


class Start(NamedTuple):
    """What a part of a pattern may begin with, and whether it may match nothing."""

    first: Characters
    empty: bool


def longest_text(pattern: object, field: str) -> int | None:
    """Return the longest text that a pattern may see; None: any. Raise ``InvalidInput``."""
    if type(pattern) is not str or len(pattern) > MAX_PATTERN_LENGTH:
        problem = f"a pattern is a text of at most {MAX_PATTERN_LENGTH} characters"
        raise InvalidInput(field, problem)
    try:
        parsed = _parser.parse(pattern)
        choices = _Choices(field, pattern, _flags_of(parsed))
        choices.count(list(parsed), frozenset(), inside=False)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(field, f"a limit is wrong: {error}") from None
    anchored = (
        any(
            operator is _sre.AT and place in (_sre.AT_BEGINNING, _sre.AT_BEGINNING_STRING)
            for operator, place in list(parsed)[:1]
        )
        and not _flags_of(parsed) & re.MULTILINE
    )
    degree = choices.found + (1 if anchored else 2)
    if degree > MAX_DEGREE:
        raise choices.refused("has too many places where a repeat may end")
    return None if degree == 1 else int(MAX_STEPS ** (1 / degree) + 1e-6)


class _Choices:
    """Counts the places where more than one way to go on begins with the same character."""

    def __init__(self, field: str, pattern: str, flags: int) -> None:
        self.found = 0
        self._field = field
        self._pattern = pattern
        self._flags = flags
        named = {chr(min(max(ord(one) + by, 0), 0x10FFFF)) for one in pattern for by in (-1, 0, 1)}
        self._alphabet = "".join(sorted(_COMMON | named))
        self._known: dict[str, Characters] = {}

    def refused(self, why: str) -> InvalidInput:
        problem = (
            f"the pattern {self._pattern[:60]!r} {why}, so a text could make it take very long: "
            "write it so that the next character tells whether a repeat goes on"
        )
        return InvalidInput(self._field, problem)

    def count(self, parts: Parts, follow: Characters, *, inside: bool) -> None:
        """Count those of a sequence, which these characters may follow."""
        for operator, argument in reversed(parts):
            if operator in _REPEATS:
                self._repeat(argument, follow, inside=inside)
            elif operator is _sre.BRANCH:
                self._branch(_inner(operator, argument), follow, inside=inside)
            else:
                after = frozenset(self._alphabet) if operator in _ASSERTIONS else follow
                for inner in _inner(operator, argument):
                    self.count(inner, after, inside=inside)
            start = self._start([(operator, argument)])
            follow = start.first | follow if start.empty else start.first

    def _repeat(self, argument: Node, follow: Characters, *, inside: bool) -> None:
        least, most, body = argument[0], argument[1], list(argument[2])
        start = self._start(body)
        if most > 1 and start.empty:
            raise self.refused("repeats what may be empty")
        if least != most and start.first & follow:
            self._choice(inside=inside)
        follow = follow | start.first if most > 1 else follow
        self.count(body, follow, inside=inside or most > 1)

    def _branch(self, ways: list[Parts], follow: Characters, *, inside: bool) -> None:
        seen: Characters = frozenset()
        for way in ways:
            start = self._start(way)
            first = start.first | follow if start.empty else start.first
            if first & seen:
                self._choice(inside=inside)
            seen |= first
            self.count(way, follow, inside=inside)

    def _choice(self, *, inside: bool) -> None:
        if inside:
            raise self.refused("has a choice inside a repeat that the next character does not tell")
        self.found += 1

    def _start(self, parts: Parts) -> Start:
        first: Characters = frozenset()
        for operator, argument in parts:
            start = self._start_of(operator, argument)
            first |= start.first
            if not start.empty:
                return Start(first, empty=False)
        return Start(first, empty=True)

    def _start_of(self, operator: Node, argument: Node) -> Start:
        if operator in _SINGLE:
            return Start(self._characters(operator, argument), empty=False)
        if operator in _REPEATS:
            start = self._start(list(argument[2]))
            return Start(start.first, start.empty or argument[0] == 0)
        if operator is _sre.AT or operator in _ASSERTIONS:
            return Start(frozenset(), empty=True)
        if not (ways := _inner(operator, argument)):
            raise self.refused("refers to a group")
        starts = [self._start(way) for way in ways]
        first: Characters = frozenset().union(*(one.first for one in starts))
        return Start(first, any(one.empty for one in starts))

    def _characters(self, operator: Node, argument: Node) -> Characters:
        name = f"{operator} {argument}"
        if name not in self._known:
            state = _parser.State()
            state.str = ""
            item = _parser.SubPattern(state, [(operator, argument)])
            found: set[str] = set()
            for flags in (re.UNICODE, re.UNICODE | self._flags):
                found.update(_compiler.compile(item, flags).findall(self._alphabet))
            self._known[name] = frozenset(found)
        return self._known[name]


def _inner(operator: Node, argument: Node) -> list[Parts]:
    """Return the sequences inside a part."""
    if operator in _REPEATS:
        return [list(argument[2])]
    if operator is _sre.SUBPATTERN:
        return [list(argument[3])]
    if operator is _sre.BRANCH:
        return [list(way) for way in argument[1]]
    if operator in _ASSERTIONS:
        return [list(argument[1])]
    return [list(argument)] if operator is _sre.ATOMIC_GROUP else []


def _flags_of(parsed: Node) -> int:
    """Return the flags of the pattern, with those of its parts."""
    flags = int(parsed.state.flags)
    rest = list(parsed)
    while rest:
        operator, argument = rest.pop()
        if operator is _sre.SUBPATTERN:
            flags |= argument[1]
        for inner in _inner(operator, argument):
            rest += inner
    return flags & (re.IGNORECASE | re.DOTALL | re.MULTILINE)
