"""Size, names and bans: what a reviewer should not have to check by hand."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ALL = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "bench").rglob("*.py"))]
CLOCKS = {"time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "datetime.now"}


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_stay_small(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            length = node.end_lineno - node.lineno + 1
            assert length <= 60, f"{node.name} has {length} lines"


def test_no_two_classes_share_a_name():
    """Private ones too: a name means one thing."""
    defined: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in defined.items() if len(paths) > 1} == {}


def test_no_module_is_a_drawer():
    banned = {"utils", "util", "helpers", "helper", "manager", "managers", "common", "misc"}
    assert not {path.stem for path in SOURCES} & banned


def test_only_the_clock_reads_the_time():
    for path in SOURCES:
        if path.name == "clock.py" or {"cli", "daemon", "stores"} & set(path.parts):
            continue  # what waits for a person or another process does so in real time
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert f"{node.value.id}.{node.attr}" not in CLOCKS, path


def test_no_pickle_eval_or_exec():
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
                assert not {"pickle", "marshal", "shelve"} & set(names), path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec"}, path


def test_every_dependency_has_an_upper_bound():
    text = (ROOT / "pyproject.toml").read_text()
    found = re.findall(r'^\s*"([a-z][a-z0-9-]*)([<>=!~][^";]*)?(?:;[^"]*)?",?$', text, re.MULTILINE)
    ranges = dict(found) | dict(re.findall(r'"([a-z][a-z0-9-]*)(>=[^";]*)', text))
    assert ranges
    for name, bounds in ranges.items():
        if bounds:
            assert "<" in bounds, f"{name} has no upper bound"


def test_the_locks_name_no_address_and_have_a_hash_for_every_package():
    constraints = (ROOT / "constraints.txt").read_text()
    assert "://" not in constraints
    assert "--" not in constraints
    pinned = set(re.findall(r"^([a-z0-9._-]+==[^ ;\n]+)", constraints, re.MULTILINE))
    for name, needed in (("install", "hatchling"), ("dev", "pytest")):
        lock = (ROOT / "requirements" / f"{name}.txt").read_text()
        assert "://" not in lock
        packages = re.split(r"\n(?=[a-z0-9])", lock)
        assert all("--hash=sha256:" in package for package in packages)
        names = {re.split(r"[ ;\\]", package)[0] for package in packages}
        assert names <= pinned
        assert any(one.startswith(f"{needed}==") for one in names)


def test_every_adr_is_listed():
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    for path in (ROOT / "docs" / "adr").glob("0*.md"):
        assert path.name in index


def test_the_repository_holds_no_data_and_no_left_overs():
    tracked = subprocess.run(
        ["git", "ls-files"],  # noqa: S607 - git is on the path where there is a clone
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert not [name for name in tracked if name.endswith((".pyc", ".log", ".db", ".orig"))]
