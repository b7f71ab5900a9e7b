"""Measures the journal's history store: feeding it, and queries on many dead letters.

    python -m bench.history [directory] [dead letters]

Feeding is measured on this thread; ``python_*`` is the cost of one effect on the event loop.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.engines.embedded.history import AppliedEffect
from holdfast.engines.journal.history.bloom import BloomFilter
from holdfast.engines.journal.history.statements import as_json
from holdfast.engines.journal.history.store import SqliteHistory
from holdfast.engines.journal.history.writer import RowChanges
from holdfast.engines.journal.wal.disk import LocalDisk
from holdfast.model.access import SYSTEM, Caller
from holdfast.model.effects import Completed, Died
from holdfast.model.failure import Failure, FailureClass
from holdfast.model.job import Job, State
from holdfast.model.search import HOUR_US, Filter, Order

BATCH = 5_000
START_US = 1_800_000_000_000_000
REASONS, QUEUES, HOURS, SHAPES, TENANTS, SCOPES = 20, 5, 48, 3, 50, 2_000
END_US = START_US + HOURS * HOUR_US
CLASSES = list(FailureClass)
TRACEBACK = "".join(
    f'  File "/srv/app/tasks/step_{n}.py", line {n * 7}, in run\n    self.next(load, depth={n})\n'
    for n in range(12)
)


def dead(number: int, count: int) -> AppliedEffect:
    """Return the effect of a job's death; reasons, queues, hours and tenants vary."""
    died_us = START_US + number * HOURS * HOUR_US // count
    reason = number * 7 % REASONS
    message = (
        f"HTTPError: upstream {number} answered {500 + reason} "
        + ("while mapping", "after 30 s", "for order")[number % SHAPES]
        + f" {number % 977} at https://api.example.org/v2/orders/{number}"
    )
    failure = Failure(f"reason_{reason}", CLASSES[reason % 3], message, TRACEBACK)
    old = Job(
        f"01890a5d-ac96-774b-bcce-{number:012x}",
        f"tenant-{number % TENANTS}",
        f"library:{number % SCOPES}/book:{number % 7}",
        f"queue-{number * 3 % QUEUES}",
        f"task-{number % 11}",
        b'{"order":%d,"note":"%s"}' % (number, b"x" * 120),
        0,
        5,
        died_us - 3_000_000,
        died_us - 3_000_000,
        number,
        State.IN_FLIGHT,
        5,
        token=number,
        worker="worker-1",
        claimed_at_us=died_us - 1_000_000,
    )
    effect = Died(died_us, old.tenant, old.id, failure, 0)
    job = _with(old, state=State.DEAD, failure=failure, finished_at_us=died_us)
    return AppliedEffect(number + 1, effect, old, job)


def completed(number: int, first_seq: int) -> AppliedEffect:
    """Return the effect of a job's completion."""
    at_us = START_US + number * 1_000
    old = Job(
        f"01890b5d-ac96-774b-bcce-{number:012x}",
        f"tenant-{number % TENANTS}",
        "",
        f"queue-{number % QUEUES}",
        f"task-{number % 11}",
        b"{}",
        0,
        5,
        at_us,
        at_us,
        number,
        State.IN_FLIGHT,
        1,
        token=number,
        worker="worker-1",
        claimed_at_us=at_us,
    )
    effect = Completed(at_us + 500, old.tenant, old.id, b'{"ok":true}')
    job = _with(
        old, state=State.COMPLETED, payload=b"", finished_at_us=at_us + 500, result=effect.result
    )
    return AppliedEffect(first_seq + number, effect, old, job)


def _with(job: Job, **changes: object) -> Job:
    values = [changes.get(name, getattr(job, name)) for name in job.__struct_fields__]
    return Job(*values)  # type: ignore[arg-type]


def batches(count: int, make: Callable[[int], AppliedEffect]) -> Iterator[list[AppliedEffect]]:
    """Yield effects in batches of one feed."""
    for start in range(0, count, BATCH):
        yield [make(number) for number in range(start, min(start + BATCH, count))]


def feed(
    store: SqliteHistory, count: int, make: Callable[[int], AppliedEffect], what: str
) -> dict[str, float]:
    """Feed ``count`` effects; return the rate, and the CPU time of one."""
    seconds = cpu_seconds = 0.0
    for batch in batches(count, make):
        began, cpu_began = time.perf_counter(), time.process_time()
        store.feed(batch, batch[-1].seq)
        seconds += time.perf_counter() - began
        cpu_seconds += time.process_time() - cpu_began
    return {
        f"{what}_per_second": count / seconds,
        f"{what}_cpu_us": cpu_seconds / count * 1e6,
    }


def milliseconds(call: Callable[[], object], times: int = 5) -> float:
    """Return the median duration of a few calls, after a first one."""
    call()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1_000


_SUFFIXES = {
    Order.CREATED: "",
    Order.NEWEST: "_newest",
    Order.LAST_FINISHED: "_last_finished",
    Order.ATTEMPTS: "_attempts",
}


def pages(store: SqliteHistory, count: int) -> dict[str, float]:
    """Return the milliseconds of a page of 100 by each filter, in several orders."""
    middle_us = START_US + HOURS * HOUR_US // 2
    filters = {
        "everything": Filter(),
        "queue": Filter(queues=("queue-2",)),
        "reason": Filter(error_reasons=("reason_7",)),
        "class": Filter(classes=(FailureClass.DETERMINISTIC,)),
        "tenant": Filter(tenant="tenant-7"),
        "created": Filter(created_from_us=middle_us, created_to_us=middle_us + HOUR_US),
        "queue_and_reason": Filter(queues=("queue-1",), error_reasons=("reason_14",)),
        "queue_and_class": Filter(queues=("queue-1",), classes=(FailureClass.UNKNOWN,)),
        "tenant_and_queue": Filter(tenant="tenant-7", queues=("queue-2",)),
        "tenant_and_reason": Filter(tenant="tenant-7", error_reasons=("reason_3",)),
        "reason_and_created": Filter(error_reasons=("reason_7",), created_from_us=middle_us),
        "dead_of_scope": Filter(states=(State.DEAD,), scope="library:77"),
        "text_rare": Filter(text=f"orders/{count - 1}"),
        "text_none": Filter(text="no such words in here"),
        "text_common": Filter(text="MAPPING"),
        "text_and_queue": Filter(text="no such words in here", queues=("queue-2",)),
    }
    found = {}
    for name, wanted in filters.items():
        for order, suffix in _SUFFIXES.items():
            found[f"find_{name}{suffix}_ms"] = milliseconds(
                lambda wanted=wanted, order=order: store.find(  # type: ignore[misc]
                    wanted, SYSTEM, None, 100, order
                ),
                times=3,
            )
    scoped = Caller("tenant-7", ("library:7",))
    found["find_scoped_caller_ms"] = milliseconds(
        lambda: store.find(Filter(), scoped, None, 100, Order.NEWEST)
    )
    return found


def measure(directory: Path, count: int) -> dict[str, float]:
    """Feed this many dead letters and completions, run all queries, return the figures."""
    disk = LocalDisk(directory)
    disk.lock()
    store = SqliteHistory.open(disk.database())
    found: dict[str, float] = {}
    try:
        found |= feed(store, count, lambda number: dead(number, count), "deaths")
        found |= feed(store, count, lambda number: completed(number, count + 1), "completions")
        batch = [completed(number, 1) for number in range(BATCH)]
        began = time.perf_counter()
        changes = RowChanges()
        for one in batch:
            changes.take(one)
        as_json(changes.done)
        found["python_us_per_completion"] = (time.perf_counter() - began) / BATCH * 1e6
        found["megabytes"] = disk.database().size() / 1e6
        found |= pages(store, count)
        found["groups_ms"] = milliseconds(lambda: store.groups(Filter(), SYSTEM, END_US))
        found["groups_of_tenant_ms"] = milliseconds(
            lambda: store.groups(Filter(), Caller("tenant-7"), END_US), times=1
        )
        known = dead(count // 2, count).job
        if known is not None:
            found["get_us"] = 1_000 * milliseconds(lambda: store.get(known.tenant, known.id), 1_000)
            found["history_ms"] = milliseconds(lambda: store.history(known))
        bloom = BloomFilter(count)
        found["bloom_us"] = 1_000 * milliseconds(lambda: bloom.may_hold(("t", "fresh")), 1_000)
        began = time.perf_counter()
        after: int | None = 0
        gone = 0
        while after is not None:
            went, after = store.forget(START_US + count * 500, after=after)
            gone += sum(went.values())
        found["forgotten_per_second"] = gone / (time.perf_counter() - began)
    finally:
        store.close()
        disk.unlock()
    return found


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        for name, value in measure(Path(directory), count).items():
            print(f"{name:36} {value:12,.1f}")


if __name__ == "__main__":
    main()
