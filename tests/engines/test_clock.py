"""The engine's clock beside a wall clock that steps."""

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engines.clock import SystemClock

SECOND_NS = 1_000_000_000
SECOND_US = 1_000_000


class Machine:
    """A wall clock and a monotonic one, in nanoseconds, moved by hand."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.wall_ns = 1_700_000_000 * SECOND_NS
        self.up_ns = 5_000 * SECOND_NS
        patch.setattr(time, "time_ns", lambda: self.wall_ns)
        patch.setattr(time, "monotonic_ns", lambda: self.up_ns)

    def run(self, seconds: float) -> None:
        self.wall_ns += int(seconds * SECOND_NS)
        self.up_ns += int(seconds * SECOND_NS)

    def step(self, seconds: float) -> None:
        """The wall clock is set."""
        self.wall_ns += int(seconds * SECOND_NS)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_it_starts_at_the_wall_clock_and_goes_with_it(machine: Machine) -> None:
    clock = SystemClock()
    assert clock.now_us() == machine.wall_ns // 1_000
    machine.run(2.5)
    assert clock.now_us() == machine.wall_ns // 1_000
    assert type(clock.now_us()) is int


def test_a_step_back_is_absorbed_and_time_goes_on_at_its_own_pace(machine: Machine) -> None:
    clock = SystemClock()
    before = clock.now_us()
    machine.step(-3_600)
    assert clock.now_us() == before
    machine.run(10)
    assert clock.now_us() == before + 10 * SECOND_US


def test_a_step_forward_is_followed_at_once(machine: Machine) -> None:
    clock = SystemClock()
    before = clock.now_us()
    machine.step(3_600)
    assert clock.now_us() == before + 3_600 * SECOND_US == machine.wall_ns // 1_000


def test_a_resumed_machine_is_followed_at_once(machine: Machine) -> None:
    # While it slept the monotonic clock stood still, as it does on Linux.
    clock = SystemClock()
    machine.run(1)
    machine.step(8 * 3_600)
    assert clock.now_us() == machine.wall_ns // 1_000


def test_a_step_forward_within_what_was_absorbed_changes_nothing(machine: Machine) -> None:
    clock = SystemClock()
    before = clock.now_us()
    machine.step(-100)
    machine.step(+60)
    assert clock.now_us() == before
    machine.step(+50)
    assert clock.now_us() == before + 10 * SECOND_US == machine.wall_ns // 1_000


def test_a_step_back_between_two_readings_is_absorbed_after_a_step_forward(
    machine: Machine,
) -> None:
    clock = SystemClock()
    machine.step(500)
    ahead = clock.now_us()
    machine.step(-500)
    machine.run(1)
    assert clock.now_us() == ahead + SECOND_US


def test_two_clocks_keep_their_own_offsets(machine: Machine) -> None:
    older = SystemClock()
    machine.step(-100)
    newer = SystemClock()
    assert newer.now_us() == machine.wall_ns // 1_000
    assert older.now_us() == newer.now_us() + 100 * SECOND_US


MOVES = st.lists(
    st.tuples(st.sampled_from(["run", "step"]), st.integers(-(10**13), 10**13)), max_size=30
)


@settings(deadline=None)
@given(moves=MOVES)
def test_it_never_goes_back_and_is_never_behind_the_wall(moves: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(patch)
        clock = SystemClock()
        last = clock.now_us()
        for kind, nanoseconds in moves:
            if kind == "run":
                machine.run(abs(nanoseconds) / SECOND_NS)
                least = last + int(abs(nanoseconds) / SECOND_NS * SECOND_NS) // 1_000
            else:
                machine.step(nanoseconds / SECOND_NS)
                least = last
            now = clock.now_us()
            assert now >= least
            assert now >= machine.wall_ns // 1_000
            last = now


def test_on_this_machine_it_goes_forward() -> None:
    clock = SystemClock()
    readings = [clock.now_us() for _ in range(1_000)]
    assert readings == sorted(readings)
    assert abs(readings[-1] - time.time_ns() // 1_000) < 60 * SECOND_US


async def test_a_call_is_due_after_the_time_that_is_left_by_this_clock(machine: Machine) -> None:
    clock, loop = SystemClock(), asyncio.get_running_loop()
    machine.step(-50)
    timer = clock.call_at(clock.now_us() + 90 * SECOND_US, lambda: None)
    assert isinstance(timer, asyncio.TimerHandle)
    assert timer.when() - loop.time() == pytest.approx(90, abs=5)
    timer.cancel()


@pytest.mark.parametrize("late_us", [0, 1, 10**12])
async def test_a_call_that_is_overdue_comes_at_once_but_not_before_the_caller_goes_on(
    late_us: int,
) -> None:
    clock, called = SystemClock(), asyncio.Event()
    clock.call_at(clock.now_us() - late_us, called.set)
    assert not called.is_set()
    await asyncio.wait_for(called.wait(), 5)


async def test_a_call_that_was_called_off_never_comes() -> None:
    clock, called, other = SystemClock(), asyncio.Event(), asyncio.Event()
    timer = clock.call_at(clock.now_us(), called.set)
    timer.cancel()
    clock.call_at(clock.now_us(), other.set)
    await asyncio.wait_for(other.wait(), 5)
    assert not called.is_set()
    timer.cancel()
