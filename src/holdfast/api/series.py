"""``/series``: how queues were: depths, ages and rates over time."""

from __future__ import annotations

from holdfast.model.durations import seconds_of
from holdfast.model.errors import InvalidInput
from holdfast.model.moments import moment_us
from holdfast.model.permissions import Permission
from holdfast.model.samples import MAX_QUEUES
from holdfast.operations.samples import SeriesView

from .call import Answer, ApiCall, Route, invalid

_NAMES = {"from_us": "from", "to_us": "to", "step_seconds": "step", "queues": "queue"}


async def list_series(call: ApiCall) -> Answer:
    """Return the points of queues, at most 500 each; samples are of all tenants together."""
    queues = call.values("queue")
    if len(queues) > MAX_QUEUES:
        raise invalid("queue", f"give at most {MAX_QUEUES}")
    now_us = await call.operations.engine.now_us()
    try:
        found = await call.operations.samples(
            queues,
            moment_us("from", call.value("from", "1h"), now_us),
            moment_us("to", call.value("to", "now"), now_us) + 1,
            seconds_of("step", text) if (text := call.value("step")) else 0.0,
        )
    except InvalidInput as error:
        raise invalid(_NAMES.get(error.field, error.field), error.problem) from None
    return Answer(data=found)


ROUTES = (
    Route(
        operation_id="listSeries",
        method="GET",
        path="/series",
        handle=list_series,
        permission=Permission.COUNTS_READ,
        everything=True,
        summary="Return depths, ages and rates of queues over time",
        parameters=("queue", "from", "to", "step"),
        answers=list[SeriesView],
    ),
)
