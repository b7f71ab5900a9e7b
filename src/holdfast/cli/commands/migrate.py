"""``holdfast migrate``: create or update the schema of a PostgreSQL store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.group import CommandContext
from holdfast.cli.options import json_option
from holdfast.cli.output import document, echo, echo_lines, note
from holdfast.model.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engines.postgres.schema.migration_files import Migration
    from holdfast.settings import Settings


@click.command("migrate")
@click.option("--sql", is_flag=True, help="Print the SQL for psql, and change nothing.")
@click.option(
    "--roles", is_flag=True, help="With --sql: print the roles too, each with the rights it needs."
)
@click.option("--migrate-role", default="holdfast_migrate", help="Owns the schema.")
@click.option("--run-role", default="holdfast_run", help="Runs jobs and changes them.")
@click.option("--read-role", default="holdfast_read", help="Looks, and changes nothing.")
@json_option
@click.pass_obj
def migrate(
    context: CommandContext,
    *,
    sql: bool,
    roles: bool,
    migrate_role: str,
    run_role: str,
    read_role: str,
    as_json: bool,
) -> None:
    """Create or update the schema of a PostgreSQL store.

    Does nothing if it is up to date, and may run twice at once. Migrate before you start the new
    version: workers of the old one keep running, unless the release notes say otherwise. --sql
    prints the missing migrations, or all of them if the server cannot be reached. --sql --roles
    prints three roles with as few rights as possible besides: see docs/postgresql.md.
    """
    settings = context.settings()
    url, schema = _place(settings)
    if roles and not sql:
        raise InvalidInput("roles", "they are printed for review and not made: add --sql")
    if sql:
        names = (migrate_role, run_role, read_role) if roles else None
        _print_script(settings, names, as_json=as_json)
        return
    from holdfast.engines.postgres.schema.migrate import migrate as apply  # noqa: PLC0415 - an extra

    applied = apply(url, schema)
    if as_json:
        document({"schema": schema, "applied": _listed(applied)})
    elif applied:
        for one in applied:
            echo(f"applied {one.title}")
    else:
        echo(f"schema {schema} is up to date")


def _print_script(
    settings: Settings, role_names: tuple[str, str, str] | None, *, as_json: bool
) -> None:
    from holdfast.engines.postgres.schema.migrate import plan, script  # noqa: PLC0415 - an extra
    from holdfast.engines.postgres.schema.roles import RoleNames, roles_script  # noqa: PLC0415

    schema = settings.schema
    names = None if role_names is None else RoleNames(*role_names).check()
    lacking, unseen = plan(settings.store, schema)
    if unseen:
        note(f"{unseen}. These are all migrations, for a new schema")
    if names is None:
        text = script(schema, lacking)
    else:
        text = roles_script(schema, settings.projection_schema, lacking, names)
    if as_json:
        document({"schema": schema, "pending": _listed(lacking), "sql": text})
    else:
        echo_lines(text)


def _place(settings: Settings) -> tuple[str, str]:
    """Return the URL and the schema; raise ``InvalidInput`` for another store."""
    if not settings.on_server:
        problem = "needs no migration: only postgresql://user@host/database has a schema"
        raise InvalidInput("store", f"{settings.store!r} {problem}")
    try:
        import psycopg  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        problem = f"needs psycopg ({error}): pip install 'holdfast[postgres]'"
        raise InvalidInput("store", f"{settings.store_shown} {problem}") from None
    return settings.store, settings.schema


def _listed(migrations: Sequence[Migration]) -> list[dict[str, object]]:
    return [{"number": one.number, "name": one.name} for one in migrations]
