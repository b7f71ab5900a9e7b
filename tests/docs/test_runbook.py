"""The runbook: a page for everything, and every command in it works on a real store.

A page is read with a store of its own, in which jobs have failed for its reason. The daemon runs
and the cause is gone, so replays succeed. Each console block has a group of dead letters of its
own: GROUP and the other words in capitals are filled in for it.
"""

import asyncio
import contextlib
import os
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
import yaml

import holdfast
from holdfast.cli.main import main
from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.actions import ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.failure import REASONS, Failure
from holdfast.model.job import NewJob
from holdfast.model.operation import NewOperation
from holdfast.model.outcome import dead
from holdfast.model.policy import Rate
from holdfast.model.search import Filter
from holdfast.settings import Settings
from holdfast.worker import operation_loop
from holdfast.worker.app_loader import load_registry
from tests.cli.conftest import invoke
from tests.cli.shop import running

from .pages import ROOT, Block, blocks_of, commands_of

FOLDER = ROOT / "docs" / "runbook"
SITUATIONS = {
    *("stuck-work", "surge", "overload", "poison-jobs", "disk-full", "damaged-journal"),
    *("postgresql-failover", "replay-gone-wrong", "switching-flags"),
}
SESSIONS = {"chronicle"}
"""Pages that are one session, which ``test_pages`` types: they have parts of their own."""
EVERY_PAGE = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "README")
PAGES = [page for page in EVERY_PAGE if page not in SESSIONS]
WITHOUT_DAEMON = {"damaged-journal"}
NOT_RUN = {
    "disk-full": ["the file system of the reader"],
    "damaged-journal": ["it runs until it is stopped"],
    "postgresql-failover": ["it needs a PostgreSQL server"],
}
"""The blocks that are only parsed, by page, with the reason in the page."""
CHANGES = re.compile(r"holdfast (replay|dead (archive|edit)|jobs cancel)\b")
ACTED = r"^([1-9]\d* jobs? |done [1-9]\d*, failed again 0, cancelled 0, still waiting 0$)"
"""What a command says that has changed jobs, and whose jobs have passed if it waited for them."""
APP = "tests.docs.runbook_app:app"
QUEUE, DEPENDENCY, WORKER, OPERATION = "mail@payments-api", "payments-api", "east", "op-0123456789"
MESSAGES = ("the first door", "a second wall", "some third thing", "number four", "the fifth wheel")
"""Of the groups of the blocks: fingerprints differ by words, not by numbers."""
LETTERS = 3


def console(page: str) -> list[Block]:
    """Return the blocks of a page that have commands."""
    return [block for block in blocks_of(f"docs/runbook/{page}.md") if block.kind == "console"]


async def furnish(store: Path, reason: str, groups: int, *, operation: bool) -> None:
    """Make a store in which jobs have failed and one is in flight; an operation may go on."""
    engine = await JournalEngine.open(store)
    for number in range(groups):
        names = [f"{number}-{letter}" for letter in range(LETTERS)]
        payload = {"to": "ann", "lang": "de"}
        await engine.enqueue(
            [NewJob(id=one, task="send", queue=QUEUE, payload=payload) for one in names]
        )
        taken = (await engine.claim(queues=[QUEUE], worker="w", limit=LETTERS)).jobs
        failure = Failure.of(reason, f"it hit {MESSAGES[number]}")
        await engine.settle([dead(job, failure) for job in taken])
    # Nobody knows this task: what there is of it stays as it is.
    await engine.enqueue(
        [NewJob(id=one, task="walk", queue="far") for one in ("slow1", "slow2", "flying")]
    )
    taken = (await engine.claim(queues=["far"], worker="w", limit=3, lease_seconds=900)).jobs
    failure = Failure.of("timeout", "far away")
    await engine.settle([dead(job, failure) for job in taken if job.id != "flying"])
    if operation:
        new = NewOperation(
            id=OPERATION, action=ReplayJobs(), wanted=Filter(queues=("far",)), rate=Rate(1, 3600.0)
        )
        await engine.start_operation(new, Attribution("ann", "one an hour"))
    await engine.close()


def filled(line: str, words: dict[str, str]) -> list[str]:
    """Return the arguments of a command, with the reader's words in it."""
    program, *args = shlex.split(line, comments=True)
    assert program == "holdfast", line
    pattern = re.compile(rf"\b({'|'.join(words)})\b")
    return [pattern.sub(lambda found: words[found[0]], arg) for arg in args]


def words_of(block: Block, number: int) -> dict[str, str]:
    """Return what the words in capitals stand for in a block."""
    text = f"it hit {MESSAGES[number]}"
    groups = yaml.safe_load(invoke("dead", "groups", "--text", text, "--json").stdout)
    return {
        "GROUP": groups[0]["id"],
        "ID": "flying" if "jobs reclaim" in block.text else f"{number}-0",
        "QUEUE": QUEUE,
        "DEPENDENCY": DEPENDENCY,
        "WORKER": WORKER,
        "OPERATION": OPERATION,
        "APP": APP,
        "OLD_TASK": "post",
        "TASK": "send",
    }


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_works(page, tmp_path_factory, monkeypatch):
    directory = tmp_path_factory.mktemp("page")  # short: a socket's path has to fit
    monkeypatch.chdir(directory)
    for name in [one for one in os.environ if one.startswith(("HOLDFAST_", "OUTBOX_"))]:
        monkeypatch.delenv(name)
    blocks = [block for block in console(page) if not block.why_not]
    assert 2 <= len(blocks) <= len(MESSAGES)
    reason = page.removeprefix("reason-")
    reason = reason if reason in REASONS else "unexpected"
    operation = page == "replay-gone-wrong"
    asyncio.run(furnish(directory / "data", reason, len(blocks), operation=operation))
    monkeypatch.setattr(operation_loop, "BUSY_SECONDS", 0.1)  # a step a second would add up
    monkeypatch.setattr(operation_loop, "IDLE_SECONDS", 0.1)
    settings = Settings(
        store="data", worker_id=WORKER, metrics_port=None, drain_seconds=0, stall_seconds=None
    )
    with contextlib.ExitStack() as stack:
        if page not in WITHOUT_DAEMON:
            stack.enter_context(running(load_registry(APP), settings))
        for number, block in enumerate(blocks):
            words = words_of(block, number)
            for command in commands_of(block.text):
                result = invoke(*filled(command.line, words))
                said = f"{block.place}: {command.line}\n{result.output}"
                assert result.exit_code == 0, said
                if CHANGES.match(command.line) and "--dry-run" not in command.line:
                    assert re.search(ACTED, result.stdout, re.MULTILINE), said


def parse(args: list[str]) -> None:
    """Parse a command as if it was run; raise ``click.UsageError`` for what does not exist."""
    context = main.make_context("holdfast", args)
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, rest, parent=context)


def test_the_blocks_that_are_not_run_are_these_and_their_commands_exist():
    """Commands of other programs are not ours to parse."""
    found = {page: [block for block in console(page) if block.why_not] for page in PAGES}
    assert {page: [one.why_not for one in blocks] for page, blocks in found.items() if blocks} == (
        NOT_RUN
    )
    for block in [one for blocks in found.values() for one in blocks]:
        for command in commands_of(block.text):
            if command.line.startswith("holdfast "):
                parse(filled(command.line, {"APP": APP}))


@pytest.mark.parametrize("wrong", ["dead gruops", "dead try --ap x", "replay --canary many"])
def test_a_command_that_does_not_exist_is_noticed(wrong):
    """The negative control of parsing."""
    with pytest.raises(click.UsageError):
        parse(wrong.split())


def test_there_is_a_page_for_every_reason_and_every_situation():
    assert set(PAGES) == {f"reason-{reason}" for reason in REASONS} | SITUATIONS


def test_the_index_links_to_every_page():
    index = (FOLDER / "README.md").read_text("utf-8")
    listed = set(re.findall(r"^\| \[[^]]+\]\((\S+)\.md\)", index, re.MULTILINE))
    assert listed == set(EVERY_PAGE)
    for reason, failure_class in REASONS.items():
        assert f"| [{reason}](reason-{reason}.md) | {failure_class} |" in index


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_usual_parts_and_is_short(page):
    text = (FOLDER / f"{page}.md").read_text("utf-8")
    assert text.startswith(f"# {page.removeprefix('reason-')}: ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [
        *("What it means", "Check", "Fix", "Replay")
    ]
    assert 25 <= text.count("\n") <= 60


def test_the_page_of_the_chronicle_has_the_eleven_parts():
    text = (FOLDER / "chronicle.md").read_text("utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [
        *("Purpose", "Definitions", "Action context", "Prerequisites", "Shape", "Start and stop"),
        *("Rebuild", "Metrics and alerts", "Common failures", "Replay", "Regression"),
    ]


def test_the_package_has_the_pages():
    """In a checkout it is a link to them, and a wheel is built with them: there are no copies."""
    assert Path(holdfast.__file__).with_name("runbook").samefile(FOLDER)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"docs/runbook": "holdfast/runbook"}
    dockerfile = (ROOT / "deploy" / "docker" / "Dockerfile").read_text("utf-8")
    assert "COPY docs/runbook docs/runbook\n" in dockerfile


@pytest.mark.parametrize(
    ("said", "acted"),
    [
        ("3 jobs archived\n", True),
        ("acted on 3 of 3\ndone 3, failed again 0, cancelled 0, still waiting 0\n", True),
        ("0 jobs archived\n", False),
        ("acted on 3 of 3\ndone 1, failed again 2, cancelled 0, still waiting 0\n", False),
    ],
)
def test_a_command_that_changed_nothing_is_noticed(said, acted):
    """The negative control of running."""
    assert bool(re.search(ACTED, said, re.MULTILINE)) == acted
