"""The statements, each a file named by what it does, for the schema that is asked for."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from holdfast.model.schema_name import DEFAULT_SCHEMA


@cache
def statement(name: str, schema: str = DEFAULT_SCHEMA) -> bytes:
    """Return the statement of this name."""
    return in_schema(_short(_read("sql", name)), schema).encode()


class NumberedStatement(NamedTuple):
    """A statement with numbers for its parameters, and the name of each, in their order."""

    text: bytes
    names: tuple[str, ...]


@cache
def numbered(name: str, schema: str = DEFAULT_SCHEMA) -> NumberedStatement:
    """Return the statement of this name as the server itself takes it."""
    text = statement(name, schema).decode()
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    text = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
    return NumberedStatement(text.replace("%%", "%").encode(), names)


_PARAMETER = re.compile(r"%\((\w+)\)s")


def _short(text: str) -> str:
    """Return SQL without comments and indentation: the driver remembers only short statements."""
    lines = (line.partition("--")[0].strip() for line in text.splitlines())
    return " ".join(filter(None, lines))


def in_schema(text: str, schema: str) -> str:
    """Return the SQL, which is written for the usual schema, for this one.

    It stands in quotes there: it may be a word of SQL, such as ``user``.
    """
    return text if schema == DEFAULT_SCHEMA else text.replace(f"{DEFAULT_SCHEMA}.", f'"{schema}".')


def _read(directory: str, name: str) -> str:
    return (
        files("holdfast.engines.postgres")
        .joinpath(directory, f"{name}.sql")
        .read_text(encoding="utf-8")
    )
