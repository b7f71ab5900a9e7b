"""The tests that RELIABILITY.md and SECURITY.md name exist, and no control is missing from it."""

import ast
import re
import subprocess
import sys

import pytest

from .pages import ROOT

PROVING = (
    "crash",
    "e2e",
    "engines/journal",
    "engines/client",
    "engines/dump",
    "engines/conformance",
)
CONTROL = re.compile(r"test_(negative_)?control_")


def sections() -> dict[str, list[list[str]]]:
    """Return the rows of each promise: fault, proof, control."""
    text = (ROOT / "RELIABILITY.md").read_text("utf-8")
    found: dict[str, list[list[str]]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        rows = [
            [cell.strip() for cell in line.strip("|\n").split(" | ")]
            for line in part.splitlines()
            if line.startswith("| ") and "---" not in line
        ]
        if rows:
            assert rows[0] == ["fault", "proof", "negative control"]
            found[part.splitlines()[0]] = rows[1:]
    return found


def named(cell: str) -> list[str]:
    return re.findall(r"`([a-z0-9_/]+\.py(?:::[^`]+)?)`", cell)


def every_name() -> list[str]:
    rows = [row for promise in sections().values() for row in promise]
    names = {name for row in rows for cell in row[1:] for name in named(cell)}
    return sorted(names | {name for row in attacks() for name in named(row[3])})


def attacks() -> list[list[str]]:
    """Return the rows of SECURITY.md: who, what they could try, what holds, the test."""
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines][1:]


def test_every_attack_has_a_test_that_turns_red():
    for row in attacks():
        assert len(row) == 4
        assert named(row[3]), row


def missing(names: list[str], collected: set[str]) -> list[str]:
    """Return the names that none of these tests has, with or without its parameters."""
    known = collected | {one.partition("[")[0] for one in collected}
    known |= {one.partition("::")[0] for one in collected}
    return [name for name in names if f"tests/{name}" not in known]


def test_every_test_that_is_named_exists(request):
    """A run of all tests has collected them already; otherwise pytest collects the missing ones."""
    left = missing(every_name(), {item.nodeid for item in request.session.items})
    assert not left or unresolved(left) == ""


def test_a_test_that_does_not_exist_is_missed():
    """The negative control of the test above, both ways."""
    assert missing(["a.py::b", "a.py::c", "d.py"], {"tests/a.py::b[1]"}) == ["a.py::c", "d.py"]
    assert "not found" in unresolved(["docs/test_reliability.py::test_that_is_not_there"])


def unresolved(names: list[str]) -> str:
    """Return the output of pytest if it cannot find these; empty if it can."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist"),
            *(f"tests/{name}" for name in names),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    return "" if done.returncode == 0 else done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("promise", sections())
def test_a_promise_has_a_proof_for_each_fault_and_says_which_have_controls(promise):
    rows = sections()[promise]
    assert rows
    for fault, proof, control in rows:
        assert fault
        assert named(proof), f"{fault}: no proof"
        assert named(control) or control == "–", f"{fault}: {control}"


def test_no_control_is_left_out():
    """Every negative control of the suites that prove promises is listed with its promise."""
    text = (ROOT / "RELIABILITY.md").read_text("utf-8")
    controls = [
        (path, node.name)
        for folder in PROVING
        for path in sorted((ROOT / "tests" / folder).glob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and CONTROL.match(node.name)
    ]
    assert len(controls) >= 12
    for path, name in controls:
        assert f"{path.relative_to(ROOT / 'tests')}::{name}" in text, name


def test_most_promises_have_a_control():
    found = sections()
    with_control = [
        promise for promise, rows in found.items() if any(named(row[2]) for row in rows)
    ]
    assert len(with_control) * 2 > len(found)
