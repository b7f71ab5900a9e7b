"""Whatever somebody else wrote, no command prints a control character or a bidi mark of theirs."""

import ast
import asyncio
import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.cli import output, top_screen
from holdfast.cli.commands.top import QueueRow, ReasonRow, TopScreen, WorkerRow
from holdfast.cli.top_screen import live_screen
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
from holdfast.settings import read

from .conftest import Daemon, invoke
from .test_projections import CATALOG, ROWS, renamed

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


@pytest.fixture
def projected(planted):
    """Read models with it in their rows, and an outbox."""
    (planted / "catalog.yaml").write_text(CATALOG)
    (planted / "projections.yaml").write_text(ROWS)
    event = renamed(1, f"Emma {HOSTILE}", pages=HOSTILE) | {"reason": HOSTILE, "request_id": "r1"}
    appended = invoke("events", "append", "--json", stdin=json.dumps([event]))
    assert appended.exit_code == 0, appended.output
    for name in ("titles", "chronicle"):
        assert invoke("rebuild", name).exit_code == 0
    assert invoke("rebuild", "chronicle", "--truncate", "--emit-outbox").exit_code == 0
    return planted


READ_MODELS = [
    *("chronicle list", "chronicle search Emma", "projections rows titles"),
    *("projections outbox chronicle", "projections show titles", "chronicle stats --by actor"),
]


@pytest.mark.parametrize("way", ["people", "json"])
def test_no_command_on_read_models_prints_it(projected, way):
    options = ["--json"] if way == "json" else []
    # Emitted again, so that the outbox is full and the chronicle is not.
    rows = [invoke(*one.split(), *options).output for one in READ_MODELS]
    invoke("rebuild", "chronicle")
    listed = json.loads(invoke("chronicle", "list", "--json").stdout)["entries"]
    rows += [invoke(*one.split(), *options).output for one in READ_MODELS[:2]]
    rows += [invoke("chronicle", "show", one["id"], *options).output for one in listed]
    assert [raw_in(shown) for shown in rows] == [[]] * len(rows)
    assert sum("\\u202e" in shown for shown in rows) >= 4


def test_through_a_running_daemon_nothing_of_it_is_printed(planted):
    daemon = Daemon(planted)
    try:
        for command in [*COMMANDS[:14], "events list", f"events show {EVENT}", "top --once"]:
            for options in ([], ["--json"]):
                result = daemon.run(*command.split(), *options)
                assert raw_in(result.output) == [], command
        assert "\\u202e" in daemon.run("jobs", "show", "dead").output
        said = daemon.run("enqueue", stdin=json.dumps({"id": "h", "task": HOSTILE}))
        assert (said.exit_code, raw_in(said.output)) == (2, [])
    finally:
        assert daemon.stop() == 0
    assert raw_in("".join(daemon.said)) == []


def test_the_live_screen_shows_escapes():
    found = TopScreen(
        at=0.0,
        running_daemon=True,
        slots=1,
        busy=1,
        draining=False,
        totals={},
        queues=[QueueRow(HOSTILE, 1, 0, 0, 1, paused=False, oldest_pending_at=None)],
        reasons=[ReasonRow(HOSTILE, HOSTILE, 1, datetime.now(UTC))],
        running=[],
        workers=[WorkerRow(HOSTILE, HOSTILE, 1, 1, draining=False, queues=(HOSTILE,))],
        unserved=[HOSTILE],
    )
    for width in (60, 300):
        shown = io.StringIO()
        console = Console(file=shown, width=width, color_system=None)
        console.print(live_screen(read(None, environ={}).checked().settings, found, width))
        assert raw_in(shown.getvalue()) == []
        assert "\\x1b" in shown.getvalue()


def test_control_without_the_escapes_the_live_screen_shows_it(monkeypatch):
    monkeypatch.setattr(top_screen, "visible", lambda text: text)
    with pytest.raises(AssertionError):
        test_the_live_screen_shows_escapes()


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
    # All of the first plane and of the tags; of the others, which are many, some.
    codes = [*range(0xD800), *range(0xE000, 0x10000), *range(0x10000, 0x110000, 61)]
    every = "".join(map(chr, [*codes, *range(0xE0000, 0xE0200)]))
    encoded = json.dumps({every: every}, ensure_ascii=False).encode()
    shown = visible_json(encoded)
    same = json.loads(shown) == {every: every}, visible(shown.decode()) == shown.decode()
    assert same == (True, True)
