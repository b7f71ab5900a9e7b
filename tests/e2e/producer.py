"""A process that enqueues job by job through a client application, and writes down each answer.

Arguments: its name and the path of its account. Each line on its standard input is a number: how
many jobs to enqueue next. The account has a line for each: ``acknowledged ID`` or
``error ID TYPE: message``.
"""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import jobs
else:
    import jobs

TASKS = ((jobs.quick,) * 2 + (jobs.blocking,)) * 30 + (jobs.computing,)
"""One in ninety runs in a child process: each daemon has to start one anew, and slots wait."""


def main(name: str, account: str) -> None:
    descriptor = os.open(account, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    number = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            job_id, seconds, priority = f"{name}-{number}", 0.001 * (number % 20), 0
            task = TASKS[number % len(TASKS)]
            if number % 20 == 7:
                job_id, seconds, priority = f"{job_id}-urgent", 0.15, 9
            number += 1
            try:
                task.options(id=job_id, priority=priority).enqueue_sync(seconds=seconds)
            except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to know
                said = f"error {job_id} {type(error).__name__}: {error}".replace("\n", " ")
            else:
                said = f"acknowledged {job_id}"
            os.write(descriptor, f"{said}\n".encode())
    jobs.app.close_sync()


main(*sys.argv[1:])
