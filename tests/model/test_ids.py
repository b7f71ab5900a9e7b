"""Ids by default: UUIDv7 as RFC 9562 has it."""

import random
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.ids import RANDOM_BYTES, rising_uuid7s, uuid7s

TIMES_US = st.integers(0, 2**48 * 1_000 - 1)
ENTROPY = st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES)


def one(now_us: int, entropy: bytes) -> str:
    (made,) = uuid7s(now_us, entropy)
    return made


@settings(deadline=None)
@given(now_us=TIMES_US, entropy=ENTROPY)
def test_an_id_is_a_uuid_of_version_7_in_its_canonical_form(now_us: int, entropy: bytes) -> None:
    made = one(now_us, entropy)
    parsed = uuid.UUID(made)
    assert str(parsed) == made
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122
    assert parsed.int >> 76 & 0xF == 7
    assert parsed.int >> 62 & 0b11 == 0b10


@settings(deadline=None)
@given(now_us=TIMES_US, entropy=ENTROPY)
def test_the_first_48_bits_are_the_milliseconds(now_us: int, entropy: bytes) -> None:
    assert uuid.UUID(one(now_us, entropy)).int >> 80 == now_us // 1_000


def test_the_example_of_the_rfc() -> None:
    # RFC 9562, A.6: rand_a is 0xCC3, rand_b is 0b10 and 0x18C4DC0C0C07398F.
    entropy = bytes.fromhex("cc3" + "18c4dc0c0c07398f" + "0")
    made = one(0x017F22E279B0 * 1_000, entropy)
    assert made == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@settings(deadline=None)
@given(first=TIMES_US, second=TIMES_US, entropy=ENTROPY, other=ENTROPY)
def test_ids_sort_by_their_milliseconds(
    first: int, second: int, entropy: bytes, other: bytes
) -> None:
    if first // 1_000 < second // 1_000:
        assert one(first, entropy) < one(second, other)
    elif first // 1_000 > second // 1_000:
        assert one(first, entropy) > one(second, other)


def test_ids_made_a_millisecond_apart_sort_whatever_the_entropy() -> None:
    made = [
        one(ms * 1_000, b"\xff\x00"[ms % 2 :][:1] * RANDOM_BYTES) for ms in range(65_530, 65_545)
    ]
    assert made == sorted(made)


def test_many_ids_of_one_moment_are_all_different() -> None:
    made = uuid7s(1_700_000_000_000_000, random.Random(1).randbytes(50_000 * RANDOM_BYTES))
    assert len(made) == len(set(made)) == 50_000


@pytest.mark.parametrize("bit", range(RANDOM_BYTES * 8))
def test_every_bit_that_an_id_has_room_for_comes_from_the_entropy(bit: int) -> None:
    # Of 80 random bits 74 fit. Bits 12 and 13 make way for the variant, the last nibble is spare.
    flipped = (1 << (79 - bit)).to_bytes(RANDOM_BYTES, "big")
    spare = bit in {12, 13} or bit >= 76
    assert (one(0, flipped) == one(0, bytes(RANDOM_BYTES))) is spare


@settings(deadline=None)
@given(now_us=TIMES_US, entropy=st.lists(ENTROPY, max_size=5))
def test_there_is_one_id_for_every_piece_of_entropy(now_us: int, entropy: list[bytes]) -> None:
    made = uuid7s(now_us, b"".join(entropy))
    assert made == [one(now_us, piece) for piece in entropy]


@settings(deadline=None)
@given(now_us=TIMES_US, count=st.integers(0, 4_096), seed=st.integers(0, 9))
def test_those_of_one_call_rise_and_are_uuids_of_version_7(now_us: int, count: int, seed: int):
    entropy = random.Random(seed).randbytes(count * RANDOM_BYTES)
    made = list(rising_uuid7s(now_us, entropy))
    assert made == sorted(made)
    assert len(set(made)) == count
    for one in made[:2] + made[-2:]:
        parsed = uuid.UUID(one)
        assert (str(parsed), parsed.version, parsed.variant) == (one, 7, uuid.RFC_4122)
        assert parsed.int >> 80 == now_us // 1_000


def test_one_alone_is_random_throughout_and_more_than_can_be_counted_are_apart_too():
    entropy = random.Random(1).randbytes(20_000 * RANDOM_BYTES)
    assert list(rising_uuid7s(0, entropy[:RANDOM_BYTES])) == uuid7s(0, entropy[:RANDOM_BYTES])
    made = list(rising_uuid7s(0, entropy))
    assert len(set(made)) == 20_000
    assert [one[:18] for one in made] == sorted(one[:18] for one in made)
