"""A process that enqueues job by job through a client application, and writes down each answer.

Arguments: its name and the path of its account. Each line on its standard input is a number: how
many jobs to enqueue next. The account has a line for each: ``acknowledged ID`` or
``error ID TYPE: message``.
"""

import os
import sys

import jobs

TASKS = (jobs.quick,) * 13 + (jobs.blocking,) * 6 + (jobs.computing,)


def main(name: str, account: str) -> None:
    descriptor = os.open(account, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    number = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            job_id = f"{name}-{number}"
            task = TASKS[number % len(TASKS)]
            number += 1
            try:
                task.options(id=job_id).enqueue_sync(seconds=0.001 * (number % 20))
            except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to know
                said = f"error {job_id} {type(error).__name__}: {error}".replace("\n", " ")
            else:
                said = f"acknowledged {job_id}"
            os.write(descriptor, f"{said}\n".encode())
    jobs.app.close_sync()


main(*sys.argv[1:])
