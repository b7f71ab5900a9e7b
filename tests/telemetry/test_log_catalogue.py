"""The catalogue of log events and the source agree: every name, every field, both ways."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engines.structured_log import StructuredLog
from holdfast.model.log_events import EVENTS, FIELDS, JOB_FIELDS

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
MODULES = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
FORBIDDEN = {"payload", "result", "traceback", "message", "args", "password", "token", "url"}


class Call:
    """One place where an event is said."""

    def __init__(self, where: str, event: str, fields: set[str]) -> None:
        self.where = where
        self.event = event
        self.fields = fields


def calls(module: ast.Module, where: str) -> Iterator[Call]:
    """Return every ``log.emit`` in a module; what cannot be read there is an error."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "emit" and ast.unparse(node.func.value) == "log":
            place = f"{where}:{node.lineno}"
            (name,) = node.args
            assert isinstance(name, ast.Constant), f"{place}: the name of an event is a literal"
            fields: set[str] = set()
            for keyword in node.keywords:
                assert keyword.arg is not None, f"{place}: the fields of an event are spelt out"
                if keyword.arg == "about":
                    fields |= set(JOB_FIELDS)
                else:
                    fields.add("error" if keyword.arg == "foreign" else keyword.arg)
            yield Call(place, str(name.value), fields)


def problems(found: list[Call]) -> list[str]:
    """Return where the source and the catalogue differ."""
    wrong: list[str] = []
    said: dict[str, set[str]] = {}
    for call in found:
        if call.event not in EVENTS:
            wrong.append(f"{call.where}: {call.event} is not in the catalogue")
            continue
        said.setdefault(call.event, set()).update(call.fields)
        extra = call.fields - set(EVENTS[call.event].fields)
        wrong += [f"{call.where}: {call.event} has no field {field}" for field in sorted(extra)]
    for name, event in EVENTS.items():
        if name not in said:
            wrong.append(f"{name} is in the catalogue and never said")
        else:
            wrong += [f"{name} never has {f}" for f in event.fields if f not in said[name]]
    return wrong


def in_source() -> list[Call]:
    return [call for path, module in MODULES.items() for call in calls(module, str(path.name))]


def test_the_source_says_what_the_catalogue_lists_and_nothing_else():
    assert problems(in_source()) == []


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('log.emit("job.exploded", job="j")', "job.exploded is not in the catalogue"),
        ('log.emit("daemon.closing", payload="p")', "daemon.closing has no field payload"),
    ],
)
def test_a_difference_is_noticed(source, said):
    found = [*in_source(), *calls(ast.parse(source), "here")]
    assert problems(found) == [f"here:1: {said}"]


def test_an_event_that_nobody_says_is_noticed():
    found = [call for call in in_source() if call.event != "job.dead"]
    assert problems(found) == ["job.dead is in the catalogue and never said"]


def test_nothing_is_logged_past_the_catalogue():
    """Only the event log and the handler know ``logging``; a task's own logger is its own."""
    allowed = {"structured_log.py", "log_output.py", "attempt.py"}
    for path, module in MODULES.items():
        if path.parent.name == "simulation":
            continue  # it listens
        for node in ast.walk(module):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            bad = {"logging", "structlog"} & {name.partition(".")[0] for name in names}
            assert not bad or path.name in allowed, f"{path.name} logs by itself"


def test_every_event_log_is_called_log():
    """So that the walk above sees all that is said."""
    for path, module in MODULES.items():
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "StructuredLog":
                assert f"log = {ast.unparse(node)}" in path.read_text().replace('"', "'"), path


def test_every_entry_is_complete():
    for name, event in EVENTS.items():
        assert name == event.name
        assert name.count(".") == 1
        assert name == name.lower()
        assert event.meaning.endswith(".")
        assert event.action.endswith(".")
        assert set(event.fields) <= set(FIELDS), name
        assert not set(event.fields) & FORBIDDEN
        assert len(set(event.fields)) == len(event.fields)
    used = {field for event in EVENTS.values() for field in event.fields} | {"trace"}
    assert set(FIELDS) == used


def test_no_field_hides_an_attribute_of_a_record():
    record = logging.LogRecord("n", logging.INFO, "p", 1, "m", None, None)
    assert not set(FIELDS) & {*vars(record), "message", "asctime"}


def test_events_of_single_jobs_cannot_drown_the_log():
    for event in EVENTS.values():
        if {"job", "attempt"} <= set(event.fields) and event.name != "worker.slot_failed":
            assert event.level == "debug" or event.summed, event.name


def test_a_record_is_a_line_for_people_and_fields_for_programs(caplog):
    log = StructuredLog("holdfast.test")
    with caplog.at_level(logging.INFO):
        log.emit("worker.process_ended", worker="own/w", pid=7, code=-9)
        log.emit("journal.snapshot_damaged", error=OSError(5, "no good"))
    first, second = caplog.records
    assert first.getMessage() == "worker.process_ended worker=own/w pid=7 code=-9"
    assert (first.worker, first.pid, first.code) == ("own/w", 7, -9)
    assert first.levelno == logging.WARNING
    assert second.getMessage().startswith("journal.snapshot_damaged OSError: [Errno 5] no good")
    assert second.filename == "test_log_catalogue.py", "the caller is named, not the event log"
