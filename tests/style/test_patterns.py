"""Every regular expression takes time in proportion to the text: 1 MB of the worst is tried."""

import re
import resource
import subprocess
import sys

import pytest

from . import patterns
from .patterns import FoundPattern

SECONDS = 120
"""Of processor time, so that a busy machine does not matter. A quadratic pattern takes hours."""


def limit_processor_time() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", patterns.module_names())
def test_every_pattern_is_linear(name):
    done = subprocess.run(
        [sys.executable, patterns.__file__, name],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit_processor_time,
    )
    assert done.stdout == "done\n", done.stdout + done.stderr


def test_patterns_are_found_in_every_module_that_has_some():
    found = {name: patterns.patterns_of(name) for name in patterns.module_names()}
    assert all(found.values())
    assert sum(map(len, found.values())) > 60
    assert set(patterns.DYNAMIC) <= set(found)


@pytest.mark.parametrize(
    ("pattern", "method", "size"),
    [
        # What redaction had: 20,000 characters took 50 seconds.
        (r"[\w.-]*token=", "search", 8_192),
        (r"\s+$", "sub", 8_192),
        (r"\[[0-9a-f:]*:[0-9a-f:.]+\]", "search", 8_192),
        # The cube, and exponential: texts as short as these are enough.
        (r"://[^\s]*:[^\s]*@", "search", 1_500),
        (r"(?:\d+)+x", "match", 26),
        (r"(?:a|a)*b", "fullmatch", 26),
    ],
)
def test_control_a_pattern_that_is_not_linear_is_found(pattern, method, size, monkeypatch):
    monkeypatch.setattr(patterns, "SCREEN_SIZE", size)
    monkeypatch.setattr(patterns, "SIZE", 26)
    assert patterns.too_slow(FoundPattern(re.compile(pattern), method)) is not None


def test_control_a_pattern_that_cannot_be_told_is_named(monkeypatch):
    monkeypatch.setattr(patterns, "DYNAMIC", {})
    with pytest.raises(LookupError, match=r"model\.redaction, line"):
        patterns.patterns_of("model.redaction")
