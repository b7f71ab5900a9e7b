"""The filter never denies a name that it was given, and seldom affirms another."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.engines.journal.history.bloom import LEAST_CAPACITY, BloomFilter, KnownNames

NAMES = st.lists(st.tuples(st.text(max_size=5), st.text(max_size=9)), max_size=50)


@given(names=NAMES)
def test_what_was_added_is_held(names):
    bloom = BloomFilter(10)
    bloom.add_all(names)
    assert all(bloom.may_hold(name) for name in names)


def test_of_the_others_few_are_thought_to_be_held():
    bloom = BloomFilter(LEAST_CAPACITY)
    bloom.add_all([("default", f"job-{number}") for number in range(LEAST_CAPACITY)])
    wrong = sum(bloom.may_hold(("default", f"other-{number}")) for number in range(20_000))
    assert wrong < 20_000 * 0.03
    assert not bloom.full
    bloom.add_all([("default", "one more")])
    assert bloom.full


def test_until_it_is_filled_every_name_may_be_known():
    known = KnownNames()
    assert known.may_hold("t", "anything")
    known.begin(1)
    known.add_all([("t", "came meanwhile")])
    assert known.may_hold("t", "anything")
    known.fill([("t", "was there before")])
    known.finish()
    assert known.may_hold("t", "came meanwhile")
    assert known.may_hold("t", "was there before")
    assert not known.may_hold("t", "anything")


def test_a_larger_one_is_filled_while_the_old_one_serves():
    known = KnownNames()
    known.begin(0)
    known.finish()
    known.add_all([("t", str(number)) for number in range(LEAST_CAPACITY + 1)])
    assert known.full
    known.begin(LEAST_CAPACITY)
    assert not known.full
    assert known.may_hold("t", "7")
    known.add_all([("t", "new")])
    known.fill([("t", str(number)) for number in range(LEAST_CAPACITY + 1)])
    known.finish()
    assert known.may_hold("t", "7")
    assert known.may_hold("t", "new")
