"""The views that people read: of the live generation, and of the jobs of a projection."""

from __future__ import annotations

from psycopg import errors as pg

from holdfast.engines.postgres.connection.statements import statement
from holdfast.engines.read_models.statements import column_list
from holdfast.model.projection import check_projection_name
from holdfast.model.read_model import ReadModel, generation_table

from .relations import ProjectionSchema
from .sessions import Session

_OUTBOX = "outbox of {}, 1"
"""The comment; the number is that of the view's definition."""


class Views:
    """The views of one schema."""

    def __init__(self, schema: ProjectionSchema) -> None:
        self._schema = schema

    def publish(self, session: Session, table: ReadModel, generation: int) -> None:
        """Show a generation under the plain name; nothing is locked if it is shown already."""
        source = self._schema.sql(generation_table(table.name, generation))
        self._show(
            session,
            table.name,
            list(table.columns),
            f"SELECT {column_list(list(table.columns))} FROM {source}",
            f"generation {generation} of {table.name}",
        )

    def publish_outbox(self, session: Session, projection: str) -> None:
        """Show the jobs of a projection in the words of an outbox."""
        name = check_projection_name(projection)  # it stands between quotes
        query = statement("outbox_view", self._schema.engine_schema).decode() % {
            "projection": f"'{name}'",
            "generations": f"'^{name}[.]g[0-9]+$'",
        }
        self._show(session, f"{name}_outbox_events", None, query, _OUTBOX.format(name))

    def _show(
        self, session: Session, name: str, columns: list[str] | None, query: str, text: str
    ) -> None:
        schema = self._schema
        found = schema.find(session, name)
        if found is not None and found.kind != "v":
            raise schema.foreign(name)
        if (
            found is not None
            and found.comment == schema.comment(text)
            and (columns is None or list(found.columns) == columns)
        ):
            return
        with schema.changing(session, name):
            view = schema.sql(name)
            try:
                with session.connection.transaction():
                    session.execute(f"CREATE OR REPLACE VIEW {view} AS {query}")
            except pg.InvalidTableDefinition:  # columns are gone, or of another type
                grants = session.run("list_grants", schema=schema.name, name=name)
                session.execute(f"DROP VIEW {view}")
                session.execute(f"CREATE VIEW {view} AS {query}")
                for right, grantee, grantable in grants:
                    option = " WITH GRANT OPTION" if grantable else ""
                    session.execute(f"GRANT {right} ON {view} TO {grantee}{option}")
            schema.set_comment(session, "VIEW", name, text)
