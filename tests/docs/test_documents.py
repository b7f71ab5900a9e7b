"""Links and commands in documents exist, references are up to date, the README is short."""

import re
import shlex
import shutil
import subprocess
import sys

import click
import pytest
import yaml

from holdfast.cli.main import main

from .pages import ROOT, blocks_of, commands_of
from .test_pages import PAGES

DOCUMENTS = [
    path
    for pattern in ("*.md", "docs/**/*.md", "bench/*.md", "examples/*/*.md")
    for path in ROOT.glob(pattern)
]


def test_the_references_are_what_the_code_says():
    done = subprocess.run(
        [sys.executable, "scripts/reference.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, f"{done.stderr}\nrun make docs"


def test_a_reference_that_is_out_of_date_is_found(tmp_path):
    """The negative control: one word changed in a copy."""
    script = (ROOT / "scripts" / "reference.py").read_text("utf-8")
    copy = tmp_path / "scripts" / "reference.py"
    copy.parent.mkdir()
    for other in ("limits_page.py", "python_api.py"):
        shutil.copy(ROOT / "scripts" / other, copy.parent)
    copy.write_text(script.replace('ROOT / "deploy"', f'Path("{ROOT}") / "deploy"'))
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        text = page.read_text("utf-8")
        if page.name == "settings.md":
            text = text.replace("lease", "rent", 1)
        (tmp_path / "docs" / "reference" / page.name).write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, str(copy), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr == "out of date: settings.md: run make docs\n"


def test_the_readme_needs_few_lines_to_the_first_success():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.split("$ make demo")[0].splitlines()) <= 12
    assert text.count("\n") <= 185


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_everything_that_a_document_links_to_exists(document):
    """Files, and headings within them."""
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text("utf-8")):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        file = document.parent / name if name else document
        assert file.exists(), f"{document.name} links to {target}"
        if heading:
            assert heading in headings(file.read_text("utf-8")), f"{document.name}: {target}"


def headings(text: str) -> set[str]:
    """Return the anchors that GitHub makes of the headings."""
    found = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_command_in_the_documents_exists():
    """Also those that are not run, and those in the text: the command and its options are known."""
    lines = [
        command.line
        for page in PAGES
        for block in blocks_of(page)
        if block.kind == "console"
        for command in commands_of(block.text)
    ]
    spoken = [
        text
        for page in DOCUMENTS
        for text in re.findall(r"`(holdfast [^`]+)`", page.read_text("utf-8"))
    ]
    commands = [words(line) for line in [*lines, *spoken] if line.startswith("holdfast ")]
    assert len(commands) >= 100
    for command in commands:
        check(command[1:])


def words(line: str) -> list[str]:
    """Return the words as a shell sees them; a text may quote a part of a command."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def check(typed: list[str]) -> None:
    command: click.Command = main
    known = {"--help", "-h", *options(main)}
    for before, word in zip(["", *typed], typed, strict=False):
        if before == "--where":
            continue  # a filter may begin with a minus
        if word in ("#", "|", "&", ">", "2>>") or word.startswith("#"):
            return
        if word.startswith("-") and len(word) > 1:
            assert word.partition("=")[0] in known, typed
        elif isinstance(command, click.Group):
            found = None
            for name in word.split("|"):
                found = command.get_command(click.Context(command), name)
                if found is None:
                    # The value of an option before the command, or any command at all.
                    assert before.startswith("--") or word.isupper(), typed
            if found is not None:
                command = found
                known |= options(command)


def options(command: click.Command) -> set[str]:
    return {
        option
        # With the usual names: click keeps the first help option that it makes.
        for parameter in command.get_params(
            click.Context(command, help_option_names=["-h", "--help"])
        )
        for option in [*parameter.opts, *parameter.secondary_opts]
    }


def test_every_alert_is_explained():
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text("utf-8"))
    names = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    assert names
    assert [name for name in names if f"| {name} |" not in text] == []
