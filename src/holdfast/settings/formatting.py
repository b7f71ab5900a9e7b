"""Settings as people write them: lines of a settings file, and JSON. Secrets are masked."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from holdfast.model.durations import seconds_of, shown
from holdfast.model.masking import masked

from .fields import DEFAULTS, Settings

_PLAIN = re.compile(r"[A-Za-z./][A-Za-z0-9_./-]*")
_NO_TEXT = {"on", "off", "yes", "no", "y", "n", "true", "false", "null", "none", ".inf", ".nan"}
"""Words that YAML, or a reader, takes for something else than text."""


def written(field: str, value: object) -> str:
    """Return a value as it may stand in a settings file of YAML."""
    if isinstance(value, float) and field.endswith("_seconds"):
        text = shown(value)
        return text if seconds_of(field, text) == value else repr(value)
    if isinstance(value, str):
        value = masked(value)
        plain = _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT
        return value if plain else msgspec.json.encode(value).decode()
    return msgspec.json.encode(value).decode()


def plain(settings: Settings) -> dict[str, object]:
    """Return every setting, by name, as JSON has it."""
    return {
        field: masked(value) if isinstance(value, str) else value
        for field in settings.__struct_fields__
        for value in [getattr(settings, field)]
    }


def changed(settings: Settings, others: Mapping[str, object] = DEFAULTS) -> list[str]:
    """Return the fields that differ from these values, which are the defaults if none are given."""
    now = plain(settings)
    return [field for field, value in now.items() if field in others and value != others[field]]
