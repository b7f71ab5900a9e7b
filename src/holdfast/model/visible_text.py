"""Texts that somebody else wrote, as a terminal and a log may show them.

Control characters can clear the screen, change the title or type into the shell; marks of writing
direction and characters without a width make a text read as another one; a line break forges a
line. All of them are shown as escapes, such as ``\\x1b`` and ``\\u202e``.
"""

from __future__ import annotations

import unicodedata

# Printable by their category, but without a width or a shape.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BMP_END = 0x10000


def is_visible_ascii(text: str) -> bool:
    """Whether it can be sent in a header as it is: printable ASCII without spaces."""
    return text.isascii() and text.isprintable() and " " not in text


def visible(text: str) -> str:
    """Return the text on one line, with everything that could not be seen as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join([one if _is_shown(one) else _escape(one) for one in text])


def visible_lines(text: str) -> str:
    """Do the same, but leave line feeds and tabs: for texts of several lines."""
    return "\n".join(
        "\t".join(visible(part) for part in line.split("\t")) for line in text.split("\n")
    )


def visible_json(encoded: bytes) -> bytes:
    """Return JSON of the same meaning in which everything can be seen.

    Encoders escape the controls below a space, and nothing else: what is outside of ASCII can only
    be inside of a JSON text, where an escape means the same.
    """
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded
    text = encoded.decode()
    return "".join([one if _is_shown(one) else _json_escape(one) for one in text]).encode()


def _is_shown(one: str) -> bool:
    if one.isprintable():
        return one not in _INVISIBLE
    return unicodedata.category(one) == "Zs"  # a space of another width


def _escape(one: str) -> str:
    if one in _ESCAPES:
        return _ESCAPES[one]
    number = ord(one)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < _BMP_END else f"\\U{number:08x}"


def _json_escape(one: str) -> str:
    number = ord(one)
    if number < _BMP_END:
        return f"\\u{number:04x}"
    pair = number - _BMP_END
    return f"\\u{0xD800 + (pair >> 10):04x}\\u{0xDC00 + (pair & 0x3FF):04x}"
