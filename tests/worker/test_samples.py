"""The loop that samples: from its first interval on, as often as the engine says."""

from __future__ import annotations

import pytest

from holdfast.engines.memory.engine import MemoryEngine
from holdfast.model.errors import InvalidInput, Unavailable
from holdfast.model.job import MICROSECONDS, NewJob
from holdfast.testing import VirtualClock
from holdfast.worker.loops import SampleLoop


class Sampled(MemoryEngine):
    """Tells when it is due next, or raises."""

    taken = 0
    answer: float | Exception = 10.0

    async def take_sample(self, **fields):
        self.taken += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        await super().take_sample(**fields)
        return self.answer


async def test_the_first_sample_is_taken_after_an_interval():
    engine = Sampled(clock=VirtualClock())
    loop = SampleLoop(engine)
    assert await loop.step(0) == 10 * MICROSECONDS
    assert engine.taken == 0
    assert await loop.step(10 * MICROSECONDS) == 20 * MICROSECONDS
    assert engine.taken == 1


async def test_it_is_done_as_seldom_as_the_engine_says():
    engine = Sampled(clock=VirtualClock())
    loop = SampleLoop(engine)
    await loop.step(0)
    engine.answer = 47.5
    assert await loop.step(10 * MICROSECONDS) == int(57.5 * MICROSECONDS)


async def test_a_server_that_is_away_is_asked_again_later():
    engine = Sampled(clock=VirtualClock())
    loop = SampleLoop(engine)
    await loop.step(0)
    engine.answer = Unavailable("gone")
    assert await loop.step(10 * MICROSECONDS) == 20 * MICROSECONDS
    engine.answer = InvalidInput("every_seconds", "wrong")
    with pytest.raises(InvalidInput):
        await loop.step(20 * MICROSECONDS)


async def test_what_it_takes_can_be_read():
    clock = VirtualClock()
    engine = MemoryEngine(clock=clock)
    loop = SampleLoop(engine)
    await loop.step(clock.now_us())
    await engine.enqueue([NewJob(task="t") for _job in range(20)])
    clock.advance(10)
    await loop.step(clock.now_us())
    found = await engine.samples(from_us=1, to_us=clock.now_us() + 1)
    assert found["default"][0].enqueued_per_second == 2.0
