"""Settings files: YAML or TOML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from holdfast.model.errors import InvalidInput

if TYPE_CHECKING:
    import yaml


def read_file(path: str) -> dict[str, object]:
    """Return the settings in a file, by name, or raise ``InvalidInput``."""
    suffix = PurePath(path).suffix.lower()
    if suffix not in _PARSERS:
        raise InvalidInput("config", f"{path} does not end in {', '.join(_PARSERS)}")
    try:
        content = _PARSERS[suffix](Path(path).read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InvalidInput("config", f"{path} cannot be read: {error}") from None
    except RecursionError:
        raise InvalidInput("config", f"{path} cannot be read: nested too deeply") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidInput("config", f"{path} is not a list of settings such as worker_count: 8")
    return {str(name): value for name, value in content.items()}


def _parse_toml(text: str) -> object:
    import tomllib  # noqa: PLC0415 - rarely needed

    return tomllib.loads(text)


def _parse_yaml(text: str) -> object:
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


_PARSERS: Mapping[str, Callable[[str], object]] = {
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
    ".toml": _parse_toml,
}
