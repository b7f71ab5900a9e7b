"""What an HTTP client raises: the status decides, and Retry-After says when to come back."""

import urllib.error
from collections.abc import Callable, Mapping
from email.message import Message
from http import HTTPStatus

import pytest

from holdfast.model.failure import FailureClass, retry_after_seconds

from .test_failure import NOW, judged

IN_90_SECONDS = "Thu, 01 Jan 2026 12:01:30 GMT"
AN_HOUR_AGO = "Thu, 01 Jan 2026 11:00:00 GMT"


class Response:
    def __init__(self, status_code: int, headers: Mapping[str, object]) -> None:
        self.status_code = status_code
        self.headers = headers


class ResponseError(Exception):
    """As httpx and requests do it."""

    def __init__(self, status: int, headers: Mapping[str, object]) -> None:
        super().__init__(f"status {status}")
        self.response = Response(status, headers)


class StatusError(Exception):
    """As aiohttp does it."""

    def __init__(self, status: int, headers: Mapping[str, object]) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = headers


def urllib_error(status: int, headers: Mapping[str, object]) -> Exception:
    message = Message()
    for name, value in headers.items():
        message[name] = str(value)
    return urllib.error.HTTPError("http://upstream.test/", status, "no", message, None)


Shape = Callable[[int, Mapping[str, object]], Exception]
SHAPES: list[Shape] = [ResponseError, StatusError, urllib_error]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["Retry-After", "retry-after"])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), (" 120 ", 120.0), (IN_90_SECONDS, 90.0), (AN_HOUR_AGO, 0.0), ("soon", None)],
)
@pytest.mark.parametrize(
    ("status", "reason"), [(429, "rate_limited"), (503, "upstream_5xx"), (500, "upstream_5xx")]
)
def test_a_busy_upstream_is_transient_and_says_when_to_come_back(
    shape: Shape, status: int, reason: str, name: str, header: str, seconds: float
) -> None:
    expected = ("http_status", reason, FailureClass.TRANSIENT, seconds)
    assert judged(shape(status, {name: header})) == expected


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 599])
def test_a_busy_upstream_need_not_say_when(shape: Shape, status: int) -> None:
    reason = "rate_limited" if status == 429 else "upstream_5xx"
    assert judged(shape(status, {})) == ("http_status", reason, FailureClass.TRANSIENT, None)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_request_timeout_is_a_timeout(shape: Shape) -> None:
    assert judged(shape(408, {"Retry-After": "7"})) == (
        "http_status",
        "timeout",
        FailureClass.TRANSIENT,
        None,
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 428, 430, 451, 499])
def test_any_other_4xx_is_deterministic(shape: Shape, status: int) -> None:
    expected = ("http_status", "upstream_4xx", FailureClass.DETERMINISTIC, None)
    assert judged(shape(status, {"Retry-After": "7"})) == expected


@pytest.mark.parametrize("status", [0, 200, 302, 399, 600, 1006, True, "503", 503.0, None])
def test_what_is_no_http_error_status_is_passed_on(status: int) -> None:
    assert judged(StatusError(status, {}))[0] == "unexpected"


def test_the_status_may_be_an_enum_and_the_headers_may_be_missing_or_odd() -> None:
    assert judged(StatusError(HTTPStatus.TOO_MANY_REQUESTS, {}))[1] == "rate_limited"
    error = StatusError(429, {"Retry-After": b"7"})
    assert judged(error)[3] is None
    del error.headers
    assert judged(error) == ("http_status", "rate_limited", FailureClass.TRANSIENT, None)


def test_the_response_speaks_before_the_exception() -> None:
    class Both(ResponseError):
        status_code = 404

    assert judged(Both(429, {"Retry-After": "7"}))[1::2] == ("rate_limited", 7.0)


def test_a_declared_reason_goes_before_the_status() -> None:
    class OutOfStock(StatusError):
        error_reason = "business_error"

    assert judged(OutOfStock(429, {}))[:2] == ("declared", "business_error")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("00030", 30.0),
        ("Thursday, 01-Jan-26 12:01:30 GMT", 90.0),
        ("Thu, 01 Jan 2026 12:01:30 -0000", 90.0),
        ("Thu, 01 Jan 2026 13:01:30 +0100", 90.0),
        ("", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("²", None),
        ("Thu, 99 Jan 2026 12:01:30 GMT", None),
        ("Thu, 01 Jan 2026 12:01:30 +9999", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_nonsense_is_none(
    value: str, seconds: float | None
) -> None:
    assert retry_after_seconds(value, NOW) == seconds
