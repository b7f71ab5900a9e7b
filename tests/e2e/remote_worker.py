"""A worker in a process of its own, a client of the store's owner: not one that the owner started.

Arguments: its name and the seconds of a lease. It says ``refused N`` whenever an outcome of its
own, or a renewal, was refused.
"""

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from holdfast.engines.client.engine import ClientEngine
from holdfast.engines.clock import SystemClock
from holdfast.engines.socket_path import socket_path
from holdfast.worker.loops import LeaseLoop, Supervisor
from holdfast.worker.options import WorkerOptions
from holdfast.worker.worker import Worker

if TYPE_CHECKING:
    from . import jobs
else:
    import jobs


async def main(name: str, lease_seconds: float) -> None:
    os.environ["DAEMON_TEST_NAME"] = name
    engine = ClientEngine(socket_path(os.environ["HOLDFAST_STORE"]))
    options = WorkerOptions(slots=1, queues=["remote"], lease_seconds=lease_seconds)
    worker = Worker(engine, jobs.app.registry, name, options)
    worker.start()
    Supervisor([LeaseLoop(engine, worker, 0.1, SystemClock())], SystemClock()).start()
    said = 0
    while True:
        if worker.late_outcomes > said:
            said = worker.late_outcomes
            os.write(1, f"refused {said} {engine.leases_refused}\n".encode())
        await asyncio.sleep(0.01)


asyncio.run(main(sys.argv[1], float(sys.argv[2])))
