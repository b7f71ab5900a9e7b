"""Settings as text: lines of a settings file, and JSON. Secrets are masked."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.model.durations import format_seconds, seconds_of
from holdfast.model.redaction import masked

from .fields import DEFAULTS, Settings

_LOOKS_SPECIAL = {"y", "n", "none"}
"""Strings for PyYAML, but not for every reader."""


def formatted(field: str, value: object) -> str:
    """Return a value as a YAML settings file has it."""
    if isinstance(value, float) and field.endswith("_seconds"):
        text = format_seconds(value)
        return text if seconds_of(field, text) == value else repr(value)
    if isinstance(value, str):
        value = masked(value)
        return value if _reads_back(value) else msgspec.json.encode(value).decode()
    return msgspec.json.encode(value).decode()


def _reads_back(text: str) -> bool:
    """Return whether YAML reads the unquoted text as the same string."""
    import yaml  # noqa: PLC0415 - most commands need none

    try:
        found = yaml.safe_load(f"field: {text}\n")
    except yaml.YAMLError:
        return False
    return bool(found == {"field": text}) and text.lower() not in _LOOKS_SPECIAL


def plain(settings: Settings) -> dict[str, object]:
    """Return every setting by name, for JSON."""
    return {
        field: masked(value) if isinstance(value, str) else value
        for field in settings.__struct_fields__
        for value in [getattr(settings, field)]
    }


def changed(settings: Settings, others: Mapping[str, object] = DEFAULTS) -> list[str]:
    """Return the fields that differ from these values, by default from the defaults."""
    now = plain(settings)
    return [field for field, value in now.items() if field in others and value != others[field]]
