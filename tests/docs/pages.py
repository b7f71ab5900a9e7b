"""A page of the documents as a session: its blocks, in order, in a directory of its own.

- ``console``: commands after ``$ `` (``> `` continues one), each followed by its output. ``...``
  stands for any text, on a line of its own for any number of lines. A command that ends in ``&``
  runs until the page ends it. A command that fails must be followed by ``$ echo $?``.
- ``python``: the file that its first line names (``# jobs.py``), or a script to run.
- ``yaml``, ``toml``: a file likewise; each must contain valid settings.
- ``text``, ``mermaid``: nothing to run.

A block under ``<!-- not run: why -->`` is skipped, and the test lists it by name.
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>.+?) -->\n+)?```(?P<kind>\S*)[^\n]*\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_NAME = re.compile(r"(?:#|//) (\S+\.(?:py|yaml|toml))\n")


class Block(NamedTuple):
    """One fenced block."""

    page: str
    line: int
    kind: str
    text: str
    why_not: str
    """Why it is not run; empty if it is."""

    @property
    def name(self) -> str:
        """The name of the file that it defines; empty if none."""
        found = _NAME.match(self.text)
        return "" if found is None else found[1]

    @property
    def place(self) -> str:
        """The page and line where it begins."""
        return f"{self.page}:{self.line}"


class Command(NamedTuple):
    """One command, and its expected output."""

    line: str
    output: str


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page, in order."""
    text = (ROOT / page).read_text("utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start("kind")) + 1,
            found["kind"],
            found["text"],
            found["why"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def commands_of(text: str) -> list[Command]:
    """Return the commands of a console block, each with its output."""
    found: list[tuple[list[str], list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1][0].append(line[2:])
        elif found:
            found[-1][1].append(line)
        else:
            raise AssertionError(f"a console block begins with a command, not with {line!r}")
    return [Command("\n".join(command), "\n".join(output)) for command, output in found]


def matches(expected: str, printed: str) -> bool:
    """Whether a command printed the expected output; blanks at the ends of lines are ignored."""
    text = "".join(f"{line.rstrip()}\n" for line in expected.rstrip().splitlines())
    seen = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines())
    pattern = "".join(
        r"(?:.*\n)*?"
        if line.strip() == "..."
        else ".*?".join(re.escape(part) for part in line.split("...")) + r"\n"
        for line in text.splitlines()
    )
    return re.fullmatch(pattern, seen) is not None
