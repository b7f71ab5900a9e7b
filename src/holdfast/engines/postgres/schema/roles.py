"""The SQL that makes three roles with as few rights as possible; see docs/postgresql.md.

``migrate`` owns the schema, ``run`` runs jobs and changes them, ``read`` looks. They have no login:
people grant them to the roles that programs log in as. The SQL can be executed again at any time:
it takes what is too much and gives what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.engines.postgres.connection.database import SET_SEARCH_PATH
from holdfast.engines.read_models.statements import quoted
from holdfast.model.errors import InvalidInput
from holdfast.model.schema_name import DEFAULT_PROJECTION_SCHEMA, check_schema

from . import migration_files, rights
from .migrate import literal, script
from .migration_files import Migration


class RoleNames(NamedTuple):
    """What the three roles are called."""

    migrate: str = "holdfast_migrate"
    run: str = "holdfast_run"
    read: str = "holdfast_read"

    def check(self) -> RoleNames:
        """Return them, or raise ``InvalidInput``."""
        for field, name in self._asdict().items():
            check_schema(f"{field}_role", name)
        if len(set(self)) < len(self):
            raise InvalidInput("roles", "two roles have the same name: give each its own")
        return self


def roles_script(
    schema: str, projection_schema: str, migrations: Sequence[Migration], roles: RoleNames
) -> str:
    """Return SQL for psql: the roles and schemas, these migrations, and the rights."""
    check_schema("schema", schema)
    check_schema("projection_schema", projection_schema)
    roles.check()
    head = [
        f"-- Roles of Holdfast, schema {schema}: {', '.join(roles)}.",
        "-- For psql, as a superuser, or as the owner of the database with CREATEROLE. It may be",
        "-- executed again, and should be after each upgrade. Then grant a role to each login:",
        f"--   GRANT {roles.run} TO shop_worker;",
        "\\set ON_ERROR_STOP on",
        "\\encoding UTF8",
    ]
    parts = [_transaction(_ownership(schema, projection_schema, roles))]
    if migrations:
        parts.append(script(schema, migrations))
    parts.append(_transaction(_grants(schema, projection_schema, roles)))
    return "\n".join(["\n".join(head) + "\n", *parts])


def _transaction(statements: Iterable[str]) -> str:
    return "".join(
        f"{one};\n" for one in ["BEGIN", SET_SEARCH_PATH.decode(), *statements, "COMMIT"]
    )


def _ownership(schema: str, projection_schema: str, roles: RoleNames) -> Iterable[str]:
    """Yield what makes roles and schemas, and gives what is there to its owner."""
    for role in roles:
        yield literal("make_role", schema, role=role)
    yield literal("make_owned_schema", schema, schema=schema, role=roles.migrate)
    known = migration_files.known()
    yield literal(
        "take_over",
        schema,
        schema=schema,
        role=roles.migrate,
        relations=sorted(rights.run_rights()),
        functions=sorted(migration_files.functions_made(known)),
        comment="Made by Holdfast: ",
    )
    if projection_schema == DEFAULT_PROJECTION_SCHEMA:
        return
    yield literal("make_owned_schema", schema, schema=projection_schema, role=roles.run)
    yield literal(
        "take_over",
        schema,
        schema=projection_schema,
        role=roles.run,
        relations=[],
        functions=[],
        comment=f"Made by Holdfast (schema {schema}): ",
    )


def _grants(schema: str, projection_schema: str, roles: RoleNames) -> Iterable[str]:
    """Yield what takes all rights and gives those that are needed."""
    migrate, run, read = map(quoted, roles)
    place = quoted(schema)
    yield literal("grant_connect", schema, **roles._asdict())
    yield f"REVOKE ALL ON SCHEMA {place} FROM PUBLIC, {run}, {read}"
    yield f"GRANT USAGE ON SCHEMA {place} TO {run}, {read}"
    yield f"GRANT {read} TO {run}"
    every = _relations(rights.run_rights(), place)
    yield f"REVOKE ALL ON {every} FROM PUBLIC, {run}, {read}"
    yield f"GRANT SELECT ON {_relations(rights.read_rights(), place)} TO {read}"
    for what, names in _by_rights(rights.run_rights()).items():
        yield f"GRANT {', '.join(what)} ON {_relations(names, place)} TO {run}"
    functions = ", ".join(f"{place}.{one}" for one in rights.RUN_FUNCTIONS)
    yield f"REVOKE ALL ON FUNCTION {functions} FROM PUBLIC, {read}"
    yield f"GRANT EXECUTE ON FUNCTION {functions} TO {run}"
    default = f"ALTER DEFAULT PRIVILEGES FOR ROLE {migrate} IN SCHEMA {place} GRANT"
    yield f"-- What later migrations make.\n{default} SELECT ON TABLES TO {read}"
    yield f"{default} SELECT ON SEQUENCES TO {read}"
    yield f"{default} SELECT, INSERT, UPDATE, DELETE ON TABLES TO {run}"
    yield f"{default} USAGE ON SEQUENCES TO {run}"
    if projection_schema == DEFAULT_PROJECTION_SCHEMA:
        return
    place = quoted(projection_schema)
    yield f"REVOKE ALL ON SCHEMA {place} FROM PUBLIC, {read}"
    yield f"GRANT USAGE ON SCHEMA {place} TO {read}"
    yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {place} TO {read}"
    default = f"ALTER DEFAULT PRIVILEGES FOR ROLE {run} IN SCHEMA {place} GRANT"
    yield f"{default} SELECT ON TABLES TO {read}"


def _by_rights(needed: Mapping[str, Sequence[str]]) -> dict[tuple[str, ...], list[str]]:
    """Return the relations that have the same rights together; sequences are told by USAGE."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, what in needed.items():
        if what:
            found.setdefault(tuple(what), []).append(name)
    return found


def _relations(names: Iterable[str], place: str) -> str:
    return ", ".join(f"{place}.{quoted(name)}" for name in names)
