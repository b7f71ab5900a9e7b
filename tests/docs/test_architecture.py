"""ARCHITECTURE.md and the guide to the code name what exists, and every room once."""

import re

import pytest

from .pages import ROOT

SOURCE = ROOT / "src" / "holdfast"
PAGES = ("ARCHITECTURE.md", "docs/finding-your-way.md")
ROOM = re.compile(r"^\| `([a-z_/]+/)` \|", re.MULTILINE)
PATH = re.compile(
    r"`((?:[a-zA-Z_0-9.-]+/)*[a-zA-Z_0-9-]+(?:\.(?:py|sql|md|toml|yaml)|/))(?:::([\w.]+))?`"
)


def rooms_in(text: str) -> list[str]:
    """Return the packages that the table of rooms names."""
    return ROOM.findall(text)


def packages() -> set[str]:
    """Return every package, as a path below ``src/holdfast``."""
    found = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("__init__.py")}
    return {f"{name}/" for name in found if name != "."}


def missing_paths(text: str) -> list[str]:
    """Return the paths and names in a page that do not exist."""
    wrong = []
    for line in text.splitlines():
        room = ROOM.match(line)  # in its row, paths are below the room
        roots = (SOURCE, ROOT, *([SOURCE / room[1]] if room else []))
        for path, name in PATH.findall(line):
            places = [root / path for root in roots if (root / path).exists()]
            if not places:
                wrong.append(path)
            elif name and not defines(places[0].read_text(), name):
                wrong.append(f"{path}::{name}")
    return wrong


def defines(source: str, name: str) -> bool:
    """Whether each part of a dotted name is defined in a module."""
    return all(
        re.search(rf"^\s*(?:async def|def|class) {part}\b|^{part}\b", source, re.MULTILINE)
        for part in name.split(".")
    )


def test_every_package_is_named_once():
    named = rooms_in((ROOT / "ARCHITECTURE.md").read_text("utf-8"))
    assert sorted(named) == sorted(packages())


@pytest.mark.parametrize("page", PAGES)
def test_every_path_and_name_exists(page):
    assert missing_paths((ROOT / page).read_text("utf-8")) == []


def test_control_a_missing_room_path_or_name_is_found():
    assert rooms_in("| `model/` | what is true |\n| `attic/` | nothing |") == ["model/", "attic/"]
    assert missing_paths("`model/job.py` `model/attic.py` `tests/attic/`") == [
        "model/attic.py",
        "tests/attic/",
    ]
    assert missing_paths("`model/job.py::Job` `model/job.py::Attic`") == ["model/job.py::Attic"]
