"""What ``await job.result()`` returns: the task's own type, or an error that says why not."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from holdfast import Dead, Holdfast, JobFailed, NoResult, Retry
from holdfast.model.job import State
from holdfast.worker import verdicts

from .stores import KINDS, Stores

NOON = datetime(2027, 1, 15, 12, 30, tzinfo=UTC)


@dataclass
class Invoice:
    number: int
    at: datetime


class Basket(msgspec.Struct):
    items: list[str]


class Order(pydantic.BaseModel):
    id: UUID
    price: Decimal


class Foreign:
    pass


@dataclass
class Seen:
    result: object
    stored: object


ORDER = Order(id=UUID(int=7), price=Decimal("1.50"))


@pytest.fixture
def app() -> Holdfast:
    return Holdfast("memory:")


def returning(app: Holdfast, annotation: object, value: object, *, is_async: bool) -> Seen:
    """Enqueue a task that declares this type and returns this value, and run it."""

    async def later() -> Any:
        return value

    def now() -> Any:
        return value

    function: Callable[[], Any] = later if is_async else now
    if annotation != "missing":
        function.__annotations__["return"] = annotation
    else:
        function.__annotations__.clear()
    task = app.task(name="made")(function)
    with app.testing() as rehearsal:
        handle = task.enqueue_sync()
        rehearsal.drain()
        rehearsal.assert_completed("made", times=1)
        by_id = app.job(handle.id)
        outcomes: list[object] = []
        for one in (handle, by_id):
            try:
                outcomes.append(one.result_sync())
            except NoResult as error:
                outcomes.append(error)
    handle_result, stored = outcomes
    return Seen(handle_result, stored)


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 7),
        (None, None),
        (datetime, NOON),
        (bytes, b"\x00\xff"),
        (set[int], {1, 2}),
        (tuple[int, str], (1, "a")),
        (Invoice, Invoice(1, NOON)),
        (list[Invoice], [Invoice(1, NOON)]),
        (Basket, Basket(["tea"])),
        (Order, ORDER),
        (dict[str, Order], {"a": ORDER}),
        (Order | None, ORDER),
        (Invoice | None, None),
        (Invoice | Dead, Invoice(2, NOON)),
        (Retry | int | None, 7),
    ],
    ids=str,
)
def test_a_result_comes_back_as_the_task_declares_it(app, annotation, value, is_async):
    seen = returning(app, annotation, value, is_async=is_async)
    assert seen.result == value
    assert type(seen.result) is type(value)


@pytest.mark.parametrize("annotation", ["missing", Any, object, Foreign, list[Foreign]], ids=str)
def test_without_a_type_that_json_can_carry_a_result_is_the_json_value(app, annotation):
    seen = returning(app, annotation, {"at": NOON, "n": (1, 2)}, is_async=False)
    assert seen.result == {"at": "2027-01-15T12:30:00Z", "n": [1, 2]}
    assert seen.stored == seen.result


def test_a_result_that_is_not_what_the_task_declares_is_an_error_that_says_so(app):
    seen = returning(app, int, "seven", is_async=True)
    assert isinstance(seen.result, NoResult)
    assert "is completed and will not run again, but its result is not of the type that its" in str(
        seen.result
    )
    assert "Expected `int`, got `str`" in str(seen.result)
    assert seen.stored == "seven"  # by its id it is there, as the error says


def test_the_handle_knows_the_type_without_the_process_that_ran_it(app: Holdfast):
    @app.task
    def invoice() -> Invoice:
        return Invoice(1, NOON)

    with app.testing() as rehearsal:
        [handle] = invoice.enqueue_many_sync([()])
        [other] = app.enqueue_all_sync([invoice.call()])
        rehearsal.drain()
        assert handle.result_sync() == other.result_sync() == Invoice(1, NOON)
        assert app.job(handle.id).result_sync() == {"number": 1, "at": "2027-01-15T12:30:00Z"}


# --- results that cannot be kept ---------------------------------------------------------------


def declare(app: Holdfast) -> None:
    runs: list[str] = []

    @app.task
    async def large() -> str:
        runs.append("large")
        return "x" * 300_000

    @app.task
    async def foreign() -> object:
        runs.append("foreign")
        return Foreign()

    @app.task
    async def count() -> int:
        return len(runs)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_result_that_cannot_be_kept_fails_loudly_and_the_job_is_done(stores: Stores, kind):
    async with stores.running(kind, declare) as app:
        large, foreign = await app.enqueue("large"), await app.enqueue("foreign")
        with pytest.raises(NoResult) as refused:
            await large.result(20)
        assert refused.value.job_id == large.id
        assert str(refused.value) == (
            f"job '{large.id}' is completed and will not run again, but its result was not kept: "
            "result: 300,002 bytes, and the limit is 262,144: store it elsewhere and return a "
            "reference"
        )
        with pytest.raises(NoResult, match="was not kept: JSON cannot carry a Foreign: use a type"):
            await foreign.result(20)
        for handle in (large, foreign):
            job = await handle.get()
            assert (job.state, job.attempt) == (State.COMPLETED, 1)
        assert await (await app.enqueue("count")).result(20) == 2


async def test_a_result_that_was_not_kept_is_known_after_a_restart(stores: Stores):
    async with stores.running("journal", declare) as app:
        handle = await app.enqueue("large")
        with pytest.raises(NoResult):
            await handle.result(20)
    async with stores.running("journal", declare) as app:
        with pytest.raises(NoResult, match="300,002 bytes"):
            await app.job(handle.id).result(20)


def test_control_a_dropped_result_would_look_like_none(app: Holdfast, monkeypatch):
    monkeypatch.setattr(verdicts, "not_kept", lambda why: None)

    @app.task
    async def large() -> str:
        return "x" * 300_000

    with app.testing() as rehearsal:
        handle = large.enqueue_sync()
        rehearsal.drain()
        assert handle.result_sync() is None


def test_a_failed_job_is_still_a_failed_job(app: Holdfast):
    @app.task
    async def fails() -> int:
        raise Dead("never")

    async def scenario() -> None:
        handle = await fails.enqueue()
        with pytest.raises(JobFailed, match="never"):
            await handle.result()

    with app.testing():
        asyncio.run(scenario())
