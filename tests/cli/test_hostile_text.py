"""Whatever somebody else wrote, no command prints a control character or a bidi mark of theirs."""

import ast
import asyncio
import json
from pathlib import Path

import pytest

from holdfast.cli import output
from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.actions import ArchiveJobs, NoteJobs
from holdfast.model.audit import Attribution, AuditEntry
from holdfast.model.event import NewEvent
from holdfast.model.failure import Failure, FailureClass, bounded
from holdfast.model.fingerprint import fingerprint
from holdfast.model.group_life import GroupChange, GroupKey, GroupVerb, group_id
from holdfast.model.job import NewJob
from holdfast.model.operation import NewOperation
from holdfast.model.outcome import cancelled, completed, dead, retry
from holdfast.model.search import Filter
from holdfast.model.visible_text import visible, visible_json, visible_lines

from .conftest import invoke

CLI = Path(output.__file__).parent
HOSTILE = "x\x1b[2J\x07\x7f\x9b31m\u202eb\u2066\u2069\u200b\u200f\u2028\ufeff\U000e0041\r\nforged"
RAW = [one for one in HOSTILE if not one.isprintable() and one != "\n"]
WHO = Attribution(
    f"anna{HOSTILE}",
    f"why{HOSTILE}",
    (AuditEntry("job.note", "job", "dead", f"anna{HOSTILE}", "{}", f"why{HOSTILE}"),),
)
WRONG = bounded(
    Failure("own", FailureClass.DETERMINISTIC, f"bad{HOSTILE}", f"where\n  File{HOSTILE}")
)
EVENT = "0192f3a4-0000-7000-8000-000000000001"
GROUP = group_id(GroupKey("mail", "send", WRONG.error_reason, 0, fingerprint(WRONG.message)))


async def furnish(path: Path) -> None:
    """Plant it in every field that takes it."""
    engine = await JournalEngine.open(path)
    payload = {"text": HOSTILE, HOSTILE: [HOSTILE]}
    names = ("dead", "retried", "done", "gone", "waits", "held")
    await engine.enqueue(
        [
            NewJob(id=name, task="send", queue="mail", payload=payload, hold=name == "held")
            for name in names
        ]
    )
    claim = await engine.claim(queues=["mail"], worker="w", limit=4)
    jobs = {job.id: job for job in claim.jobs}
    await engine.settle(
        [
            dead(jobs["dead"], WRONG),
            retry(jobs["retried"], WRONG, 3_600.0),
            completed(jobs["done"], json.dumps(HOSTILE, ensure_ascii=False).encode()),
            cancelled(jobs["gone"]),
        ]
    )
    await engine.operate(NoteJobs(HOSTILE), Filter(ids=("dead",)), WHO)
    await engine.set_group(GROUP, GroupChange(GroupVerb.ASSIGN, f"bob{HOSTILE}"), WHO)
    new = NewOperation(id="op1", action=ArchiveJobs(), wanted=Filter(ids=("dead",)))
    await engine.start_operation(new, WHO)
    await engine.append(
        [
            NewEvent(
                id=EVENT,
                event_type="book.opened",
                entity_type="book",
                entity_id="b1",
                actor_id="42",
                actor_name=HOSTILE,
                reason=HOSTILE,
                payload=payload,
                before=payload,
                after={"text": "other"},
            )
        ]
    )
    await engine.close()


@pytest.fixture
def planted(here):
    asyncio.run(furnish(here / "data"))
    return here


COMMANDS = [
    *("jobs list", "jobs list --status dead", "jobs show dead", "jobs show retried"),
    *("jobs show done", "jobs show gone", "jobs show held", "jobs explain retried"),
    *("jobs explain held", "jobs count", "dead list", "dead groups", f"dead group {GROUP}"),
    *("queues list", "audit list", "operations list", "operations show op1", "events list"),
    *(f"events show {EVENT}", "chronicle list", f"chronicle show {EVENT}", "status", "validate"),
    *("flags list", "schedules list", "outages list", "workers list", "doctor", "config show"),
    *("catalog list", "projections list", f"runbook {GROUP}", "journal verify", "journal dump"),
    *("top --once", "audit verify"),
]


def raw_in(shown: str) -> list[str]:
    return [one for one in RAW if one in shown]


@pytest.mark.parametrize("way", ["people", "json"])
def test_no_read_command_prints_what_was_planted(planted, way):
    showed = 0
    for command in COMMANDS:
        result = invoke(*command.split(), *(["--json"] if way == "json" else []))
        assert raw_in(result.output) == [], command
        assert not any(line.startswith("forged") for line in result.output.splitlines()), command
        showed += "\\u202e" in result.output
    assert showed >= 13


def test_control_without_the_escapes_it_is_printed(planted, monkeypatch):
    for name in ("visible", "visible_lines", "visible_json"):
        monkeypatch.setattr(output, name, lambda text: text)
    for way in ("people", "json"):
        with pytest.raises(AssertionError):
            test_no_read_command_prints_what_was_planted(planted, way)


@pytest.mark.parametrize(
    "command",
    [
        ("jobs", "show", HOSTILE),
        ("jobs", "list", "--where", HOSTILE),
        ("jobs", "list", "--queue", HOSTILE),
        ("jobs", HOSTILE),
        (HOSTILE,),
        ("--store", "data", "jobs", "list", f"--{HOSTILE}"),
        ("--config", f"{HOSTILE}.yaml", "jobs", "list"),
        ("load", HOSTILE),
    ],
)
def test_no_error_repeats_what_was_typed(here, command):
    result = invoke(*command)
    assert result.exit_code != 0
    assert raw_in(result.output) == []


def test_nothing_but_the_output_module_prints():
    for path in sorted(CLI.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("echo", "secho", "style"):
                assert path.name in ("output.py", "group.py"), f"{path}: print with output.echo"


def test_what_is_shown_and_what_is_not():
    assert visible("plain ä 漢字 🙂") == "plain ä 漢字 🙂"
    assert visible("a\x1b[31m\u202e\u200d\n\t\x85") == "a\\x1b[31m\\u202e\\u200d\\n\\t\\x85"
    assert visible("\ud800 \U000e0041 \u3164") == "\\ud800 \\U000e0041 \\u3164"
    assert visible_lines("a\n\tb\x1b\r\n") == "a\n\tb\\x1b\\r\n"
    shown = visible("".join(map(chr, range(0x110000))))
    same = visible(shown) == shown
    assert same
    bidi = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0x20), *range(0x7F, 0xA0)]
    assert {chr(one) for one in bidi}.isdisjoint(shown)


def test_json_means_the_same():
    every = "".join(chr(one) for one in range(0x110000) if not 0xD800 <= one < 0xE000)
    encoded = json.dumps({every: every}, ensure_ascii=False).encode()
    shown = visible_json(encoded)
    same = json.loads(shown) == {every: every}, visible(shown.decode()) == shown.decode()
    assert same == (True, True)
