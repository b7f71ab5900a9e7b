"""Samples: depth, age and rates of queues over time."""

from __future__ import annotations

import pytest

from holdfast.model.access import Caller
from holdfast.model.errors import AccessDenied, InvalidInput
from holdfast.model.job import MICROSECONDS
from holdfast.model.outcome import completed, dead, retry
from holdfast.model.samples import SamplePoint

from .fixture import FAILURE, EngineFixture, Suite, on_engine

_HOUR = 3_600


async def sample(fixture: EngineFixture) -> float:
    """Take a sample when it is time; return how many seconds after the last call that is."""
    # Of a slow machine the next one is due later.
    waited = 0.0
    while True:
        due = await fixture.engine.take_sample()
        if waited:
            return waited
        waited = max(10.0, due)
        fixture.clock.advance(waited)


async def points(fixture: EngineFixture, queue: str = "default") -> list[SamplePoint]:
    """Return the samples of the last hour."""
    return await series(fixture, queue, hours=1)


async def series(
    fixture: EngineFixture, queue: str = "default", *, hours: float, step_seconds: float = 0.0
) -> list[SamplePoint]:
    """Return the points of this time, up to now."""
    now_us = fixture.clock.now_us()
    from_us = now_us - int(hours * _HOUR * MICROSECONDS)
    found = await fixture.engine.samples(
        [queue], from_us=from_us, to_us=now_us + 1, step_seconds=step_seconds
    )
    assert set(found) <= {queue}
    return found.get(queue, [])


class SampleRules(Suite):
    """What was there at a moment, and how much happened since the moment before."""

    @on_engine
    async def test_a_sample_has_the_depth_and_the_age_of_a_queue(
        self, fixture: EngineFixture
    ) -> None:
        """Jobs by state, those behind a dead one, and how long the oldest due one has waited."""
        await fixture.put_dead("letter", key="k")
        await fixture.put("behind", key="k")
        await fixture.put("running", "waits", "waits too")
        await fixture.put("later", delay_seconds=600)
        await fixture.put("blocked", depends_on=("waits",))
        assert await fixture.take_ids(1) == ["running"]
        fixture.clock.advance(7)
        await fixture.engine.take_sample()
        [point] = await points(fixture)
        assert (point.pending, point.in_flight, point.blocked) == (4, 1, 1)
        assert (point.dead, point.held) == (1, 1)
        assert point.oldest_age_seconds == pytest.approx(7, abs=0.01)

    @on_engine
    async def test_rates_are_of_the_time_since_the_last_sample(
        self, fixture: EngineFixture
    ) -> None:
        """Enqueued, completed, retried and dead per second: none is negative, none counts twice."""
        await fixture.engine.take_sample()
        fixture.clock.advance(1)
        await fixture.put("done", "again", "letter", "waits")
        jobs = {job.id: job for job in await fixture.take(3)}
        await fixture.settle(
            completed(jobs["done"]),
            retry(jobs["again"], FAILURE, 600.0),
            dead(jobs["letter"], FAILURE),
        )
        seconds = 1 + await sample(fixture)
        *_first, point = await points(fixture)
        assert point.enqueued_per_second * seconds == pytest.approx(4)
        assert point.completed_per_second * seconds == pytest.approx(1)
        assert point.retried_per_second * seconds == pytest.approx(1)
        assert point.dead_per_second * seconds == pytest.approx(1)
        await sample(fixture)
        await sample(fixture)
        *_earlier, point = await points(fixture)
        assert (point.enqueued_per_second, point.completed_per_second) == (0, 0)
        assert (point.retried_per_second, point.dead_per_second) == (0, 0)

    @on_engine
    async def test_of_several_that_sample_one_does(self, fixture: EngineFixture) -> None:
        """It is not time again before the interval is over."""
        await fixture.put("waits")
        assert await fixture.engine.take_sample() > 0
        await fixture.put("waits too")
        for _process in range(3):
            fixture.clock.advance(1)
            assert await fixture.engine.take_sample() > 0
        assert [point.pending for point in await points(fixture)] == [1]

    @on_engine
    async def test_queues_are_told_apart_and_all_are_found(self, fixture: EngineFixture) -> None:
        """Without names every queue is returned, with names those alone."""
        await fixture.put("a", queue="mail")
        await fixture.put("b", "c", queue="slow")
        await fixture.engine.take_sample()
        now_us = fixture.clock.now_us()
        both = await fixture.engine.samples(from_us=0, to_us=now_us + 1)
        assert {queue: found[0].pending for queue, found in both.items()} == {"mail": 1, "slow": 2}
        assert [found.pending for found in await points(fixture, "slow")] == [2]
        assert await points(fixture, "unknown") == []

    @on_engine
    async def test_points_have_the_greatest_depth_and_mean_rates(
        self, fixture: EngineFixture
    ) -> None:
        """A wider step loses no peak, and a rate is that of all its seconds."""
        await fixture.engine.take_sample()
        seconds = 0.0
        for pending in (3, 0, 0):
            fixture.clock.advance(1)
            ids = [f"{pending}-{number}" for number in range(pending)]
            await fixture.put(*ids)
            seconds += 1 + await sample(fixture)
            if ids:
                await fixture.complete(*ids)
        fine = await points(fixture)
        assert [point.pending for point in fine if point.pending] == [3]
        assert max(point.completed_per_second for point in fine) > 3 / seconds
        [wide] = await series(fixture, hours=1, step_seconds=6 * _HOUR)
        assert wide.at_us % (6 * _HOUR * MICROSECONDS) == 0
        assert (wide.pending, wide.in_flight) == (3, 0)
        assert wide.enqueued_per_second * seconds == pytest.approx(3)
        assert wide.completed_per_second * seconds == pytest.approx(3)

    @on_engine
    async def test_samples_are_kept_for_two_hours_and_minutes_for_two_days(
        self, fixture: EngineFixture
    ) -> None:
        """Older ones are dropped, and points of a minute take their place."""
        await fixture.put("waits")
        await fixture.engine.take_sample()
        fixture.clock.advance(3 * _HOUR)
        await fixture.put("waits too")
        await fixture.engine.take_sample()
        assert [point.pending for point in await series(fixture, hours=1.9)] == [2]
        assert [point.pending for point in await series(fixture, hours=4)] == [1, 2]
        fixture.clock.advance(46 * _HOUR)
        await fixture.engine.take_sample()
        assert [point.pending for point in await series(fixture, hours=60)] == [2, 2]

    @pytest.mark.parametrize(
        ("field", "arguments"),
        [
            ("to_us", {"from_us": 5, "to_us": 5}),
            ("from_us", {"from_us": -1, "to_us": 5}),
            ("to_us", {"from_us": 1, "to_us": 2**63}),
            ("step_seconds", {"from_us": 1, "to_us": 5, "step_seconds": -1}),
            ("queues", {"queues": "mail", "from_us": 1, "to_us": 5}),
            ("queues", {"queues": [""], "from_us": 1, "to_us": 5}),
        ],
    )
    @on_engine
    async def test_bad_questions_are_refused(
        self, fixture: EngineFixture, field: str, arguments: dict[str, object]
    ) -> None:
        """The error names the field."""
        with pytest.raises(InvalidInput) as error:
            await fixture.engine.samples(**arguments)  # type: ignore[arg-type]
        assert error.value.field == field

    @on_engine
    async def test_a_confined_caller_sees_no_samples_and_takes_none(
        self, fixture: EngineFixture
    ) -> None:
        """They are of every tenant together."""
        confined = Caller(tenant="north")
        with pytest.raises(AccessDenied):
            await fixture.engine.samples(from_us=1, to_us=5, caller=confined)
        with pytest.raises(AccessDenied):
            await fixture.engine.take_sample(caller=confined)
        with pytest.raises(InvalidInput):
            await fixture.engine.take_sample(every_seconds=0)
