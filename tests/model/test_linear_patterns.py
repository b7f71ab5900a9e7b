"""Work on texts from outside grows with their length, not with its square.

A regular expression holds the interpreter's lock: while it runs, nothing else does, not even the
watchdog. So hostile texts are tried in a process of their own, which has a deadline. What is linear
takes some milliseconds for each; the pattern that was quadratic took minutes for one.
"""

import subprocess
import sys

import pytest

SIZE = 64 * 1024
DEADLINE_SECONDS = 60

WORDS = (
    *("A", "0", " ", "\n", "[", "://", "://a:", "://a@", "a://a:9@", "aa://"),
    *("token", "token ", "token=", "token= ", 'token="', "token='", 'token=\\"', "token=\\"),
    *("tokenx-", "token\n=", "session_id", "cookie ", "cookie:", "cookie:\n", "pass ", "auth:"),
    *(
        "passwd_",
        "api_key",
        "apikey_=",
        "1.",
        "1h",
        "1ms ",
        'role "',
        "on socket ",
        "@",
        ".",
        "'\"",
    ),
)
"""Repeated until the text is long. Some begin a match, and none of them ends it."""
ENDS = ("", "=", "@")
FUNCTIONS = (
    "model.redaction.without_secrets",
    "model.redaction.masked",
    "model.redaction.names_a_secret",
    "model.redaction.shown",
    "model.fingerprint.fingerprint",
    "model.durations.seconds_of|field",
    "model.schema_name.check_schema|field",
    "settings.parsers.PARSERS|store",
    "settings.parsers.PARSERS|wal_path",
    "settings.parsers.PARSERS|worker_count",
    "settings.parsers.PARSERS|queues",
    "settings.parsers.PARSERS|flags",
    "cli.options.moment_us|field",
    "operations.named_filter._attempts",
    "model.policy.rate_of|field",
    "cli.commands.queues._whole|field",
    "operations.named_audit_filter.audit_head_of",
    "engines.postgres.errors._unreachable|error",
)

PROGRAM = """
import importlib, sys
from holdfast.model.errors import InvalidInput
name, kind = (sys.argv[1] + "|").split("|")[:2]
module, _, function = name.rpartition(".")
call = getattr(importlib.import_module("holdfast." + module), function)
if function == "PARSERS":
    call, kind = call[kind], "field"
size, words, ends = int(sys.argv[2]), eval(sys.argv[3]), eval(sys.argv[4])
for word in words:
    body = (word * (size // len(word) + 1))[:size]
    for text in [body + end for end in ends] + ["postgresql://" + body]:
        arguments = {"": (text,), "field": ("field", text), "error": (OSError(text), "")}[kind]
        try:
            call(*arguments)
        except InvalidInput:
            pass
print("done")
"""


def run(function: str, size: int, deadline_seconds: float, before: str = "") -> None:
    done = subprocess.run(
        [sys.executable, "-c", before + PROGRAM, function, str(size), repr(WORDS), repr(ENDS)],
        capture_output=True,
        text=True,
        timeout=deadline_seconds,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_long_text_takes_time_in_proportion(function: str) -> None:
    run(function, SIZE, DEADLINE_SECONDS)


UNBOUNDED = """
import re
from holdfast.model import redaction
redaction._ASSIGNED = redaction._ASSIGNED.replace("(?P<name>", r"(?P<name>[\\w.-]*")
"""


def test_control_an_unbounded_pattern_misses_the_deadline() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run("model.redaction.without_secrets", SIZE, 5, UNBOUNDED)
