"""Databases in which the three roles have their rights, and a login for each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.engines.postgres.schema.migrate import plan
from holdfast.engines.postgres.schema.roles import RoleNames, roles_script

from .servers import Databases

ROLES = RoleNames()
LOGINS = {"migrator": ROLES.migrate, "runner": ROLES.run, "other_runner": ROLES.run}
LOGINS |= {"reader": ROLES.read, "stranger": ""}
VIEWS = "read_models"
"""The schema of projections."""


def execute(url: str, text: str) -> list[tuple[object, ...]]:
    """Execute SQL, without the commands of psql in it; return the rows."""
    lines = (line for line in text.splitlines() if not line.startswith("\\"))
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute("\n".join(lines).encode())
        return cursor.fetchall() if cursor.description else []


def as_user(url: str, user: str) -> str:
    return make_conninfo(url, user=user)


def give_roles(url: str, schema: str = "holdfast") -> None:
    """Do what somebody does who pipes ``migrate --sql --roles`` into psql, and grant the roles."""
    execute(url, roles_script(schema, VIEWS, plan(url, schema).migrations, ROLES))
    for login, role in LOGINS.items():
        if not execute(url, f"SELECT 1 FROM pg_roles WHERE rolname = '{login}'"):  # noqa: S608
            execute(url, f"CREATE ROLE {login} LOGIN")
        if role:
            execute(url, f"GRANT {role} TO {login}")


class RoleDatabases(NamedTuple):
    """Databases like one that has the roles."""

    databases: Databases
    like: str

    def fresh(self) -> contextlib.AbstractContextManager[str]:
        """Make a database; yield its URL, for a superuser."""
        return self.databases.fresh(self.like)


@contextlib.contextmanager
def with_roles(databases: Databases) -> Iterator[RoleDatabases]:
    with databases.fresh() as url:
        give_roles(url)
        yield RoleDatabases(databases, str(conninfo_to_dict(url)["dbname"]))
