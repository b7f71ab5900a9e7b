"""A process that enqueues in every way there is, and writes down each answer.

Arguments: its name and the path of its account. Each line on its standard input is a number: how
many jobs to enqueue next. The account has a line for each: ``acknowledged ID`` or
``error WAY TYPE: message``.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.task import Task

sys.path.insert(0, str(Path(__file__).parents[2] / "e2e"))

if TYPE_CHECKING:
    from tests.e2e import jobs
else:
    import jobs

BULK = 5
KEYS = 3


def enqueue(name: str, number: int) -> list[str]:
    """Enqueue a job, or a few; return the ids that were acknowledged."""
    seconds = 0.001 * (number % 10)
    task: Task[..., Any]
    match number % 8:
        case 0:
            calls = [{"seconds": seconds}] * BULK
            return [handle.id for handle in jobs.quick.enqueue_many_sync(calls)]
        case 1 | 2:
            task = jobs.quick.options(id=f"{name}-{number}")
        case 3:
            task = jobs.quick.options(unique=f"{name}-{number % 5}")
        case 4:
            key = number // 8 % KEYS
            task = jobs.quick.options(id=f"{name}-{number}-key{key}", key=f"{name}-{key}")
        case 5:
            task = jobs.blocking
        case _:
            task = jobs.quick
    return [task.enqueue_sync(seconds=seconds).id]


def answers(name: str, numbers: Iterator[int], count: int) -> Iterator[str]:
    """Yield what is to be written down, until so many jobs have been asked for."""
    while count > 0:
        number = next(numbers)
        count -= BULK if number % 8 == 0 else 1
        try:
            for job_id in enqueue(name, number):
                yield f"acknowledged {job_id}"
        except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to know
            yield f"error {number % 8} {type(error).__name__}: {error}".replace("\n", " ")


def main(name: str, account: str) -> None:
    descriptor = os.open(account, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    numbers = iter(range(1 << 62))
    for line in sys.stdin:
        for said in answers(name, numbers, int(line)):
            os.write(descriptor, f"{said}\n".encode())
    jobs.app.close_sync()


main(*sys.argv[1:])
