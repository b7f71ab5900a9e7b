"""The README's code runs, and what documents name exists."""

import re
import subprocess
import sys
from pathlib import Path

import click

from holdfast.interfaces.cli.main import main

ROOT = Path(__file__).parent.parent.parent


def readme_blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def run(*command, cwd, **more):
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60, **more
    )


def test_the_code_in_the_readme_runs(tmp_path):
    """Every Python block, as the file that its first line names, with the daemon that it needs."""
    files = {}
    for block in readme_blocks("python"):
        name = re.match(r"# (\w+\.py)\n", block)
        assert name, block
        files[name[1]] = block
        (tmp_path / name[1]).write_text(block)
    assert set(files) == {"jobs.py", "shop.py", "test_jobs.py"}
    done = run(sys.executable, "-W", "error", "test_jobs.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    holdfast = str(Path(sys.executable).with_name("holdfast"))
    daemon = subprocess.Popen(
        [holdfast, "run", "jobs.py", "--metrics-port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert daemon.stdout is not None
        assert daemon.stdout.readline().startswith("holdfast started")
        done = run(sys.executable, "-W", "error", "shop.py", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "welcomed 7" in done.stdout
        status = run(holdfast, "status", "--json", cwd=tmp_path)
        assert '"pending":1' in status.stdout, status.stderr
    finally:
        daemon.terminate()
        daemon.communicate(timeout=60)
    assert daemon.returncode == 0


def test_every_command_in_the_readme_exists():
    """Each `holdfast …` line of a console block has a command and options that are known."""
    lines = [line for block in readme_blocks("console") for line in block.splitlines()]
    commands = [line.split()[2:] for line in lines if line.startswith("$ holdfast")]
    assert len(commands) >= 6
    for words in commands:
        names = [word for word in words if not word.startswith("-")]
        command: click.Command | None = main
        context = click.Context(main)
        for name in names:
            if isinstance(command, click.Group):
                command = command.get_command(context, name)
                assert command is not None, words
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, words


def test_the_readme_needs_few_lines_to_the_first_success():
    before_demo = (ROOT / "README.md").read_text().split("$ make demo")[0]
    assert len(before_demo.splitlines()) <= 12


def test_every_file_that_a_document_links_to_exists():
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")]
    assert len(documents) > 10
    for document in documents:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_test_that_reliability_names_exists():
    text = (ROOT / "RELIABILITY.md").read_text()
    for path in re.findall(r"`(tests/[a-z_/]+(?:\.py)?)", text):
        assert (ROOT / path).exists(), path
    sources = "".join(path.read_text() for path in (ROOT / "tests" / "crash").glob("*.py"))
    for name in re.findall(r"(test_[a-z_]+)_…", text):
        assert name in sources, name
