"""Settings files: YAML or TOML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePath

from holdfast.model.errors import InvalidInput

from .yaml_text import parse_yaml


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


_PARSERS: Mapping[str, Callable[[str], object]] = {
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".toml": _parse_toml,
}
