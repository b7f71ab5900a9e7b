"""The default rules for everything but HTTP, and rules of one's own."""

import errno
import json
import socket
from datetime import UTC, datetime

import msgspec
import pytest

from holdfast.model.failure import (
    DEFAULT_RULES,
    REASONS,
    Classifier,
    Failure,
    FailureClass,
    Rule,
    Verdict,
    by_type,
)

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def judged(error: BaseException) -> tuple[str, str, FailureClass, float | None]:
    rule, verdict = Classifier().judge(error, NOW)
    failure = Classifier().classify(error, NOW)
    assert failure.error_reason == verdict.error_reason
    assert failure.failure_class is verdict.failure_class
    assert failure.retry_after_seconds == verdict.retry_after_seconds
    return rule, verdict.error_reason, verdict.failure_class, verdict.retry_after_seconds


class Strict(msgspec.Struct):
    count: int


def raised_by_msgspec(content: bytes) -> Exception:
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(content, type=Strict)
    return caught.value


TRANSIENT, DETERMINISTIC = FailureClass.TRANSIENT, FailureClass.DETERMINISTIC


@pytest.mark.parametrize(
    ("error", "rule", "reason", "failure_class"),
    [
        (TimeoutError("slow"), "timeout", "timeout", TRANSIENT),
        (OSError(errno.ETIMEDOUT, "slow"), "timeout", "timeout", TRANSIENT),
        (ConnectionError(), "unreachable", "connection", TRANSIENT),
        (ConnectionResetError(errno.ECONNRESET, "x"), "unreachable", "connection", TRANSIENT),
        (OSError(errno.ECONNREFUSED, "x"), "unreachable", "connection", TRANSIENT),
        (BrokenPipeError(), "unreachable", "connection", TRANSIENT),
        (socket.gaierror(-2, "unknown name"), "unreachable", "connection", TRANSIENT),
        (OSError(errno.ENETUNREACH, "x"), "unreachable", "connection", TRANSIENT),
        (OSError(errno.EHOSTUNREACH, "x"), "unreachable", "connection", TRANSIENT),
        (OSError(errno.ENETDOWN, "x"), "unreachable", "connection", TRANSIENT),
        (OSError(errno.EHOSTDOWN, "x"), "unreachable", "connection", TRANSIENT),
        (json.JSONDecodeError("bad", "{", 1), "parse", "parse_error", DETERMINISTIC),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), "parse", "parse_error", DETERMINISTIC),
        (raised_by_msgspec(b'{"count":"x"}'), "validation", "payload_invalid", DETERMINISTIC),
        (raised_by_msgspec(b"{"), "decode", "parse_error", DETERMINISTIC),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_what_python_and_msgspec_raise(
    error: Exception, rule: str, reason: str, failure_class: FailureClass
) -> None:
    assert judged(error) == (rule, reason, failure_class, None)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        KeyError("x"),
        OSError(errno.ENOENT, "x"),
        PermissionError(errno.EACCES, "x"),
        MemoryError(),
        type("gaierror", (Exception,), {})("only its name"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_no_rule_knows_is_unexpected(error: BaseException) -> None:
    assert judged(error) == ("unexpected", "unexpected", FailureClass.UNKNOWN, None)


def foreign(module: str, name: str, *bases: type[Exception]) -> type[Exception]:
    """A class as the client of this module would have it."""
    return type(name, bases or (Exception,), {"__module__": module})


@pytest.mark.parametrize(
    ("module", "name", "reason"),
    [
        ("httpx", "TimeoutException", "timeout"),
        ("httpx", "TransportError", "connection"),
        ("httpx._exceptions", "TransportError", "connection"),
        ("httpx2", "TimeoutException", "timeout"),
        ("httpx2", "TransportError", "connection"),
        ("requests.exceptions", "Timeout", "timeout"),
        ("requests.exceptions", "ConnectionError", "connection"),
        ("aiohttp.client_exceptions", "ServerTimeoutError", "timeout"),
        ("aiohttp.client_exceptions", "ClientConnectionError", "connection"),
        ("redis.exceptions", "TimeoutError", "timeout"),
        ("redis.exceptions", "ConnectionError", "connection"),
        ("psycopg", "OperationalError", "connection"),
        ("pydantic_core._pydantic_core", "ValidationError", "payload_invalid"),
    ],
)
def test_known_clients_are_told_by_module_and_name(module: str, name: str, reason: str) -> None:
    known = foreign(module, name)
    assert judged(known("x")) == ("known_client", reason, REASONS[reason], None)
    assert judged(foreign("my.app", "Derived", known)("x"))[:2] == ("known_client", reason)
    assert judged(foreign("my.app", name)("x"))[0] == "unexpected"
    assert judged(foreign("httpxtra", "TransportError")("x"))[0] == "unexpected"


def test_the_nearest_known_class_decides() -> None:
    transport = foreign("httpx", "TransportError")
    timeout = foreign("httpx", "TimeoutException", transport)
    assert judged(foreign("httpx", "ReadTimeout", timeout)("x"))[1] == "timeout"
    assert judged(foreign("httpx", "ConnectError", transport)("x"))[1] == "connection"


def declared(reason: object, **more: object) -> Exception:
    kind: type[Exception] = type("Declared", (TimeoutError,), {"error_reason": reason, **more})
    return kind("x")


@pytest.mark.parametrize("reason", REASONS)
def test_a_known_reason_that_the_exception_declares_brings_its_class(reason: str) -> None:
    assert judged(declared(reason)) == ("declared", reason, REASONS[reason], None)


def test_an_unknown_reason_is_kept_and_its_class_is_unknown_unless_stated() -> None:
    assert judged(declared("no_stock"))[1:3] == ("no_stock", FailureClass.UNKNOWN)
    for stated in FailureClass:
        assert judged(declared("no_stock", failure_class=stated))[1:3] == ("no_stock", stated)
        assert judged(declared("timeout", failure_class=stated))[1:3] == ("timeout", stated)
    assert judged(declared("no_stock", failure_class="often"))[2] is FailureClass.UNKNOWN


@pytest.mark.parametrize("reason", ["", None, 5, b"timeout"])
def test_what_is_no_reason_is_passed_on(reason: object) -> None:
    assert judged(declared(reason))[0] == "timeout"


def test_own_rules_go_first_in_their_order_and_pass_on_by_none() -> None:
    seen: list[tuple[BaseException, datetime]] = []

    def watch(error: BaseException, now: datetime) -> Verdict | None:
        seen.append((error, now))
        return None

    slow = Verdict("slow_printer", FailureClass.TRANSIENT, 12.0)
    classifier = Classifier(
        [
            Rule("watch", watch),
            Rule("printer", lambda error, _now: slow if "printer" in str(error) else None),
            by_type("mine", (TimeoutError, KeyError), "business_error"),
        ]
    )
    printer, other = TimeoutError("printer"), TimeoutError("other")
    assert classifier.judge(printer, NOW) == ("printer", slow)
    assert classifier.classify(printer, NOW).retry_after_seconds == 12.0
    assert classifier.judge(other, NOW)[0] == "mine"
    assert classifier.judge(ConnectionError(), NOW)[0] == "unreachable"
    assert seen[0] == (printer, NOW)
    assert classifier.rules[3:] == DEFAULT_RULES == Classifier().rules


def test_a_rule_by_type_must_state_the_class_of_a_reason_of_its_own() -> None:
    rule = by_type("mine", KeyError, "no_stock", FailureClass.DETERMINISTIC)
    assert rule.judge(KeyError(), NOW) == Verdict("no_stock", FailureClass.DETERMINISTIC)
    assert rule.judge(ValueError(), NOW) is None
    with pytest.raises(KeyError):
        by_type("mine", KeyError, "no_stock")


def test_every_reason_of_ours_makes_a_failure() -> None:
    for reason, failure_class in REASONS.items():
        assert Failure.of(reason, "why") == Failure(reason, failure_class, "why")
