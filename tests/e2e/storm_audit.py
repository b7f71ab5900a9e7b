"""What the store of ``pages.py`` must be like after a storm: returns a list of problems."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.engines.contract import Engine
from holdfast.engines.read_models.contract import TableDigest
from holdfast.engines.read_models.query import RowQuery
from holdfast.model.event_search import EventFilter
from holdfast.model.job import State
from holdfast.model.projection import queue_of
from holdfast.model.read_model import ReadModel, Row
from holdfast.model.search import Filter
from holdfast.operations.projection_audit import find_missing_jobs
from holdfast.projections.chronicle import CHRONICLE, ENTRIES

from .pages import TRAILS, chained

TABLES = {CHRONICLE: ENTRIES, TRAILS.name: TRAILS}
_PAGE = 1_000


class Turned(NamedTuple):
    """An event that is stored."""

    id: str
    book: str
    page: int


class Found(msgspec.Struct, kw_only=True):
    """What is in the store, by several ways to ask."""

    events: Sequence[Turned]
    """In the order of their positions."""
    entries: Sequence[str]
    """The event of each entry of the chronicle."""
    searched: Collection[str]
    """The events that full text finds."""
    trails: Mapping[str, Row]
    digests: Mapping[str, Mapping[int, TableDigest]]
    """Of every generation of every projection."""
    unfinished: Collection[str] = ()
    dead: Collection[str] = ()
    without_jobs: Collection[str] = ()


class Accounts(msgspec.Struct, kw_only=True):
    """What writers were told."""

    stored: Collection[str] = ()
    """Events that were acknowledged, or whose transaction is known to be committed."""
    undone: Collection[str] = ()
    """Events whose transaction is known to be rolled back."""


async def inspect(engine: Engine) -> Found:
    """Read all that there is."""
    states = await engine.projections()
    live = {name: states[name].live for name in TABLES}
    trails = await _rows(engine, TRAILS, live["trails"], "")
    return Found(
        events=await _events(engine),
        entries=[str(row["id"]) for row in await _rows(engine, ENTRIES, live[CHRONICLE], "")],
        searched={str(row["id"]) for row in await _rows(engine, ENTRIES, live[CHRONICLE], "翻页")},
        trails={str(row["book"]): row for row in trails},
        digests=await digests(engine),
        unfinished=await _jobs(engine, State.PENDING, State.IN_FLIGHT, State.BLOCKED),
        dead=await _jobs(engine, State.DEAD, State.ARCHIVED),
        without_jobs=(await find_missing_jobs(engine, 3_600.0)).ids,
    )


async def digests(engine: Engine) -> dict[str, dict[int, TableDigest]]:
    """Hash every generation that is kept up to date."""
    store, subscribed = engine.read_models, await engine.subscriptions()
    return {
        name: {
            number: await store.digest(table, number)
            for number in await store.generations(table)
            if queue_of(name, number) in subscribed
        }
        for name, table in TABLES.items()
    }


async def _events(engine: Engine) -> list[Turned]:
    found: list[Turned] = []
    cursor = ""
    while True:
        page = await engine.find_events(EventFilter(), cursor=cursor, limit=_PAGE)
        found += (
            Turned(one.id, one.entity_id, msgspec.json.decode(one.payload)["page"])
            for one in page.events
        )
        cursor = page.cursor
        if not cursor:
            return found


async def _rows(engine: Engine, table: ReadModel, generation: int, search: str) -> list[Row]:
    order = table.key
    found: list[Row] = []
    while True:
        after = table.key_of(found[-1]) if found else ()
        query = RowQuery(search=search, order=order, after=after, limit=_PAGE)
        page = await engine.read_models.select(table, generation, query)
        found += page
        if len(page) < _PAGE:
            return found


async def _jobs(engine: Engine, *states: State) -> list[str]:
    return [job.id for job in (await engine.find(Filter(states=states))).jobs]


def problems(found: Found, accounts: Accounts) -> list[str]:
    """Return the problems, one sentence each."""
    said: list[str] = []

    def report(what: str, which: Collection[object]) -> None:
        if which:
            said.append(f"{len(which)} {what}: {sorted(map(str, which))[:5]}")

    stored = {one.id for one in found.events}
    entries = Counter(found.entries)
    report("events lost that writers know to be stored", set(accounts.stored) - stored)
    report("events of transactions that were rolled back", set(accounts.undone) & stored)
    report("events that are not in the chronicle", stored - entries.keys())
    report("entries of no event", entries.keys() - stored)
    report("entries doubled", [one for one, count in entries.items() if count > 1])
    report("entries that full text does not find", entries.keys() - found.searched)
    report("jobs unfinished", found.unfinished)
    report("jobs dead", found.dead)
    report("jobs missing", found.without_jobs)
    report("books whose trail is wrong", _wrong_trails(found))
    for name, digests in found.digests.items():
        if len(set(digests.values())) > 1:
            said.append(f"generations of {name} differ: {digests}")
    return said


def _wrong_trails(found: Found) -> list[str]:
    """Return the books whose events were not applied once each, in the order of their pages."""
    by_book: defaultdict[str, list[Turned]] = defaultdict(list)
    for one in found.events:
        by_book[one.book].append(one)
    wrong = [f"{book}: no trail" for book in by_book.keys() - found.trails.keys()]
    for book, row in found.trails.items():
        events = by_book[book]
        chain: object = ""
        for one in events:
            chain = chained(chain, one.id)
        seen = (row["events"], row["page"], row["jumps"], row["chain"])
        due = (len(events), len(events), 0, chain)
        if [one.page for one in events] != list(range(1, len(events) + 1)):
            wrong.append(f"{book}: stored as {[one.page for one in events]}")
        elif seen != due:
            wrong.append(f"{book}: {seen}, not {due}")
    return wrong
