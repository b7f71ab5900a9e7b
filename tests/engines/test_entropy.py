"""Random bytes: never the same twice, whoever asks."""

import os
import warnings
from collections.abc import Callable

import pytest

from holdfast.engines import entropy
from holdfast.engines.entropy import RandomPool, random_bytes

PIECE = entropy._PIECE_BYTES


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much was fetched from the system, call by call; its bytes count up."""
    sizes: list[int] = []

    def fetch(count: int) -> bytes:
        start = sum(sizes)
        sizes.append(count)
        return bytes((start + at) % 251 for at in range(count))

    monkeypatch.setattr(entropy, "token_bytes", fetch)
    return sizes


def counted(start: int, count: int) -> bytes:
    return bytes((start + at) % 251 for at in range(count))


@pytest.mark.parametrize("count", [0, 1, 10, PIECE - 1, PIECE, PIECE + 1, 100_000])
def test_as_many_bytes_as_were_asked_for(count: int) -> None:
    pool = RandomPool()
    assert [len(pool(count)) for _ in range(3)] == [count] * 3
    assert type(pool(count)) is bytes


def test_no_sixteen_bytes_come_twice_even_across_fetches() -> None:
    pool = RandomPool()
    calls = 10 * PIECE // 16
    assert len({pool(16) for _ in range(calls)}) == calls


def test_two_pools_share_nothing() -> None:
    one, other = RandomPool(), RandomPool()
    assert not {one(16) for _ in range(500)} & {other(16) for _ in range(500)}


def test_small_requests_share_a_fetch_and_never_overlap(fetches: list[int]) -> None:
    pool = RandomPool()
    assert pool(10) + pool(1) + pool(0) + pool(20) == counted(0, 31)
    assert fetches == [PIECE]


def test_a_piece_is_used_to_its_last_byte(fetches: list[int]) -> None:
    pool = RandomPool()
    assert pool(PIECE - 1) + pool(1) == counted(0, PIECE)
    assert fetches == [PIECE]
    assert pool(1) == counted(PIECE, 1)
    assert fetches == [PIECE, PIECE]


def test_what_does_not_fit_the_rest_of_a_piece_comes_from_a_new_one(fetches: list[int]) -> None:
    pool = RandomPool()
    pool(PIECE - 5)
    assert pool(6) + pool(4) == counted(PIECE, 10)
    assert fetches == [PIECE, PIECE]


def test_a_request_larger_than_a_piece_is_fetched_for_itself(fetches: list[int]) -> None:
    pool = RandomPool()
    assert pool(3) == counted(0, 3)
    assert pool(PIECE + 1) == counted(PIECE, PIECE + 1)
    assert pool(3) == counted(3, 3)
    assert fetches == [PIECE, PIECE + 1]


def test_a_cleared_pool_forgets_what_was_left(fetches: list[int]) -> None:
    pool = RandomPool()
    pool(3)
    pool.clear()
    assert pool(3) == counted(PIECE, 3)


def in_a_child(draw: Callable[[], bytes]) -> bytes:
    """What a forked child draws."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # From Python 3.12 on forking beside threads, such as a test runner's, is warned about.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, draw())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        drawn = pipe.read()
    assert os.waitpid(pid, 0) == (pid, 0)
    return drawn


@pytest.mark.parametrize("pool", [RandomPool(), random_bytes], ids=["new", "shared"])
def test_a_forked_child_does_not_hand_out_what_its_parent_hands_out(pool: RandomPool) -> None:
    def draw() -> bytes:
        return pool(1_600)

    pool.clear()
    pool(16)
    assert len(pool._pool) - pool._used > 3 * 1_600
    first, second, mine = in_a_child(draw), in_a_child(draw), draw()
    pieces = [drawn[at : at + 16] for drawn in (first, second, mine) for at in range(0, 1_600, 16)]
    assert len(pieces) == len(set(pieces)) == 300


def test_a_fork_leaves_the_parents_bytes_as_they_were() -> None:
    pool = RandomPool()
    pool(16)
    left = pool._pool[pool._used :]
    in_a_child(lambda: pool(1_600))
    assert pool(100) == left[:100]
