"""The application of the soak: tasks of every kind, some of which fail."""

import asyncio
import time

from holdfast import Dead, Holdfast

app = Holdfast()


@app.task(queue="mail")
async def send(number: int, text: str = "") -> int:
    """Wait a little, on the event loop; one in twenty fails and is retried."""
    await asyncio.sleep(0.002 + number % 7 / 1000)
    if number % 20 == 0:
        raise ConnectionResetError("the mail server hung up")
    return len(text)


@app.task(queue="reports")
def render(number: int, text: str = "") -> None:
    """Block a thread; one in fifty fails permanently."""
    time.sleep(0.001 + number % 5 / 1000)
    if number % 50 == 7:
        raise Dead(f"there is nothing to report in {len(text)} characters")


@app.task(queue="numbers", run_in="process")
def add_up(number: int, text: str = "") -> int:
    """Compute, in a child process."""
    return sum(range(number % 1000)) + len(text)


@app.task(queue="mail", timeout=0.2)
async def dawdle(number: int, text: str = "") -> None:
    """Run into the time-out, every time."""
    await asyncio.sleep(60 + number + len(text))
