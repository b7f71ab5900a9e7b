"""Texts with fields in them, such as ``{actor} renamed {entity} to {after.title}``.

There is nothing in them but names: no formats, no calls, no attributes of objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .errors import InvalidInput

TEMPLATE_LIMIT = 500
VALUE_LIMIT = 200
"""How much of one value is shown."""
_FIELD = re.compile(r"\{([^{}]*)\}")
_PATH = re.compile(r"[^\W\d]\w*(\.\w+){0,9}")
_NOTHING = "—"


class TextTemplate:
    """A text with fields in braces."""

    def __init__(self, text: str, field: str = "text") -> None:
        """Raise ``InvalidInput`` if it is not a text with names in braces."""
        if type(text) is not str or not text.strip() or len(text) > TEMPLATE_LIMIT:
            raise InvalidInput(field, f"give a text of at most {TEMPLATE_LIMIT} characters")
        self.text = text
        self.paths = tuple(dict.fromkeys(_FIELD.findall(text)))
        for path in self.paths:
            if not _PATH.fullmatch(path):
                raise InvalidInput(
                    field, f"{{{path[:60]}}} is not the name of a field such as {{after.title}}"
                )
        if set(_FIELD.sub("", text)) & {"{", "}"}:
            raise InvalidInput(field, f"a brace of {text[:60]!r} has no counterpart")
        self._parts = _FIELD.split(text)
        """Texts and, between them, fields."""

    def render(self, value_of: Callable[[str], object]) -> str:
        """Return the text with the value of each field."""
        parts = self._parts.copy()
        for place in range(1, len(parts), 2):
            parts[place] = _shown(value_of(parts[place]))
        return "".join(parts)


def _shown(value: object) -> str:
    if value is None or value == "":
        return _NOTHING
    if value is True or value is False:
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        value = ", ".join(_shown(one) for one in value[:10])
    text = " ".join(str(value).split())
    return text if len(text) <= VALUE_LIMIT else text[: VALUE_LIMIT - 1] + "…"
