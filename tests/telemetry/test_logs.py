"""How records become lines: JSON and console, floods summed up, secrets hidden."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from holdfast.daemon.rpc.routes import health_routes
from holdfast.engines.memory.engine import MemoryEngine
from holdfast.engines.structured_log import StructuredLog
from holdfast.model.errors import InvalidInput
from holdfast.model.job import NewJob, admit
from holdfast.model.log_events import SUM_AFTER, SUM_SECONDS
from holdfast.model.redaction import names_a_secret, without_passwords, without_secrets
from holdfast.telemetry import log_output

log = StructuredLog("holdfast.test")


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, to be changed."""
    root = logging.getLogger()
    before, level, ours = root.handlers[:], root.level, logging.getLogger("holdfast").level
    yield root
    root.handlers[:] = before
    root.setLevel(level)
    logging.getLogger("holdfast").setLevel(ours)


class Written:
    """What a handler of one format writes."""

    def __init__(self, root: logging.Logger, log_format: str) -> None:
        self.stream = io.StringIO()
        handler = log_output.RateLimitedHandler(log_format, self.stream)  # type: ignore[arg-type]
        root.handlers[:] = [handler]
        root.setLevel(logging.INFO)
        logging.getLogger("holdfast").setLevel(logging.DEBUG)
        self.handler = handler

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def records(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def as_json(root: logging.Logger) -> Written:
    return Written(root, "json")


@pytest.fixture(params=["json", "console"])
def written(root: logging.Logger, request: pytest.FixtureRequest) -> Written:
    return Written(root, request.param)


JOB = admit(NewJob(task="t", queue="mail", payload=b'{"a":"CANARY"}'), "j1", 1, 1)


def burst(secret: str) -> None:
    raise ValueError(f"not with {secret}")


def test_a_line_of_json_has_the_event_and_its_fields(as_json: Written):
    log.emit("job.dead", about=JOB, error_reason="timeout", failure_class="transient", losses=0)
    (record,) = as_json.records
    stamp, pid = record.pop("timestamp"), record.pop("pid")
    assert record == {
        "event": "job.dead",
        "level": "warning",
        "logger": "holdfast.test",
        "job": "j1",
        "task": "t",
        "queue": "mail",
        "attempt": 0,
        "tenant": "default",
        "error_reason": "timeout",
        "failure_class": "transient",
        "losses": 0,
    }
    assert str(stamp).endswith("Z")
    assert isinstance(pid, int)


def test_a_line_for_people_has_them_too(root: logging.Logger):
    console = Written(root, "console")
    log.emit("worker.process_ended", worker="own/w", pid=7, code=-9)
    assert console.text.count("\n") == 1
    for part in ("warning", "worker.process_ended", "worker=own/w", "pid=7", "code=-9"):
        assert part in console.text


def test_what_the_application_raised_is_told_by_its_type_and_place(written: Written):
    try:
        burst("CANARY")
    except ValueError as error:
        log.emit("task.verdict_failed", task="t", job="j", foreign=error)
    assert "CANARY" not in written.text
    assert "ValueError" in written.text
    assert "test_logs.py" in written.text
    assert "burst" in written.text


def test_exceptions_that_asyncio_or_we_log_are_told_without_their_text(written: Written):
    for name in ("asyncio", "holdfast.odd", "holdfast.http"):
        try:
            burst("CANARY")
        except ValueError:
            logging.getLogger(name).exception("first line\nfuture: <Task exception=CANARY>")
    assert written.text.count("first line") == 3
    assert written.text.count("ValueError") >= 3
    assert "CANARY" not in written.text


def test_a_tasks_own_logger_says_what_the_task_wants(written: Written):
    try:
        burst("my own words")
    except ValueError:
        logging.getLogger("holdfast.task").exception("looking at %s", "it", extra={"job": "j"})
    assert "looking at it" in written.text
    assert "my own words" in written.text
    logging.getLogger("somebody.else").warning("hello", extra={"odd": object()})
    assert "hello" in written.text


SECRETS = [
    ("postgresql://app:CANARY@db:5432/x", "postgresql://app:***@db:5432/x"),
    ("see redis://:CANARY@h, or", "see redis://:***@h, or"),
    ("a://u:CAN/ARY@x@h/p and more", "a://u:***@h/p and more"),
    ("password=CANARY and", "password=*** and"),
    ('{"api_key": "CANARY", "n": 1}', '{"api_key": ***, "n": 1}'),
    ("DB_PASSWORD='CANARY x'", "DB_PASSWORD=***"),
    ("Authorization: Bearer CANARY", "Authorization: ***"),
    ("access_token=CANARY&next=1", "access_token=***&next=1"),
    ("nothing to hide: http://h:80/a", "nothing to hide: http://h:80/a"),
    ("monkey=banana, keyboard: qwerty", "monkey=banana, keyboard: qwerty"),
]


@pytest.mark.parametrize(("text", "shown"), SECRETS)
def test_secrets_in_texts_are_hidden(text, shown):
    assert without_secrets(text) == shown


@pytest.mark.parametrize(("text", "shown"), SECRETS[:3])
def test_passwords_of_urls_are_hidden_wherever_a_setting_is_quoted(text, shown):
    assert without_passwords(text) == shown
    assert str(InvalidInput("store", f"{text} is odd")) == f"store: {shown} is odd"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("db_password", True),
        ("API_KEY", True),
        ("x-auth-token", True),
        ("Cookie", True),
        ("key", False),
        ("queue", False),
        ("attempt", False),
        ("passenger", False),
        ("monkey", False),
    ],
)
def test_names_of_secrets(name, secret):
    assert names_a_secret(name) is secret


def test_what_looks_like_a_secret_is_hidden_in_any_record(written: Written):
    extra = {
        "password": "CANARY",
        "seen": {"api_key": "CANARY", "deep": [{"token": "CANARY"}]},
        "where": "redis://u:CANARY@h",
    }
    logging.getLogger("holdfast.task").warning("at postgres://u:CANARY@h", extra=extra)
    assert "CANARY" not in written.text
    assert "***" in written.text


def test_an_unhealthy_store_does_not_quote_its_password():
    async def ask() -> bytes:
        routes = health_routes(MemoryEngine(), lambda: "postgresql://u:CANARY@h is gone")
        status, _kind, body = await routes["GET /health/ready"](b"")
        assert status == 503
        return body

    assert json.loads(asyncio.run(ask())) == {
        "status": "unhealthy",
        "reason": "postgresql://u:***@h is gone",
    }


# --- floods ------------------------------------------------------------------------------------


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(log_output.FloodControl.__init__, "__defaults__", (time,))
    return time


def die(reason: str = "timeout") -> None:
    log.emit("job.dead", about=JOB, error_reason=reason, failure_class="transient", losses=0)


def test_a_flood_is_summed_up(time: Time, as_json: Written):
    for _number in range(20_000):
        die()
    die("other_reason")
    assert len(as_json.records) == SUM_AFTER + 1, "another reason is another kind"
    time.now += SUM_SECONDS
    as_json.handler.sum_up()
    last = as_json.records[-1]
    assert last["event"] == "log.summed"
    assert (last["of"], last["count"]) == ("job.dead", 20_000 - SUM_AFTER)
    assert (last["queue"], last["error_reason"], last["job"]) == ("mail", "timeout", "j1")
    die()
    assert as_json.records[-1]["event"] == "job.dead", "the next window begins anew"
    time.now += SUM_SECONDS
    before = len(as_json.records)
    as_json.handler.sum_up()
    assert len(as_json.records) == before, "nothing was left out"


def test_a_sum_is_said_by_the_next_record_and_at_the_end(time: Time, as_json: Written):
    for _number in range(SUM_AFTER + 5):
        die()
    time.now += SUM_SECONDS
    log.emit("daemon.closing")
    assert [record["event"] for record in as_json.records[-2:]] == ["log.summed", "daemon.closing"]
    for _number in range(SUM_AFTER + 5):
        die()
    as_json.handler.close()
    assert (as_json.records[-1]["event"], as_json.records[-1]["count"]) == ("log.summed", 5)


def test_what_is_not_summed_is_always_written(time: Time, as_json: Written):
    for number in range(SUM_AFTER * 3):
        log.emit("worker.process_started", worker="w", pid=number)
    assert len(as_json.records) == SUM_AFTER * 3


def test_a_flood_of_kinds_is_bounded(time: Time, as_json: Written):
    for number in range(3_000):
        die(f"reason {number}")
    assert len(as_json.records) <= 1_000 + SUM_AFTER


# --- configuring -------------------------------------------------------------------------------


def test_levels_and_terms(root: logging.Logger, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(log_output, "_options", None)
    assert log_output.log_options() is None, "the application's own business"
    log_output.configure_logging(log_output.LogOptions("warning", "json"))
    ours = logging.getLogger("holdfast")
    assert ours.level == logging.WARNING
    log_output.set_log_level("debug")
    assert ours.level == logging.DEBUG
    assert log_output.log_options() == log_output.LogOptions("debug", "json"), (
        "processes started now get this"
    )
    assert len(root.handlers) == 1


def test_what_the_driver_says_is_an_event_of_ours(as_json: Written):
    driver = logging.getLogger("psycopg.pool")
    driver.warning("error connecting in %r: postgresql://u:%s@h\nmore", "pool-1", "CANARY")
    driver.info("not this")
    (record,) = as_json.records
    assert record["event"] == "postgres.driver"
    assert record["level"] == "warning"
    assert record["text"] == "error connecting in 'pool-1': postgresql://u:***@h"


def test_a_flood_of_the_driver_is_summed_up(time: Time, as_json: Written):
    for number in range(SUM_AFTER + 5):
        logging.getLogger("psycopg.pool").warning("attempt %s failed", number)
    as_json.handler.sum_up(everything=True)
    assert len(as_json.records) == SUM_AFTER + 1
    assert as_json.records[-1]["event"] == "log.summed"
    assert as_json.records[-1]["count"] == 5
