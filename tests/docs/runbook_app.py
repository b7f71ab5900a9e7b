"""The application of the runbook's tests: what failed before passes now."""

from holdfast import Holdfast

app = Holdfast()


@app.task(queue="mail", dependency="payments-api")
async def send(to: str, locale: str = "", lang: str = "") -> None:
    """Send a mail."""
