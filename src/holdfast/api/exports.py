"""Lists as NDJSON, CSV or Parquet: the whole list, sent while it is read page by page."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from urllib.parse import quote

import msgspec

from holdfast.model.search import MAX_PAGE

from .call import ApiCall, invalid
from .problems import RequestRefused
from .streaming import Parts, StreamedAnswer

JSON, NDJSON, CSV, PARQUET = "json", "ndjson", "csv", "parquet"
MEDIA: Mapping[str, str] = {
    JSON: "application/json",
    NDJSON: "application/x-ndjson",
    CSV: "text/csv",
    PARQUET: "application/vnd.apache.parquet",
}
EXPORT_MEDIA = tuple(media for name, media in MEDIA.items() if name != JSON)
EXPORT_PARAMETERS = ("format", "bom", "raw_cells")
_SENT: Mapping[str, str] = {**MEDIA, CSV: "text/csv; charset=utf-8; header=present"}
_OTHER_NAMES = {"application/ndjson": NDJSON, "application/jsonl": NDJSON}
_BOM = b"\xef\xbb\xbf"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins like this for a formula."""

Shown = Mapping[str, msgspec.Raw]
Rows = AsyncIterator[Sequence[Shown]]


def format_of(call: ApiCall) -> str:
    """Return the format that is asked for: the parameter wins over ``Accept``."""
    asked = call.value("format")
    if asked and asked not in MEDIA:
        raise invalid("format", f"it is one of {', '.join(MEDIA)}")
    found = asked or _accepted(call.headers.get("accept", ""))
    if found == PARQUET and not _has_pyarrow():
        raise _not_acceptable("Parquet is not installed here: pip install 'holdfast[parquet]'")
    return found


def export(
    call: ApiCall, kind: type[msgspec.Struct], name: str, fields: Sequence[str], rows: Rows
) -> StreamedAnswer:
    """Answer with these rows in the format that is asked for."""
    form = format_of(call)
    if form == NDJSON:
        parts = _ndjson(rows)
    elif form == CSV:
        bom, raw = _switch(call, "bom"), _switch(call, "raw_cells")
        parts = _csv(rows, fields, bom=bom, raw=raw)
    else:
        from .parquet import parquet_parts  # noqa: PLC0415 - an extra

        parts = parquet_parts(rows, kind, fields)
    file = f"{name}-{call.tenant}.{form}"
    named = f"attachment; filename=\"{name}.{form}\"; filename*=UTF-8''{quote(file, safe='')}"
    return StreamedAnswer(
        content_type=_SENT[form], parts=parts, headers={"content-disposition": named}
    )


def page_limit(left: int | None) -> int:
    """Return how many rows to read at once, if so many are still wanted."""
    return MAX_PAGE if left is None else min(MAX_PAGE, left)


def cell_text(raw: msgspec.Raw | None) -> str:
    """Return a value as the text of a cell: what is nested is JSON."""
    if raw is None:
        return ""
    text = bytes(raw)
    if text.startswith(b'"'):
        return msgspec.json.decode(text, type=str)
    return "" if text == b"null" else text.decode()


async def _ndjson(rows: Rows) -> Parts:
    async for page in rows:
        yield b"".join(msgspec.json.encode(row) + b"\n" for row in page)


async def _csv(rows: Rows, fields: Sequence[str], *, bom: bool, raw: bool) -> Parts:
    """Yield RFC 4180, a header line first."""
    lines = io.StringIO(newline="")
    writer = csv.writer(lines)
    writer.writerow(fields)
    yield (_BOM if bom else b"") + lines.getvalue().encode()
    async for page in rows:
        lines.seek(0)
        lines.truncate()
        for row in page:
            writer.writerow([_cell(row.get(name), raw=raw) for name in fields])
        yield lines.getvalue().encode("utf-8", "replace")


def _cell(value: msgspec.Raw | None, *, raw: bool) -> str:
    text = cell_text(value)
    is_text = value is not None and bytes(value).startswith(b'"')
    return f"'{text}" if is_text and not raw and text.startswith(_FORMULA) else text


def _accepted(header: str) -> str:
    """Return the format that ``Accept`` likes best; without one JSON."""
    best, found = 0.0, ""
    for one in header.split(",") if header.strip() else ["*/*"]:
        media, *options = [part.strip().lower() for part in one.split(";")]
        likes = _quality(options)
        name = _named(media)
        if name and likes > best:
            best, found = likes, name
    if not found:
        raise _not_acceptable("none of the types in Accept is there")
    return found


def _named(media: str) -> str:
    if media in ("*/*", "application/*"):
        return JSON
    if media == "text/*":
        return CSV
    return next((name for name, one in MEDIA.items() if one == media), _OTHER_NAMES.get(media, ""))


def _quality(options: Sequence[str]) -> float:
    for option in options:
        if option.startswith("q="):
            try:
                return float(option[2:])
            except ValueError:
                return 0.0
    return 1.0


def _not_acceptable(detail: str) -> RequestRefused:
    there = [media for name, media in MEDIA.items() if name != PARQUET or _has_pyarrow()]
    text = f"{detail}; there are {', '.join(there)}"
    return RequestRefused("not-acceptable", text, extra={"available": there})


def _switch(call: ApiCall, name: str) -> bool:
    text = call.value(name, "0")
    if text not in ("0", "1"):
        raise invalid(name, "it is 0 or 1")
    return text == "1"


def _has_pyarrow() -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 - only if it is asked for

    return find_spec("pyarrow") is not None
