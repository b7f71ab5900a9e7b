"""Durations as people write them."""

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.durations import Duration, format_seconds, seconds_of
from holdfast.model.errors import InvalidInput


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("3s", 3.0),
        ("2m", 120.0),
        ("500ms", 0.5),
        ("250us", 0.00025),
        ("1h30m", 5_400.0),
        ("1d", 86_400.0),
        ("1d2h3m4s", 93_784.0),
        ("1.5h", 5_400.0),
        ("0s", 0.0),
        (" 3s ", 3.0),
        ("3", 3.0),
        ("0.25", 0.25),
        ("1e3", 1_000.0),
        (3, 3.0),
        (0.5, 0.5),
        (0, 0.0),
        (timedelta(minutes=1, milliseconds=5), 60.005),
    ],
)
def test_what_is_a_duration(written: Duration, seconds: float) -> None:
    found = seconds_of("timeout", written)
    assert found == pytest.approx(seconds)
    assert type(found) is float


@pytest.mark.parametrize(
    "written",
    [
        *("", " ", "s", "3 s", "3S", "-1s", "-1", "1m-1s", "1h 30m", "3sec", "three", "3s2"),
        *("1,5s", "inf", "nan", "infinity", "1e999", math.inf, math.nan, -1, -0.001),
        timedelta(seconds=-1),
        *(None, True, False, b"3s", [3], {"s": 3}),
    ],
)
def test_what_is_none_is_refused_by_the_name_of_its_field(written: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        seconds_of("drain_seconds", written)  # type: ignore[arg-type]
    assert refused.value.field == "drain_seconds"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0000005, "0us"),
        (0.000012, "12us"),
        (0.0015, "1.5ms"),
        (0.5, "500ms"),
        (3, "3s"),
        (3.25, "3.25s"),
        (59.9996, "60s"),
        (60, "1m"),
        (90.4, "1m30s"),
        (3_600, "1h"),
        (5_400, "1h30m"),
        (86_400, "1d"),
        (93_784, "1d2h3m4s"),
    ],
)
def test_how_it_is_shown(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@given(st.floats(0, 1e12))
def test_what_is_shown_is_read_back_within_its_rounding(seconds: float) -> None:
    if seconds < 1e-3:
        rounding = 0.5e-6
    elif seconds < 1:
        rounding = seconds * 5e-6  # six digits
    elif seconds < 60:
        rounding = 0.5e-3
    else:
        rounding = 0.5
    assert seconds_of("any", format_seconds(seconds)) == pytest.approx(
        seconds, abs=rounding * 1.000001
    )


@given(st.integers(0, 10**9))
def test_whole_seconds_are_read_back_exactly(seconds: int) -> None:
    assert seconds_of("any", format_seconds(seconds)) == seconds


@given(
    st.lists(
        st.tuples(st.integers(0, 999), st.sampled_from(["us", "ms", "s", "m", "h", "d"])),
        min_size=1,
        max_size=6,
    )
)
def test_parts_add_up(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in parts)
    each = sum(seconds_of("any", f"{count}{unit}") for count, unit in parts)
    assert seconds_of("any", text) == pytest.approx(each)


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        seconds = seconds_of("any", text)
    except InvalidInput:
        return
    assert 0 <= seconds < math.inf
