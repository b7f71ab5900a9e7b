"""The tables of generations: made, extended, emptied and dropped."""

from __future__ import annotations

from holdfast.engines.read_models import statements
from holdfast.engines.read_models.statements import (
    POSTGRES,
    SEARCH_COLUMN,
    column_list,
    index_name,
    quoted,
)
from holdfast.model.errors import InvalidInput
from holdfast.model.read_model import ReadModel, generation_table

from .relations import ProjectionSchema, Relation
from .sessions import Session

_SERVER_TYPES = {
    'text COLLATE "C"': "text",
    "timestamptz": "timestamp with time zone",
}
"""What the server calls a type, where that differs."""


class Tables:
    """The tables of one schema."""

    def __init__(self, schema: ProjectionSchema) -> None:
        self._schema = schema

    def create(self, session: Session, table: ReadModel, generation: int) -> None:
        """Make a table, or add the columns and indexes that it lacks."""
        schema, name = self._schema, generation_table(table.name, generation)
        view = schema.find(session, table.name)
        if view is not None and view.kind != "v":
            raise schema.foreign(table.name)
        found = schema.find(session, name)
        if found is not None and not self._lacking(table, name, found):
            return
        with schema.changing(session, name):
            found = schema.find(session, name)
            if found is None:
                self._make(session, table, name)
                self.forget(session, table, generation)
                schema.set_comment(
                    session, "TABLE", name, f"generation {generation} of {table.name}"
                )
                found = schema.find(session, name)
            if found is not None:
                for change in self._lacking(table, name, found):
                    session.execute(change)

    def _make(self, session: Session, table: ReadModel, name: str) -> None:
        if not session.run("find_schema", schema=self._schema.name):
            session.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._schema.name)}")
        session.execute(
            f"CREATE TABLE {self._schema.sql(name)} ({statements.definitions(table, POSTGRES)},"
            f" PRIMARY KEY ({column_list(table.key)}))"
        )

    def _lacking(self, table: ReadModel, name: str, found: Relation) -> list[str]:
        """Return the statements that add what a table lacks; raise if it cannot be added."""
        source = self._schema.sql(name)
        wanted = {column: POSTGRES.types[kind] for column, kind in table.columns.items()}
        if table.search:
            wanted[SEARCH_COLUMN] = "tsvector"
        if found.kind != "r":
            raise self._schema.foreign(name)
        if list(found.key) != list(table.key):
            known = ", ".join(found.key)
            raise InvalidInput("key", f"of {name} is {known}: rebuild it to change that")
        changes: list[str] = []
        for column, kind in wanted.items():
            known = found.columns.get(column, "")
            if not known:
                changes.append(f"ALTER TABLE {source} ADD COLUMN {quoted(column)} {kind}")
            elif known != _SERVER_TYPES.get(kind, kind):
                problem = f"{column} of {name} is {known}: rebuild it to change that"
                raise InvalidInput("columns", problem)
        indexes = {index_name(name, index): f"({column_list(index)})" for index in table.indexes}
        if table.search:
            indexes[index_name(name, ["search"])] = f"USING gin ({quoted(SEARCH_COLUMN)})"
        changes += [
            f"CREATE INDEX {quoted(index)} ON {source} {what}"
            for index, what in indexes.items()
            if index not in found.indexes
        ]
        return changes

    def drop(self, session: Session, table: ReadModel, generation: int) -> None:
        """Drop a table, with the view if that shows it."""
        schema, name = self._schema, generation_table(table.name, generation)
        if schema.find(session, name) is not None:
            with schema.changing(session, name):
                view = schema.find(session, table.name)
                shown = schema.comment(f"generation {generation} of {table.name}")
                if view is not None and view.comment == shown:
                    session.execute(f"DROP VIEW {schema.sql(table.name)}")
                session.execute(f"DROP TABLE IF EXISTS {schema.sql(name)}")
        self.forget(session, table, generation)

    def generations(self, session: Session, table: ReadModel) -> list[int]:
        """Return the generations that exist."""
        prefix = generation_table(table.name, 0)[:-1]
        found = session.run("list_relations", schema=self._schema.name, prefix=prefix)
        numbers = (
            name.removeprefix(prefix) for name, comment in found if self._schema.is_ours(comment)
        )
        return sorted(int(number) for number in numbers if number.isdecimal())

    def empty(self, session: Session, table: ReadModel, generation: int) -> None:
        """Delete all rows."""
        name = generation_table(table.name, generation)
        with self._schema.changing(session, name):
            session.execute(f"TRUNCATE {self._schema.sql(name)}")
        self.forget(session, table, generation)

    def forget(self, session: Session, table: ReadModel, generation: int) -> None:
        """Forget how far a generation was filled, and which jobs that covered."""
        of = {"table_name": table.name, "generation": generation}
        session.run("drop_fill_position", **of)
        session.run("drop_covered_jobs", **of, tenants=None, ids=None)
