"""Rows as Parquet. Needs the extra ``parquet``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from io import BytesIO
from typing import cast

import msgspec
import pyarrow as pa
from msgspec import inspect
from pyarrow import parquet

from .exports import Rows, Shown, cell_text
from .streaming import Parts


async def parquet_parts(rows: Rows, kind: type[msgspec.Struct], fields: Sequence[str]) -> Parts:
    """Yield a Parquet file in parts: a row group for each page. What is nested is JSON text."""
    schema = pa.schema([(name, _column_type(kind, name)) for name in fields])
    sink = BytesIO()
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        async for page in rows:
            columns = [
                pa.array([_value(row, name, column.type) for row in page], column.type)
                for name, column in zip(fields, schema, strict=True)
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


def _column_type(kind: type[msgspec.Struct], name: str) -> pa.DataType:
    found = cast(inspect.StructType, inspect.type_info(kind))
    of_field = next(one.type for one in found.fields if one.encode_name == name)
    options = of_field.types if isinstance(of_field, inspect.UnionType) else (of_field,)
    known = [one for one in options if not isinstance(one, inspect.NoneType)]
    if len(known) != 1:
        return pa.string()
    if isinstance(known[0], inspect.DateTimeType):
        return pa.timestamp("us", "UTC")
    if isinstance(known[0], inspect.BoolType):
        return pa.bool_()
    if isinstance(known[0], inspect.IntType):
        return pa.int64()
    return pa.float64() if isinstance(known[0], inspect.FloatType) else pa.string()


def _value(row: Shown, name: str, column: pa.DataType) -> object:
    raw = row.get(name)
    if raw is None or bytes(raw) == b"null":
        return None
    if pa.types.is_string(column):
        return cell_text(raw)
    if pa.types.is_timestamp(column):
        return msgspec.json.decode(raw, type=datetime)
    return msgspec.json.decode(raw)
