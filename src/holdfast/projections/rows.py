"""Reading the table of a projection: by columns, full text and order, on every store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from holdfast.engines.contract import Engine
from holdfast.engines.read_models.query import Comparison, Condition, RowQuery
from holdfast.model.bigrams import query_phrases
from holdfast.model.errors import InvalidInput
from holdfast.model.read_model import ColumnType, ReadModel, Row, Value

from .declaration import Projection


def row_query(
    table: ReadModel,
    where: Mapping[str, Value] | None = None,
    *,
    search: str = "",
    order: str = "",
    limit: int = 100,
) -> RowQuery:
    """Return the query for rows whose columns have these values; a list: one of these.

    ``order`` is a column, with a minus in front the other way round; rows that are equal in it,
    and all without it, come by their key. Raise ``InvalidInput`` naming what is wrong.
    """
    column, descending = order.removeprefix("-"), order.startswith("-")
    first = (column,) if column else ()
    query = RowQuery(
        conditions=tuple(_condition(table, name, value) for name, value in (where or {}).items()),
        search=search,
        order=(*first, *(name for name in table.key if name != column)),
        descending=descending,
        limit=limit,
    )
    query.check(table)
    if search and not query_phrases(search):
        raise InvalidInput("search", f"{search[:60]!r} has no word to look for")
    return query


def _condition(table: ReadModel, column: str, value: Value) -> Condition:
    kind = table.columns.get(column)
    if kind is ColumnType.JSON:
        raise InvalidInput(column, f"{table.name} holds json there: it cannot be compared")
    several = isinstance(value, list | tuple)
    for one in value if isinstance(value, list | tuple) else (value,):
        if one is None or isinstance(one, list | tuple | Mapping):
            raise InvalidInput(column, f"a {type(one).__name__} cannot be compared with")
        table.check_row({column: one})
    if several:
        return Condition(column, Comparison.ONE_OF, tuple(value))  # type: ignore[arg-type]
    return Condition(column, Comparison.EQUAL, value)


def value_of_text(table: ReadModel, column: str, text: str) -> Value:
    """Return the value of a column that a person typed, or raise ``InvalidInput``."""
    kind = table.columns.get(column)
    try:
        if kind is ColumnType.INTEGER:
            return int(text)
        if kind is ColumnType.REAL:
            return float(text)
        if kind is ColumnType.TIMESTAMP:
            return datetime.fromisoformat(text)
        if kind is ColumnType.BOOLEAN:
            return {"true": True, "false": False}[text.lower()]
    except (ValueError, KeyError):
        problem = f"{text[:60]!r} is not a {kind}" if kind else "no such column"
        raise InvalidInput(column, problem) from None
    return text


async def read_rows(engine: Engine, projection: Projection, query: RowQuery) -> list[Row] | None:
    """Return the rows that readers see now; None if no worker has made the table yet."""
    state = (await engine.projections()).get(projection.name)
    if state is None:
        return None
    table = projection.table_of(state, state.live)
    if state.live not in await engine.read_models.generations(table):
        return None
    query.check(table)
    return await engine.read_models.select(table, state.live, query)
