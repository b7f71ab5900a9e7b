"""``python -m bench.postgres.work``: one worker process of ours, until it is killed."""

import asyncio
import os
from typing import cast

from holdfast.engines.base import Engine
from holdfast.engines.clock import SystemClock
from holdfast.engines.postgres import PostgresEngine
from holdfast.interfaces.opening import looping
from holdfast.runtime.counting import Metrics
from holdfast.runtime.loops import LeaseLoop, Supervisor
from holdfast.runtime.observed import ObservedEngine
from holdfast.runtime.worker import Worker, WorkerOptions
from holdfast.settings import load

from . import jobs, side


async def work() -> None:
    """Work as the daemon does."""
    engine = ObservedEngine(cast(Engine, await PostgresEngine.open(side.url())), Metrics())
    options = WorkerOptions(slots=jobs.SLOTS)
    worker = Worker(engine, jobs.app.definition, f"bench-{os.getpid()}", options)
    await worker.look_for_queues()
    worker.start()
    supervisor = Supervisor([LeaseLoop(engine, worker, 1.0)], SystemClock())
    supervisor.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    with looping(load(environ=os.environ).settings) as runner:
        runner.run(work())
