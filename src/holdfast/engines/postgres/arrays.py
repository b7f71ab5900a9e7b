"""Lists as PostgreSQL writes them: in one piece, and many times as fast as item by item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def with_arrays(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return parameters whose lists are texts; every statement says what they are lists of."""
    return {
        name: literal(value) if type(value) is list else value for name, value in parameters.items()
    }


def literal(items: Sequence[object]) -> str:
    """Return the literal of an array of numbers, truth values, texts or bytes, or of nothing."""
    kind = next((type(item) for item in items if item is not None), None)
    if kind is None:
        return "{" + ",".join(["NULL"] * len(items)) + "}"
    if kind is str:
        return _texts(items)
    if kind is bytes:
        return _bytes(items)
    return "{" + ",".join(["NULL" if item is None else str(item) for item in items]) + "}"


def _texts(items: Sequence[object]) -> str:
    if None not in items:
        texts: list[str] = items  # type: ignore[assignment]
        joined = '","'.join(texts)
        if "\\" not in joined and joined.count('"') == 2 * (len(texts) - 1):
            return '{"' + joined + '"}'
    return "{" + ",".join(["NULL" if item is None else _quoted(str(item)) for item in items]) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bytes(items: Sequence[object]) -> str:
    parts = [
        "NULL" if item is None else '"\\\\x' + item.hex() + '"'  # type: ignore[attr-defined]
        for item in items
    ]
    return "{" + ",".join(parts) + "}"
