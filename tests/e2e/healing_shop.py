"""The application of ``test_healing``: a shop, and the payment service that it needs."""

from collections import Counter

import httpx
from fastapi import FastAPI

from holdfast import Holdfast, Retry
from holdfast.model.job import MICROSECONDS
from holdfast.testing.clock import START_US, VirtualClock

BURST_SECONDS = (20, 35)
"""Too many requests: from when to when it answers 429."""
OUTAGE_SECONDS = (60, 660)
"""Ten minutes in which it answers 503."""
RETRY_AFTER_SECONDS = 12


class Payments:
    """A service that limits its callers, is away for a while, and refuses one country."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.answers: Counter[int] = Counter()
        self.done: Counter[str] = Counter()
        """How often each request was carried out."""

    def answer(self, request: httpx.Request) -> httpx.Response:
        seconds = (self._clock.now_us() - START_US) / MICROSECONDS
        form = dict(httpx.QueryParams(request.content.decode()))
        headers: dict[str, str] = {}
        if OUTAGE_SECONDS[0] <= seconds < OUTAGE_SECONDS[1]:
            status = 503
        elif BURST_SECONDS[0] <= seconds < BURST_SECONDS[1]:
            status, headers = 429, {"Retry-After": str(RETRY_AFTER_SECONDS)}
        elif form["country"] == "UK":
            status = 400
        else:
            status = 200
            self.done[f"{request.url.path[1:]} {form['id']}"] += 1
        self.answers[status] += 1
        return httpx.Response(status, headers=headers)

    async def post(self, path: str, order_id: str, country: str) -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(self.answer)) as client:
            form = {"id": order_id, "country": country}
            answer = await client.post(f"https://payments.example/{path}", data=form)
            answer.raise_for_status()


payments = Payments(VirtualClock())
"""Each test has its own."""


def open_payments(clock: VirtualClock) -> Payments:
    """Start with a service to which nothing has happened."""
    global payments  # noqa: PLW0603 - the tasks are those of the module
    payments = Payments(clock)
    return payments


app = Holdfast()
web = FastAPI()


def iso_country(order_id: str, country: str) -> None:
    """Refuse what is not the code of a country."""
    if country == "UK":
        raise ValueError("UK is no ISO 3166 code: it is GB")


@app.task(queue="billing", dependency="payments-api", check=iso_country)
async def charge(order_id: str, country: str) -> None:
    """Charge an order."""
    await payments.post("charges", order_id, country)


@app.task(queue="billing", dependency="payments-api", retry=Retry(max_attempts=1))
async def receipt(order_id: str, country: str) -> None:
    """Send a receipt, in one attempt."""
    await payments.post("receipts", order_id, country)


@web.post("/orders/{order_id}", status_code=202)
async def order(order_id: str, country: str = "DE") -> dict[str, str]:
    """Take an order."""
    return {"job": (await charge.enqueue(order_id, country)).id}


@web.post("/receipts/{order_id}", status_code=202)
async def ask_for_receipt(order_id: str, country: str = "DE") -> dict[str, str]:
    """Have a receipt sent."""
    return {"job": (await receipt.enqueue(order_id, country)).id}
