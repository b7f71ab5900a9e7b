"""The demo: a day in a library, a bug in a projection, its fix, a replay and a rebuild.

It works on a copy of this example in a temporary directory, so that it can deploy a bug and its
fix. The store is there too, or the database that DATABASE_URL names.
"""

import difflib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from rich.console import Console
from rich.markup import escape

HERE = Path(__file__).parents[1]
PATIENCE_SECONDS = 60.0
BUGS = {
    "return len(_WORD.findall(text))": "return len(text.split())",
    "return max(1, round(words / WORDS_PER_MINUTE))": "return max(1, words / WORDS_PER_MINUTE)",
}
"""What is right, and what somebody wrote first."""
WHALE = (
    "Call me Ishmael. Some years ago, never mind how long precisely, having little or no money in "
    "my purse, and nothing particular to interest me on shore, I thought I would sail about a "
    "little and see the watery part of the world. "
)
DREAM = "满纸荒唐言，一把辛酸泪。都云作者痴，谁解其中味？"

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    """Tell the story; exit 1 if it does not go as told."""
    with tempfile.TemporaryDirectory(prefix="library-") as name:
        demo = Demo(Path(name))
        demo.set_up()
        with demo.web() as client:
            with demo.worker():
                shelf = a_day(demo, client)
                look_at_the_bug(demo, shelf)
            demo.mend()
            with demo.worker():
                replay_and_rebuild(demo, client, shelf)
                look_around(demo)
    console.print("\n[bold green]No event was lost, and nobody edited a row by hand.[/]")
    console.print("Your turn: examples/library/README.md says how to start it, and what to try.")


def a_day(demo: "Demo", client: "Web") -> int:
    """Let people use the library; return their bookshelf."""
    demo.say("A day in the library. Every request changes a row and appends an event.")
    library = client.send("Anna", "POST", "/libraries", name="City Library")
    demo.library = f"library:{library}"
    shelf = client.send("Anna", "POST", f"/libraries/{library}/bookshelves", name="Classics")
    whale = client.send("Anna", "POST", f"/bookshelves/{shelf}/books", title="Moby-Dick")
    dream = client.send("Bo", "POST", f"/bookshelves/{shelf}/books", title="石头记")
    client.send("Bo", "POST", f"/books/{dream}/blocks", text=DREAM)
    client.send("Bo", "PATCH", f"/books/{dream}", title="红楼梦")
    client.send("Anna", "POST", f"/books/{whale}/blocks", text=WHALE)
    client.send("Anna", "POST", f"/books/{whale}/blocks", text=WHALE * 8)
    client.send("Anna", "POST", f"/books/{whale}/tags", tag="sea")
    client.send("Bo", "POST", f"/books/{dream}/tags", tag="family")
    demo.wait("both books have a history", lambda: client.entries(whale, dream) == [4, 4])
    demo.say("The chronicle tells it to people:")
    demo.run(f"holdfast chronicle list --oldest --scope {demo.library} --app library")
    return shelf


def look_at_the_bug(demo: "Demo", shelf: int) -> None:
    """Show what the person on call sees."""
    demo.say("But the cards of the books have a bug: one event failed, one waits behind it.")
    demo.wait("one event failed, and one is held", lambda: demo.failures() == (1, 1))
    demo.run("holdfast projections list --app library")
    demo.run("holdfast dead groups --queue book_cards")
    demo.say("Only Moby-Dick stands still. And 红楼梦 has 20 characters, not 1 word:")
    demo.run(f"holdfast projections rows book_cards --where bookshelf_id={shelf} --app library")


def replay_and_rebuild(demo: "Demo", client: "Web", shelf: int) -> None:
    """Mend what failed, then what is wrong."""
    cards = f"/bookshelves/{shelf}/books"
    demo.say("Replay: what failed is applied, then what waited for it, in order.")
    demo.run("holdfast replay --queue book_cards --canary 1 --reason 'bug 17' --fixed 'minutes'")
    demo.wait("Moby-Dick has its tag", lambda: "sea" in str(client.get(cards)))
    demo.run(f"holdfast projections rows book_cards --where bookshelf_id={shelf} --app library")
    demo.say("The words of 红楼梦 were applied by the old code. A rebuild makes every card again,")
    demo.say("in a table beside the live one; readers are switched when it is complete.", gap=False)
    demo.run("holdfast rebuild book_cards --app library --reason 'bug 17'")
    demo.run(f"holdfast projections rows book_cards --where bookshelf_id={shelf} --app library")
    found = {
        card["title"]: (card["words"], card["minutes"], card["tags"]) for card in client.get(cards)
    }
    right = {"Moby-Dick": (387, 2, "sea"), "红楼梦": (20, 1, "family")}
    demo.check(f"the web application reads {right}", found == right)


def look_around(demo: "Demo") -> None:
    """Show the rest: search, who did what, and that all is well."""
    demo.say("Two Chinese characters are enough to find something:")
    demo.run(f"holdfast chronicle search 红楼 --scope {demo.library} --app library")
    demo.say("What the person on call did is recorded too:")
    demo.run("holdfast audit list")


class Demo:
    """A copy of the example, and the processes that run on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.library = ""
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HOLDFAST_", "OUTBOX_"))
        }
        self.environment |= {"PYTHONUNBUFFERED": "1", "HOLDFAST_METRICS_PORT": "off"}

    @property
    def projections(self) -> Path:
        """The file with the bug."""
        return self.directory / "library" / "projections.py"

    def set_up(self) -> None:
        """Copy the example, with the bugs, and make the tables of a database."""
        ignored = shutil.ignore_patterns("__pycache__", "data", "*.sqlite")
        shutil.copytree(HERE, self.directory, dirs_exist_ok=True, ignore=ignored)
        text = self.projections.read_text("utf-8")
        for right, wrong in BUGS.items():
            text = text.replace(right, wrong)
        self.projections.write_text(text, "utf-8")
        if "DATABASE_URL" in self.environment:
            self.say("On PostgreSQL: rows and events are one transaction.")
            self.run("holdfast migrate")
        else:
            self.say("Embedded: no server, everything is in ./data.")

    def mend(self) -> None:
        """Deploy the file without the bugs, and show the difference."""
        self.say("The fix, deployed by starting the worker again:")
        wrong = self.projections.read_text("utf-8").splitlines()
        right = (HERE / "library" / "projections.py").read_text("utf-8").splitlines()
        for line in difflib.unified_diff(wrong, right, n=0, lineterm=""):
            if re.match(r"[-+] ", line):
                colour = "red" if line[0] == "-" else "green"
                console.print(f"  [{colour}]{escape(line)}[/]")
        self.projections.write_text("\n".join(right) + "\n", "utf-8")

    # --- what is typed -----------------------------------------------------------------------

    def say(self, text: str, *, gap: bool = True) -> None:
        """Tell what comes next."""
        if gap:
            console.print()
        console.print(f"[cyan]# {escape(text)}[/]")

    def run(self, line: str) -> None:
        """Type a command and show what it prints."""
        console.print(f"[bold]$ {escape(line)}[/]")
        done = self._run(line, subprocess.STDOUT)
        sys.stdout.write(done.stdout)
        sys.stdout.flush()
        self.check(f"`{line}` succeeded", done.returncode == 0)

    def _run(self, line: str, errors: int) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", *shlex.split(line)],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            check=False,
        )

    def failures(self) -> tuple[int, int]:
        """Return how many events of the cards have failed, and how many wait behind these."""
        line = "holdfast projections show book_cards --json --app library"
        found = json.loads(self._run(line, subprocess.DEVNULL).stdout)
        return found["failed"], found["held"]

    def check(self, what: str, holds: bool) -> None:  # noqa: FBT001
        """Exit if the story does not go as told."""
        if not holds:
            raise SystemExit(f"This is not so: {what}.")

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until this holds."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            self.check(f"{what}, within {PATIENCE_SECONDS:g} s", time.monotonic() < give_up)
            time.sleep(0.1)

    # --- what runs ---------------------------------------------------------------------------

    @contextmanager
    def worker(self) -> Iterator[None]:
        """Run the worker, which applies events."""
        with self._running("holdfast run library", r"^workers: "):
            yield

    @contextmanager
    def web(self) -> "Iterator[Web]":
        """Run the web application on a free port."""
        started = self._running("uvicorn library.web:web --port 0", r"http://127\S+")
        with started as address, httpx.Client(base_url=address, timeout=30.0) as client:
            yield Web(client)

    @contextmanager
    def _running(self, line: str, started: str) -> Iterator[str]:
        """Start a process, wait until it says so, and stop it at the end."""
        console.print(f"\n[bold]$ {line} &[/]")
        log = Path(tempfile.mkstemp(".log", dir=self.directory)[1])
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *line.split()],
                cwd=self.directory,
                env=self.environment,
                stdout=output,
                stderr=output,
            )

        def first_words() -> str:
            text = log.read_text("utf-8", "replace")
            self.check(f"{line} runs; it said:\n{text}", process.poll() is None)
            found = re.search(started, text, re.MULTILINE)
            return found[0] if found else ""

        try:
            self.wait(f"{line} has started", lambda: bool(first_words()))
            yield first_words()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_SECONDS)


class Web:
    """Sends requests to the web application, and shows them."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def send(self, user: str, method: str, path: str, **body: str) -> int:
        """Send a request as a user; return the id that it answers."""
        text = json.dumps(body, ensure_ascii=False)
        shown = text if len(text) < 60 else f"{text[:59]}…"
        answer = self._client.request(method, path, json=body, headers={"X-User": user})
        console.print(f"  {user:4}  {method:5} {path:25} {escape(shown)}")
        if answer.is_error:
            raise SystemExit(f"{method} {path} was answered {answer.status_code}: {answer.text}")
        found = answer.json() if answer.content else None
        return int(found["id"]) if found else 0

    def get(self, path: str) -> list[dict[str, object]]:
        """Return what a page says."""
        found: list[dict[str, object]] = self._client.get(path).raise_for_status().json()
        return found

    def entries(self, *books: int) -> list[int]:
        """Return how many entries the history of each book has."""
        return [len(self.get(f"/books/{book}/history")) for book in books]
