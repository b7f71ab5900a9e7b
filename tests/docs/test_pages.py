"""Every block of every page runs, in order, as a reader would type it."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.operations.catalog_files import read_catalog
from holdfast.projections.registry import declared
from holdfast.settings import Settings, read

from .pages import ROOT, Block, blocks_of, commands_of, matches
from .shell import USUAL_SERVER, Shell, environment

PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [
        *(ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "docs" / "runbook" / "chronicle.md"),
        *(ROOT / "docs").glob("*.md"),
    ]
)
NOTHING_TO_RUN = {"text", "mermaid"}
NOT_RUN = {
    "README.md": ["it makes a virtual environment"],
    "docs/http-api.md": ["it needs an identity provider"] * 2,
    "docs/operations.md": ["the ids of groups depend on what failed"],
    "docs/projections.md": ["it needs a checkout"],
    "docs/postgresql.md": ["psql is not part of Holdfast"],
    "docs/quickstart.md": ["installing needs the network"],
    "docs/transactional-enqueue.md": ["it needs a PostgreSQL server"] * 9,  # tests/engines/postgres
    "docs/tutorial.md": ["a unit file of systemd", "a Dockerfile"],
}
"""The blocks that cannot run here, by page, with the reason in the page."""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page, tmp_path_factory, request):
    """The page is one session: files are written, commands typed, and output compared."""
    blocks = [block for block in blocks_of(page) if not block.why_not]
    if any(USUAL_SERVER in block.text for block in blocks):
        databases = request.getfixturevalue("server18")
        with databases.bare() as database:
            _read(blocks, tmp_path_factory.mktemp("page"), databases.store(database))
    else:
        _read(blocks, tmp_path_factory.mktemp("page"))  # short: a socket's path has to fit


def _read(blocks: list[Block], tmp_path: Path, server: str = USUAL_SERVER) -> None:
    shell = Shell(tmp_path, environment(tmp_path), server)
    try:
        for block in blocks:
            try:
                _do(block, shell, tmp_path)
            except AssertionError as error:
                raise AssertionError(f"{block.place}\n{error}") from None
        assert shell.status == 0, "the last command failed"
        shell.close()
    except BaseException:
        shell.abandon()
        raise


def _do(block: Block, shell: Shell, directory: Path) -> None:
    if block.kind in NOTHING_TO_RUN:
        return
    if block.kind == "console":
        for command in commands_of(block.text):
            if shell.status:
                assert command.line == "echo $?", f"$ {command.line}: the one before it failed"
            shell.check(command)
        return
    assert block.kind in ("python", "yaml", "toml"), f"{block.kind or 'a block of no kind'}"
    path = directory / (block.name or "script.py")
    assert block.name or block.kind == "python", "the first line names the file"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text)
    if path.name == "catalog.yaml":
        assert not read_catalog(str(path)).problems
    elif path.name == "projections.yaml":
        assert declared(None, Settings(projections=str(path)))
    elif block.kind != "python":
        found = read(str(path), environ={})
        assert not found.problems, found.problems
    elif not block.name:
        done = subprocess.run(
            [sys.executable, "-W", "error", path.name],
            cwd=directory,
            env=environment(directory),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_a_file_of_a_page_is_used_by_it(page):
    """A page runs or imports every file that it has its reader write."""
    blocks = [block for block in blocks_of(page) if not block.why_not]
    for block in blocks:
        stem = Path(block.name).stem
        others = "".join(other.text for other in blocks if other is not block)
        assert not block.name or stem in others, block.place


def test_the_blocks_that_are_not_run_are_these():
    found = {
        page: [block.why_not for block in blocks_of(page) if block.why_not]
        for page in PAGES
        if any(block.why_not for block in blocks_of(page))
    }
    assert found == NOT_RUN


def test_comparing_output_can_fail():
    """The negative control of everything above."""
    assert matches("a ... c\n...\nz", "a b c  \nd\ne\nz\n")
    assert matches("a\n...", "a\nb")
    assert matches("", "\n")
    assert not matches("a", "a\nb")
    assert not matches("a ... c", "a b\nc")
    assert not matches("", "something")
    assert not matches("pending: 1", "pending: 10")


def test_a_page_that_is_wrong_is_found(tmp_path):
    """Different output and an unchecked failed command both stop the session."""
    shell = Shell(tmp_path, environment(tmp_path))
    try:
        for text in ("$ echo one\ntwo\n", "$ false\n$ echo on\non\n"):
            block = Block("page", 1, "console", text, "")
            with pytest.raises(AssertionError):
                _do(block, shell, tmp_path)
            shell.run("true")
    finally:
        shell.close()
