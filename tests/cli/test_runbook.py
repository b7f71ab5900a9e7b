"""``holdfast runbook``: by reason, group and page, on a terminal and without one."""

import asyncio
import json
import subprocess
import sys

import pytest

from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.failure import REASONS, Failure, FailureClass
from holdfast.model.job import NewJob
from holdfast.model.outcome import dead

from .test_terminal import on_a_terminal


def test_without_an_argument_it_lists_the_pages(hold):
    lines = hold("runbook").stdout.splitlines()
    assert lines[0].split() == ["PAGE", "ABOUT"]
    names = [line.split()[0] for line in lines[1:]]
    assert {"surge", "stuck-work", *REASONS} <= set(names)
    assert "surge        " in "\n".join(lines)
    listed = json.loads(hold("runbook", "--json").stdout)
    assert [one["page"] for one in listed] == names
    for name in names:
        assert hold("runbook", name).exit_code == 0


@pytest.mark.parametrize(
    ("typed", "heading"),
    [
        ("timeout", "# timeout: "),
        ("Upstream-5xx", "# upstream_5xx: "),
        ("reason-worker_lost", "# worker_lost: "),
        ("docs/runbook/surge.md", "# surge: "),
        ("https://docs.example/runbook/poison-jobs.md", "# poison-jobs: "),
        ("stuck work", "# stuck-work: "),
    ],
)
def test_a_page_is_found_by_what_people_have(hold, here, typed, heading):
    found = hold("runbook", typed)
    assert found.exit_code == 0
    assert found.stdout.startswith(heading)
    assert not (here / "data").exists()


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_has_a_page(hold, reason):
    page = json.loads(hold("runbook", reason, "--json").stdout)
    assert page["page"] == f"reason-{reason}"
    assert page["about"].startswith(f"{reason}: ")
    assert page["text"].startswith(f"# {page['about']}\n")


def test_a_group_gets_the_page_of_its_reason_with_its_id(shop):
    (group,) = shop.json("dead", "groups", "--error-reason", "mapping_error")
    text = shop.run("runbook", group["id"]).stdout
    assert text.startswith("# mapping_error: ")
    assert f"holdfast dead try --group {group['id']} --app APP" in text
    assert "GROUP" not in text
    assert f"holdfast runbook {group['id']}" in shop.run("dead", "group", group["id"]).stdout


@pytest.mark.parametrize(
    ("failure_class", "heading"),
    [
        (FailureClass.DETERMINISTIC, "# business_error: "),
        (FailureClass.UNKNOWN, "# unexpected: "),
        (FailureClass.TRANSIENT, "# unexpected: "),
    ],
)
def test_a_reason_of_the_application_has_a_similar_page(hold, here, failure_class, heading):
    async def bury() -> None:
        engine = await JournalEngine.open(here / "data")
        await engine.enqueue([NewJob(task="t")])
        (job,) = (await engine.claim(queues=["default"], worker="w")).jobs
        await engine.settle([dead(job, Failure("quota", failure_class, "no more"))])
        await engine.close()

    asyncio.run(bury())
    (group,) = json.loads(hold("dead", "groups", "--json").stdout)
    found = hold("runbook", group["id"])
    assert found.stdout.startswith(heading)
    assert found.stderr.startswith("'quota' is a reason of the application's own")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("timout", "no page 'timout'; did you mean 'timeout'? `holdfast runbook` lists the pages"),
        ("xyzzy", "no page 'xyzzy'; `holdfast runbook` lists the pages"),
        ("../README", "no page '../README'"),
        ("", "no page ''"),
        ("x" * 5000, "no page 'xxx"),
        ("g-0000000000", "no group of failures has the id 'g-0000000000'"),
    ],
)
def test_what_is_unknown_is_said_with_a_suggestion(closed_shop, typed, said):
    found = closed_shop.run("runbook", typed, code=3)
    assert found.stdout == ""
    assert said in found.stderr
    assert len(found.stderr) < 400


def test_on_a_terminal_it_is_laid_out(here):
    _, shown = on_a_terminal(here, "runbook", "surge")
    assert "\x1b[" in shown
    _, plain = on_a_terminal(here, "runbook", "surge", NO_COLOR="1")
    assert "\x1b" not in plain
    for text in (shown, plain):
        assert "```" not in text
        assert "## " not in text
        assert "What it means" in text


def test_a_page_needs_neither_a_store_nor_an_engine(here):
    """It has to be there when the store is not, and at once."""
    code = (
        "import sys; from holdfast.cli.main import main\n"
        "try: main(['runbook', 'disk-full'])\n"
        "except SystemExit: pass\n"
        "print({'rich', 'sqlite3', 'holdfast.engines.contract'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("# disk-full: ")
    assert done.stdout.splitlines()[-1] == "set()"
