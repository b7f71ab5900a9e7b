"""YAML as text: parsed safely, without duplicate keys, and where wanted within limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import yaml

MAX_DEPTH = 20


def parse_yaml(text: str) -> object:
    """Return the content; raise ``ValueError`` saying what is wrong, and in which line."""
    import yaml  # noqa: PLC0415 - most commands need none

    try:
        root = yaml.compose(text, yaml.SafeLoader)
        if root is not None and (twice := next(_duplicate_keys(root), None)):
            raise ValueError(f"{twice} is given twice")  # PyYAML would keep the last
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        # Not the quoted lines: they may contain a password.
        mark = error.problem_mark
        where = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise ValueError(f"{error.problem or 'it is not YAML'}{where}") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def parse_bounded_yaml(text: str) -> object:
    """Do what ``parse_yaml`` does, and refuse aliases and deep nesting: a few lines of them can
    stand for gigabytes."""
    import yaml  # noqa: PLC0415 - most commands need none

    depth = 0
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent):
                problem = f"line {line}: aliases (*name) are not allowed: write it out"
                raise ValueError(problem)  # noqa: TRY004 - of the text
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH:
                raise ValueError(f"line {line}: nested more than {MAX_DEPTH} levels deep")
    except yaml.YAMLError:
        pass  # said below, with its place
    return parse_yaml(text)


def _duplicate_keys(node: yaml.Node) -> Iterator[str]:
    """Return the keys that occur more than once in a mapping or a nested one."""
    import yaml  # noqa: PLC0415 - see above

    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if isinstance(key.value, str) and key.value in seen:
            yield key.value
        seen.add(str(key.value))
        yield from _duplicate_keys(value)
