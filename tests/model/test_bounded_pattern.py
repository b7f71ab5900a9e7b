"""A pattern of a catalog takes bounded time, whatever text it is tried on."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.bounded_pattern import MAX_PATTERN_LENGTH, longest_text
from holdfast.model.catalog_document import types_of
from holdfast.model.errors import EventInvalid, InvalidInput

PROGRAM = Path(__file__).parent.parent / "style" / "patterns.py"
CATASTROPHIC = (
    *("(a+)+$", "(a*)*b", "(a|a)*$", "(a|aa)+$", "([a-z]+)*1", r"^(\w+\s?)*$", "(.*)*x"),
    *("(a{1,50}){1,50}b", "^(?:a?){30}a{30}$", "a*a*a*a*b", "(?:a|b|ab)*c", "(?i)(Ab|aB)*$"),
    *("x*" * 40 + "y", "(a|aa|aaa)?" * 20 + "b", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(a+)\1+b"),
    *(r"^(?=(a+)+$)", r"([а-я]x|\wx)*$"),
)
"""Each takes more than a second for some text of 100 characters, or more than that for longer."""
TAKEN = {
    "^[0-9]{13}$": None,
    "^[a-z0-9]+(?:-[a-z0-9]+)*$": None,
    r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$": None,
    r"^(\d{1,3}\.){3}\d{1,3}$": None,
    "^(?:red|green|blue)$": None,
    "^([A-Z][a-z]+)+$": None,
    r"^https?://[^/]+(/.*)?$": None,
    r"^(?:.*\n)*$": None,
    "[a-z]+": 1_000,
    r"\d+$": 1_000,
    r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$": 1_000,
    "^.*foo.*$": 1_000,
    r"^(?=.*\d).*$": 1_000,
    "^[a-z]*[a-m]*[0-9]*$": 1_000,
    ".*,.*$": 100,
    r"^\s+|\s+$": 100,
}
"""Patterns with the longest text that they may see."""

TRY = """
import re, sys
import patterns
for pattern, longest in zip(sys.argv[1::2], map(int, sys.argv[2::2])):
    compiled = re.compile(pattern)
    for before, unit, end in patterns.texts_of(compiled):
        text = before + unit * (longest // len(unit)) + end
        compiled.search(text[:longest - 1] + (end or "\\0"))
print("done")
"""


def tried(*pairs: str, seconds: float) -> str:
    """Try hostile texts of these lengths on these patterns, in a process with a deadline."""
    command = [sys.executable, "-c", TRY, *pairs]
    return subprocess.run(
        command, cwd=PROGRAM.parent, timeout=seconds, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_a_catastrophic_pattern_is_refused(pattern):
    with pytest.raises(InvalidInput, match="could make it take very long"):
        longest_text(pattern, "fields.x")


@pytest.mark.parametrize("pattern", TAKEN)
def test_plain_patterns_are_taken(pattern):
    assert longest_text(pattern, "fields.x") == TAKEN[pattern]


def test_what_is_taken_ends_soon_for_hostile_texts():
    pairs = [part for one in TAKEN for part in (one, str(TAKEN[one] or 20_000))]
    assert tried(*pairs, seconds=120) == "done\n"


def test_control_what_is_refused_does_not_end():
    with pytest.raises(subprocess.TimeoutExpired):
        tried("(a+)+$", "100", seconds=2)


@pytest.mark.parametrize("pattern", ["[", "a" * (MAX_PATTERN_LENGTH + 1), "(" * 400, 7, None])
def test_what_is_not_a_pattern_is_refused(pattern):
    with pytest.raises(InvalidInput):
        longest_text(pattern, "fields.x")


def event_type(field: dict[str, object]):
    content = {"events": {"book.opened": {"entity": "book", "fields": {"text": field}}}}
    return types_of(content, "catalog.yaml")


def test_a_catalog_limits_what_a_pattern_sees():
    [found], [] = event_type({"pattern": "[a-z]+"})
    found.schema.decode(b'{"text": "%s"}' % (b"a" * 1_000))
    with pytest.raises(EventInvalid, match="length <= 1000"):
        found.schema.decode(b'{"text": "%s"}' % (b"a" * 1_001))
    _none, [problem] = event_type({"pattern": "[a-z]+", "max_length": 1_001})
    assert "max_length is more than 1000" in str(problem)
    [found], [] = event_type({"pattern": "^[a-z]+$"})
    found.schema.decode(b'{"text": "%s"}' % (b"a" * 100_000))


def test_a_catalog_refuses_a_catastrophic_pattern():
    none, [problem] = event_type({"pattern": "(a+)+$"})
    assert none == []
    assert "fields.text" in str(problem)
