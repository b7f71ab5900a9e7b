"""The state of a schema: which migrations it lacks, and whether this version can work with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.engines.postgres.connection.sansio import SansIO, execute
from holdfast.model.errors import Unavailable

from . import migration_files, rights
from .migration_files import MIGRATIONS_TABLE, Migration, names_made

_COLUMNS = {"number", "name", "checksum", "readable_from", "applied_at"}
_MOST_NAMED = 10
_JOBS = "jobs"


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


def check_usable(schema: str, where: str, *, reading: bool = False) -> SansIO[bool]:
    """Raise ``Unavailable``, with what to do, unless this version can work there.

    Return whether the user has every right to change things; ``reading``: it need not.
    """
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
    needed = rights.read_rights() if reading else rights.run_rights()
    if lacking_rights := (yield from _missing_rights(schema, needed)):
        [[roles]] = yield from execute("find_roles_with", schema=schema, writing=not reading)
        raise Unavailable(_not_granted(schema, where, found.user, lacking_rights, roles))
    return not reading or not (yield from _missing_rights(schema, rights.run_rights()))


def _missing_rights(
    schema: str, needed: Mapping[str, Sequence[str]]
) -> SansIO[dict[str, list[str]]]:
    """Return the rights that the user lacks, of those that are needed on each relation."""
    pairs = [(name, right) for name, rights in needed.items() for right in rights]
    found = yield from execute(
        "find_missing_rights",
        schema=schema,
        names=[name for name, _right in pairs],
        rights=[right for _name, right in pairs],
    )
    return dict(found)


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


def _not_granted(
    schema: str,
    where: str,
    user: str,
    lacking: Mapping[str, Sequence[str]],
    roles: Sequence[str] = (),
) -> str:
    relations: dict[str, list[str]] = {}
    for name, what in lacking.items():
        relations.setdefault(", ".join(what), []).append(f"{schema}.{name}")
    grants = "; ".join(f"{these} on {_listed(names)}" for these, names in relations.items())
    if roles:
        name = _JOBS if _JOBS in lacking else min(lacking)
        others = f" and rights on {len(lacking) - 1} other relations" if len(lacking) > 1 else ""
        what = f"{', '.join(lacking[name])} on {schema}.{name}{others}"
        return f"user {user!r} lacks {what} in {where}: GRANT {roles[0]} TO {user}"
    return (
        f"user {user!r} lacks rights in {where}: grant it {grants}; `holdfast migrate --sql "
        "--roles` prints roles that have what is needed"
    )


def _listed(names: Iterable[str]) -> str:
    every = sorted(names)
    more = f" and {len(every) - _MOST_NAMED} more" if len(every) > _MOST_NAMED else ""
    return ", ".join(every[:_MOST_NAMED]) + more
