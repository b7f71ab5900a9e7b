"""Lists that are made as far as they are looked at, and jobs that are alike."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.job import NewJob
from holdfast.model.lazy_sequence import LazySequence
from holdfast.model.uniform_batch import UniformBatch

ENDS = st.none() | st.integers(-12, 12)


class Numbers:
    """Numbers from 0 on, and how many have been made."""

    def __init__(self) -> None:
        self.made = 0

    def __iter__(self) -> Iterator[int]:
        for number in range(10):
            self.made += 1
            yield number


@given(slices=st.lists(st.tuples(ENDS, ENDS, st.none() | st.sampled_from([1, 2, -1, -3]))))
def test_any_part_of_it_is_as_that_of_a_list(slices):
    numbers = Numbers()
    growing = LazySequence(numbers, 10)
    assert numbers.made == 0
    for start, end, step in slices:
        assert growing[start:end:step] == list(range(10))[start:end:step]
    assert list(growing) == list(range(10))
    assert len(growing) == numbers.made == 10


@given(places=st.lists(st.integers(-10, 9)))
def test_any_item_of_it_is_as_that_of_a_list(places):
    growing = LazySequence(Numbers(), 10)
    assert [growing[place] for place in places] == [range(10)[place] for place in places]
    for beyond in (10, -11):
        with pytest.raises(IndexError):
            growing[beyond]


def test_only_what_is_looked_at_is_made_and_once():
    numbers = Numbers()
    growing = LazySequence(numbers, 10)
    assert growing[2:4] == [2, 3]
    assert growing[1] == 1
    assert numbers.made == 4
    iter(growing)
    assert numbers.made == 4, "not before the first is asked for"
    growing.make_all()
    assert numbers.made == 10
    assert growing[:] == list(range(10))
    assert numbers.made == 10


def test_jobs_that_are_alike_are_made_when_they_are_looked_at():
    numbers = Numbers()
    like = NewJob(task="t", queue="mail", priority=3)
    jobs = UniformBatch(like, (b'{"n":%d}' % number for number in numbers), 10)
    assert len(jobs) == 10
    assert jobs.payloads[:2] == [b'{"n":0}', b'{"n":1}']
    assert numbers.made == 2
    assert jobs[1] == NewJob(task="t", queue="mail", priority=3, payload=b'{"n":1}')
    assert [job.payload for job in jobs] == jobs.payloads[:]
    assert numbers.made == 10


def test_what_is_wrong_with_one_is_said_to_whoever_looks_at_it():
    def payloads() -> Iterator[bytes]:
        yield b"{}"
        raise ValueError("the second")

    jobs = UniformBatch(NewJob(task="t"), payloads(), 2)
    assert jobs.payloads[0] == b"{}"
    for _time in range(2):
        with pytest.raises(ValueError, match="the second"):
            list(jobs)
        with pytest.raises(ValueError, match="the second"):
            jobs.payloads.make_all()
        assert jobs.payloads[:1] == [b"{}"]


def test_fewer_than_were_promised_are_never_taken_for_all():
    growing = LazySequence(iter([1, 2]), 3)
    assert growing[:2] == [1, 2]
    for _time in range(2):
        with pytest.raises(ValueError, match="there are 2 items, not 3"):
            list(growing)
