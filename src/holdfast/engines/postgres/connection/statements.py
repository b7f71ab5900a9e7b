"""The SQL statements: each is a file in ``sql/`` named by what it does, for a given schema.

A comment line ``-- include NAME ALIAS`` stands for the file ``sql/fragments/NAME.sql``, in which
the table has the alias ``t``. A name may have an order behind it (``find created_at_us DESC``),
which then stands in the places of the file that are in braces.
"""

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
    """A statement with numbered parameters, and the name of each, in their order."""

    text: bytes
    names: tuple[str, ...]


@cache
def numbered(name: str, schema: str = DEFAULT_SCHEMA) -> NumberedStatement:
    """Return the statement of this name in the server's own syntax."""
    text = statement(name, schema).decode()
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    text = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
    return NumberedStatement(text.replace("%%", "%").encode(), names)


_PARAMETER = re.compile(r"%\((\w+)\)s")
_INCLUDE = re.compile(r"^ *-- include (\w+) (\w)$", re.MULTILINE)


def _short(text: str) -> str:
    """Return SQL without comments and indentation: the driver remembers only short statements."""
    lines = (line.partition("--")[0].strip() for line in text.splitlines())
    return " ".join(filter(None, lines))


def in_schema(text: str, schema: str) -> str:
    """Return SQL that is written for the default schema, for this one.

    The name is quoted: it may be a keyword, such as ``user``.
    """
    return text if schema == DEFAULT_SCHEMA else text.replace(f"{DEFAULT_SCHEMA}.", f'"{schema}".')


def _read(directory: str, name: str) -> str:
    name, *by = name.split()
    file = files("holdfast.engines.postgres").joinpath(directory, f"{name}.sql")
    text = _INCLUDE.sub(_included, file.read_text(encoding="utf-8"))
    return _ordered(text, *by) if by else text


def _ordered(text: str, by: str, order: str) -> str:
    # Unfinished jobs are not listed by when they finished, and have no such column.
    job_by = "created_at_us" if by == "finished_at_us" else by
    places = {"by": by, "job_by": job_by, "order": order, "beyond": "<" if order == "DESC" else ">"}
    return re.sub(r"\{(\w+)\}", lambda found: places[found[1]], text)


def _included(line: re.Match[str]) -> str:
    return re.sub(r"\bt\.", f"{line[2]}.", _read("sql/fragments", line[1])).rstrip()
