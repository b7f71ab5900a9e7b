"""Many dead letters in a working store: groups, pages, plans and replays.

python -m bench.letters journal DIRECTORY COUNT
python -m bench.letters postgres URL COUNT
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product

from holdfast.engines.contract import Engine
from holdfast.engines.journal.engine import JournalEngine
from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.model.actions import ReplayJobs
from holdfast.model.audit import Attribution
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import NewJob, State
from holdfast.model.outcome import Outcome, completed, dead
from holdfast.model.search import Filter, Order
from holdfast.operations.attribution import Author
from holdfast.operations.bulk import BulkOperations, OperationRequest

from . import ours
from .large import resident_bytes

BATCH = 1_000
REASONS = ["upstream_5xx", "timeout", "connection", "business_error", "parse_error"]
TENANTS = 50
REPLAYED = 100_000
WHO = Author("bench", "to measure the speed")
CLAIM_PAIRS, CLAIMED = 5, 20_000


def new_jobs(start: int) -> list[NewJob]:
    """Return a batch of jobs of several tenants and queues."""
    return [
        NewJob(
            task="t",
            payload={"x": "y" * 192},
            tenant=f"tenant-{number % TENANTS}",
            scope=f"library:{number % 997}",
            queue=f"queue-{number % 5}",
        )
        for number in range(start, start + BATCH)
    ]


def failure(number: int) -> Failure:
    """Return a failure whose message varies with the number."""
    reason = REASONS[number % len(REASONS)]
    message = f"HTTPError: order {number} answered 503 after {number % 31} s"
    return Failure(reason, Failure.of(reason, "").failure_class, message, "Traceback …\n" * 20)


async def add_dead_letters(engine: Engine, count: int) -> float:
    """Let this many jobs die; return the rate until all can be found."""
    queues = [f"queue-{number}" for number in range(5)]
    start, number = time.perf_counter(), 0
    for chunk in range(0, count, BATCH):
        await engine.enqueue(new_jobs(chunk))
        claim = await engine.claim(queues=queues, worker="w", limit=BATCH)
        outcomes = []
        for job in claim.jobs:
            outcomes.append(dead(job, failure(number)))
            number += 1
        await engine.settle(outcomes)
    await engine.groups(Filter(ids=("nobody",)))  # returns after the history has everything
    return count / (time.perf_counter() - start)


async def milliseconds(call: Callable[[], Awaitable[object]], times: int = 5) -> float:
    """Return the median duration of a few calls, after a first one."""
    await call()
    taken = []
    for _time in range(times):
        start = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e3


async def pages(engine: Engine) -> float:
    """Return how long the slowest second page takes, of several filters in every order."""
    dead_only = (State.DEAD,)
    filters = {
        "all": Filter(states=dead_only),
        "queue": Filter(queues=("queue-2",), states=dead_only),
        "reason": Filter(error_reasons=("timeout",), states=dead_only),
        "class": Filter(classes=(FailureClass.DETERMINISTIC,), states=dead_only),
        "tenant": Filter(tenant="tenant-7", states=dead_only),
        "reason and queue": Filter(error_reasons=("timeout",), queues=("queue-1",)),
    }
    slowest = 0.0
    for (label, wanted), order in product(filters.items(), Order):
        first = await engine.find(wanted, order=order)
        second = partial(engine.find, wanted, order=order, cursor=first.cursor)
        taken = await milliseconds(second, times=3)
        print(f"page by {label}, order {order.value}: {taken:.1f} ms", file=sys.stderr)
        slowest = max(slowest, taken)
    return slowest


async def query(engine: Engine) -> dict[str, float]:
    """Measure groups, counts, pages, plans and text search."""
    bulk = BulkOperations(engine)
    transient = Filter(classes=(FailureClass.TRANSIENT,))
    text = Filter(text="order 123456 answered", states=(State.DEAD,))
    return {
        "groups_ms": await milliseconds(engine.groups),
        "groups_by_queue_ms": await milliseconds(
            lambda: engine.groups(Filter(queues=("queue-2",)))
        ),
        "count_ms": await milliseconds(lambda: engine.count(transient)),
        "slowest_page_ms": await pages(engine),
        "plan_ms": await milliseconds(
            lambda: bulk.plan(OperationRequest(action=ReplayJobs(), wanted=transient)), times=3
        ),
        "text_search_ms": await milliseconds(lambda: engine.find(text), times=2),
    }


async def replay(engine: Engine, count: int) -> dict[str, float]:
    """Replay ``count`` jobs by one operation; return its rate, and the memory that it took."""
    bulk = BulkOperations(engine)
    request = OperationRequest(
        action=ReplayJobs(), wanted=Filter(classes=(FailureClass.TRANSIENT,)), limit=count
    )
    plan = await bulk.plan(request)
    before = resident_bytes()
    start = time.perf_counter()
    operation = await bulk.start(request, plan, WHO)
    done = await bulk.drive(operation.id)
    seconds = time.perf_counter() - start
    return {
        "replay_per_second": done.acted / seconds,
        "replay_memory_mib": (resident_bytes() - before) / 2**20,
    }


async def claims(engine: Engine, queue: str) -> float:
    """Return the rate at which plain jobs of a queue are claimed and completed in hundreds."""
    for _chunk in range(CLAIMED // BATCH):
        await engine.enqueue(
            [NewJob(task="t", payload=ours.PAYLOAD, queue=queue) for _ in range(BATCH)]
        )
    outcomes: list[Outcome] = []
    start, done = time.perf_counter(), 0
    while done < CLAIMED:
        claim = await engine.claim(queues=[queue], worker="w", limit=100, settle=outcomes)
        outcomes = [completed(job) for job in claim.jobs]
        done += len(outcomes)
    await engine.settle(outcomes)
    return done / (time.perf_counter() - start)


async def claims_beside_an_outage(engine: Engine) -> dict[str, float]:
    """Measure claims of a queue without a dependency, with and without an outage of another."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(CLAIM_PAIRS):
        for on in (True, False) if pair % 2 else (False, True):
            if on:
                await engine.set_outage("payments-api", Attribution("bench", "test"), on=True)
            rates[on].append(await claims(engine, "plain"))
            if on:
                await engine.set_outage("payments-api", Attribution("bench", "test"), on=False)
    ratios = [on / off for on, off in zip(rates[True], rates[False], strict=True)]
    return {
        "claims_per_second": statistics.median(rates[False]),
        "claims_beside_an_outage_share": statistics.median(ratios),
        "claims_beside_an_outage_share_lowest": min(ratios),
        "claims_beside_an_outage_share_highest": max(ratios),
    }


async def measure(store: str, place: str, count: int) -> dict[str, float]:
    """Measure everything on one store."""
    engine: Engine
    if store == "journal":
        engine = await JournalEngine.open(place, options=ours.OPTIONS)
    else:
        engine = await PostgresEngine.open(place)
    found = await claims_beside_an_outage(engine)
    await add_dead_letters(engine, 10_000)
    before = resident_bytes()
    found["deaths_per_second"] = await add_dead_letters(engine, count)
    found["dead_letters_memory_mib"] = (resident_bytes() - before) / 2**20
    if isinstance(engine, PostgresEngine):
        await engine.prune(every_seconds=0)  # a daemon does it each minute: it folds the tallies
    found |= await query(engine)
    found |= await replay(engine, min(count // 4, REPLAYED))
    await engine.close()
    return {f"{store}_{name}": value for name, value in found.items()}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
