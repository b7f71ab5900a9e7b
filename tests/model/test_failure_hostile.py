"""Exceptions and headers that mean no good: the classifier answers all the same."""

import urllib.error
from datetime import UTC, datetime

import msgspec
import pytest

from holdfast.model.failure import (
    REASON_LIMIT,
    Classifier,
    FailureClass,
    Rule,
    Verdict,
    retry_after_seconds,
)

NOW = datetime(2026, 11, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    "header",
    [
        "Sun, 06 Nov 1994 08:49:37 +99999999999999999",
        "Sun, 06 Nov 999999999999999 08:49:37 GMT",
        "soon",
        "",
        "-5",
        "１２",
    ],
)
def test_a_senseless_retry_after_is_none(header):
    assert retry_after_seconds(header, NOW) is None


def test_an_endless_retry_after_is_finite():
    assert retry_after_seconds("9" * 400, NOW) == 999_999_999_999.0


@pytest.mark.parametrize("reason", ["x" * 1_000_000, "bad \ud800 reason"])
def test_a_declared_reason_is_bounded_and_can_be_stored(reason):
    error = type("Declared", (Exception,), {"error_reason": reason})()
    failure = Classifier().classify(error, NOW)
    assert len(failure.error_reason) <= REASON_LIMIT
    msgspec.msgpack.encode(failure)


def test_an_error_whose_properties_raise_is_unexpected():
    class Hostile(Exception):
        @property
        def response(self) -> object:
            raise RuntimeError("no")

    assert Classifier().classify(Hostile(), NOW).error_reason == "unexpected"


@pytest.mark.parametrize("wait", [-1.0, float("nan"), float("inf")])
def test_a_senseless_wait_from_a_rule_is_dropped(wait):
    rule = Rule("own", lambda _error, _now: Verdict("odd", FailureClass.TRANSIENT, wait))
    assert Classifier([rule]).classify(ValueError(), NOW).retry_after_seconds is None


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (ConnectionRefusedError(), "connection"),
        (TimeoutError(), "timeout"),
        ("no host given", "connection"),
    ],
)
def test_urllib_errors_are_judged_by_what_they_wrap(inner, reason):
    assert Classifier().classify(urllib.error.URLError(inner), NOW).error_reason == reason


def test_a_class_may_be_declared_as_a_word():
    error = type("Own", (Exception,), {"error_reason": "quota", "failure_class": "transient"})()
    assert Classifier().classify(error, NOW).failure_class is FailureClass.TRANSIENT
