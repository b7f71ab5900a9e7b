"""Tables and views in the schema of projections: which are ours is told by their comments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from psycopg import errors as pg

from holdfast.engines.postgres.errors import first_line, place
from holdfast.engines.read_models.statements import quoted
from holdfast.model.errors import InvalidInput, Unavailable

from .sessions import Session

_LOCK_TIMEOUT_MS = 300
"""How long readers may be kept waiting by a change that waits for a reader itself."""


class Relation(NamedTuple):
    """A table or a view that exists."""

    kind: str
    comment: str
    columns: Mapping[str, str]
    """Their types, as the server names them."""
    key: Sequence[str]
    indexes: Sequence[str]


class ProjectionSchema(NamedTuple):
    """The schema of projections, for an engine whose tables are in ``engine_schema``."""

    name: str
    engine_schema: str
    url: str

    def sql(self, relation: str) -> str:
        """Return the name of a relation in SQL."""
        return f"{quoted(self.name)}.{quoted(relation)}"

    def comment(self, text: str) -> str:
        """Return the comment of a relation that we make."""
        return f"Made by Holdfast (schema {self.engine_schema}): {text}"

    def is_ours(self, comment: str | None) -> bool:
        """Whether a relation with this comment was made by this engine."""
        return (comment or "").startswith(self.comment(""))

    def find(self, session: Session, name: str) -> Relation | None:
        """Return a relation of ours, or None; raise ``InvalidInput`` if it is not ours."""
        found = session.run("read_relation", schema=self.name, name=name)
        if not found:
            return None
        [[kind, comment, columns, types, key, indexes]] = found
        if not self.is_ours(comment):
            raise self.foreign(name)
        return Relation(kind, comment, dict(zip(columns, types, strict=True)), key, indexes)

    def foreign(self, name: str) -> InvalidInput:
        """Return the error for a relation that we did not make."""
        return InvalidInput(
            "table",
            f"{self.name}.{name} exists already, and Holdfast (schema {self.engine_schema}) did "
            "not make it; it is left as it is: rename it, or set projection_schema to another "
            "schema",
        )

    @contextlib.contextmanager
    def changing(self, session: Session, name: str) -> Iterator[None]:
        """Within it relations are made and changed, by one transaction at a time."""
        session.lock(f"projection_table/{self.name}/{name}")
        session.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_MS}ms'")
        session.execute("SET LOCAL statement_timeout = 0")  # an index may take its time
        session.run("become_owner", schema=self.name)
        try:
            yield
        except pg.InsufficientPrivilege as error:
            user = session.connection.info.user
            raise Unavailable(
                f"user {user!r} may not make or change {self.name}.{name} in {place(self.url)} "
                f"({first_line(error)}): GRANT CREATE, USAGE ON SCHEMA {self.name} TO {user}, or "
                "set projection_schema to a schema of its own"
            ) from error
        except (pg.DuplicateTable, pg.DuplicateObject, pg.WrongObjectType) as error:
            raise self.foreign(name) from error
        except pg.DependentObjectsStillExist as error:
            detail = (error.diag.message_detail or first_line(error)).replace("\n", "; ")
            problem = f"{self.name}.{name} cannot be changed: {detail}; drop that first"
            raise InvalidInput("table", problem) from error

    def set_comment(self, session: Session, kind: str, name: str, text: str) -> None:
        """Comment a relation as ours; the text has no quotes."""
        session.execute(f"COMMENT ON {kind} {self.sql(name)} IS '{self.comment(text)}'")
