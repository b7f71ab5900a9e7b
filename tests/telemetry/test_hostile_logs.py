"""What somebody else wrote cannot control a terminal through the log, and is cut."""

import logging

import pytest

from holdfast.engines.structured_log import LogMessage, StructuredLog
from holdfast.telemetry import log_output
from holdfast.telemetry.log_output import MAX_RECORD_CHARACTERS

from .test_logs import Written, root  # noqa: F401 - a fixture

HOSTILE = "a\x1b[2J\x07\x7f\x9b31m\u202eb\u2066\u200b\u2028\ud800\nforged line"
RAW = [one for one in HOSTILE if not one.isprintable()]
log = StructuredLog("holdfast.test")


def emit_everything() -> None:
    log.emit("worker.claim_failed", worker=HOSTILE, error=ValueError(HOSTILE))
    log.emit("postgres.driver", text=HOSTILE)
    logging.getLogger("holdfast.task").warning("%s", HOSTILE, extra={"what": HOSTILE, HOSTILE: 1})
    logging.getLogger("other").error(HOSTILE, extra={"deep": {HOSTILE: [HOSTILE, (HOSTILE,)]}})
    logging.getLogger("other").error("failed", exc_info=ValueError(HOSTILE))


def raw_in(text: str, *, but: str = "") -> list[str]:
    return [one for one in RAW if one in text and one not in but]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_control_and_no_bidi_mark_reaches_the_log(root, log_format):  # noqa: F811
    written = Written(root, log_format)
    emit_everything()
    assert raw_in(written.text, but="\n") == []
    assert "\\u202e" in written.text
    if log_format == "console":
        # Of a traceback each line is shown; nowhere else does a text begin a line.
        outside = written.text.partition("ValueError: ")[0]
        assert not any(line.startswith("forged") for line in outside.splitlines())
    else:
        assert len(written.records) == 5


def test_control_without_the_escapes_they_reach_the_log(root, monkeypatch):  # noqa: F811
    for name in ("visible", "visible_lines"):
        monkeypatch.setattr(log_output, name, lambda text: text)
    with pytest.raises(AssertionError):
        test_no_control_and_no_bidi_mark_reaches_the_log(root, "console")


def test_the_message_of_a_record_is_one_line():
    assert (
        raw_in(str(LogMessage("worker.claim_failed", {"worker": HOSTILE, "error": HOSTILE}))) == []
    )
    with_trace = str(LogMessage("worker.claim_failed", {"worker": HOSTILE, "trace": "a\nb"}))
    assert with_trace.endswith("forged line\na\nb")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_record_is_cut(root, log_format):  # noqa: F811
    written = Written(root, log_format)
    long = "x" * (4 << 20)
    nested: object = long
    for _level in range(100):
        nested = [nested] * 3
    many = {str(number): long for number in range(100)}
    extra = {"what": long, "nested": nested, "many": many, "number": 10**5_000}
    logging.getLogger("holdfast.task").warning(long, extra=extra)
    assert len(written.text) < 3 * MAX_RECORD_CHARACTERS
    assert "(cut)" in written.text


def test_control_without_the_limit_a_record_has_any_length(root, monkeypatch):  # noqa: F811
    monkeypatch.setattr(log_output, "MAX_RECORD_CHARACTERS", 1 << 30)
    written = Written(root, "json")
    logging.getLogger("holdfast.task").warning("x" * (4 << 20))
    assert len(written.text) > 3 * MAX_RECORD_CHARACTERS
