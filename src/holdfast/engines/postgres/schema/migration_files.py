"""The migrations: files called NNNN_name.sql, in the order of their numbers.

A released file is never changed: the next one corrects its errors. A file says in a line of its own
what code can work with the schema that it leaves behind::

    -- readable_from: 3

means that code that has migration 3, or a later one, can go on: nothing that its statements need
was removed or changed its meaning. Such changes are new tables, new indexes, and new columns with a
default. Without that line only code that has the file itself can. So older workers go on during an
upgrade if every migration that they do not have says that they can. A running worker does not check
again: a migration that does not say so needs workers stopped first (docs/adr/0022).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

import msgspec

MIGRATIONS_TABLE = "migrations"
"""Where a schema records its migrations."""
_FILE = re.compile(r"([0-9]{4})_([a-z0-9_]+)\.sql")
_READABLE_FROM = re.compile(r"^-- readable_from: ([0-9]+)$", re.MULTILINE)
_MAKES = re.compile(
    r"^CREATE (?:UNLOGGED )?(?:TABLE|SEQUENCE|VIEW|MATERIALIZED VIEW) holdfast\.(\w+)",
    re.MULTILINE,
)
_FUNCTION = re.compile(r"^CREATE FUNCTION holdfast\.(\w+)", re.MULTILINE)


class Migration(msgspec.Struct, frozen=True):
    """One file: its number, its name, and its text, written for the default schema."""

    number: int
    name: str
    text: str

    @property
    def title(self) -> str:
        """Its name for messages."""
        return f"{self.number:04}_{self.name}"

    @property
    def checksum(self) -> str:
        """The SHA-256 of its text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def readable_from(self) -> int:
        """The earliest migration that code must have to work with the schema after this one."""
        found = _READABLE_FROM.search(self.text)
        return int(found[1]) if found else self.number

    @property
    def makes(self) -> frozenset[str]:
        """The names of the tables, sequences and views that it creates."""
        return frozenset(_MAKES.findall(self.text))


@cache
def known() -> tuple[Migration, ...]:
    """Return the migrations that this version has, in order."""
    found = [
        Migration(int(named[1]), named[2], file.read_text(encoding="utf-8"))
        for file in files(__package__).joinpath("migrations").iterdir()
        if (named := _FILE.fullmatch(file.name))
    ]
    return tuple(sorted(found, key=lambda one: one.number))


def names_made(migrations: Iterable[Migration]) -> set[str]:
    """Return the names of everything that these migrations create."""
    return {name for migration in migrations for name in migration.makes}


def functions_made(migrations: Iterable[Migration]) -> set[str]:
    """Return the names of every function that these migrations create."""
    return {name for migration in migrations for name in _FUNCTION.findall(migration.text)}
