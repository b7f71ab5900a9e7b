"""From what a task returned or raised to the outcome of its attempt."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import InvalidInput, PayloadInvalid
from holdfast.model.failure import Classifier, FailureClass, Rule, Verdict
from holdfast.model.job import MAX_RESULT_BYTES, Job
from holdfast.model.outcome import NOT_KEPT, Outcome, OutcomeKind, why_not_kept
from holdfast.model.retry import RetryPolicy
from holdfast.model.signals import Cancel, Dead, Retry, Snooze
from holdfast.worker.verdicts import Verdicts

from .world import spec_of

POLICY = RetryPolicy(base_backoff_seconds=1.0, max_backoff_seconds=60.0)


def job_at(attempt: int = 1, **fields: Any) -> Job:
    fields = {"token": 9, "attempt": attempt, **fields}
    return Job("j", "default", "", "q", "t", b"{}", 0, 3, 0, 0, 1, **fields)


def highest(_low: float, high: float) -> float:
    return high


def verdicts(classifier: Classifier | None = None, policy: RetryPolicy = POLICY) -> Verdicts:
    return Verdicts(classifier or Classifier(), policy, highest)


def task(retry: Retry | None = None) -> Any:
    return spec_of(lambda: None, name="t", retry=retry)


def returned(value: object, job: Job | None = None, retry: Retry | None = None) -> Outcome:
    outcome = verdicts().of_value(job or job_at(), task(retry), value)
    outcome.check()
    return outcome


def raised(error: BaseException, job: Job | None = None, retry: Retry | None = None) -> Outcome:
    outcome = verdicts().of_error(job or job_at(), task(retry), error)
    outcome.check()
    return outcome


def reason(outcome: Outcome) -> str:
    assert outcome.failure is not None
    return outcome.failure.error_reason


class HttpError(Exception):
    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status
        self.headers = headers or {}


# --- values -----------------------------------------------------------------------------------


def test_nothing_returned_is_completed_without_a_result():
    assert returned(None) == Outcome(OutcomeKind.COMPLETED, "j", 9)


@pytest.mark.parametrize(
    ("value", "result"),
    [(7, b"7"), ("ü", '"ü"'.encode()), ([1, None], b"[1,null]"), (False, b"false"), ("", b'""')],
)
def test_a_value_is_kept_as_json(value, result):
    assert returned(value).result == result


@pytest.mark.parametrize(
    "value",
    [object(), {1j: 2}, "\ud800", "x" * MAX_RESULT_BYTES, lambda: None],
    ids=["object", "complex key", "surrogate", "too long", "function"],
)
def test_a_result_that_cannot_be_kept_is_not_run_again_for_and_says_why(value, caplog):
    with caplog.at_level(logging.WARNING):
        outcome = returned(value)
    assert outcome.kind is OutcomeKind.COMPLETED
    assert why_not_kept(outcome.result or b"")
    (record,) = caplog.records
    assert "task.result_dropped task=t job=j" in record.getMessage()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "JSON cannot carry an object: use a type that JSON has"),
        ("x" * MAX_RESULT_BYTES, "result: 262,146 bytes, and the limit is 262,144: store it else"),
        ([1.0, float("nan")], "NaN and infinities are not JSON"),
        ({NOT_KEPT: "mine"}, "an object must not begin with the field $holdfast.result_not_kept"),
    ],
    ids=["object", "too long", "nan", "reserved"],
)
def test_why_a_result_was_not_kept_is_stored_in_its_place(value, why):
    stored = returned(value).result or b""
    assert (why_not_kept(stored) or "").startswith(why)
    assert len(stored) < 1_100


def test_a_result_that_only_mentions_the_mark_is_kept():
    value = {"a": 1, NOT_KEPT: "mine"}
    assert why_not_kept(returned(value).result or b"") is None
    assert msgspec.json.decode(returned(value).result or b"") == value


def test_the_largest_result_is_kept():
    assert len(returned("x" * (MAX_RESULT_BYTES - 2)).result or b"") == MAX_RESULT_BYTES


def test_a_result_that_refers_to_itself_is_dropped(caplog):
    loop: list[Any] = []
    loop.append(loop)
    assert "recursion" in (why_not_kept(returned(loop).result or b"") or "")
    assert "task.result_dropped" in caplog.text


@pytest.mark.parametrize("how", [returned, raised])
@pytest.mark.parametrize(
    ("signal", "kind"),
    [
        (Snooze("5m"), OutcomeKind.SNOOZE),
        (Cancel("no longer"), OutcomeKind.CANCELLED),
        (Dead("never"), OutcomeKind.DEAD),
        (Retry(after=5), OutcomeKind.RETRY),
    ],
)
def test_a_signal_means_the_same_returned_and_raised(how, signal, kind):
    assert how(signal).kind is kind


def test_a_signals_class_is_no_signal(caplog):
    assert returned(Snooze).kind is OutcomeKind.COMPLETED
    assert "task.result_dropped" in caplog.text


# --- signals ----------------------------------------------------------------------------------


def test_snooze_waits_as_long_as_it_says():
    assert raised(Snooze("1h30m")).delay_seconds == 5_400


def test_dead_keeps_its_reason_and_is_deterministic():
    outcome = raised(Dead("the account is closed", error_reason="account_closed"))
    failure = outcome.failure
    assert failure is not None
    assert (failure.error_reason, failure.failure_class, failure.message) == (
        "account_closed",
        FailureClass.DETERMINISTIC,
        "the account is closed",
    )
    assert reason(raised(Dead())) == "business_error"


@pytest.mark.parametrize("attempt", [1, 2, 3, 7])
def test_a_wish_to_retry_waits_as_the_policy_says_unless_it_says_otherwise(attempt):
    job = job_at(attempt)
    assert raised(Retry(), job).delay_seconds == min(60, 2.0 ** (attempt - 1))
    assert raised(Retry(after="7s"), job).delay_seconds == 7
    assert raised(Retry(after=0), job).delay_seconds == 0
    assert raised(Retry(backoff=3), job).delay_seconds == min(60, 3 * 2.0 ** (attempt - 1))
    assert raised(Retry(max_backoff=2), job).delay_seconds == min(2, 2.0 ** (attempt - 1))
    assert reason(raised(Retry("busy"), job)) == "retry"


def test_a_wish_goes_over_the_tasks_policy_and_that_over_the_settings():
    fixed = Retry(after=10)
    assert raised(ZeroDivisionError(), retry=fixed).delay_seconds == 10
    assert raised(Retry(), retry=fixed).delay_seconds == 10
    assert raised(Retry(after=3), retry=fixed).delay_seconds == 3
    assert raised(Retry(backoff=4), retry=fixed).delay_seconds == 4
    growing = Retry(backoff=5, max_backoff=8)
    assert [
        raised(ZeroDivisionError(), job_at(attempt), growing).delay_seconds for attempt in (1, 2, 3)
    ] == [5, 8, 8]


def test_waits_go_over_a_backoff_and_a_backoff_over_waits():
    waits = Retry(waits=["10s", "1m"], jitter=0)
    assert waits.max_attempts == 3
    assert Retry(waits=[1], max_attempts=9).max_attempts == 9
    assert [
        raised(ZeroDivisionError(), job_at(attempt), waits).delay_seconds for attempt in (1, 2, 3)
    ] == [10, 60, 60]
    assert raised(Retry(backoff=4), retry=waits).delay_seconds == 4
    assert raised(Retry(after=4), retry=waits).delay_seconds == 4
    assert raised(Retry(waits=[7]), retry=Retry(after=3)).delay_seconds == 7
    assert raised(Retry(), retry=waits).delay_seconds == 10


def test_a_wish_may_lower_how_often_it_is_tried():
    assert raised(Retry(max_attempts=2), job_at(1)).kind is OutcomeKind.RETRY
    assert raised(Retry(max_attempts=2), job_at(2)).kind is OutcomeKind.DEAD
    replayed = job_at(5, attempts_before_replay=4)
    assert raised(Retry(max_attempts=2), replayed).kind is OutcomeKind.RETRY


def test_the_engine_alone_counts_a_jobs_attempts():
    # An operator may have changed the job's budget since it was claimed.
    assert raised(ZeroDivisionError(), job_at(500)).kind is OutcomeKind.RETRY
    assert raised(ZeroDivisionError(), retry=Retry(max_attempts=1)).kind is OutcomeKind.RETRY


def test_backoff_starts_over_after_a_replay():
    assert raised(ZeroDivisionError(), job_at(11, attempts_before_replay=10)).delay_seconds == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(after=1, backoff=2),
        lambda: Retry(after=1, max_backoff=2),
        lambda: Retry(after=1, waits=[2]),
        lambda: Retry(after=1, jitter=0.5),
        lambda: Retry(waits=[1], backoff=2),
        lambda: Retry(waits=[]),
        lambda: Retry(waits="10s"),
        lambda: Retry(waits=[1, -1]),
        lambda: Retry(jitter=1.5),
        lambda: Retry(max_attempts=0),
        lambda: Retry(max_attempts=True),
        lambda: Retry(after=-1),
        lambda: Retry(after="soon"),
        lambda: Snooze(-1),
    ],
)
def test_a_signal_that_makes_no_sense_is_refused_where_it_is_made(make):
    with pytest.raises(InvalidInput):
        make()


# --- errors -----------------------------------------------------------------------------------


def test_an_error_nobody_knows_is_unexpected_and_tried_again():
    outcome = raised(ZeroDivisionError("division by zero"))
    failure = outcome.failure
    assert outcome.kind is OutcomeKind.RETRY
    assert failure is not None
    assert (failure.error_reason, failure.failure_class) == ("unexpected", FailureClass.UNKNOWN)
    assert failure.message == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PayloadInvalid("payload", "no"), "payload_invalid"),
        (msgspec.ValidationError("no"), "payload_invalid"),
        (HttpError(404), "upstream_4xx"),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "no"), "parse_error"),
    ],
)
def test_deterministic_errors_die_at_once(error, expected):
    outcome = raised(error)
    assert (outcome.kind, reason(outcome)) == (OutcomeKind.DEAD, expected)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), "timeout"),
        (ConnectionRefusedError(), "connection"),
        (HttpError(503), "upstream_5xx"),
        (HttpError(429), "rate_limited"),
        (asyncio.CancelledError(), "unexpected"),
        (SystemExit(3), "unexpected"),
        (KeyboardInterrupt(), "unexpected"),
    ],
)
def test_what_may_pass_is_tried_again(error, expected):
    outcome = raised(error)
    assert (outcome.kind, reason(outcome)) == (OutcomeKind.RETRY, expected)


@pytest.mark.parametrize(("header", "wait"), [("30", 30), ("0", 0), ("99999", 3_600), ("x", None)])
def test_retry_after_is_honoured_within_bounds_with_jitter_on_top(header, wait):
    outcome = raised(HttpError(429, {"Retry-After": header}), job_at(2))
    assert outcome.delay_seconds == (wait or 0) + 2


def test_an_applications_own_rules_come_first():
    own = Rule("ours", lambda *_: Verdict("ours", FailureClass.DETERMINISTIC))
    outcome = verdicts(Classifier([own])).of_error(job_at(), task(), ConnectionRefusedError())
    assert (outcome.kind, reason(outcome)) == (OutcomeKind.DEAD, "ours")


# --- whatever a task says, the engine can record it --------------------------------------------

NASTY_TEXT = st.text(max_size=50) | st.sampled_from(["x" * 5_000, "a\0b", "\ud800", ""])
SIGNALS: list[Callable[[str, float], BaseException]] = [
    lambda text, _seconds: Dead(text, error_reason=text or "r"),
    lambda text, _seconds: Dead(text),
    lambda text, _seconds: Retry(text),
    lambda text, _seconds: Cancel(text),
    lambda _text, seconds: Snooze(seconds),
    lambda text, seconds: Retry(text, after=seconds),
    lambda text, seconds: Retry(text, backoff=seconds, max_backoff=seconds),
    lambda text, _seconds: ZeroDivisionError(text),
]


@given(st.sampled_from(SIGNALS), NASTY_TEXT, st.floats(0, 1e308), st.integers(1, 10**6))
def test_every_outcome_can_be_recorded(signal, text, seconds, attempt):
    # An outcome that the engine refuses would take the worker's dispatcher with it.
    raised(signal(text, seconds), job_at(attempt))
    returned(signal(text, seconds), job_at(attempt))


class Half(Dead):
    """A signal whose maker forgot about the one above."""

    def __init__(self) -> None: ...


class HalfSnooze(Snooze):
    def __init__(self) -> None: ...


class HalfRetry(Retry):
    def __init__(self) -> None: ...


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict("", FailureClass.TRANSIENT),
        Verdict("odd", "transient"),  # type: ignore[arg-type]
        Verdict(7, FailureClass.TRANSIENT),  # type: ignore[arg-type]
    ],
)
def test_a_rule_that_gives_an_impossible_verdict_leaves_a_plain_failure(verdict):
    own = Classifier([Rule("odd", lambda *_: verdict)])
    outcome = verdicts(own).of_error(job_at(), task(), ZeroDivisionError("why"))
    outcome.check()
    assert (outcome.kind, reason(outcome)) == (OutcomeKind.RETRY, "unexpected")


@pytest.mark.parametrize("error", [Half(), HalfSnooze(), HalfRetry(), Dead(error_reason="")])
def test_a_signal_that_is_only_half_made_is_a_failure_like_any_other(error):
    outcome = raised(error)
    assert outcome.kind in {OutcomeKind.RETRY, OutcomeKind.DEAD}
