"""The application whose tasks the dead letters of these tests are tried against."""

from holdfast import Holdfast

app = Holdfast()


def known(to: str = "") -> None:
    """Refuse an address that nobody has."""
    if to == "nobody":
        raise LookupError("nobody has no mailbox")


async def positive(count: int) -> bool:
    """Return whether a count can be reported."""
    return count > 0


@app.task(check=known)
async def mail(to: str = "") -> None:
    """Send a mail."""
    raise AssertionError("a trial never runs the task")


@app.task(check=positive)
async def report(count: int) -> None:
    """Write a report."""
    raise AssertionError("a trial never runs the task")
