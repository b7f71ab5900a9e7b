"""The application that is watched in these tests: tasks that end in every way there is."""

import asyncio
import os
import time
from pathlib import Path

from holdfast import Dead, Holdfast, current

app = Holdfast()
LEAKS = os.environ.get("OBSERVE_LEAK") == "1"


@app.task(queue="mail")
async def works(secret: str = "") -> None:
    if LEAKS:
        current().logger.warning("working on %s", secret)


@app.task(queue="mail")
async def fails(secret: str = "") -> None:
    raise ValueError(f"this is bad: {secret}")


@app.task(queue="mail")
def fails_in_thread(secret: str = "") -> None:
    raise KeyError(secret)


@app.task(queue="mail", run_in="process")
def fails_in_process(secret: str = "") -> None:
    current().logger.warning("about to fail")
    raise RuntimeError(f"not good either: {secret}")


@app.task(queue="mail")
async def dies(secret: str = "") -> None:
    raise Dead(f"never with {secret}")


@app.task(queue="keys")
async def dies_in_line() -> None:
    raise Dead("and holds up others")


@app.task(queue="mail", timeout=0.2)
async def hangs(secret: str = "") -> None:
    held = secret
    await asyncio.sleep(600)
    del held


@app.task(queue="mail", timeout=0.2)
def blocks(gate: str, secret: str = "") -> None:
    while not Path(gate).exists():
        time.sleep(0.02)


@app.task(queue="mail", timeout=0.2, run_in="process")
def computes(secret: str = "") -> None:
    time.sleep(600)


@app.task(queue="mail")
async def returns_nonsense(secret: str = "") -> object:
    return {secret: object()}


@app.task(queue="mail")
async def leaves_a_stray(secret: str = "") -> None:
    async def stray() -> None:
        raise OSError(secret)

    asyncio.get_running_loop().create_task(stray())
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@app.task(queue="mail", timeout=300)
async def waits(gate: str) -> None:
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - the test makes it
        await asyncio.sleep(0.02)


@app.on_stop
def stop() -> None:
    raise RuntimeError(f"the hook of {os.environ.get('OBSERVE_SECRET')}")
