"""Settings files: YAML or TOML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePath

from holdfast.model.errors import InvalidInput

from .yaml_text import parse_yaml

MAX_FILE_BYTES = 64 * 1024
"""The longest settings file."""


def read_file(path: str) -> dict[str, object]:
    """Return the settings in a file, by name, or raise ``InvalidInput``."""
    suffix = PurePath(path).suffix.lower()
    if suffix not in _PARSERS:
        raise InvalidInput("config", f"{path} does not end in {', '.join(_PARSERS)}")
    try:
        content = _PARSERS[suffix](read_text(Path(path), MAX_FILE_BYTES))
    except (OSError, ValueError) as error:
        raise InvalidInput("config", f"{path} cannot be read: {error}") from None
    except RecursionError:
        raise InvalidInput("config", f"{path} cannot be read: nested too deeply") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidInput("config", f"{path} is not a list of settings such as worker_count: 8")
    return {str(name): value for name, value in content.items()}


def read_text(file: Path, max_bytes: int, advice: str = "") -> str:
    """Return the text of a file that has no more bytes; raise ``OSError`` or ``ValueError``."""
    with file.open("rb") as opened:
        raw = opened.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise ValueError(f"it has more than {max_bytes:,} bytes{advice}")
    return raw.decode("utf-8-sig")


def _parse_toml(text: str) -> object:
    import tomllib  # noqa: PLC0415 - rarely needed

    return tomllib.loads(text)


_PARSERS: Mapping[str, Callable[[str], object]] = {
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".toml": _parse_toml,
}
