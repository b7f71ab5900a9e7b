"""Events and projections on the journal: ``python -m bench.events NAME DIRECTORY COUNT``.

Each part runs in a process of its own, with its processor time: that is more reliable than a rate
when something else runs on the machine. ``bench/event_limits.py`` is the plain program beside it.
"""

import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from holdfast.engines.contract import Engine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.model.projection import RebuildMode
from holdfast.operations.attribution import Author
from holdfast.operations.chronicle import ChronicleOperations
from holdfast.operations.chronicle_views import ChronicleFilter
from holdfast.projections.chronicle import PROJECTION as CHRONICLE
from holdfast.projections.declaration import Projection
from holdfast.projections.generations import Generations
from holdfast.projections.rebuild import Rebuilder
from holdfast.projections.registry import event_reader

from . import ours
from .event_shapes import RARE_WORD, application, new_events

BULK = 1_000
_WHO = Author("bench", "to measure the speed")
Figures = dict[str, float]


class Stopwatch:
    """Time, processor time of the process, and processor time of the event loop's thread."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time(), time.thread_time()

    def figures(self, name: str, count: int) -> Figures:
        """Return the rate and the processor time of each event."""
        wall, cpu, loop = self._began
        return {
            f"{name}_per_second": count / (time.perf_counter() - wall),
            f"{name}_cpu_us": (time.process_time() - cpu) / count * 1e6,
            f"{name}_loop_us": (time.thread_time() - loop) / count * 1e6,
        }


def _projection(app: Holdfast, name: str) -> Projection:
    return CHRONICLE if name == "chronicle" else app.registry.projections[name]


async def _append_all(engine: JournalEngine, count: int, *, hot: bool = False) -> None:
    for first in range(0, count, BULK):
        await engine.append(new_events(first, min(BULK, count - first), hot=hot))


async def append(directory: str, count: int) -> Figures:
    """Append in bulk with one subscription; then until ``events.sqlite`` has everything."""
    app = application(directory, books=True)
    engine = await JournalEngine.open(directory, options=ours.OPTIONS)
    await Generations(engine).subscribe(_projection(app, "books"))
    batches = [new_events(first, BULK) for first in range(0, count, BULK)]
    watch = Stopwatch()
    for batch in batches:
        await engine.append(batch)
    found = watch.figures("append", count)
    await engine.count_events()  # returns when all are stored
    found |= watch.figures("append_and_store", count)
    await engine.close()
    return found


async def _project(directory: str, count: int, name: str, *, hot: bool) -> Figures:
    """Let the worker of an application project a backlog."""
    app = application(directory, books=name == "books")
    engine = await JournalEngine.open(directory, options=ours.OPTIONS)
    await Generations(engine).ensure(_projection(app, name))
    await _append_all(engine, count, hot=hot)
    await engine.close()
    flags = {"workers": 1, "log_level": "error", "chronicle": name == "chronicle"}
    async with app.running(**flags):
        while await app._binding.call(_waiting) == count:  # noqa: SLF001
            await asyncio.sleep(0.001)
        watch, before = Stopwatch(), await app._binding.call(_waiting)  # noqa: SLF001
        while await app._binding.call(_waiting):  # noqa: SLF001
            await asyncio.sleep(0.01)
        return watch.figures(f"project_{name}{'_hot' if hot else ''}", before)


async def _waiting(engine: Engine) -> int:
    counts = await engine.counts()
    return sum(one.pending + one.in_flight for one in counts.values())


async def rebuild(directory: str, count: int) -> Figures:
    """Rebuild both projections from the stored events, and read from the chronicle."""
    app = application(directory, books=True)
    read = event_reader(app.catalog)
    engine = await JournalEngine.open(directory, options=ours.OPTIONS)
    await _append_all(engine, count)
    await engine.count_events()
    found: Figures = {}
    for name in ("books", "chronicle"):
        projection = _projection(app, name)
        await Generations(engine).ensure(projection)
        rebuilder = Rebuilder(engine, {name: projection}, read)
        watch = Stopwatch()
        await rebuilder.start(name, RebuildMode.GENERATION, _WHO)
        state, _further = await rebuilder.step(name)
        while state.rebuild is not None:
            state, _further = await rebuilder.step(name)
        found |= watch.figures(f"rebuild_{name}", count)
        found[f"rebuild_{name}_seconds"] = count / found[f"rebuild_{name}_per_second"]
    found |= await _read(engine, app)
    await engine.close()
    return found


async def _read(engine: JournalEngine, app: Holdfast) -> Figures:
    chronicle = ChronicleOperations(engine, app.catalog)
    queries: Mapping[str, ChronicleFilter] = {
        "page": ChronicleFilter(),
        "page_of_scope": ChronicleFilter(scope="library:7"),
        "page_of_entity": ChronicleFilter(entity_type="book", entity_id="b77"),
        "search": ChronicleFilter(search=RARE_WORD),
        "search_in_scope": ChronicleFilter(search=RARE_WORD, scope="library:0"),
    }
    found: Figures = {}
    for name, wanted in queries.items():
        taken = []
        for _ in range(9):
            began = time.perf_counter()
            page = await chronicle.page(wanted)
            taken.append(time.perf_counter() - began)
            assert page.entries, name
        found[f"chronicle_{name}_ms"] = statistics.median(taken) * 1e3
    return found


PARTS: Mapping[str, Callable[[str, int], Coroutine[Any, Any, Figures]]] = {
    "append": append,
    "books": lambda directory, count: _project(directory, count, "books", hot=False),
    "books_hot": lambda directory, count: _project(directory, count, "books", hot=True),
    "chronicle": lambda directory, count: _project(directory, count, "chronicle", hot=False),
    "chronicle_hot": lambda directory, count: _project(directory, count, "chronicle", hot=True),
    "rebuild": rebuild,
}


def run_part(module: str, name: str, directory: Path, count: int) -> Figures:
    """Run a part in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", module, name, str(directory), str(count)],
        check=True,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )
    shutil.rmtree(directory, ignore_errors=True)
    return dict(json.loads(done.stdout))


def measure(root: Path, count: int, stored: int) -> Figures:
    """Measure one round: with ``count`` events, and rebuilds with ``stored`` ones."""
    found: Figures = {}
    for name in PARTS:
        number = stored if name == "rebuild" else count
        if name != "rebuild":
            found |= run_part("bench.event_limits", name, root / f"limit-{name}", number)
        found |= run_part("bench.events", name, root / name, number)
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(PARTS[sys.argv[1]](sys.argv[2], int(sys.argv[3])))))
