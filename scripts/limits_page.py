"""The page of limits, from the constants that the readers themselves use."""

from __future__ import annotations

from holdfast.engines import contract
from holdfast.engines.dump import reading
from holdfast.engines.dump.format import BLOCK_RECORDS
from holdfast.engines.journal.wal import frames
from holdfast.engines.protocol import messages
from holdfast.model import (
    audit,
    event,
    failure,
    filter_terms,
    job,
    payload_condition,
    search,
    subscription,
)
from holdfast.operations import catalog_files
from holdfast.settings import files, sources, yaml_text
from holdfast.telemetry import log_output

NAMES = "printable characters: no controls, bidi marks, line breaks or characters without a width"
LIMITS: tuple[tuple[str, str], ...] = (
    (
        (
            "names of queues, tasks, tenants, keys, unique keys, workers, flags, schedules, "
            "dependencies, event types and entities; ids of jobs and operations"
        ),
        f"1 to {job.NAME_LIMIT} {NAMES}",
    ),
    ("a scope", f"up to {job.SCOPE_LIMIT:,} printable characters, a path without empty parts"),
    ("the name of a subscription", f"1 to {subscription.MAX_NAME} printable characters"),
    ("the name of a projection", "1 to 40 of a-z, 0-9 and _, with a letter first"),
    ("a cron expression", f"up to {job.NAME_LIMIT} characters; ranges within their field"),
    ("who, in an action", f"up to {audit.NAME_LIMIT} characters"),
    ("why, a note", f"up to {audit.TEXT_LIMIT:,} characters"),
    (
        "a payload",
        (
            f"{job.MAX_PAYLOAD_BYTES:,} bytes; an engine may allow up to "
            f"{contract.MOST_PAYLOAD_BYTES:,}"
        ),
    ),
    ("a result", f"{job.MAX_RESULT_BYTES:,} bytes"),
    ("an event with its payload, before, after and diff", f"{event.MAX_EVENT_BYTES:,} bytes"),
    ("an append", f"{event.MAX_APPEND:,} events"),
    ("jobs that a job waits for", f"{job.MAX_DEPENDENCIES:,}"),
    ("an error message", f"cut to {failure.MESSAGE_LIMIT:,} characters"),
    ("a traceback", f"cut to its last {failure.TRACEBACK_LIMIT:,} characters"),
    (
        "a filter in one line",
        f"{filter_terms.MAX_LENGTH:,} characters and {filter_terms.MAX_TERMS} conditions",
    ),
    (
        "a filter",
        (
            f"{search.MAX_NAMES:,} names of a kind, {search.MAX_CONDITIONS} conditions on the "
            f"payload, paths of {payload_condition.MAX_PATH} parts"
        ),
    ),
    ("a page of a list", f"{search.MAX_PAGE:,}"),
    ("a settings file", f"{files.MAX_FILE_BYTES:,} bytes"),
    ("a catalog or projection file", f"{catalog_files.MAX_FILE_BYTES:,} bytes"),
    ("YAML", f"{yaml_text.MAX_DEPTH} levels, {yaml_text.MAX_NODES:,} keys and values, no aliases"),
    ("a variable of the environment, a flag", f"{sources.MAX_VALUE_LENGTH:,} characters"),
    ("a body on the socket", f"{messages.MAX_BODY_BYTES:,} bytes"),
    (
        "a frame of the log",
        f"{frames.MAX_FRAME_BYTES:,} bytes; a chunk of a snapshot unpacks to twice that at most",
    ),
    (
        "a block of a dump",
        (
            f"{BLOCK_RECORDS:,} records; {reading.MAX_BLOCK_BYTES:,} bytes as "
            f"stored and unpacked, of which {reading.MAX_RECORD_BYTES:,} are decoded at a time"
        ),
    ),
    (
        "a record of a dump",
        f"{reading.MAX_RECORD_BYTES:,} bytes, and the checks of an enqueue, an append or an action",
    ),
    ("a log record", f"cut to {log_output.MAX_RECORD_CHARACTERS:,} characters of text"),
)


def limits_page() -> str:
    """Return the page."""
    rows = "\n".join(f"| {what} | {limit} |" for what, limit in LIMITS)
    return f"""# Limits

Everything that comes from outside is measured before it is used. What is larger is refused with a
typed error, except where it says *cut*.

| what | limit |
|---|---|
{rows}

What somebody else wrote is shown with escapes for control characters, bidi marks, characters
without a width and line breaks: `\\x1b`, `\\u202e`, `\\n`. That holds for every command and for the
log. In `--json` they are JSON escapes, on a terminal and elsewhere: the value is the same.
"""
