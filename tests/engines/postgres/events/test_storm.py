"""Eight writers, two daemons and a server, all of which are killed: the tables are right.

What is checked at the end does not rest on what Holdfast says alone. Transactions of the writers
number the events of a book in a table of their own, in the order of their commits.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.model.projection import queue_of
from holdfast.projections.chronicle import ENTRIES
from tests.e2e.pages import SHARED_BOOKS, SHOP_TABLES
from tests.e2e.rig import until
from tests.e2e.storm import Daemons, Writers, after_a_kill, calm, rebuild
from tests.e2e.storm_audit import Accounts, Found, problems
from tests.engines.postgres.conftest import Durable
from tests.engines.postgres.load import ServerRig

from .appending import append, new_event
from .checkpoint_reader import LastIdReader

KILLS = int(os.environ.get("HOLDFAST_TEST_KILLS", "4"))
KILLS_PER_STORE = 30
DAEMONS, PROCESSES = 2, 2
APPENDS_PER_KILL = 6
LEASE_SECONDS = 10.0
"""Longer than the server is away: its crash costs no job a loss."""
SLOW_BOOK = "slow"


def storm_rig(directory: Path, url: str, byte_code: Path) -> ServerRig:
    """Return a rig with few connections for each process, and the tables of the writers."""
    rig = ServerRig(directory, url, byte_code)
    rig.env |= {"HOLDFAST_LEASE_SECONDS": str(LEASE_SECONDS), "HOLDFAST_MAX_CONNECTIONS": "2"}
    books = [[book] for book in (*SHARED_BOOKS, SLOW_BOOK)]
    with psycopg.connect(rig.url) as connection:
        for table in SHOP_TABLES:
            connection.execute(table.encode())
        connection.cursor().executemany("INSERT INTO public.books VALUES (%s, 0)", books)
    return rig


class Storm:
    """Everything that runs on one database."""

    def __init__(
        self, durable: Durable, rig: ServerRig, seed: int, stack: contextlib.ExitStack
    ) -> None:
        self.rig = rig
        self.rng = random.Random(seed)
        stack.callback(rig.close)
        self.reader = stack.enter_context(contextlib.closing(LastIdReader(rig.url)))
        self._durable = durable
        self.daemons = Daemons(rig, DAEMONS)
        made = "SELECT to_regclass('public.chronicle_entries') IS NOT NULL"
        until(lambda: rig.rows(made) == [(True,)], "a daemon has made the tables")
        writers = Writers(rig, PROCESSES, seed, rig.url)
        self.writers = stack.enter_context(contextlib.closing(writers))

    def entries(self) -> int:
        """Return how many entries readers see."""
        [[count]] = self.rig.rows("SELECT count(*) FROM public.chronicle_entries")
        return int(count)

    def kill_daemon(self) -> None:
        """Kill a daemon while jobs are in flight, unless all are applied already."""
        in_flight = "SELECT FROM holdfast.jobs WHERE state = 2 LIMIT 1"
        until(lambda: self.rig.rows(in_flight) or self.writers.idle(), "something is applied", 60.0)
        number = self.rng.randrange(DAEMONS)
        self.daemons.running[number].ready()
        self.daemons.kill(number)

    def crash_server(self) -> None:
        """Stop the server as a crash does, and start it again."""
        self._durable.server.stop(signal.SIGQUIT)
        self._durable.server.start()
        self.daemons.supervise()

    @contextlib.contextmanager
    def slow_transaction(self) -> Iterator[None]:
        """Keep a transaction with an event open until others were stored and applied after it."""
        with psycopg.connect(self.rig.url) as connection:
            turn = "UPDATE public.books SET page = page + 1 WHERE book = %s RETURNING page"
            [[page]] = connection.execute(turn, [SLOW_BOOK]).fetchall()
            event = new_event(
                SLOW_BOOK,
                event_type="page.turned",
                entity_id=SLOW_BOOK,
                payload={"book_id": SLOW_BOOK, "page": page},
            )
            [late] = append(connection, event)
            connection.execute("INSERT INTO public.turns VALUES (%s)", [late.id])
            yield
            before = self.entries()
            self.writers.more(APPENDS_PER_KILL)

            def gone_by() -> bool:
                self.daemons.supervise()
                self.reader.read()
                return self.reader.last > late.position and self.entries() > before

            until(gone_by, "events of other keys are stored, read and applied", 60.0)

    def start_rebuilds(self) -> None:
        """Begin a rebuild of each projection; return when its generation is subscribed."""
        rebuild(self.rig, "--detach")
        names = {queue_of(name, 2) for name in ("chronicle", "trails")}
        query = "SELECT name FROM holdfast.subscriptions"
        until(lambda: names <= {name for (name,) in self.rig.rows(query)}, "they are subscribed")


def storm(
    durable: Durable, rig: ServerRig, kills: int, seed: int
) -> tuple[Found, Accounts, LastIdReader]:
    """Live through so many kills, of which every third is of the server; come to rest."""
    with contextlib.ExitStack() as stack:
        weather = Storm(durable, rig, seed, stack)
        for number in range(kills):
            weather.writers.more(APPENDS_PER_KILL)
            if number % 3 == 1:
                weather.crash_server()
            else:
                weather.kill_daemon()
            with weather.slow_transaction():
                if number == 0:
                    weather.start_rebuilds()
        accounts = weather.writers.finish()
        found = calm(rig, weather.daemons)
        weather.daemons.stop()
        weather.reader.read()
        return found, accounts, weather.reader


@pytest.mark.timeout(240 + 20 * KILLS)
def test_every_committed_event_is_in_the_tables_once_and_in_order(
    durable: Durable, tmp_path: Path, byte_code: Path
) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    for first in range(0, KILLS, KILLS_PER_STORE):
        kills = min(KILLS_PER_STORE, KILLS - first)
        directory = tmp_path / str(first)
        directory.mkdir()
        with durable.databases.fresh() as url:
            rig = storm_rig(directory, url, byte_code)
            found, accounts, reader = storm(durable, rig, kills, seed + first)
            turns = {event_id for (event_id,) in rig.rows("SELECT event_id FROM public.turns")}
            pages = dict(rig.rows("SELECT book, page FROM public.books WHERE page > 0"))
            invalid = rig.ask(lambda engine: engine.validate())
            audit = rig.ask(lambda engine: engine.missing_jobs())  # type: ignore[attr-defined]
        stored = {one.id for one in found.events}
        lost = len(stored - reader.seen)
        figures = (
            f"{kills} kills, {len(stored)} events, {len(accounts.undone)} rolled back; "
            f"a reader by position lost {lost}"
        )
        print(figures)  # noqa: T201 - the figures are the point
        assert problems(found, accounts) == [], figures
        assert (audit.missing, audit.events) == ([], len(stored))
        assert invalid == []
        # What the transactions of the writers changed beside their events.
        assert turns == {one.id for one in found.events if one.book in pages}
        assert {book: found.trails[book]["page"] for book in pages} == pages
        assert {number for one in found.digests.values() for number in one} >= {2, 3}
        assert accounts.undone
        # The control: a transaction was open in each round, and what it stored came late.
        assert lost >= kills


def test_control_a_daemon_that_settles_before_its_rows_is_found_out(
    durable: Durable, tmp_path: Path, byte_code: Path
) -> None:
    with durable.databases.fresh() as url:
        rig = storm_rig(tmp_path, url, byte_code)
        found = after_a_kill(rig, "settle_first_on_the_server", ENTRIES.name, rig.url)
    assert [said for said in found if "events that are not in the chronicle" in said], found
