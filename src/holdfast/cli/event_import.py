"""Events of a file: checked, appended 1,000 in a commit, and what was stored is said."""

from __future__ import annotations

from itertools import islice
from typing import IO, TYPE_CHECKING

import msgspec

from holdfast.model.errors import HoldfastError, InvalidInput
from holdfast.model.event import MAX_APPEND
from holdfast.model.visible_text import visible
from holdfast.operations.event_inputs import EventFile, PlacedEvent
from holdfast.operations.events import EventOperations
from holdfast.projections.generations import Generations

from . import store_access
from .exit_codes import EXIT_USAGE
from .output import document, echo, note, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.model.catalog import Catalog
    from holdfast.operations.attribution import Author
    from holdfast.operations.operations import Operations
    from holdfast.projections.declaration import Projection
    from holdfast.settings import Settings

_MOST_SHOWN = 20


class ImportResult(msgspec.Struct):
    """How many events of a file were stored, and how many were there already."""

    stored: int = 0
    existed: int = 0
    last_place: str = ""
    """The place of the last event that is certainly stored."""


def check_file(file: IO[bytes], catalog: Catalog, who: Author, *, as_json: bool) -> None:
    """Check every event of the file, print what is wrong, and exit 2 if anything is."""
    valid, problems = 0, []
    for one in EventFile(file, catalog, who.by).events():
        if isinstance(one, PlacedEvent):
            valid += 1
        else:
            problems.append(str(one))
    if as_json:
        document({"valid": valid, "problems": problems})
    else:
        for problem in problems[:_MOST_SHOWN]:
            note(problem)
        if len(problems) > _MOST_SHOWN:
            note(f"and {len(problems) - _MOST_SHOWN:,} more")
        echo(f"{valid:,} valid, {len(problems):,} wrong; nothing was stored")
    if problems:
        raise SystemExit(EXIT_USAGE)


def import_file(
    settings: Settings,
    file: IO[bytes],
    catalog: Catalog,
    projections: Iterable[Projection],
    who: Author,
    *,
    as_json: bool,
) -> None:
    """Append the events of the file; raise if one is wrong, saying what was stored before.

    The projections are subscribed first, so that they get the events.
    """
    events = EventFile(file, catalog, who.by).events()
    result = ImportResult()
    source = str(getattr(file, "name", "-"))
    chunk = _chunk(events)  # the first: a file without a good one creates no store

    async def run(operations: Operations) -> None:
        door = EventOperations(operations.engine, catalog)
        nonlocal chunk
        for projection in projections:
            await Generations(operations.engine).subscribe(projection)
        try:
            while chunk:
                receipts = await door.append([one.event for one in chunk])
                created = sum(receipt.created for receipt in receipts)
                result.stored += created
                result.existed += len(receipts) - created
                result.last_place = chunk[-1].place
                show(result.stored + result.existed)
                chunk = _chunk(events)
        finally:
            if result.last_place:
                await door.note_import(source, who, result.stored, result.existed)

    show: Callable[[int], None]
    with progress("events", None, wanted=not as_json) as show:
        try:
            store_access.write_store(settings, run)
        except HoldfastError as error:
            if not result.last_place:
                raise
            raise _partly(error, result) from error
    if as_json:
        document({"stored": result.stored, "existed": result.existed})
    else:
        existed = f", {result.existed:,} were there already" if result.existed else ""
        echo(f"{result.stored:,} event{'' if result.stored == 1 else 's'} stored{existed}")


def _chunk(events: Iterator[PlacedEvent | InvalidInput]) -> list[PlacedEvent]:
    """Return the next events of one commit; raise the first problem among them."""
    chunk: list[PlacedEvent] = []
    for one in islice(events, MAX_APPEND):
        if isinstance(one, InvalidInput):
            raise one
        chunk.append(one)
    return chunk


def _partly(error: HoldfastError, result: ImportResult) -> HoldfastError:
    """Return the same error, saying what was stored before it."""
    done = result.stored + result.existed
    stored = f"The {done:,} events up to {result.last_place} are stored, and none after it"
    advice = "correct the cause and run the same file again: what is stored is recognised"
    error.args = (f"{visible(str(error))}. {stored}; {advice}",)
    return error
