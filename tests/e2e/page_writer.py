"""A process that appends events in several threads, and writes down what came of each.

Arguments: its name, the path of its account, a seed, and for transactions of its own the URL of a
PostgreSQL server. Each line on its standard input is a number: how often each thread appends next.
The account has a line for each event: ``stored ID``, ``undone ID``, or ``unknown ID`` if the answer
to a commit was lost.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import psycopg

from holdfast.model.errors import NoOwner, Unavailable

if TYPE_CHECKING:
    from .pages import SHARED_BOOKS, THREADS, PageTurned, app
else:
    from pages import SHARED_BOOKS, THREADS, PageTurned, app  # this is run as a script

T = TypeVar("T")
ROLLED_BACK = 0.15
PATIENCE_SECONDS = 60.0


class Account:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def say(self, what: str, *ids: str) -> None:
        os.write(self._file, "".join(f"{what} {one}\n" for one in ids).encode())


class Writer:
    """One thread: appends to a book of its own, and in transactions to those of all."""

    def __init__(self, name: str, account: Account, seed: str, url: str | None) -> None:
        self._name = name
        self._account = account
        self._rng = random.Random(seed)
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None
        self._page = 0

    def write(self) -> None:
        if self._url is not None and self._rng.random() < 0.7:
            self._in_transaction(self._url)
        else:
            self._alone()

    def _alone(self) -> None:
        """Append the next page; without an answer again, by the same id."""
        self._page += 1
        event_id = str(uuid4())
        event = PageTurned(self._name, self._page)
        self._patiently(lambda: app.append_sync(event, event_id=event_id, actor=self._name))
        self._account.say("stored", event_id)

    def _in_transaction(self, url: str) -> None:
        connection = self._patiently(lambda: self._connected(url))
        rng, ids, committing = self._rng, list[str](), False
        try:
            for book in sorted(rng.sample(SHARED_BOOKS, rng.randrange(1, 4))):
                update = "UPDATE public.books SET page = page + 1 WHERE book = %s RETURNING page"
                [[page]] = connection.execute(update, [book]).fetchall()
                turned = [PageTurned(book, page)]
                handles = app.append_many_sync(turned, connection=connection, actor=self._name)
                ids += (one.id for one in handles)
                connection.execute("INSERT INTO public.turns VALUES (%s)", [handles[0].id])
            if rng.random() < ROLLED_BACK:
                connection.rollback()
                self._account.say("undone", *ids)
                return
            committing = True
            connection.commit()
        except (psycopg.OperationalError, Unavailable):
            self._account.say("unknown" if committing else "undone", *ids)
            connection.close()
        else:
            self._account.say("stored", *ids)

    def _connected(self, url: str) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(url)
        return self._connection

    def _patiently(self, call: Callable[[], T]) -> T:
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return call()
            except (psycopg.OperationalError, Unavailable, NoOwner):
                if time.monotonic() > give_up:
                    raise
            time.sleep(0.02)


def main(name: str, account: str, seed: str, url: str | None = None) -> None:
    book = Account(account)
    orders: list[SimpleQueue[int]] = [SimpleQueue() for _thread in range(THREADS)]

    def run(number: int) -> None:
        try:
            writer = Writer(f"{name}-{number}", book, f"{seed}-{name}-{number}", url)
            while count := orders[number].get():
                for _time in range(count):
                    writer.write()
                book.say("written", str(count))
        except BaseException as error:
            book.say("broken", f"{type(error).__name__}: {error}".replace("\n", " "))
            raise

    threads = [threading.Thread(target=run, args=[number]) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for line in sys.stdin:
        for order in orders:
            order.put(int(line))
    for order, thread in zip(orders, threads, strict=True):
        order.put(0)
        thread.join()
    app.close_sync()


if __name__ == "__main__":
    main(*sys.argv[1:])
