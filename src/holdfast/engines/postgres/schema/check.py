"""The state of a schema: which migrations it lacks, and whether this version can work with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.engines.postgres.connection.sansio import SansIO, execute
from holdfast.model.errors import Unavailable

from . import migration_files
from .migration_files import Migration, names_made

MIGRATIONS_TABLE = "migrations"
_COLUMNS = {"number", "name", "checksum", "readable_from", "applied_at"}
_MOST_NAMED = 10


class AppliedMigration(msgspec.Struct, frozen=True):
    """A migration as the schema records it: this version may not have its file."""

    number: int
    name: str
    checksum: str
    readable_from: int

    @property
    def title(self) -> str:
        """Its name for messages."""
        return f"{self.number:04}_{self.name}"


class SchemaState(msgspec.Struct, frozen=True):
    """The state of a schema. ``names`` are the names Holdfast uses that exist there."""

    where: str
    """The server, for messages."""
    schema: str
    standby: bool
    read_only: bool
    user: str
    exists: bool
    ours: bool
    """Whether Holdfast records its migrations in it."""
    names: frozenset[str]
    applied: Mapping[int, AppliedMigration]

    @property
    def place(self) -> str:
        """The schema, for messages."""
        return f"schema {self.schema!r} in {self.where}"


def read_state(schema: str, where: str) -> SansIO[SchemaState]:
    """Read the state of a schema. Raise ``Unavailable`` if it may not be read."""
    names = sorted(names_made(migration_files.known()) | {MIGRATIONS_TABLE})
    [row] = yield from execute("read_schema_state", schema=schema, names=names)
    standby, read_only, encoding, user, exists, may_use, columns, may_read, found = row
    if encoding != "UTF8":
        raise Unavailable(f"{where} is encoded in {encoding}: Holdfast needs UTF8")
    ours = set(columns) >= _COLUMNS
    applied: list[AppliedMigration] = []
    if ours:
        if not may_use:
            raise Unavailable(
                f"user {user!r} may not use schema {schema!r} in {where}: "
                f"GRANT USAGE ON SCHEMA {schema} TO {user}"
            )
        if not may_read:
            raise Unavailable(_not_granted(schema, where, user, {MIGRATIONS_TABLE: ["SELECT"]}))
        applied = [AppliedMigration(*one) for one in (yield from execute("list_migrations"))]
    return SchemaState(
        where=where,
        schema=schema,
        standby=standby,
        read_only=read_only,
        user=user,
        exists=exists,
        ours=ours,
        names=frozenset(found),
        applied={one.number: one for one in applied},
    )


def missing(found: SchemaState) -> list[Migration]:
    """Return the migrations that the schema lacks.

    Raise ``Unavailable`` if they must not be applied: foreign tables are in the way, the schema was
    made from other files, or it is too new.
    """
    _refuse_newer(found)
    _refuse_altered(found)
    lacking = [one for one in migration_files.known() if one.number not in found.applied]
    if lacking and found.applied and lacking[0].number < max(found.applied):
        raise Unavailable(
            f"{found.place} has later migrations than {lacking[0].title}, but not that one: it was "
            "made by another Holdfast than this; give Holdfast another schema"
        )
    made = [one for one in migration_files.known() if one.number in found.applied]
    foreign = found.names & (names_made(lacking) - names_made(made))
    if not found.ours:
        foreign |= found.names & {MIGRATIONS_TABLE}
    if foreign:
        raise Unavailable(
            f"{found.place} has tables of the names that Holdfast uses, which it did not make: "
            f"{_listed(foreign)}; they are left as they are: give Holdfast a schema of its own "
            "(setting schema)"
        )
    return lacking


def refuse_read_only(found: SchemaState) -> None:
    """Raise ``Unavailable`` if the server is read-only."""
    if found.standby:
        raise Unavailable(
            f"{found.where} is a standby, which is read-only: connect to the primary "
            "(target_session_attrs=read-write picks it among several hosts)"
        )
    if found.read_only:
        raise Unavailable(
            f"{found.where} is read-only for user {found.user!r}: default_transaction_read_only "
            "is on there; switch it off, or connect as another user or elsewhere"
        )


def check_usable(schema: str, where: str) -> SansIO[None]:
    """Raise ``Unavailable``, with what to do, unless this version can work there."""
    found = yield from read_state(schema, where)
    refuse_read_only(found)
    lacking = missing(found)
    if not found.ours:
        lacks = f"{found.where} has no schema {schema!r}"
        empty = f"{found.place} has nothing of Holdfast in it"
        raise Unavailable(f"{empty if found.exists else lacks}: run holdfast migrate")
    if lacking:
        raise Unavailable(
            f"{found.place} is behind this version of Holdfast: it lacks "
            f"{_listed(one.title for one in lacking)}: run holdfast migrate"
        )
    names = sorted(names_made(migration_files.known()))
    rights = yield from execute("find_missing_rights", schema=schema, names=names)
    if rights:
        raise Unavailable(_not_granted(schema, where, found.user, dict(rights)))


def _refuse_newer(found: SchemaState) -> None:
    newest = max(one.number for one in migration_files.known())
    unreadable = [one for one in found.applied.values() if one.readable_from > newest]
    if unreadable:
        raise Unavailable(
            f"{found.place} was made by a newer Holdfast, and this version cannot work with "
            f"{_listed(one.title for one in unreadable)}: upgrade Holdfast"
        )


def _refuse_altered(found: SchemaState) -> None:
    for one in migration_files.known():
        applied = found.applied.get(one.number)
        if applied is not None and applied.checksum != one.checksum:
            raise Unavailable(
                f"{found.place} was made from another {applied.title} than this version has "
                f"(sha256 {applied.checksum[:12]}…, here {one.checksum[:12]}…): migrations never "
                "change, so install a Holdfast that was released, or give it another schema"
            )


def _not_granted(schema: str, where: str, user: str, rights: Mapping[str, Sequence[str]]) -> str:
    tables: dict[str, list[str]] = {}
    for name, lacking in rights.items():
        tables.setdefault(", ".join(lacking), []).append(f"{schema}.{name}")
    grants = "; ".join(f"{what} on {', '.join(names)}" for what, names in tables.items())
    return f"user {user!r} lacks rights in {where}: grant it {grants}"


def _listed(names: Iterable[str]) -> str:
    every = sorted(names)
    more = f" and {len(every) - _MOST_NAMED} more" if len(every) > _MOST_NAMED else ""
    return ", ".join(every[:_MOST_NAMED]) + more
