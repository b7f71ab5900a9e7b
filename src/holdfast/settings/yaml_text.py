"""YAML as text: parsed safely, within limits, without duplicate keys and aliases."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import yaml

MAX_DEPTH = 20
MAX_NODES = 50_000
"""The most keys and values of a file."""
MAX_NUMBER_LENGTH = 100
"""The longest scalar that may be anything but text: numbers of base 60 take quadratic time."""


def parse_yaml(text: str) -> object:
    """Return the content; raise ``ValueError`` saying what is wrong, and in which line.

    Aliases and deep nesting are refused: a few lines of them can stand for gigabytes. So are more
    than ``MAX_NODES`` keys and values: each takes some 50 microseconds.
    """
    import yaml  # noqa: PLC0415 - most commands need none

    try:
        loader = _loader()(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        # Not the quoted lines: they may contain a password.
        mark = error.problem_mark
        where = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise ValueError(f"{error.problem or 'it is not YAML'}{where}") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


@functools.cache
def _loader() -> type[yaml.SafeLoader]:
    """Return the class of the loader, made on first use: most commands need none."""
    import yaml  # noqa: PLC0415 - see above

    class BoundedLoader(yaml.SafeLoader):
        """Checks every node before the next one is read."""

        depth = 0
        nodes = 0

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent):
                problem = f"line {line}: aliases (*name) are not allowed: write it out"
                raise ValueError(problem)  # noqa: TRY004 - of the text
            if self.depth > MAX_DEPTH:
                raise ValueError(f"line {line}: nested more than {MAX_DEPTH} levels deep")
            self.nodes += 1
            if self.nodes > MAX_NODES:
                raise ValueError(f"line {line}: more than {MAX_NODES:,} keys and values")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            if isinstance(node, yaml.MappingNode):
                _check_keys(node)
            elif (
                isinstance(node, yaml.ScalarNode)
                and node.tag != yaml.resolver.BaseResolver.DEFAULT_SCALAR_TAG
                and len(node.value) > MAX_NUMBER_LENGTH
            ):
                problem = f"line {line}: more than {MAX_NUMBER_LENGTH} characters: put it in quotes"
                raise ValueError(problem)
            return node

    return BoundedLoader


def _check_keys(node: yaml.MappingNode) -> None:
    """Raise ``ValueError`` for a key that occurs twice: PyYAML would keep the last."""
    seen: set[str] = set()
    for key, _value in node.value:
        if isinstance(key.value, str) and key.value in seen:
            raise ValueError(f"{key.value} is given twice")
        seen.add(str(key.value))
